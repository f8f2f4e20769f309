"""Since when all GPUs of a pool are idle, from the evidence of its nodes. Pure.

Evidence that is missing, old or unreadable never shows that a pool is idle. The readings of a node are as old as its newest evidence: a node
uploads unchanged evidence every six hours, and uploads earlier if GPUs that were idle are used again (`node/verify.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuinfra.node.energy import GpuUse, use_of
from gpuinfra.node.outcome import Unreadable

MAX_AGE = timedelta(hours=8)
"""Age at which the newest reading of a node no longer shows that its GPUs are idle: an upload after six hours, by a check that runs every hour."""
CLOCKS = timedelta(minutes=5)
"""Maximum difference between the clock of a node and the clock of this machine."""


@dataclass(frozen=True, kw_only=True)
class PoolUse:
    """The use of the GPUs of one pool."""

    pool: str
    nodes: int
    since: datetime | None
    """Time since which all GPUs are idle. None if a GPU is in use, or if its use is unknown."""
    until: datetime | None
    """Time up to which the readings of all nodes show this."""
    reason: str
    """Why the pool is not idle, or was not idle earlier."""

    def is_idle_for(self, hours: int) -> bool:
        """Return whether the readings show that all GPUs were idle for this time."""
        return bool(self.since and self.until and self.until - self.since >= timedelta(hours=hours))


def hours_of(text: str) -> int:
    """Return the hours of a value of `idle_stop`."""
    return int(text.removesuffix("h"))


def pool_use(pool: str, nodes: Mapping[str, Mapping[str, Any] | str], gpus: int, now: datetime) -> PoolUse:
    """Return the use of a pool. `nodes` maps the label of each node to its verified evidence, or to the reason why it has none.
    `gpus` is the number of GPUs of a node."""
    since, until, reason = datetime.min.replace(tzinfo=UTC), now, ""
    for label, document in nodes.items():
        try:
            use, at = _reading(document, gpus, now)
        except Unreadable as problem:
            return PoolUse(pool=pool, nodes=len(nodes), since=None, until=None, reason=f"{label}: {problem}")
        began = at - timedelta(seconds=use.idle_s)
        if began > since:
            since, reason = began, f"{label}: {use.reason or 'no earlier reading of this boot'}"
        until = min(until, at)
    if not nodes:
        return PoolUse(pool=pool, nodes=0, since=None, until=None, reason="the pool has no nodes")
    if since >= until:
        return PoolUse(pool=pool, nodes=len(nodes), since=None, until=None, reason=reason)
    return PoolUse(pool=pool, nodes=len(nodes), since=since, until=until, reason=reason)


def _reading(document: Mapping[str, Any] | str, gpus: int, now: datetime) -> tuple[GpuUse, datetime]:
    """Return the readings of a node, and the time of the newest one. Raises `Unreadable` with the reason why they show nothing."""
    if isinstance(document, str):
        raise Unreadable(f"no verified evidence ({document})")
    record = (document.get("probes") or {}).get("energy")
    if not isinstance(record, Mapping):
        raise Unreadable("its evidence has no energy readings")
    if record.get("exit") != 0 or record.get("problem"):
        what = str(record.get("problem") or record.get("stderr") or "no output").strip()
        raise Unreadable(f"the energy counters were not read: {what[:200]}")
    use = use_of(str(record.get("stdout")))
    if use.gpus != gpus:
        raise Unreadable(f"readings of {use.gpus} GPUs, expected {gpus}")
    try:
        finished = datetime.strptime(str(document.get("finished")), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise Unreadable("the time of its evidence is not valid") from None
    at = finished - timedelta(seconds=use.age_s)
    if not -CLOCKS <= now - at <= MAX_AGE:
        hours = int(MAX_AGE.total_seconds() // 3600)
        raise Unreadable(f"the newest reading is from {at:%Y-%m-%d %H:%M} UTC, and not from the last {hours} hours")
    return use, at
