"""After a kill: make state and stand-in cloud agree again, before anything else is done.

What a kill can leave: processes, the engine's lock, half a file of the state, operations that the state calls pending,
and resources that the stand-in cloud made although the engine never wrote them down. Only what the interrupted
operation made is touched: it is taken back, and where the cloud refuses that, the engine takes it in
(`refresh --import-pending-creates`), as it would for a real deployment.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuinfra.errors import DeploymentError
from gpuinfra.rehearsal.engine import Pulumi
from gpuinfra.rehearsal.standin import Cloud


@dataclass(frozen=True, kw_only=True)
class Mending:
    """What has to be done about an interrupted operation."""

    adopt: tuple[tuple[str, str], ...]
    """(URN, id) of resources that exist and that the engine has a pending create for."""
    delete: tuple[Mapping[str, Any], ...]
    """Resources that exist and that nothing in the state can take in."""
    pending: int
    """Pending operations in the state."""


def locked(pulumi: Pulumi) -> bool:
    """True when the engine's lock is still there."""
    return any(pulumi.folder.state.glob(f".pulumi/locks/**/{pulumi.folder.stack}/*.json"))


def plan_mending(deployment: Mapping[str, Any], held: Sequence[Mapping[str, Any]], kept: Sequence[str]) -> Mending:
    """Pure: which resources of the cloud no state knows, and what to do with each. `kept` are ids that a destroy left on purpose."""
    resources = deployment.get("resources") or []
    pending = deployment.get("pending_operations") or []
    known = {(str(r.get("type")), str(r.get("id"))) for r in resources}
    urns = {str(r.get("urn")) for r in resources if not r.get("delete")}
    creating = {str(p["resource"]["urn"]) for p in pending if p.get("type") in ("creating", "importing")}
    adopt: list[tuple[str, str]] = []
    delete: list[Mapping[str, Any]] = []
    for item in held:
        urn, place = str(item.get("urn") or ""), (str(item.get("type")), str(item.get("id")))
        if place in known or place[1] in kept or not urn:
            continue
        if urn in creating and urn not in urns and urn not in {u for u, _ in adopt}:
            adopt.append((urn, place[1]))
        else:
            delete.append(item)
    return Mending(adopt=tuple(adopt), delete=tuple(delete), pending=len(pending))


def adopting(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The engine's words for taking in (URN, id): a flag for each of the two, because its list alternates."""
    return [word for pair in pairs for part in pair for word in ("--import-pending-creates", part)]


def restore(checkpoint: Path) -> bool:
    """Put the state of the step before in place of one that a kill cut off in the middle of a write; True when it had to.

    The file backend copies the state to `.bak` before each write, so at any moment one of the two is whole.
    """
    if _is_whole(checkpoint):
        return False
    backup = checkpoint.with_name(checkpoint.name + ".bak")
    if not _is_whole(backup):
        raise DeploymentError(
            f"{checkpoint} and its backup are both cut off; delete the rehearsal's folder and begin again"
        )
    partial = checkpoint.with_name(checkpoint.name + ".partial")
    shutil.copyfile(backup, partial)
    partial.replace(checkpoint)
    return True


def drop_cut_attributes(state: Path) -> int:
    """Remove attribute files (`*.attrs`) that a kill left empty or in half; how many there were.

    The file backend writes one beside each file and refuses the file where it cannot read it; one that is missing means defaults.
    """
    cut = [path for path in state.rglob("*.attrs") if not _is_whole(path)]
    for path in cut:
        path.unlink(missing_ok=True)
    return len(cut)


def _is_whole(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


def mend(pulumi: Pulumi, cloud: Cloud, kept: Sequence[str], say: Callable[[str], None]) -> None:
    """Do it, and say it."""
    drop_cut_attributes(pulumi.folder.state)
    if pulumi.checkpoint is None:
        return
    if restore(pulumi.checkpoint):
        say("an earlier run was killed while it wrote the state; the state of the step before is taken")
    if locked(pulumi):
        pulumi.quick("cancel", "--yes", "--stack", pulumi.folder.stack)
        say("an earlier run was interrupted; its lock is cleared")
    mending = plan_mending(pulumi.deployment(), cloud.resources(), kept)
    for item in mending.delete:
        cloud.ask("delete", {"type": item["type"], "id": item["id"]})
        say(f"deleted {item.get('name') or item['id']}, which the interrupted run made and nobody wrote down")
    adopt = tuple(pair for pair in mending.adopt if not _undone(cloud, *pair, say))
    if mending.pending:
        pulumi.quick(
            "refresh",
            "--yes",
            "--skip-preview",
            "--clear-pending-creates",
            *adopting(adopt),
            "--stack",
            pulumi.folder.stack,
        )
        for urn, identity in adopt:
            say(f"adopted {urn.rpartition('::')[2]} ({identity}), which the interrupted run had made")


def _undone(cloud: Cloud, urn: str, identity: str, say: Callable[[str], None]) -> bool:
    """Take back a creation that the engine never saw the end of, so that the next run makes it anew; False where the cloud refuses."""
    kind, name = urn.split("::")[2].rpartition("$")[2], urn.rpartition("::")[2]
    try:
        cloud.ask("delete", {"type": kind, "id": identity})
    except DeploymentError:
        return False
    say(f"deleted {name}, which the interrupted run was making")
    return True
