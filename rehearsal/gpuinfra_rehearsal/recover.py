"""Recovery after an interrupted run: reconciles the state with the stand-in cloud before the next operation.

A killed run can leave processes, the engine's lock, a truncated state file, pending operations, and resources in the
stand-in cloud that the engine never recorded. Recovery changes only resources of the interrupted operation. It deletes
them. If the cloud refuses the deletion or would keep the name, the engine imports them (`refresh --import-pending-creates`), as
in a real deployment. A resource without a pending create, which the engine cannot import, is removed from the stand-in cloud.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra_rehearsal.engine import Pulumi
from gpuinfra_rehearsal.events import kind_of, name_of
from gpuinfra_rehearsal.standin import StandInCloud


@dataclass(frozen=True, kw_only=True)
class RecoveryActions:
    """The recovery actions for the resources of an interrupted operation."""

    pending: tuple[tuple[str, str], ...]
    """(URN, ID) of resources that exist and have a pending create in the state."""
    delete: tuple[Mapping[str, Any], ...]
    """Resources that exist but are not in the state."""
    operations: int
    """Number of pending operations in the state."""


def is_locked(pulumi: Pulumi) -> bool:
    """Return whether the engine left a lock file behind."""
    return any(pulumi.folder.state.glob(f".pulumi/locks/**/{pulumi.folder.stack}/*.json"))


def plan_recovery(
    deployment: Mapping[str, Any], held: Sequence[Mapping[str, Any]], retained: Collection[str]
) -> RecoveryActions:
    """Choose an action for each resource that is in the cloud but not in the state. `retained` contains the IDs of
    resources that a destroy retained."""
    resources = deployment.get("resources") or []
    operations = deployment.get("pending_operations") or []
    known = {(str(r.get("type")), str(r.get("id"))) for r in resources}
    urns = {str(r.get("urn")) for r in resources if not r.get("delete")}
    creating = {str(p["resource"]["urn"]) for p in operations if p.get("type") in ("creating", "importing")}
    pending: dict[str, str] = {}
    delete: list[Mapping[str, Any]] = []
    for item in held:
        urn, identity = str(item.get("urn") or ""), str(item.get("id"))
        if (str(item.get("type")), identity) in known or identity in retained or not urn:
            continue
        if urn in creating and urn not in urns and urn not in pending:
            pending[urn] = identity
        else:
            delete.append(item)
    return RecoveryActions(pending=tuple(pending.items()), delete=tuple(delete), operations=len(operations))


def import_flags(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return the flags for `pulumi refresh` that import (URN, ID). The engine expects an alternating list, so each value has its
    own flag."""
    return [word for pair in pairs for part in pair for word in ("--import-pending-creates", part)]


def restore_state(checkpoint: Path) -> bool:
    """Replace a truncated state file with its backup. Return whether the file was replaced.

    The file backend copies the state to `.bak` before each write, so one of the two files is always complete.
    """
    if _is_complete(checkpoint):
        return False
    backup = checkpoint.with_name(checkpoint.name + ".bak")
    if not _is_complete(backup):
        raise DeploymentError(
            f"{checkpoint} and its backup are both truncated; delete the rehearsal's folder and start again"
        )
    partial = checkpoint.with_name(checkpoint.name + ".partial")
    shutil.copyfile(backup, partial)
    partial.replace(checkpoint)
    return True


def drop_truncated_attributes(state: Path) -> int:
    """Remove truncated attribute files (`*.attrs`) and return their number.

    The file backend writes an attribute file next to each file and rejects the file if the attributes are unreadable. A missing attribute file
    means defaults.
    """
    truncated = [path for path in state.rglob("*.attrs") if not _is_complete(path)]
    for path in truncated:
        path.unlink(missing_ok=True)
    return len(truncated)


def _is_complete(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


def recover(pulumi: Pulumi, cloud: StandInCloud, retained: Collection[str], report: Callable[[str], None]) -> None:
    """Recover from an interrupted run if there was one. `report` receives one line for each action."""
    drop_truncated_attributes(pulumi.folder.state)
    if pulumi.checkpoint is None:
        return
    if restore_state(pulumi.checkpoint):
        report("an earlier run was killed while writing the state; restored the state from its backup")
    if is_locked(pulumi):
        pulumi.quick("cancel", "--yes", "--stack", pulumi.folder.stack)
        report("an earlier run was interrupted; removed its lock")
    plan = plan_recovery(pulumi.deployment(), cloud.resources(), retained)
    for item in plan.delete:
        asked = {"type": item["type"], "id": item["id"]}
        try:
            cloud.ask("undo", asked)
        except DeploymentError:
            cloud.ask("vanish", asked)
        report(f"deleted {item.get('name') or item['id']}, which the interrupted run created and did not record")
    remaining = tuple(pair for pair in plan.pending if not _deleted(cloud, *pair, report))
    if plan.operations:
        words = ["--yes", "--skip-preview", "--clear-pending-creates", *import_flags(remaining)]
        pulumi.quick("refresh", *words, "--stack", pulumi.folder.stack)
        for urn, identity in remaining:
            report(f"imported {name_of(urn)} ({identity}), which the interrupted run created")


def _deleted(cloud: StandInCloud, urn: str, identity: str, report: Callable[[str], None]) -> bool:
    """Delete the result of a pending create, so that the next run creates it. Returns False if the cloud refuses the deletion."""
    try:
        cloud.ask("undo", {"type": kind_of(urn), "id": identity})
    except DeploymentError:
        return False
    report(f"deleted {name_of(urn)}, which the interrupted run was creating")
    return True
