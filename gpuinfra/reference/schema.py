"""Generates the JSON schema of a stack file from the models, for editors and other programs.

Stack files reference the generated `gpuinfra/spec/schema.json`, which a test compares with the models. The schema describes a
stack file with the declaration in `config` under `gpuinfra:cluster`. The schema of the declaration is `#/$defs/ClusterSpec`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuinfra.base.registry import CLOUDS
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec.model import ClusterSpec

FILE = Path(__file__).parents[1] / "spec" / "schema.json"
ID = "https://gpuinfra.dev/schema/stack-1.json"


def schema() -> dict[str, Any]:
    """Return the schema of a stack file."""
    spec = ClusterSpec.model_json_schema(ref_template="#/$defs/{model}")
    definitions: dict[str, Any] = spec.pop("$defs")
    spec["allOf"] = [condition for cloud in CLOUDS for condition in _only(cloud)]
    definitions["ClusterSpec"] = spec
    for name in ("Pool", "Candidate"):
        _one_or_many(definitions[name]["properties"]["capacity"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "gpuinfra stack file",
        "description": "A Pulumi stack file whose configuration declares a GPU cluster.",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": {"gpuinfra:cluster": {"$ref": "#/$defs/ClusterSpec"}},
                "required": ["gpuinfra:cluster"],
            }
        },
        "required": ["config"],
        "$defs": dict(sorted(definitions.items())),
    }


def text() -> str:
    """Return the schema as JSON text."""
    return json.dumps(schema(), indent=2, sort_keys=True) + "\n"


def _one_or_many(field: dict[str, Any]) -> None:
    """Allow a single capacity entry instead of a list."""
    branches = field.pop("anyOf", None) or [
        {key: field.pop(key) for key in ("type", "items", "minItems", "maxItems") if key in field}
    ]
    items = next(branch["items"] for branch in branches if "items" in branch)
    field["anyOf"] = [*branches, items]


def _only(cloud: str) -> list[dict[str, Any]]:
    """Return the conditions that allow only the kinds of capacity and the machine types of a cloud, and the names of its regions."""
    profile = profile_of(cloud)
    kinds = sorted(kind.value for kind in profile.capacity_kinds)
    entry = {"properties": {"kind": {"enum": kinds}}}
    here = {
        "properties": {"where": {"properties": {"cloud": {"const": cloud}}, "required": ["cloud"]}},
        "required": ["where"],
    }
    capacity = {"capacity": {"anyOf": [{"type": "array", "items": entry}, {"type": "object", **entry}]}}
    form = f"^(?:{'|'.join(filter(None, (*sorted(profile.regions), profile.region_form)))})$"
    place = {"where": {"properties": {"region": {"pattern": form}}}}
    machine = {"machine": {"enum": sorted(profile.machines)}}
    return [
        {"if": here, "then": {"properties": {**place, "pools": {"items": {"properties": capacity}}}}},
        # A declaration that defines machine types can use the names of these types.
        {
            "if": {"allOf": [here, {"not": {"required": ["machines"]}}]},
            "then": {"properties": {"pools": {"items": {"properties": machine}}}},
        },
    ]


def main() -> None:
    """Write `schema.json`. Run as `python -m gpuinfra.reference.schema`."""
    FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
