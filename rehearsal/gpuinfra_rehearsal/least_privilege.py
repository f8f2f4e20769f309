"""Rehearsals with only the permissions that `gpuinfra permissions` prints. Writes the policy and reports which permissions
were used."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import UsageError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.permissions import Permissions
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.spec.load import LoadedStack
from gpuinfra_rehearsal.folder import Folder, write_json
from gpuinfra_rehearsal.standin import StandInCloud


def write_policy(folder: Folder, loaded: LoadedStack | None, day: date) -> Path:
    """Write the operator's policy for the stand-in cloud. Raises UsageError if the declaration is not in the stack
    file."""
    if loaded is None:
        raise UsageError(
            "--under-least-permissions requires the declaration in the stack file; this program declares the cluster in Python"
        )
    path = folder.root / "operator.json"
    write_json(path, list(cloud_of(loaded.spec.cloud).permissions(build_plan(loaded.spec, day)).documents))
    return path


def usage(cloud: StandInCloud, plan: Plan | None) -> dict[str, Any] | None:
    """Return which permissions were allowed, used and denied, or None if the operator was not restricted."""
    seen = cloud.ask("permissions")
    if not seen.get("restricted") or plan is None:
        return None
    return compare(cloud_of(plan.cloud).permissions(plan), seen)


def compare(permissions: Permissions, seen: dict[str, Any]) -> dict[str, Any]:
    """Report each unused permission, unless this rehearsal did not perform the operation that requires it."""
    used, performed = set(seen["used"]), {tuple(one) for one in seen["operations"]}
    unused = [need for need in permissions.needs if need.action not in used]
    not_exercised = [need.action for need in unused if not any(_performed(use, performed) for use in need.uses)]
    return {
        "allowed": len(permissions.needs),
        "used": sorted(used),
        "refused": list(seen["refused"]),
        "not_exercised": not_exercised,
        "unused": [need.action for need in unused if need.action not in not_exercised],
    }


def _performed(use: tuple[str, str], performed: set[tuple[str, ...]]) -> bool:
    """Return whether the operation of a permission was performed. A create or update includes a read."""
    type_, operation = use
    return use in performed or (operation == "read" and {(type_, "create"), (type_, "update")} & performed != set())
