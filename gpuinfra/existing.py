"""Resources that exist already: passed in by the program, or created by another stack and read from its outputs.

Each cloud has a typed class for them (`gpuinfra.clouds.aws.Existing`). Its field names are the names of a stack's outputs, so that
a layer that one stack creates is used by another one under the same names. Ids that exist before the program runs are in the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any, TypeVar

import pulumi

PROGRAM_ONLY = {"program_only": True}
"""Metadata of a reference that no stack reference fills: it decides which resources are created, so it must be known before the program waits."""
NO_OUTPUT = {"output": False}
"""Metadata of a reference that is not an output of the stack."""


@dataclass(frozen=True, kw_only=True)
class Existing:
    """Base of each cloud's class. None means that the field is not passed."""


E = TypeVar("E", bound=Existing)
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer that another stack can create."""

    name: str
    """`foundation` or `site`."""
    stack: str | None
    """The stack that created it, None if none is named."""
    refs: type[Any]
    """Dataclass of the references that the layer gives to those above it."""


def joined(existing: E, layers: Iterable[Layer], opts: pulumi.ResourceOptions | None = None) -> E:
    """`existing`, completed from the outputs of the stacks that `layers` name. A value that the program passes has priority."""
    found: dict[str, Any] = {}
    for layer in layers:
        if layer.stack is None:
            continue
        reference = pulumi.StackReference(layer.stack, opts=opts)
        for one in _shared(layer.refs, existing):
            if getattr(existing, one.name) is None and not one.metadata.get("program_only"):
                found[one.name] = reference.get_output(one.name).apply(_read(one, layer.stack))
    return replace(existing, **found)


def references(layer: Layer, existing: Existing) -> Any:
    """The references of a layer that this stack does not create. Raises `ValueError` if one is missing."""
    values = {one.name: getattr(existing, one.name) for one in _shared(layer.refs, existing)}
    given = {name: value for name, value in values.items() if value is not None}
    missing = [one.name for one in _shared(layer.refs, existing) if one.name not in given and _required(one)]
    if missing:
        raise ValueError(
            f"this stack does not create the {layer.name} and needs {', '.join(missing)}; name the stack that created it under "
            f"use.{layer.name}, or pass existing={type(existing).__module__.split('.')[2]}.Existing({missing[0]}=...) to GpuCluster"
        )
    return layer.refs(**given)


def outputs(refs: Any) -> dict[str, Any]:
    """The outputs that a layer adds to its stack."""
    return {one.name: getattr(refs, one.name) for one in fields(refs) if one.metadata.get("output", True)}


def _shared(refs: type[Any], existing: Existing) -> list[Field[Any]]:
    """References that can be passed in or read from a stack."""
    names = {one.name for one in fields(existing)}
    return [one for one in fields(refs) if one.name in names]


def _required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _read(one: Field[Any], stack: str) -> Callable[[Any], Any]:
    """Reads one output of another stack. A stack whose `up` failed may lack it, which is an error without a traceback."""

    def value(known: Any) -> Any:
        if known is None and _required(one):
            raise pulumi.RunError(
                f"the stack {stack} has no output {one.name}: its last `pulumi up` failed, or it creates something else; "
                f"run `pulumi up --stack {stack.rpartition('/')[2]}` first, then this one again"
            )
        return one.default if known is None and one.default is not MISSING else known

    return value
