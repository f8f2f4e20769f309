"""Finds the resources that `pulumi destroy` retained and writes the file for `pulumi import --file`.

Each cloud's `adopt` module looks the resources up by name with read-only calls. The engine performs the import.
Resources that are already in the stack's state are skipped, so you can resume an interrupted adoption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from gpuinfra.plan.planned import RetainedResource

Key = tuple[str, str]
"""Type and logical name of a resource, which identify it within a stack."""


@dataclass(frozen=True, kw_only=True)
class Retained:
    """A retained resource that exists in the account."""

    type: str
    name: str
    parents: Sequence[Key]
    """Components that contain the resource, outermost first."""
    id: str
    """ID that the engine uses to import the resource."""


def retained(resources: Iterable[RetainedResource[Any]]) -> list[Retained]:
    """Convert the results of a cloud's `adopt` module to rows for `import_file`."""
    return [
        Retained(type=one.resource.type, name=one.resource.name, parents=one.resource.parents, id=one.id)
        for one in resources
    ]


def urns_in(export: Mapping[str, Any]) -> dict[Key, str]:
    """Return the URN of each resource in the output of `pulumi stack export`."""
    resources = (export.get("deployment") or {}).get("resources") or []
    return {(str(one["type"]), str(one["urn"]).split("::", 3)[3]): str(one["urn"]) for one in resources}


def import_file(retained: Iterable[Retained], state: Mapping[Key, str] | None = None) -> dict[str, Any]:
    """Return the document for `pulumi import --file`, with each resource under the component in which the program creates it.

    `state` contains the URNs of the resources that are already in the stack's state.
    """
    ids = state or {}
    table: dict[str, str] = {}
    rows: dict[Key, dict[str, Any]] = {}
    for resource in retained:
        key = (resource.type, resource.name)
        if key in ids:
            continue
        parent = ""
        for above in resource.parents:
            if above in ids:
                table[_tag(above)] = ids[above]
            elif above not in rows:
                rows[above] = _row(above, parent) | {"component": True}
            parent = _tag(above)
        rows[key] = _row(key, parent) | {
            "id": resource.id,
            "version": version(f"pulumi-{resource.type.partition(':')[0]}"),
        }
    return {"nameTable": table, "resources": list(rows.values())}


def _row(key: Key, parent: str) -> dict[str, Any]:
    # `name` links rows within the file and must be unique in it. `logicalName` is the name of the resource.
    row: dict[str, Any] = {"type": key[0], "name": _tag(key), "logicalName": key[1]}
    return row | {"parent": parent} if parent else row


def _tag(key: Key) -> str:
    return f"{key[1]}-{key[0].rpartition(':')[2].lower()}"
