"""The JSON schema of a declaration, made from the models, for editors and other programs.

`schema.json` beside this file is what stack files point at; a test compares the two. It describes a stack file:
the declaration lies under `config`, `gpuinfra:cluster`. The declaration alone is `#/$defs/ClusterSpec`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuinfra.clouds import CLOUDS, profile_of
from gpuinfra.spec.model import ClusterSpec

FILE = Path(__file__).with_name("schema.json")
ID = "https://gpuinfra.dev/schema/stack-1.json"


def schema() -> dict[str, Any]:
    """The schema of a stack file."""
    spec = ClusterSpec.model_json_schema(ref_template="#/$defs/{model}")
    definitions: dict[str, Any] = spec.pop("$defs")
    spec["allOf"] = [_only(cloud) for cloud in CLOUDS]
    definitions["ClusterSpec"] = spec
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "Stack file of gpuinfra",
        "description": "A Pulumi stack file whose configuration declares one GPU cluster.",
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
    """The schema as it is shipped."""
    return json.dumps(schema(), indent=2, sort_keys=True) + "\n"


def _only(cloud: str) -> dict[str, Any]:
    """On this cloud, only its own kinds of capacity, machines and regions are writable."""
    profile = profile_of(cloud)
    kinds = sorted(kind.value for kind in profile.capacity_kinds)
    entry = {"properties": {"kind": {"enum": kinds}}}
    return {
        "if": {
            "properties": {"where": {"properties": {"cloud": {"const": cloud}}, "required": ["cloud"]}},
            "required": ["where"],
        },
        "then": {
            "properties": {
                "where": {"properties": {"region": {"enum": sorted(profile.regions)}}},
                "pools": {
                    "items": {
                        "properties": {
                            "machine": {"enum": sorted(profile.machines)},
                            "capacity": {"anyOf": [{"type": "array", "items": entry}, {"type": "object", **entry}]},
                        }
                    }
                },
            }
        },
    }


def main() -> None:
    """Write the shipped file: `python -m gpuinfra.spec.schema`."""
    FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
