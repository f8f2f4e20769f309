"""Generates clearly synthetic values of the correct type for all declared outputs of a resource or a function.

An output with the same name as an input returns the input. Other outputs are generated from their type and name, and
are stable for each resource. As in the cloud, an optional output is missing if its input is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuinfra_rehearsal.cloud.core import ids, registry, wire
from gpuinfra_rehearsal.cloud.core.interfaces import Subject
from gpuinfra_rehearsal.cloud.core.sdk import Property, Type, fields, members

_MOMENT = "2026-01-01T00:00:00Z"
"""The creation time of every resource in every rehearsal."""

_DEPTH = 3
"""Maximum depth of nested values. Nested types can be recursive. Below this depth, lists and maps are empty."""


def outputs(declared: Mapping[str, Property], taken: Mapping[str, Property], about: Subject) -> dict[str, Any]:
    """Return all declared outputs. `taken` contains the declared inputs."""
    made: dict[str, Any] = {}
    for name, prop in _of(declared, about.inputs):
        given = about.inputs.get(name)
        if given is not None:
            made[name] = _echo(given, prop.type, about, (name,))
        elif name in taken:
            if not prop.type.optional:
                made[name] = _default(name, prop.type, about)
        else:
            made[name] = _value(name, prop.type, about, (name,))
    if "name" in declared and (name := registry.of_token(about.token).output_name(about)) is not None:
        made["name"] = name
    if "tagsAll" in declared:
        made["tagsAll"] = {**(wire.peel(about.inputs.get("tags")) or {})}
    return made


def _of(declared: Mapping[str, Property], inputs: Mapping[str, Any]) -> list[tuple[str, Property]]:
    """Return the declared properties, or the given properties if there is no declaration."""
    given = [(name, declared[name]) for name in inputs if name in declared and not name.startswith("__")]
    return list(declared.items()) or given


def unknown(
    declared: Mapping[str, Property], inputs: Mapping[str, Any], taken: Mapping[str, Property]
) -> dict[str, Any]:
    """Return the outputs of a resource in a preview: the inputs, with all other outputs unknown."""
    made = {}
    for name, prop in _of(declared, inputs):
        if inputs.get(name) is not None:
            made[name] = shaped(inputs[name], prop.type)
        elif name not in taken or not prop.type.optional:
            made[name] = wire.UNKNOWN
    return made


def shaped(given: Any, type: Type) -> Any:
    """Convert an input to the type of the output with that name. A list that is read back as a map is unknown."""
    inner = wire.peel(given)
    if type.kind == "map" and isinstance(inner, list):
        return wire.UNKNOWN
    if type.kind == "object" and isinstance(given, Mapping) and not wire.is_asset(given) and type.folder:
        fields_of_type = fields(type.folder, type.name)
        return {
            key: shaped(value, fields_of_type[key].type) if key in fields_of_type else value
            for key, value in given.items()
        }
    return given


def _echo(given: Any, type: Type, about: Subject, path: tuple[str, ...]) -> Any:
    """Return an input as the cloud reads it back. Nested objects get the fields that the cloud fills in."""
    inner = wire.peel(given)
    if inner is not given:
        return (
            wire.secret(_echo(inner, type, about, path)) if wire.is_secret(given) else _echo(inner, type, about, path)
        )
    if type.kind == "object" and isinstance(given, Mapping) and not wire.is_asset(given) and type.folder:
        fields_of_type = fields(type.folder, type.name)
        made = {
            key: _echo(value, fields_of_type[key].type, about, (*path, key)) if key in fields_of_type else value
            for key, value in given.items()
        }
        for key, prop in fields_of_type.items():
            if made.get(key) is None and not prop.type.optional:
                made[key] = _default(key, prop.type, about, (*path, key))
        return made
    if type.kind in ("int", "float") and isinstance(given, str):
        return float(given) if "." in given else int(given)  # a number in a path is a string in the inputs
    if type.kind == "map" and isinstance(given, list):
        # Azure's identities are a list in the inputs and a map in the outputs.
        item = type.item or Type("any")
        return {str(one): _value(_singular(path[-1]), item, about, (*path, str(one))) for one in map(wire.peel, given)}
    if type.kind == "list" and isinstance(given, list) and type.item:
        return [_echo(item, type.item, about, (*path, str(index))) for index, item in enumerate(given)]
    return given


def _default(name: str, type: Type, about: Subject, path: tuple[str, ...] = ()) -> Any:
    """Return the value for a missing input: empty for lists and maps, generated for other types."""
    if type.kind == "list":
        return []
    if type.kind == "map":
        return {}
    return _value(name, type, about, path or (name,))


def _value(name: str, type: Type, about: Subject, path: tuple[str, ...]) -> Any:
    kind = type.kind
    if kind == "bool":
        return False
    if kind in ("int", "float"):
        return _number(name)
    if kind == "list":
        if len(path) > _DEPTH or type.item is None:
            return []
        return [_value(_singular(name), type.item, about, (*path, "0"))]
    if kind == "map":
        return {}
    if kind == "object":
        fields_of_type = fields(type.folder, type.name) if type.folder else {}
        return {
            key: _value(key, prop.type, about, (*path, key))
            for key, prop in fields_of_type.items()
            if len(path) <= _DEPTH or (not prop.type.optional and len(path) < 3 * _DEPTH)
        }
    if kind == "enum":
        values = members(type.folder, type.name) if type.folder else ()
        return _string(name, about, path) if type.loose else values[0] if values else ""
    if kind == "union":
        return _value(name, type.options[0], about, path)
    if kind in ("any", "asset"):
        return {} if kind == "any" else None
    return _string(name, about, path)


def _number(name: str) -> int:
    lower = name.lower()
    if lower.endswith("port"):
        return 443
    return 1 if "version" in lower or lower.endswith("size") else 0


def _string(name: str, about: Subject, path: tuple[str, ...]) -> str:
    special = registry.of_token(about.token).text(name, about, path)
    return special if special is not None else _any(name, about, path)


def _any(name: str, about: Subject, path: tuple[str, ...]) -> str:
    """Return a string in the format that the suffix of its name suggests. Applies to all clouds."""
    lower = name.lower()
    made = about.digest(path)
    if name == "id":
        return about.id if len(path) == 1 else f"standin-{made[:12]}"
    if name == "name" and len(path) == 1:
        return about.id.rsplit("/", 1)[-1]
    if lower.endswith(("status", "state")):
        return "available"
    if lower.endswith(("time", "timestamp", "date", "createdat", "updatedat", "created", "modified", "expiration")):
        return _MOMENT
    if "cidr" in lower:
        return "10.0.0.0/16"
    if lower.endswith(("ipv6", "ipv6address")):
        return f"fd00::{int(made[:4], 16):x}"
    if lower.endswith(("ip", "ipaddress", "ipv4", "address")):
        return f"10.{int(made[:2], 16)}.{int(made[2:4], 16)}.{int(made[4:6], 16) or 1}"
    if lower.endswith(("url", "uri", "endpoint", "link")):
        return f"https://standin-{made[:8]}.{about.region or 'standin'}.invalid"
    if lower.endswith(("dnsname", "domain", "hostname", "fqdn", "domainname")):
        return f"standin-{made[:8]}.{about.region or 'standin'}.invalid"
    if lower.endswith(("etag", "fingerprint", "hash", "sha256", "md5", "thumbprint", "checksum")):
        return made[:32]
    if lower.endswith("version"):
        return "1"
    if lower.endswith("json") or lower in ("policy", "policydocument"):
        return "{}"
    if lower.endswith("id"):
        return f"{ids.kebab(name[:-2]) or 'standin'}-{made[:17]}"
    return f"standin-{ids.kebab(name)}-{made[:6]}"


def _singular(name: str) -> str:
    if name.endswith("ies"):
        return name[:-3] + "y"
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name
