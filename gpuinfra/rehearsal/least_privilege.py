"""A rehearsal under the permissions that `gpuinfra permissions` prints: what is written for the stand-in cloud, and what came of it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.permissions import Permissions, permissions_of
from gpuinfra.errors import UsageError
from gpuinfra.planning import make_plan
from gpuinfra.rehearsal.folder import Folder, write_json
from gpuinfra.spec.load import LoadedStack

if TYPE_CHECKING:
    from gpuinfra.rehearsal.session import Session


def write(folder: Folder, loaded: LoadedStack | None, day: date) -> Path:
    """The file for the stand-in cloud. Raises UsageError where no declaration can be read: its program knows it only while it runs."""
    if loaded is None:
        raise UsageError(
            "--under-least-permissions needs the declaration in the stack file; this program declares in Python"
        )
    path = folder.root / "operator.json"
    write_json(path, list(permissions_of(make_plan(loaded.spec, day)).documents))
    return path


def outcome(session: Session) -> dict[str, Any] | None:
    """What was allowed, used and refused; None where the operator was allowed everything."""
    seen = session.cloud.ask("permissions")
    plan = session.plan()
    if not seen.get("restricted") or plan is None:
        return None
    return judged(permissions_of(plan), seen)


def judged(permissions: Permissions, seen: dict[str, Any]) -> dict[str, Any]:
    """Each permission that nobody used is a finding, unless it is for an operation that this rehearsal did not do."""
    used, done = set(seen["used"]), {tuple(one) for one in seen["operations"]}
    idle = [need for need in permissions.needs if need.action not in used]
    waiting = [need.action for need in idle if not any(_happened(use, done) for use in need.uses)]
    return {
        "allowed": len(permissions.needs),
        "used": sorted(used),
        "refused": list(seen["refused"]),
        "not_exercised": waiting,
        "unused": [need.action for need in idle if need.action not in waiting],
    }


def _happened(use: tuple[str, str], done: set[tuple[str, ...]]) -> bool:
    """Whether what a permission is for was done. A creation reads back what it made."""
    type_, operation = use
    return use in done or (operation == "read" and {(type_, "create"), (type_, "update")} & done != set())
