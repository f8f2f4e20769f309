"""The last results of `gpuinfra ready --record` and of the drill of a stack, in one object beside the record of the active region.

Every machine and the daily job read the same results. A drill runs without access to the account, so its result reaches the object with the next
`gpuinfra ready --record` on the machine that ran it. The newer of the two results counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpuinfra.base.errors import DeploymentError, GpuinfraError
from gpuinfra.base.json_text import bounded
from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.region.active import FRESH, LONGEST, RecordChanged, RecordStore, operator
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.clouds.region.readiness import ReadinessLine, passes, skips, unread, warns
from gpuinfra.remote import drills, live_drills

SCHEMA = "gpuinfra.readiness-record/1"
TOPIC = "recorded"


@dataclass(frozen=True, kw_only=True)
class SharedResults:
    """The content of the object."""

    at: str
    """Time of the last `gpuinfra ready --record`, in UTC."""
    by: str
    """User and machine."""
    ready: bool
    summary: str
    """Number of lines for each state, and the newest checkpoint."""
    drill: Mapping[str, Any] | None
    """The record of the last drill (`gpuinfra.remote.drills`)."""
    live_drill: Mapping[str, Any] | None = None
    """The record of the last live drill (`gpuinfra.remote.live_drills`)."""


def read(store: RecordStore, stack: str) -> SharedResults | None:
    """Return the results, or None if none are recorded. Raises `DeploymentError` if the object cannot be read or is not ours."""
    try:
        held = store.read()
    except Unreachable as problem:
        raise DeploymentError(f"the recorded results cannot be read: {problem}") from None
    if held is None:
        return None
    try:
        content: Any = bounded(held.text, LONGEST)
        if content["schema"] != SCHEMA or content["stack"] != stack:
            raise ValueError
        drill, live = content["drill"], content.get("live_drill")
        return SharedResults(
            at=_time(str(content["at"])).strftime("%Y-%m-%dT%H:%M:%SZ"),
            by=one_line(str(content["by"])),
            ready=content["ready"] is True,
            summary=one_line(str(content["summary"])),
            drill=drill if isinstance(drill, dict) else None,
            live_drill=live if isinstance(live, dict) else None,
        )
    except (ValueError, TypeError, KeyError):
        raise DeploymentError(
            f"the recorded results are not results of {stack} in the format {SCHEMA}; run `gpuinfra ready {stack} --record`"
        ) from None


def write(store: RecordStore, stack: str, results: SharedResults) -> None:
    """Replace the results. Of two machines that write at the same time, the last one counts. Raises `DeploymentError`."""
    records = {
        name: dict(one) if one else None for name, one in (("drill", results.drill), ("live_drill", results.live_drill))
    }
    body = {"schema": SCHEMA, "stack": stack, **vars(results), **records}
    text = (json.dumps(body, indent=1, ensure_ascii=True) + "\n").encode()
    try:
        for _ in range(3):
            held = store.read()
            try:
                store.write(text, held.tag if held else None)
                return
            except RecordChanged:
                continue
    except Unreachable as problem:
        raise DeploymentError(f"the results cannot be recorded: {problem}") from None
    raise DeploymentError(
        "the results cannot be recorded, because other machines record results at the same time; run the command again"
    )


def results_of(
    ready: bool,
    summary: str,
    drill: Mapping[str, Any] | None,
    now: datetime,
    *,
    live_drill: Mapping[str, Any] | None = None,
) -> SharedResults:
    """Return the results of this machine."""
    return SharedResults(
        at=now.strftime("%Y-%m-%dT%H:%M:%SZ"), by=operator(), ready=ready, summary=summary, drill=drill, live_drill=live_drill,
    )  # fmt: skip


def line(found: SharedResults | None, name: str, command: str, now: datetime) -> ReadinessLine:
    """Return the line about the last recorded result. It never fails, because the other lines are newer."""
    if found is None:
        return skips(TOPIC, name, "no result is recorded, so other machines cannot see one", command)
    text = f"{'ready' if found.ready else 'not ready'} at {found.at}, recorded by {found.by}: {found.summary}"
    if now - _time(found.at) > FRESH:
        return warns(TOPIC, name, f"the last result is older than {FRESH.days} days: {text}", command)
    return passes(TOPIC, name, text) if found.ready else warns(TOPIC, name, text, command)


def lines(
    stack: str, name: str, store: RecordStore | None, command: str, now: datetime
) -> tuple[ReadinessLine, Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Return the line about the recorded results, and their drill and live drill."""
    if store is None:
        return (
            skips(
                TOPIC,
                name,
                "the state contains no replica of the evidence bucket, which would contain the results",
                command,
            ),
            None,
            None,
        )
    try:
        results = read(store, stack)
    except GpuinfraError as problem:
        return unread(TOPIC, name, str(problem), command), None, None
    held = (results.drill, results.live_drill) if results else (None, None)
    drill, live = held[0] if drills.is_record(held[0]) else None, held[1] if live_drills.is_record(held[1]) else None
    return line(results, name, command, now), drill, live


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
