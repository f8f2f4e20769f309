"""What a single resource type or function does beyond keeping its inputs.

A behaviour is a class that names its types and overrides what differs. A function is a plain function under `@answers`.
A type without a behaviour is generic: it can be created, read, changed and deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpuinfra.rehearsal.cloud.core.check import Failure
from gpuinfra.rehearsal.cloud.core.errors import CloudError
from gpuinfra.rehearsal.cloud.core.interfaces import Call, Cloud
from gpuinfra.rehearsal.cloud.core.store import Resource, Taken


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
        """After a creation or an update is safe in the store; may raise CreatedButFailed."""

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

    def conflict(self, cloud: Cloud, call: Call, taken: Taken) -> CloudError | None:
        """The error for a taken name or id; None for the cloud's usual one (`StandIn.already_exists`)."""
        code, message = self.taken
        if code:
            return CloudError(code, message.format(name=taken.name), status=409)
        return None


Answer = Callable[[Cloud, Mapping[str, Any], str], dict[str, Any]]
"""A function's answer, given the cloud, the plain arguments and the region: values that replace what is synthesised."""

BEHAVIOURS: dict[str, Behaviour] = {}
ANSWERS: dict[str, Answer] = {}


def behaves(cls: type[Behaviour]) -> type[Behaviour]:
    """Registers a behaviour for its types."""
    instance = cls()
    BEHAVIOURS.update(dict.fromkeys(cls.types, instance))
    return cls


def answers(*tokens: str) -> Callable[[Answer], Answer]:
    """Registers what a function says."""

    def register(function: Answer) -> Answer:
        ANSWERS.update(dict.fromkeys(tokens, function))
        return function

    return register
