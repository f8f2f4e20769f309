"""The schema of gpuinfra's provider package, from which SDKs for other Pulumi languages are generated."""

from __future__ import annotations

from gpuinfra.handover.causes import WaitEnd
from gpuinfra.handover.connect import served_resources
from gpuinfra.handover.wire import TYPE

_STRING: dict[str, object] = {"type": "string"}
_INTEGER: dict[str, object] = {"type": "integer"}
_ANY: dict[str, object] = {"$ref": "pulumi.json#/Any"}


def package_schema(version: str) -> dict[str, object]:
    """Return the schema as a JSON document."""
    inputs: dict[str, object] = {
        "cloud": _STRING,
        "cluster": _STRING,
        "region": _STRING,
        "evidenceBucket": _STRING,
        "evidencePrefix": _STRING,
        "pools": {"type": "array", "items": _ANY, "description": "Pools with their groups, expectations and bundles."},
        "wait": {**_STRING, "description": "all, floor or none."},
        "floor": {**_INTEGER, "description": "With wait=floor: the number of verified nodes to wait for."},
        "deadlineS": {**_INTEGER, "description": "Seconds until the update fails."},
        "profile": _STRING,
        "roleArn": _STRING,
        "assumeRoles": {**_STRING, "description": "The setting aws:assumeRoles of the provider, as JSON."},
        "triggers": {"type": "object", "additionalProperties": _STRING},
    }
    outputs: dict[str, object] = {
        "ready": {"type": "boolean", "description": "True when the number of verified nodes meets wait."},
        "nodesVerified": _INTEGER,
        "gpusVerified": _INTEGER,
        "nodes": {"type": "array", "items": _ANY},
        "lastNumbers": {
            "type": "object",
            "additionalProperties": _INTEGER,
            "description": "Highest number in each pool's labels, so that numbers are not reused.",
        },
        "summary": _STRING,
        "ended": {"type": "string", "description": f"Why the wait ended: {', '.join(WaitEnd)}."},
        "shortages": {
            "type": "array",
            "items": _ANY,
            "description": "Groups that lack nodes: pool, group, kind, zone, missing, cause, message, hint.",
        },
        "trust": {
            "type": "array",
            "items": _STRING,
            "description": "Environment variables that change how identities are verified, in the form NAME=VALUE.",
        },
    }
    return {
        "name": "gpuinfra",
        "version": version,
        "description": "GPU clusters with verified nodes",
        "resources": {
            TYPE: {
                "description": "All nodes of a cluster, verified.",
                "inputProperties": inputs,
                "requiredInputs": ["cloud", "cluster", "region", "evidenceBucket", "evidencePrefix", "pools"],
                "properties": {**inputs, **outputs},
                "required": [*outputs],
            },
            **{name: served.SCHEMA for name, served in served_resources().items()},
        },
    }
