"""Describes every field of a declaration: meaning, unit, limits, default, and example, read from the models' JSON schema.

The meaning is the docstring below the field, the unit comes from `base.Unit`, and the example from `Field(examples=...)`,
or from the list of allowed values. `gpuinfra explain` prints the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gpuinfra.spec.formats import FORMATS
from gpuinfra.spec.model import ClusterSpec

Schema = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class FieldHelp:
    """A field in a section. A section can have several kinds."""

    path: str
    """Path without indices: `pools.capacity.count`."""
    tag: str = ""
    """Field that selects the kind of the section: `kind` or `cloud`. Empty if the section has only one kind."""
    kinds: tuple[str, ...] = ()
    """Kinds of the section that have this field, such as `lustre` and `home`."""
    meaning: str
    type: str
    unit: str
    limits: str
    default: str
    example: str
    """A line of YAML: `count: 2`."""
    fields: str = ""
    """Fields of the nested section."""
    many: bool = False
    """Whether the value is a list."""

    def lines(self) -> Iterator[str]:
        """Yield the lines that `gpuinfra explain` prints."""
        yield self.path + (f" ({self.tag}: {', '.join(self.kinds)})" if self.kinds else "")
        for label in ("meaning", "type", "unit", "limits", "default", "example", "fields"):
            if value := getattr(self, label):
                yield f"  {label:<9}{value}"


@cache
def all_fields() -> dict[str, tuple[FieldHelp, ...]]:
    """Return the fields by path without indices, one entry per kind that has the field. Kinds with identical text are merged."""
    schema = ClusterSpec.model_json_schema()
    fields_by_path: dict[str, list[FieldHelp]] = {}
    for field in _section(schema, schema["$defs"], ""):
        same = fields_by_path.setdefault(field.path, [])
        for index, other in enumerate(same):
            if replace(other, kinds=()) == replace(field, kinds=()):
                same[index] = replace(other, kinds=(*other.kinds, *field.kinds))
                break
        else:
            same.append(field)
    return {path: tuple(fields) for path, fields in fields_by_path.items()}


def _section(section: Schema, models: Schema, prefix: str) -> Iterator[FieldHelp]:
    tag, kind = _kind(section)
    for name, schema in section["properties"].items():
        path, inner = f"{prefix}{name}", list(_models(schema, models))
        yield FieldHelp(
            path=path,
            tag=tag,
            kinds=(kind,) if kind else (),
            meaning=" ".join(schema.get("description", "").split()),
            type=_type(schema, models),
            many=any(branch.get("type") == "array" for branch in (schema, *schema.get("anyOf", ()))),
            unit=_unit(schema) or "none",
            limits=_limits(schema, models) or ("the limits of its fields" if inner else "none"),
            default=_default(name, schema, section),
            example=f"{name}: {flow(example)}" if (example := _example(schema, models)) is not None else "",
            fields="; ".join(f"{_kind(model)[1]}: ".removeprefix(": ") + ", ".join(model["properties"]) for model in inner),
        )  # fmt: skip
        for model in inner:
            yield from _section(model, models, f"{path}.")


def _branches(schema: Schema) -> list[Schema]:
    """Return the alternatives of a schema, except null."""
    return [one for one in schema.get("anyOf") or schema.get("oneOf") or [schema] if one.get("type") != "null"]


def _models(schema: Schema, models: Schema) -> Iterator[Schema]:
    """Yield the sections that a field contains, directly or as list entries."""
    for branch in _branches(schema):
        if "$ref" in branch:
            yield models[branch["$ref"].rsplit("/", 1)[-1]]
        elif "items" in branch:
            yield from _models(branch["items"], models)


def _kind(model: Schema) -> tuple[str, str]:
    """Return the field that selects the kind of a section and its value. Both are empty if the section has only one kind."""
    for name in ("kind", "cloud"):
        if "const" in model["properties"].get(name, {}):
            return name, model["properties"][name]["const"]
    return "", ""


def _type(schema: Schema, models: Schema) -> str:
    return " or ".join(dict.fromkeys(_one_type(one, models) for one in _branches(schema)))


def _one_type(schema: Schema, models: Schema) -> str:
    if "$ref" in schema:
        return "section"
    if schema["type"] == "array":
        return f"list of {_type(schema['items'], models).removesuffix('s')}s"
    names = {"integer": "whole number", "number": "number", "boolean": "true or false", "object": "mapping of strings"}
    return names.get(schema["type"], "string")


def _unit(schema: Schema) -> str:
    if "x-unit" in schema:
        return schema["x-unit"]
    inner = [one for one in (*_branches(schema), schema.get("items")) if one and one is not schema]
    return next(filter(None, map(_unit, inner)), "")


def _limits(schema: Schema, models: Schema) -> str:
    return "; or ".join(dict.fromkeys(filter(None, (_one_limit(one, models) for one in _branches(schema)))))


def _one_limit(schema: Schema, models: Schema) -> str:
    if "$ref" in schema:
        return "the limits of its fields"
    if "const" in schema or "enum" in schema:
        return ", ".join(map(str, schema.get("enum") or [schema["const"]]))
    parts = [_range(schema, "minimum", "maximum", "")]
    if "exclusiveMinimum" in schema:
        most = f", at most {schema['maximum']:,.0f}" if "maximum" in schema else ""
        parts = [f"more than {schema['exclusiveMinimum']:g}{most}"]
    if "pattern" in schema:
        parts.append(FORMATS[schema["pattern"]])
    parts.append(_range(schema, "minLength", "maxLength", " characters"))
    parts.append(_range(schema, "minItems", "maxItems", " entries"))
    parts.append(_range(schema, "minProperties", "maxProperties", " entries"))
    if schema.get("type") == "boolean":
        parts.append("true, false")
    if "items" in schema and not list(_models(schema, models)) and (each := _limits(schema["items"], models)):
        parts.append(f"each one of {each}" if "enum" in schema["items"] else f"each {each}")
    return "; ".join(filter(None, parts))


def _range(schema: Schema, low: str, high: str, what: str) -> str:
    least, most = schema.get(low), schema.get(high)
    if least is not None and most is not None:
        return f"{least:,} to {most:,}{what}"
    return f"at least {least:,}{what}" if least is not None else f"at most {most:,}{what}" if most is not None else ""


def _default(name: str, schema: Schema, section: Schema) -> str:
    if name in section.get("required", ()):
        return "none; the field is required"
    value = schema.get("default")
    if "$ref" in schema:
        return "the defaults of its fields"
    return "none" if value is None or value in ([], {}, "") else flow(value)


def _example(schema: Schema, models: Schema) -> Any:
    """Return the declared example. For sections and for fields with fixed values, build one from the schema."""
    if schema.get("examples"):
        return schema["examples"][0]
    branch = _branches(schema)[0]
    if "$ref" in branch:
        model = models[branch["$ref"].rsplit("/", 1)[-1]]
        names = [n for n, field in model["properties"].items() if "const" in field or n in model.get("required", ())]
        names = names or list(model["properties"])[:1]
        return {name: _example(model["properties"][name], models) for name in names}
    if branch.get("type") == "array":
        return [_example(branch["items"], models)]
    if branch.get("type") == "boolean":
        return not branch.get("default", False)
    return (
        branch["const"]
        if "const" in branch
        else next((v for v in branch.get("enum", ()) if v != schema.get("default")), None)
    )


def flow(value: Any) -> str:
    """Format a value in YAML flow style on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z/][\w./@+-]*(:[\w./@+-]+)*( [\w./@+-]+)*", value)
    return value if plain and value.lower() not in ("true", "false", "null") else json.dumps(value)
