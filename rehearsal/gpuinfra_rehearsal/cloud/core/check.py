"""Validates inputs against the SDK: names, required inputs, primitive types and enums.

The messages use the format of the real providers.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.sdk import Property, Type, fields, members


@dataclass(frozen=True, slots=True)
class RejectedInput:
    """One input that a provider rejects."""

    path: str
    reason: str


def check(inputs: Mapping[str, Any], declared: Mapping[str, Property], path: str = "") -> Iterator[RejectedInput]:
    """Return all failures for a set of properties. Unknown values pass, because they are known only after the
    deployment."""
    for name, value in inputs.items():
        if name.startswith("__"):
            continue
        if name not in declared:
            yield RejectedInput(_join(path, name), f"is not an expected property{_nearest(name, declared)}")
        elif value is not None:
            yield from _value(value, declared[name].type, _join(path, name))
    for name, prop in declared.items():
        if prop.required and inputs.get(name) is None:
            yield RejectedInput(_join(path, name), "is a required property that is missing")


def _value(value: Any, type: Type, path: str) -> Iterator[RejectedInput]:
    value = wire.peel(value)
    if value is None or wire.is_unknown(value) or type.kind == "any":
        return
    if type.kind == "union":
        if all(any(True for _ in _value(value, option, path)) for option in type.options):
            allowed = " or ".join(_name(option) for option in type.options)
            yield RejectedInput(path, f"should be {allowed}, got {_shown(value)}")
    elif type.kind == "asset":
        if not wire.is_asset(value):
            yield RejectedInput(path, f"should be an asset or an archive, got {_shown(value)}")
    elif type.kind == "enum":
        yield from _enum(value, type, path)
    elif type.kind == "object":
        yield from _object(value, type, path)
    elif type.kind == "list":
        if not isinstance(value, list):
            yield RejectedInput(path, f"should be a list, got {_shown(value)}")
        else:
            for index, item in enumerate(value):
                yield from _value(item, type.item or Type("any"), f"{path}[{index}]")
    elif type.kind == "map":
        if not isinstance(value, Mapping) or wire.is_asset(value):
            yield RejectedInput(path, f"should be a map, got {_shown(value)}")
        else:
            for key, item in value.items():
                yield from _value(item, type.item or Type("any"), f'{path}["{key}"]')
    elif not _scalar(value, type.kind):
        yield RejectedInput(path, f"should be {_name(type)}, got {_shown(value)}")


def _object(value: Any, type: Type, path: str) -> Iterator[RejectedInput]:
    if not isinstance(value, Mapping) or wire.is_asset(value):
        yield RejectedInput(path, f"should be an object, got {_shown(value)}")
    elif type.folder is not None and (declared := fields(type.folder, type.name)):
        yield from check(value, declared, path)


def _enum(value: Any, type: Type, path: str) -> Iterator[RejectedInput]:
    allowed = members(type.folder, type.name) if type.folder else ()
    if type.loose:
        if isinstance(value, (Mapping, list)):
            yield RejectedInput(path, f"should be a string, got {_shown(value)}")
    elif value not in allowed:
        names = [str(item) for item in allowed]
        yield RejectedInput(
            path, f"expected one of {', '.join(names)}; got {_shown(value)}{_nearest(str(value), names)}"
        )


def _scalar(value: Any, kind: str) -> bool:
    """Return whether a provider accepts `value` for that type. Providers read `"8"` as 8 and `true` as "true"."""
    if kind == "bool":
        return isinstance(value, bool) or value in ("true", "false")
    if kind in ("int", "float"):
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                return False
        return (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and (kind == "float" or float(value).is_integer())
        )
    return isinstance(value, (str, int, float, bool))


def _name(type: Type) -> str:
    names = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "a boolean", "list": "a list",
             "map": "a map", "object": "an object", "asset": "an asset", "enum": "one of its values"}  # fmt: skip
    return names.get(type.kind, type.kind)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return repr(value)


def _nearest(word: str, words: Any) -> str:
    near = difflib.get_close_matches(word, list(words), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
