"""The result of the last failover drill of a stack: a file in the user's state folder, which `gpuinfra rehearse drill` writes and `gpuinfra ready` reads.

`gpuinfra ready --record` copies it to the second region, so that other machines see it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuinfra.base.file_errors import naming
from gpuinfra.base.json_text import parsed
from gpuinfra.base.words import counted
from gpuinfra.clouds.region.readiness import OK, SKIPPED, WARN, ReadinessLine
from gpuinfra.node.journal import write_whole
from gpuinfra.remote.record import state_folder
from gpuinfra.spec.load import LoadedStack

SCHEMA = "gpuinfra.drill/1"
FOLDER = "drill"
OLD_DAYS = 30
"""Age in days above which `ready` asks for another drill."""


def record(stack: LoadedStack, *, problems: tuple[str, ...], rpo: float | None, rto: float | None) -> None:
    """Record the result of a drill of a stack with `recovery`. `rpo` and `rto` are the minutes that were reached, or None if the drill ended before."""
    body = {
        "schema": SCHEMA, "stack": stack.name, "file": str(stack.path.resolve()), "declaration": checksum(stack),
        "ended": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "problems": list(problems), "rpo_minutes": rpo, "rto_minutes": rto,
    }  # fmt: skip
    write_record(path_in(FOLDER, stack), body)


def write_record(path: Path, body: Mapping[str, Any]) -> None:
    """Write the record of a drill."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, json.dumps(body, indent=2) + "\n")


def newest(stack: LoadedStack, shared: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """Return the record of the last drill, on this machine or in `shared`, the record that other machines share. None if there is none."""
    drills_held = [one for one in (held(path_in(FOLDER, stack)), shared) if one is not None and is_record(one)]
    return max(drills_held, key=_ended, default=None)


def line(stack: LoadedStack, now: datetime, shared: Mapping[str, Any] | None = None) -> ReadinessLine:
    """Return the line of `ready` about the last drill. It never fails, because a drill does not change the second region."""
    recovery = stack.spec.recovery
    assert recovery is not None
    fix = f"gpuinfra rehearse drill {stack.path} --to {recovery.region}"
    state, reason = _judged(newest(stack, shared), checksum(stack), now)
    return ReadinessLine(
        topic="drill", name=recovery.region, state=state, reason=reason, fix="" if state == OK else fix
    )


def _judged(drill: Mapping[str, Any] | None, declaration: str, now: datetime) -> tuple[str, str]:
    if drill is None:
        return SKIPPED, "no drill of this stack file is recorded"
    ended = _ended(drill)
    day = f"{ended:%Y-%m-%d}"
    if drill["problems"]:
        return WARN, f"the drill of {day} failed: {str(drill['problems'][0]).splitlines()[0]}"
    if drill["declaration"] != declaration:
        return WARN, f"the declaration changed after the drill of {day}"
    age = (now - ended).days
    if age > OLD_DAYS:
        return WARN, f"the last drill passed {counted(age, 'day')} ago"
    return OK, f"passed on {day}: RPO {drill['rpo_minutes']:.1f} minutes, RTO {drill['rto_minutes']:.1f} minutes"


def path_in(folder: str, stack: LoadedStack) -> Path:
    """Return the path of the record of a stack in a folder of the state folder."""
    name = hashlib.sha256(str(stack.path.resolve()).encode()).hexdigest()[:16]
    return state_folder() / folder / f"{name}.json"


def held(path: Path) -> Mapping[str, Any] | None:
    """Return what a file contains, or None if it does not exist or contains no JSON object."""
    try:
        drill = parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return drill if isinstance(drill, dict) else None


def is_record(found: object) -> bool:
    """Return whether a drill can have written this. The file can be edited."""
    if not isinstance(found, Mapping):
        return False
    problems = found.get("problems")
    if found.get("schema") != SCHEMA or not isinstance(problems, list) or not isinstance(found.get("declaration"), str):
        return False
    try:
        ended = _ended(found)
    except (KeyError, ValueError):
        return False
    # Only a drill that passed has both times.
    reached = [type(found.get(key)) in (int, float) for key in ("rpo_minutes", "rto_minutes")]
    return ended.tzinfo is not None and (
        all(isinstance(one, str) and one for one in problems) if problems else all(reached)
    )


def _ended(drill: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(str(drill["ended"]).replace("Z", "+00:00"))


def checksum(stack: LoadedStack) -> str:
    """Return the checksum of the declaration of a stack."""
    body = json.dumps(stack.spec.model_dump(mode="json"), sort_keys=True, default=str)
    return hashlib.sha256(body.encode()).hexdigest()
