"""How a cloud finds the resources that a killed run created: the interface of `Cloud.pending`, and the proof that a resource belongs to a stack.

The state contains the inputs of each pending creation (`gpuinfra.engine.pending`). Most IDs consist of inputs, such as a name. The cloud generates
the others, and they are found by the tag of the stack and the tag `Name`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.engine.pending import PendingCreate

STACK_TAG = "gpuinfra:stack"
"""Tag with the token of the stack (`naming.stack_token`). It tells the resources of two stacks with the same cluster name apart."""
NAME_TAG = "Name"
"""Tag with the logical name."""
SEARCH = "gpuinfra up --resume: find what a killed run created"
"""Purpose of the requests of the lookups, for `gpuinfra permissions`."""

_INPUT = re.compile(r"\{(\w+)\}")


class NotFoundByTag(GpuinfraError):
    """A resource that a killed run possibly created cannot be identified."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class StackIdentity:
    """What proves that a resource belongs to a stack."""

    tokens: frozenset[str]
    """Tokens of the stack. Names and the stack tag contain them."""
    ids: frozenset[str]
    """IDs of the resources in the state."""

    def owns(self, create: PendingCreate, id: str) -> bool:
        """Return whether an ID that consists of inputs belongs to the stack: it contains the stack's token, a name that the provider generated for
        this creation, or the ID of a resource in the state."""
        generated = create.inputs.get("__defaults") or ()
        parts = {value for value in create.inputs.values() if isinstance(value, str) and value and value in id}
        return (
            any(token in id for token in self.tokens)
            or any(create.text(key) and create.text(key) in id for key in generated)
            or not parts.isdisjoint(self.ids)
        )


class PendingLookup(Protocol):
    """Finds the results of pending creations in an account."""

    def ids(self, create: PendingCreate) -> Sequence[str] | None:
        """Return the IDs of the resources that the creation possibly made, or None if the creation can be repeated without a second resource.

        An ID that consists of inputs is returned whether or not the resource exists: the engine reads it before the next deployment.
        Raises `EnvironmentMissing` if the cloud does not answer, and `NotFoundByTag` if the type is unknown.
        """
        ...


def filled(shape: str, create: PendingCreate, more: Mapping[str, str] | None = None) -> str | None:
    """Return an ID that consists of inputs, such as `{role}:{name}`, or None if an input is missing. `{zone}` is the last segment of a link."""
    values = dict(more or {})
    for key in _INPUT.findall(shape):
        if key not in values:
            values[key] = create.text(key)
    return shape.format_map(values) if all(values[key] for key in _INPUT.findall(shape)) else None


def not_supported(create: PendingCreate) -> NotFoundByTag:
    """Return the finding for a resource whose type has no lookup."""
    return NotFoundByTag(
        f"a killed run was creating {create.name} ({create.type}), and gpuinfra cannot find resources of this type; "
        f"if it exists, run `pulumi refresh --import-pending-creates '{create.urn}' --import-pending-creates ID`, "
        "otherwise run `pulumi refresh --clear-pending-creates`"
    )


def from_inputs(
    create: PendingCreate,
    stack: StackIdentity,
    shapes: Mapping[str, str],
    *,
    repeatable: Collection[str],
    derived: Collection[str] = (),
    more: Mapping[str, str] | None = None,
) -> Sequence[str] | None:
    """Return the ID according to a table of shapes, or None for a type whose creation can be repeated.

    `derived` are types whose names gpuinfra computes from the identity of the stack, so that they are proof without its token.
    Raises `NotFoundByTag` for an unknown type, and for an ID that does not belong to the stack.
    """
    if create.type in repeatable:
        return None
    shape = shapes.get(create.type)
    id = filled(shape, create, more) if shape else None
    if id is None:
        raise not_supported(create)
    if create.type not in derived and not stack.owns(create, id):
        raise NotFoundByTag(
            f"a killed run was creating {create.name} ({create.type}) as {id}, and nothing in this name proves that it belongs to this stack; "
            f"if this stack created it, run `pulumi refresh --import-pending-creates '{create.urn}' --import-pending-creates '{id}'`, "
            "otherwise run `pulumi refresh --clear-pending-creates`"
        )
    return (id,)
