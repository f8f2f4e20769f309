"""Existing resources, passed in by the program or read from the outputs of another stack.

Each cloud has a typed class for them (`gpuinfra.clouds.aws.Existing`). The fields have the same names as the stack outputs, so that
one stack can use a layer of another stack. IDs that are known before the program runs belong in the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any, Generic, TypeVar

import pulumi

PROGRAM_ONLY = {"program_only": True}
"""Metadata for a reference that is not read from other stacks. It determines which resources are created,
so its value must be known when the program starts."""
NO_OUTPUT = {"output": False}
"""Metadata for a reference that is not a stack output."""


@dataclass(frozen=True, kw_only=True)
class ExistingBase:
    """Base class of each cloud's `ExistingBase`. None means that the field is not passed in."""


E = TypeVar("E", bound=ExistingBase)
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Layer(Generic[R]):
    """A layer that another stack can create."""

    name: str
    """`foundation` or `site`."""
    stack: str | None
    """Stack that created the layer, or None."""
    refs: type[R]
    """Dataclass of the references from the layer to the layers above it."""


def joined(existing: E, layers: Iterable[Layer[Any]], opts: pulumi.ResourceOptions | None = None) -> E:
    """Return `existing` with missing values filled in from the outputs of the stacks that `layers` specify.
    Values that the program passes in take precedence."""
    from_layers: dict[str, Any] = {}
    stacks: dict[str, pulumi.StackReference] = {}
    for layer in layers:
        if layer.stack is None:
            continue
        # One stack can create both layers, and Pulumi rejects a second resource with the same name.
        if layer.stack not in stacks:
            stacks[layer.stack] = pulumi.StackReference(layer.stack, opts=opts)
        reference = stacks[layer.stack]
        for field in _shared(layer.refs, existing):
            if getattr(existing, field.name) is None and not field.metadata.get("program_only"):
                from_layers[field.name] = reference.get_output(field.name).apply(_read(field, layer.stack))
    return replace(existing, **from_layers)


def references(layer: Layer[R], existing: ExistingBase) -> R:
    """Return the references of a layer that this stack does not create. Raises `ValueError` if one is missing."""
    values = {one.name: getattr(existing, one.name) for one in _shared(layer.refs, existing)}
    given = {name: value for name, value in values.items() if value is not None}
    missing = [one.name for one in _shared(layer.refs, existing) if one.name not in given and _required(one)]
    if missing:
        raise ValueError(
            f"this stack does not create the {layer.name}, but requires {', '.join(missing)}; set use.{layer.name} to "
            f"the stack that created it, or pass existing={type(existing).__module__.split('.')[2]}.Existing({missing[0]}=...) to GpuCluster"
        )
    return layer.refs(**given)


class UsedResources:
    """Existing resources, and the fields that were read from them."""

    def __init__(self, existing: ExistingBase) -> None:
        self._existing = existing
        self._names: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self._names.add(name)
        return getattr(self._existing, name)

    def add(self, layer: Layer[Any]) -> None:
        """Record that a layer uses the references of existing resources."""
        self._names |= {one.name for one in _shared(layer.refs, self._existing)}

    def check(self, given: ExistingBase) -> None:
        """Raise `ValueError` for a field that the program passed in and that no layer used."""
        passed = [one.name for one in fields(given) if getattr(given, one.name) is not None]
        if unused := [name for name in passed if name not in self._names]:
            raise ValueError(
                f"existing has {unused[0]}, which has no effect, because this stack creates that resource; remove the field, or "
                "declare only the layers that this stack creates (use.foundation, use.site)"
            )


def outputs(refs: Any) -> dict[str, Any]:
    """Return the outputs that a layer adds to its stack."""
    return {one.name: getattr(refs, one.name) for one in fields(refs) if one.metadata.get("output", True)}


def _shared(refs: type[Any], existing: ExistingBase) -> list[Field[Any]]:
    """Return the references that can be passed in or read from a stack."""
    names = {one.name for one in fields(existing)}
    return [one for one in fields(refs) if one.name in names]


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _read(field: Field[Any], stack: str) -> Callable[[Any], Any]:
    """Return a function that reads one output of another stack. A missing output, for example after a failed `up`, raises an error without a traceback."""

    def value(output: Any) -> Any:
        if output is None and _required(field):
            raise pulumi.RunError(
                f"the stack {stack} has no output {field.name}: its last `pulumi up` failed, or it creates different layers; "
                f"run `pulumi up --stack {stack.rpartition('/')[2]}`, then run `pulumi up` again for this stack"
            )
        return field.default if output is None and field.default is not MISSING else output

    return value
