"""A small JSON schema validator for the keywords of the report's schema, independent of the code that writes the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "null": (type(None),),
}  # fmt: skip
KNOWN = {
    "$schema", "title", "description", "type", "required", "additionalProperties", "properties", "items", "const", "enum",
    "format",
}  # fmt: skip


def violations(value: Any, schema: Mapping[str, Any], path: str = "$") -> list[str]:
    """Where a value violates the schema."""
    assert set(schema) <= KNOWN, set(schema) - KNOWN
    found: list[str] = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{path} is {value!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path} is {value!r}, not one of {schema['enum']}")
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        allowed = tuple(t for name in names for t in TYPES[name])
        if not isinstance(value, allowed) or (isinstance(value, bool) and "boolean" not in names):
            return [*found, f"{path} is a {type(value).__name__}, not {names}"]
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found += [f"{path} lacks {name}" for name in schema.get("required", []) if name not in value]
        extra = schema.get("additionalProperties", True)
        for name, item in value.items():
            if name in properties:
                found += violations(item, properties[name], f"{path}.{name}")
            elif extra is False:
                found.append(f"{path} has an undeclared {name}")
            elif isinstance(extra, dict):
                found += violations(item, extra, f"{path}.{name}")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            found += violations(item, schema["items"], f"{path}[{index}]")
    return found
