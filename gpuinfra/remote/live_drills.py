"""The result of the last live drill of a stack: a file in the user's state folder, which `gpuinfra drill --live` writes and `gpuinfra ready` reads.

`gpuinfra ready --record` copies it to the second region, so that other machines see it. A cheap node without the file systems is faster than the cluster, so
a measured time replaces a planned time in the recovery time only if it is longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuinfra.clouds.region.readiness import ReadinessLine, passes, warns
from gpuinfra.plan.recovery import MeasuredTimes
from gpuinfra.plan.recovery_model import RecoveryTarget
from gpuinfra.remote.drills import OLD_DAYS, checksum, held, path_in, write_record
from gpuinfra.spec.load import LoadedStack

SCHEMA = "gpuinfra.live-drill/1"
FOLDER = "live-drill"
SITE, NODES, READ = "site", "nodes", "read"
"""Keys of the measured seconds that the recovery time uses."""


def record(
    stack: LoadedStack, *, problems: tuple[str, ...], checkpoint: str, age_minutes: float, size: int, machine: str, nodes: int,
    seconds: Mapping[str, float | None],
) -> dict[str, Any]:  # fmt: skip
    """Record the result of a live drill, and return the record. `seconds` are those of its parts, or None for a part that did not run."""
    body: dict[str, Any] = {
        "schema": SCHEMA, "stack": stack.name, "file": str(stack.path.resolve()), "declaration": checksum(stack),
        "ended": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "problems": list(problems), "checkpoint": checkpoint,
        "age_minutes": age_minutes, "bytes": size, "machine": machine, "nodes": nodes, "seconds": dict(seconds),
    }  # fmt: skip
    write_record(_path(stack), body)
    return body


def newest(stack: LoadedStack, shared: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """Return the record of the last live drill, on this machine or in `shared`, the record that other machines share. None if there is none."""
    records = [one for one in (held(_path(stack)), shared) if is_record(one)]
    return max((one for one in records if one is not None), key=lambda one: str(one["ended"]), default=None)


def is_record(found: object) -> bool:
    """Return whether a live drill can have written this. The file can be edited."""
    if not isinstance(found, Mapping) or found.get("schema") != SCHEMA:
        return False
    seconds, problems = found.get("seconds"), found.get("problems")
    numbers = [found.get("age_minutes"), found.get("bytes"), found.get("nodes")]
    texts = [found.get("checkpoint"), found.get("machine"), found.get("declaration"), found.get("ended")]
    try:
        ended = _ended(found)
    except (KeyError, ValueError):
        return False
    if not isinstance(seconds, Mapping) or not isinstance(problems, list) or ended.tzinfo is None:
        return False
    return (
        all(type(one) in (int, float) for one in numbers)
        and all(isinstance(one, str) for one in (*texts, *problems))
        and all(type(one) in (int, float, type(None)) for one in seconds.values())
    )


def measured(drill: Mapping[str, Any]) -> MeasuredTimes:
    """Return the times of a live drill for the recovery time."""
    seconds, read = drill["seconds"], read_mb_s(drill)
    return MeasuredTimes(
        day=f"{_ended(drill):%Y-%m-%d}",
        site_minutes=_minutes(seconds.get(SITE)),
        nodes_minutes=_minutes(seconds.get(NODES)),
        read_mb_s=read,
    )


def read_mb_s(drill: Mapping[str, Any]) -> float | None:
    """Return the rate at which the slowest node read the checkpoint, or None if it was not read."""
    seconds = drill["seconds"].get(READ)
    return float(drill["bytes"]) / 1e6 / seconds if seconds else None


def summary(drill: Mapping[str, Any]) -> Iterator[str]:
    """Yield the result in words."""
    if drill["problems"]:
        yield "the drill failed"
        yield from (f"  {one}" for one in drill["problems"])
        return
    yield f"the drill passed: {_text(drill)}"


def lines(
    stack: LoadedStack, name: str, command: str, rto: RecoveryTarget | None, drill: Mapping[str, Any] | None, now: datetime
) -> Iterator[ReadinessLine]:  # fmt: skip
    """Yield the line of `ready` about the last live drill, if there is one. It never fails. `rto` is the recovery time with the measured times."""
    recovery = stack.spec.recovery
    if drill is None or recovery is None:
        return
    topic, day = "drill", f"{_ended(drill):%Y-%m-%d}"
    if drill["problems"]:
        yield warns(topic, name, f"the drill of {day} failed: {str(drill['problems'][0]).splitlines()[0]}", command)
        return
    text = _text(drill)
    if rto is not None:
        text += f"; with these times, a failover takes {rto.minutes:,.1f} of {rto.declared_minutes} minutes"
    why = ""
    if drill["declaration"] != checksum(stack):
        why = f"the declaration changed after the drill of {day}"
    elif (now - _ended(drill)).days > OLD_DAYS:
        why = f"the drill of {day} is older than {OLD_DAYS} days"
    elif drill["age_minutes"] > recovery.rpo_minutes:
        why = f"the checkpoint in the replica was older than recovery.rpo_minutes, {recovery.rpo_minutes}"
    elif rto is not None and not rto.holds:
        why = f"the recovery time with the measured times misses recovery.rto_minutes, {recovery.rto_minutes}"
    yield warns(topic, name, f"{why}: {text}", command) if why else passes(topic, name, f"passed on {day}: {text}")


def _text(drill: Mapping[str, Any]) -> str:
    rate, seconds = read_mb_s(drill), drill["seconds"]
    times = ", ".join(f"{part} {value:,.0f} s" for part, value in seconds.items() if value is not None)
    read = f", read at {rate / 1000:,.2f} GB/s" if rate is not None else ""
    return (
        f"{drill['nodes']} x {drill['machine']} verified with the checkpoint {drill['checkpoint']}, which was {drill['age_minutes']:,.0f} minutes old "
        f"({drill['bytes'] / 1e9:,.2f} GB{read}); {times}"
    )


def _minutes(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 60


def _path(stack: LoadedStack) -> Path:
    return path_in(FOLDER, stack)


def _ended(drill: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(str(drill["ended"]).replace("Z", "+00:00"))
