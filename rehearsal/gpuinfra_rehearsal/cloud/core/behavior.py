"""Behavior of individual resource types and functions.

A behavior is a class that lists its types and overrides methods of the generic behavior. A plain function with the
decorator `@answers` implements an SDK function. A type without a behavior is generic: it can be created, read,
updated and deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
from gpuinfra_rehearsal.cloud.core.store import Resource


class Behavior:
    """The generic behavior. Overrides run inside the transaction of the call, except where noted."""

    types: tuple[str, ...] = ()
    unique: tuple[tuple[str, str], ...] = ()
    """(input, scope) pairs of unique names. The scope is global, account, region or the name of an input."""
    taken: ApiRejected | None = None
    """The error for a name or ID that is already in use. `{name}` and `{id}` are the existing values, `{inputs[...]}`
    is an input of the new resource. None for `StandIn.already_exists`."""
    shapes: dict[str, tuple[str, str]] = {}
    """Maps an input to the regular expression that it must match, and to the error message. {value} is filled in."""
    volatile: tuple[str, ...] = ()
    """Outputs that an update changes. A preview shows them as unknown."""
    ignored: tuple[str, ...] = ()
    """Inputs whose changes are ignored, because the cloud cannot read them back."""
    importer_sets: Mapping[str, Any] = {}
    """Inputs that the provider's importer sets itself, because the cloud does not return them."""
    not_returned: tuple[str, ...] = ()
    """Inputs that the cloud does not return. An import leaves them empty."""
    joins: bool = False
    """Whether a second creation succeeds, as for an enabled API or a role that a member already has."""
    stays: bool = False
    """Applies with `joins`. If True, the resource is deleted when its last creator deletes it. If False, the first
    deletion removes it for all creators."""

    def check(self, cloud: Cloud, call: Call) -> Iterable[RejectedInput]:
        """Validate what the SDK's types do not cover. Can fill in defaults. Inputs can contain unknowns."""
        for key, (shape, reason) in self.shapes.items():
            value = call.plain.get(key)
            if isinstance(value, str) and not wire.is_unknown(value) and not re.search(shape, value):
                yield RejectedInput(key, reason.format(value=value))

    def before_create(self, cloud: Cloud, call: Call) -> None: ...

    def identify(self, cloud: Cloud, call: Call) -> str | None:
        """Return the ID, or None to use the generic rule."""
        return None

    def created(self, cloud: Cloud, call: Call) -> None:
        """Correct the synthesized outputs. The resource is not yet in the store."""

    def kept(self, cloud: Cloud, call: Call) -> None:
        """Called after a creation or an update. The resource is in the store."""

    def after(self, cloud: Cloud, call: Call) -> None:
        """Called after the transaction of a creation or an update. Can raise CreatedButFailed."""

    def before_update(self, cloud: Cloud, call: Call) -> None: ...

    def updated(self, cloud: Cloud, call: Call) -> None: ...

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        """Raise CloudError if the cloud refuses the deletion."""

    def deleted(self, cloud: Cloud, resource: Resource) -> None: ...

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        """Return the resource that a refresh reads, or None if it no longer exists."""
        return resource

    def imported(self, cloud: Cloud, resource: Resource) -> Resource:
        """Return the resource that an import reads. The importer receives only the ID, so it does not have the inputs
        of the program that created the resource."""

        def read(outputs: Mapping[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in outputs.items() if key not in self.not_returned} | {
                **self.importer_sets
            }

        return replace(resource, inputs=read(resource.inputs), outputs=read(resource.outputs))

    def by_import_id(self, cloud: Cloud, token: str, id: str, region: str) -> Resource | None:
        """Return the resource with this import ID, for types whose import ID differs from the ID."""
        return None

    def names(self, cloud: Cloud, call: Call) -> Iterator[tuple[str, str]]:
        """Return (scope, name) for each unique name of the resource."""
        plain = call.plain
        for key, scope in self.unique:
            if isinstance(name := plain.get(key), str):
                where = {"global": "", "account": "", "region": call.region}.get(scope, str(plain.get(scope, "")))
                yield f"{call.token} {key} {where}", name


Answer = Callable[[Cloud, Mapping[str, Any], str], dict[str, Any]]
"""Computes a function's result from the cloud, the plain arguments and the region. The returned values replace
synthesized values."""

BEHAVIORS: dict[str, Behavior] = {}
ANSWERS: dict[str, Answer] = {}


def behaves(cls: type[Behavior]) -> type[Behavior]:
    """Register a behavior for its types."""
    instance = cls()
    BEHAVIORS.update(dict.fromkeys(cls.types, instance))
    return cls


def answers(*tokens: str) -> Callable[[Answer], Answer]:
    """Register the implementation of a function."""

    def register(function: Answer) -> Answer:
        ANSWERS.update(dict.fromkeys(tokens, function))
        return function

    return register
