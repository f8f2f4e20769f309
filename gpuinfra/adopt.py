"""Find the resources that `pulumi destroy` retained, and write the file that `pulumi import --file` reads.

Each cloud's `adopt` module finds them with read calls under the names that the program gives them. The engine does the import.
Resources that the stack's state already holds are left out, so an adoption that was interrupted can be continued.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from gpuinfra.errors import UsageError
from gpuinfra.plan.model import Plan
from gpuinfra.registry import has_module, module_of

Key = tuple[str, str]
"""Type and logical name of a resource, which identify it within a stack."""


@dataclass(frozen=True, kw_only=True)
class Retained:
    """One retained resource that exists in the account."""

    type: str
    name: str
    parents: Sequence[Key]
    """Its components, outermost first."""
    id: str
    """The id that the engine imports it by."""


def find_retained(plan: Plan, token: str, profile: str | None = None) -> list[Retained]:
    """Retained resources of this plan's stack that exist in the account. `token` is the stack's `naming.stack_token`."""
    if not has_module(plan.cloud, "adopt"):
        raise UsageError(f"where.cloud is {plan.cloud}, which `gpuinfra adopt` does not support")
    return retained(module_of(plan.cloud, "adopt").look(plan, token, profile))


def retained(found: Iterable[Any]) -> list[Retained]:
    """What a cloud's `adopt` module found, as rows for `import_file`."""
    return [
        Retained(type=one.resource.type, name=one.resource.name, parents=one.resource.parents, id=one.id)
        for one in found
    ]


def urns_in(export: Mapping[str, Any]) -> dict[Key, str]:
    """URN of each resource in a document of `pulumi stack export`."""
    resources = (export.get("deployment") or {}).get("resources") or []
    return {(str(one["type"]), str(one["urn"]).split("::", 3)[3]): str(one["urn"]) for one in resources}


def import_file(retained: Iterable[Retained], state: Mapping[Key, str] | None = None) -> dict[str, Any]:
    """The document that `pulumi import --file` reads: resources under the components that the program creates them in.

    `state` has the URNs of resources that the stack's state already holds.
    """
    known = state or {}
    table: dict[str, str] = {}
    rows: dict[Key, dict[str, Any]] = {}
    for one in retained:
        key = (one.type, one.name)
        if key in known:
            continue
        parent = ""
        for above in one.parents:
            if above in known:
                table[_tag(above)] = known[above]
            elif above not in rows:
                rows[above] = _row(above, parent) | {"component": True}
            parent = _tag(above)
        rows[key] = _row(key, parent) | {"id": one.id, "version": version(f"pulumi-{one.type.partition(':')[0]}")}
    return {"nameTable": table, "resources": list(rows.values())}


def _row(key: Key, parent: str) -> dict[str, Any]:
    # `name` links rows within the file and must be unique there; `logicalName` is the name of the resource.
    row: dict[str, Any] = {"type": key[0], "name": _tag(key), "logicalName": key[1]}
    return row | {"parent": parent} if parent else row


def _tag(key: Key) -> str:
    return f"{key[1]}-{key[0].rpartition(':')[2].lower()}"
