"""What single resource types and functions do beyond keeping what they were told.

A behaviour is a class that names its types and overrides what differs. A function is a plain function under `@answers`.
Everything without one behaves generically: any type of the SDKs can be created, read, changed and deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.core import ids
from gpuinfra.rehearsal.cloud.core.errors import AzureError, CloudError, GoogleError

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.check import Failure
    from gpuinfra.rehearsal.cloud.core.cloud import Call, Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource, Taken

_MODULES = (
    *(f"aws.behaviours.{name}" for name in ("network", "groups", "storage", "identity", "functions", "audit")),
    *(f"azure.behaviours.{name}" for name in ("network", "compute", "storage", "identity")),
    *(f"gcp.behaviours.{name}" for name in ("network", "compute", "storage", "identity", "functions")),
)


class Behaviour:
    """The generic one. Overrides run inside the transaction of the call, unless they say otherwise."""

    types: tuple[str, ...] = ()
    unique: tuple[tuple[str, str], ...] = ()
    """(input, scope): names that nobody else may have; the scope is global, account, region or the name of an input."""
    taken: tuple[str, str] = ("", "")
    """Code and message when such a name is taken; {name} is filled in."""
    volatile: tuple[str, ...] = ()
    """Outputs that an update changes, so a preview of one shows them as unknown."""
    ignored: tuple[str, ...] = ()
    """Inputs whose change is none: the cloud cannot read them back."""
    joins: bool = False
    """Making it where it is there already is no error: an API that is on, a member that has the role."""
    stays: bool = False
    """With `joins`: it goes when the last one who made it lets go of it. False: whoever removes it takes it from all of them."""

    def check(self, cloud: Cloud, call: Call) -> Iterable[Failure]:
        """What the SDK's types cannot say. May fill in defaults. Inputs may hold unknowns."""
        return ()

    def before_create(self, cloud: Cloud, call: Call) -> None: ...

    def identify(self, cloud: Cloud, call: Call) -> str | None:
        """The id, where the generic rule does not give it."""
        return None

    def created(self, cloud: Cloud, call: Call) -> None:
        """Outputs are synthesised and may be corrected; the resource is not yet in the store."""

    def kept(self, cloud: Cloud, call: Call) -> None:
        """After a creation or an update, with the resource in the store."""

    def after(self, cloud: Cloud, call: Call) -> None:
        """After a creation or an update is safe in the store; may raise MadeButFailed."""

    def before_update(self, cloud: Cloud, call: Call) -> None: ...

    def updated(self, cloud: Cloud, call: Call) -> None: ...

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        """Raises CloudError when the cloud would not let go."""

    def deleted(self, cloud: Cloud, resource: Resource) -> None: ...

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        """What a refresh sees; None when it is gone."""
        return resource

    def by_import_id(self, cloud: Cloud, token: str, id: str, region: str) -> Resource | None:
        """The resource that people mean by an import id that is not its id."""
        return None

    def names(self, cloud: Cloud, call: Call) -> Iterator[tuple[str, str]]:
        """(scope, name) of every name that the resource takes."""
        plain = call.plain
        for key, scope in self.unique:
            if isinstance(name := plain.get(key), str):
                where = {"global": "", "account": "", "region": call.region}.get(scope, str(plain.get(scope, "")))
                yield f"{call.token} {key} {where}", name

    def conflict(self, cloud: Cloud, call: Call, taken: Taken) -> CloudError:
        """The error when a name or an id is taken."""
        code, message = self.taken
        if code:
            return CloudError(code, message.format(name=str(taken.args[0]).split(" is taken")[0]), status=409)
        package = call.token.split(":", 1)[0]
        if package == "azure-native":
            return AzureError("Conflict", f"cannot create already existing resource '{taken.holder_id}'", status=409)
        if package == "gcp":
            return GoogleError("alreadyExists", f"The resource '{taken.holder_id}' already exists", status=409)
        kind = ids.class_name(call.token)
        return CloudError("ResourceAlreadyExistsException", f"{kind} already exists: {taken.holder_id}", status=409)


Answer = Callable[["Cloud", Mapping[str, Any], str], dict[str, Any]]
"""A function's answer, given the cloud, the plain arguments and the region: values that replace what is synthesised."""

_BEHAVIOURS: dict[str, Behaviour] = {}
_ANSWERS: dict[str, Answer] = {}
_GENERIC = Behaviour()


class Member(Behaviour):
    """One member of a role on Google Cloud: giving it twice is giving it once, and taking it is taking it from everybody."""

    joins = True


_MEMBER = Member()


def behaves(cls: type[Behaviour]) -> type[Behaviour]:
    """Registers a behaviour for its types."""
    instance = cls()
    _BEHAVIOURS.update(dict.fromkeys(cls.types, instance))
    return cls


def answers(*tokens: str) -> Callable[[Answer], Answer]:
    """Registers what a function says."""

    def register(function: Answer) -> Answer:
        _ANSWERS.update(dict.fromkeys(tokens, function))
        return function

    return register


def of(token: str) -> Behaviour:
    """The behaviour of a type."""
    _load()
    member = token.startswith("gcp:") and token.endswith(("IAMMember", "IamMember"))
    return _BEHAVIOURS.get(token, _MEMBER if member else _GENERIC)


def answer(token: str) -> Answer | None:
    """What a function says, where it says something of its own."""
    _load()
    return _ANSWERS.get(token)


def ordered_error(token: str) -> CloudError:
    """A plausible refusal for `--fault cloud:error:...`."""
    package, kind = token.split(":", 1)[0], ids.class_name(token)
    if package == "aws":
        service = ids.module(token)
        return CloudError(
            "ServiceUnavailable", "The request has failed due to a temporary failure of the server. (ordered by --fault)",
            status=503, service=service.upper(), operation=f"Create{kind}",
        )  # fmt: skip
    if package == "gcp":
        return GoogleError("backendError", "The service is currently unavailable. (ordered by --fault)", status=503)
    return AzureError(
        "ServiceUnavailable", "The server is temporarily unable to handle the request. (ordered by --fault)", status=503
    )


@lru_cache(maxsize=1)
def _load() -> None:
    for name in _MODULES:
        import_module(f"gpuinfra.rehearsal.cloud.{name}")
