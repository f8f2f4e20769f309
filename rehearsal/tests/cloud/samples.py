"""Inputs for any resource type, made from what its SDK declares."""

from __future__ import annotations

from typing import Any

from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.sdk import Property, Type, fields, members


def required(declared: dict[str, Property]) -> dict[str, Any]:
    """A value for each required input, of the declared type."""
    return {name: value(prop.type, name) for name, prop in declared.items() if prop.required}


def value(type: Type, name: str, depth: int = 0) -> Any:
    """A value of a type; objects hold what they require and nothing else."""
    if type.kind == "object" and type.folder:
        known = fields(type.folder, type.name)
        return {key: value(prop.type, key, depth + 1) for key, prop in known.items() if prop.required and depth < 12}
    if type.kind == "enum" and type.folder:
        return members(type.folder, type.name)[0]
    if type.kind == "list" and type.item:
        return [value(type.item, name, depth + 1)]
    if type.kind == "map" and type.item:
        return {"key": value(type.item, name, depth + 1)}
    if type.kind == "union":
        return value(type.options[0], name, depth)
    if type.kind == "asset":
        return {wire.SIGNATURE: wire.ASSET, "text": "content"}
    if name == "priority" and type.kind == "str":
        return "7"  # a number in a path
    return {"bool": True, "int": 7, "float": 1.5, "any": {}}.get(type.kind, f"some-{name.lower()}")
