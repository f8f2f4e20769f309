"""What a single resource type or function does beyond keeping its inputs.

A behavior is a class that names its types and overrides what differs. A function is a plain function under `@answers`.
A type without a behavior is generic: it can be created, read, changed and deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpuinfra.rehearsal.cloud.core import wire
from gpuinfra.rehearsal.cloud.core.check import Failure
from gpuinfra.rehearsal.cloud.core.errors import CloudError
from gpuinfra.rehearsal.cloud.core.interfaces import Call, Cloud
from gpuinfra.rehearsal.cloud.core.store import Resource


class Behavior:
    """The generic behavior. Overrides run inside the transaction of the call, except where noted."""

    types: tuple[str, ...] = ()
    unique: tuple[tuple[str, str], ...] = ()
    """(input, scope) of unique names; the scope is global, account, region or the name of an input."""
    taken: CloudError | None = None
    """The error for a taken name or id: `{name}` and `{id}` are the taken ones, `{inputs[...]}` an input of the new resource. None for `StandIn.already_exists`."""
    shapes: dict[str, tuple[str, str]] = {}
    """Input -> regular expression that its text has to match, and the reason where it does not; {value} is filled in."""
    volatile: tuple[str, ...] = ()
    """Outputs that an update changes, so that a preview shows them as unknown."""
    ignored: tuple[str, ...] = ()
    """Inputs whose changes are ignored, because the cloud cannot read them back."""
    joins: bool = False
    """A second creation succeeds: an API that is enabled, a member that has the role."""
    stays: bool = False
    """With `joins`: the resource is deleted when its last creator deletes it. False: the first deletion removes it for all."""

    def check(self, cloud: Cloud, call: Call) -> Iterable[Failure]:
        """Validation beyond the SDK's types. May fill in defaults. Inputs may contain unknowns."""
        for key, (shape, reason) in self.shapes.items():
            value = call.plain.get(key)
            if isinstance(value, str) and not wire.is_unknown(value) and not re.search(shape, value):
                yield Failure(key, reason.format(value=value))

    def before_create(self, cloud: Cloud, call: Call) -> None: ...

    def identify(self, cloud: Cloud, call: Call) -> str | None:
        """The id; None where the generic rule gives it."""
        return None

    def created(self, cloud: Cloud, call: Call) -> None:
        """Correct the synthesized outputs. The resource is not yet in the store."""

    def kept(self, cloud: Cloud, call: Call) -> None:
        """After a creation or an update; the resource is in the store."""

    def after(self, cloud: Cloud, call: Call) -> None:
        """After the transaction of a creation or an update; may raise CreatedButFailed."""

    def before_update(self, cloud: Cloud, call: Call) -> None: ...

    def updated(self, cloud: Cloud, call: Call) -> None: ...

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        """Raises CloudError where the cloud refuses the deletion."""

    def deleted(self, cloud: Cloud, resource: Resource) -> None: ...

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        """The resource that a refresh reads; None where it no longer exists."""
        return resource

    def by_import_id(self, cloud: Cloud, token: str, id: str, region: str) -> Resource | None:
        """The resource of an import id that differs from its id."""
        return None

    def names(self, cloud: Cloud, call: Call) -> Iterator[tuple[str, str]]:
        """(scope, name) of every unique name of the resource."""
        plain = call.plain
        for key, scope in self.unique:
            if isinstance(name := plain.get(key), str):
                where = {"global": "", "account": "", "region": call.region}.get(scope, str(plain.get(scope, "")))
                yield f"{call.token} {key} {where}", name


Answer = Callable[[Cloud, Mapping[str, Any], str], dict[str, Any]]
"""A function's answer, from the cloud, the plain arguments and the region: values that replace synthesized ones."""

BEHAVIORS: dict[str, Behavior] = {}
ANSWERS: dict[str, Answer] = {}


def behaves(cls: type[Behavior]) -> type[Behavior]:
    """Registers a behavior for its types."""
    instance = cls()
    BEHAVIORS.update(dict.fromkeys(cls.types, instance))
    return cls


def answers(*tokens: str) -> Callable[[Answer], Answer]:
    """Registers the answer of a function."""

    def register(function: Answer) -> Answer:
        ANSWERS.update(dict.fromkeys(tokens, function))
        return function

    return register
