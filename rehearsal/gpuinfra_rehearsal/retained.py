"""The resources that `destroy` retains for a rehearsed stack. They are read from the state and recorded in the rehearsal's
folder.

The next `up` adopts the recorded resources. Recovery after an interrupted run does not delete them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.adopt import Key, Retained
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra_rehearsal.events import name_of
from gpuinfra_rehearsal.folder import Folder, write_json


def retained_in(deployment: Mapping[str, Any]) -> list[Retained]:
    """Return the resources in a state that `destroy` retains."""
    resources = deployment.get("resources") or []
    by_urn = {str(one.get("urn")): one for one in resources}
    return [
        Retained(
            type=str(one["type"]),
            name=name_of(str(one["urn"])),
            parents=_parents(one, by_urn),
            id=str(one["id"]),
        )
        for one in resources
        if one.get("retainOnDelete") and one.get("custom") and one.get("id") and not one.get("external")
    ]


def _parents(resource: Mapping[str, Any], by_urn: Mapping[str, Mapping[str, Any]]) -> list[Key]:
    chain: list[Key] = []
    urn = str(resource.get("parent") or "")
    while urn in by_urn and by_urn[urn]["type"] != "pulumi:pulumi:Stack":
        chain.insert(0, (str(by_urn[urn]["type"]), name_of(urn)))
        urn = str(by_urn[urn].get("parent") or "")
    return chain


def record(folder: Folder, retained: Sequence[Retained]) -> None:
    """Record the resources that `destroy` retains. An empty list removes the record."""
    if retained:
        document = {"schema": "gpuinfra.retained/1", "retained": [asdict(one) for one in retained]}
        write_json(folder.retained, document)
    else:
        folder.retained.unlink(missing_ok=True)


def recorded(folder: Folder) -> list[Retained]:
    """Return the resources that an earlier destroy retained."""
    if not folder.retained.exists():
        return []
    rows = json.loads(folder.retained.read_text(encoding="utf-8"))["retained"]
    return [Retained(**{**row, "parents": [(str(type_), str(name)) for type_, name in row["parents"]]}) for row in rows]


def is_imported(type_: str) -> bool:
    """Return whether `adopt` imports resources of this type. The other resources are created again, which does not change anything in the account."""
    lookups = [row.lookup for cloud in CLOUDS for row in cloud_of(cloud).resource_kinds if row.type == type_]
    return any(lookups) or not lookups
