"""What a destroy keeps on purpose, and how the next `up` takes it back.

Read from the state before the destroy (everything with `retainOnDelete`), checked against what the stand-in cloud still
holds afterwards, and imported by the engine's own `pulumi import --file`, under the same parents and names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpuinfra.rehearsal.folder import Folder, write_json


@dataclass(frozen=True, kw_only=True)
class KeptThing:
    """One resource that outlives its stack."""

    urn: str
    type: str
    name: str
    id: str
    version: str
    """Version of its provider, so that the import uses the provider that the program will."""
    parents: tuple[tuple[str, str, str], ...]
    """(URN, type, name) of its components, outermost first."""


def kept_in(deployment: Mapping[str, Any]) -> list[KeptThing]:
    """Everything of a state that a destroy leaves behind."""
    resources = deployment.get("resources") or []
    by_urn = {str(r.get("urn")): r for r in resources}
    found = []
    for resource in resources:
        if (
            resource.get("retainOnDelete")
            and resource.get("custom")
            and resource.get("id")
            and not resource.get("external")
        ):
            found.append(
                KeptThing(
                    urn=str(resource["urn"]),
                    type=str(resource["type"]),
                    name=str(resource["urn"]).split("::", 3)[3],
                    id=str(resource["id"]),
                    version=_provider_version(str(resource.get("provider", ""))),
                    parents=tuple(_parents(resource, by_urn)),
                )
            )
    return found


def _parents(resource: Mapping[str, Any], by_urn: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    chain: list[tuple[str, str, str]] = []
    urn = str(resource.get("parent") or "")
    while urn in by_urn and by_urn[urn]["type"] != "pulumi:pulumi:Stack":
        chain.insert(0, (urn, str(by_urn[urn]["type"]), urn.split("::", 3)[3]))
        urn = str(by_urn[urn].get("parent") or "")
    return chain


def _provider_version(reference: str) -> str:
    """`7.51.1` of `...::default_7_51_1::<id>`."""
    name = reference.split("::")[3] if reference.count("::") >= 4 else ""
    return name.removeprefix("default_").replace("_", ".") if name.startswith("default_") else ""


def import_file(things: Sequence[KeptThing], known: Sequence[str] = ()) -> dict[str, Any]:
    """The file that `pulumi import --file` reads; `known` are URNs that the state has already.

    Names in it only tie children to parents, so they are numbered; the real one is `logicalName`."""
    table: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    tags: dict[str, str] = {}
    for thing in things:
        if thing.urn in known:
            continue
        above = ""
        for urn, kind, name in thing.parents:
            if urn not in tags:
                tags[urn] = f"parent{len(tags)}"
                if urn in known:
                    table[tags[urn]] = urn
                else:
                    rows.append(_row(kind, tags[urn], name, above, component=True))
            above = tags[urn]
        row = _row(thing.type, f"kept{len(rows)}", thing.name, above)
        rows.append({**row, "id": thing.id, **({"version": thing.version} if thing.version else {})})
    return {"nameTable": table, "resources": rows}


def _row(kind: str, tag: str, name: str, parent: str, *, component: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {"type": kind, "name": tag, "logicalName": name}
    if component:
        row["component"] = True
    if parent:
        row["parent"] = parent
    return row


def remember(folder: Folder, things: Sequence[KeptThing]) -> None:
    """Write down what was kept; an empty list forgets."""
    if things:
        write_json(folder.kept, {"schema": "gpuinfra.kept/1", "kept": [asdict(thing) for thing in things]})
    elif folder.kept.exists():
        folder.kept.unlink()


def remembered(folder: Folder) -> list[KeptThing]:
    """What an earlier destroy kept."""
    if not folder.kept.exists():
        return []
    rows = json.loads(folder.kept.read_text(encoding="utf-8"))["kept"]
    return [KeptThing(**{**row, "parents": tuple(tuple(p) for p in row["parents"])}) for row in rows]
