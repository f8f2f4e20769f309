"""Polls the ports until the verdict is final, the deadline passes or the wait is canceled. `Outcome.ended` lists every reason why the wait can end.

This module owns the loop. `gather` polls the ports, `judge` determines the verdict, and the caller's `log` shows the progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict
from gpuinfra.handover.names import Names
from gpuinfra.handover.ports import GroupProblem, PortUnavailable
from gpuinfra.handover.refusals import Kind

POLL_S = 1.0
POLL_MAX_S = 15.0
STOCKOUT_PATIENCE_S = 300.0
STALE_PATIENCE_S = 1500.0
"""How long a group can leave outdated nodes in place without making progress. During a rolling replacement, a node is leaving, missing or new most
of the time. The only pauses are a warm-up and a checkpoint, which take ten minutes each on AWS."""
DEADLINE_TEXT = "the deadline passed"
"""Part of the error if the wait ends at the deadline. `gpuinfra up` reads it from the engine's message."""
NOT_DUE = "not due"
"""The wait ends for this reason if no node is expected yet, because all counts are 0, no capacity window is open, or a request is queued."""
NOT_DUE_TEXT = "no nodes are expected now: all counts are 0, the capacity has not started or has ended, or the request is still queued"


@dataclass(frozen=True, kw_only=True)
class Wait:
    """How long to wait, and for which nodes."""

    mode: str = "all"
    """`all`, `floor`, `none`."""
    floor: int = 0
    deadline_s: float = 2700.0
    """Seconds from the start of the wait. A declaration sets it with `handover.deadline_minutes`."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The last verdict and why the wait ended."""

    verdict: FleetVerdict
    ready: bool
    ended: str
    """`ready`, `not due`, `settled`, `canary`, `deadline`, `stock-out`, `stale`, `cancelled`, `once`."""
    seconds: float
    problems: tuple[GroupProblem, ...] = ()
    consoles: dict[str, list[str]] = field(default_factory=dict)
    """End of the console log of each node that never reported, keyed by instance ID."""


_STALE_LOGGED = "outdated nodes"


def watch(
    gatherer: Gatherer,
    wait: Wait,
    *,
    log: Callable[[str], None],
    cancelled: threading.Event,
    names: Names | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Poll until the verdict is ready or final, the deadline passes or the wait is canceled."""
    start = clock()
    pause, last_line, stuck_since, stale_since = POLL_S, "", None, None
    logged: set[str] = set()
    problems: list[GroupProblem] = []
    while True:
        verdict = _poll(gatherer, names, log, cancelled, start, wait, clock)
        spent = clock() - start
        if verdict is None:
            return _end(
                gatherer, FleetVerdict(nodes=()), "cancelled" if cancelled.is_set() else "deadline", spent, [], wait
            )
        names = verdict.names
        if (line := progress(verdict)) != last_line:
            last_line, pause = line, POLL_S
            log(line)
        if not verdict.expected:
            return _end(gatherer, verdict, NOT_DUE, spent, problems, wait)
        if _enough(verdict, wait):
            return _end(gatherer, verdict, "ready", spent, problems, wait)
        if wait.mode == "none":
            return _end(gatherer, verdict, "once", spent, problems, wait)
        if verdict.settled:
            return _end(gatherer, verdict, "settled", spent, problems, wait)
        if canary_failed(verdict):
            return _end(gatherer, verdict, "canary", spent, problems, wait)
        try:
            for name in gatherer.proceed([one for one in gatherer.groups if _has_verified_canary(verdict, one.name)]):
                log(f"{name}: the canary is verified; replacing the other nodes")
                stale_since = None
        except PortUnavailable as error:
            log(f"the cloud does not respond; retrying: {error}")
        try:
            outdated = {node.group: 0 for node in verdict.nodes if node.stale}
            problems = gatherer.problems({**outdated, **verdict.missing})
        except PortUnavailable:
            problems = []
        for problem in problems:
            if problem.message not in logged:
                logged.add(problem.message)
                log(f"{problem.group}: {problem.message}")
        stuck = any(problem.kind != Kind.THROTTLING for problem in problems) and not gatherer.leaving
        stuck_since = (stuck_since if stuck_since is not None else spent) if stuck else None
        patience = min(STOCKOUT_PATIENCE_S, wait.deadline_s / 2)
        only_missing = all(node.settled or node.needs_partner for node in verdict.nodes)
        if stuck_since is not None and only_missing and spent - stuck_since >= patience:
            return _end(gatherer, verdict, "stock-out", spent, problems, wait)
        stale_since = (stale_since if stale_since is not None else spent) if _only_stale_left(verdict) else None
        if stale_since is not None:
            if _STALE_LOGGED not in logged and spent - stale_since >= min(30.0, wait.deadline_s / 8):
                logged.add(_STALE_LOGGED)
                log(_stale_text(verdict))
            if spent - stale_since >= min(STALE_PATIENCE_S, wait.deadline_s / 2):
                return _end(gatherer, verdict, "stale", spent, problems, wait)
        if spent >= wait.deadline_s:
            return _end(gatherer, verdict, "deadline", spent, problems, wait)
        if cancelled.wait(max(0.05, min(pause, wait.deadline_s - spent))):
            return _end(gatherer, verdict, "cancelled", clock() - start, problems, wait)
        pause = min(pause * 1.2, POLL_MAX_S, max(POLL_S, wait.deadline_s / 60))


def _only_stale_left(verdict: FleetVerdict) -> bool:
    """Return True if all unverified nodes are outdated and no group is replacing any of them."""
    unsettled = (node for node in verdict.nodes if node.outcome != "verified" and not node.settled)
    rest = [node for node in unsettled if not node.needs_partner]
    return bool(rest) and all(node.stale for node in rest) and not verdict.missing


def _has_verified_canary(verdict: FleetVerdict, group: str) -> bool:
    """Return True if a group has outdated nodes, and all other nodes are verified, except for the fabric test,
    which needs a second node with the new template."""
    nodes = [node for node in verdict.nodes if node.group == group]
    new = [node for node in nodes if not node.stale]
    complete = group not in verdict.missing and all(node.outcome == "verified" or node.untested for node in new)
    return bool(new) and len(new) < len(nodes) and complete


def canary_failed(verdict: FleetVerdict) -> bool:
    """Return True if a group has outdated nodes and a node with the new template that failed permanently. The group's replacement stops at this node."""
    outdated = {node.group for node in verdict.nodes if node.stale}
    if not outdated:
        return False
    others = [node for node in verdict.nodes if not (node.stale and node.group in outdated)]
    failed = {node.group for node in others if node.settled and node.outcome != "verified"}
    # The nodes of the other groups have reported.
    reported = all(node.settled or node.needs_partner for node in others)
    return bool(failed & outdated) and not verdict.missing and reported


def _stale_text(verdict: FleetVerdict) -> str:
    stale = [node.label for node in verdict.nodes if node.stale]
    who = ", ".join(stale[:6]) + (f" and {len(stale) - 6} more" if len(stale) > 6 else "")
    one = len(stale) == 1
    return (
        f"{who} {'runs' if one else 'run'} an outdated launch template, and no replacement is in progress; "
        "start an instance refresh for the group, or terminate the instance"
    )


def _poll(
    gatherer: Gatherer,
    names: Names | None,
    log: Callable[[str], None],
    cancelled: threading.Event,
    start: float,
    wait: Wait,
    clock: Callable[[], float],
) -> FleetVerdict | None:
    """Poll once, and retry while the cloud does not respond. Return None if the deadline passes or the wait is canceled."""
    pause = POLL_S
    while True:
        try:
            return gatherer.poll(names)
        except PortUnavailable as error:
            left = wait.deadline_s - (clock() - start)
            if left <= 0 or wait.mode == "none":
                raise
            log(f"the cloud does not respond; retrying: {error}")
            if cancelled.wait(min(pause, left)):
                return None
            pause = min(pause * 2, POLL_MAX_S)


def _enough(verdict: FleetVerdict, wait: Wait) -> bool:
    if wait.mode == "floor":
        return verdict.verified >= wait.floor
    return verdict.complete


def _end(
    gatherer: Gatherer, verdict: FleetVerdict, ended: str, spent: float, problems: Sequence[GroupProblem], wait: Wait
) -> Outcome:
    silent = (
        [n.instance_id for n in verdict.nodes if n.outcome == "waiting"] if ended in ("deadline", "stock-out") else []
    )
    return Outcome(
        verdict=verdict,
        ready=bool(verdict.nodes) and _enough(verdict, wait),
        ended=ended,
        seconds=round(spent, 1),
        problems=tuple(problems),
        consoles={i: gatherer.console(i) for i in silent[:20]},
    )


def progress(verdict: FleetVerdict) -> str:
    """Return one line with the number of verified nodes and the state of the other nodes."""
    rest = [n for n in verdict.nodes if n.outcome != "verified"]
    parts = [f"{n.label} {n.outcome}{' for the fabric test' if n.untested else ''}" for n in rest[:6]]
    parts += [f"{len(rest) - 6} more"] if len(rest) > 6 else []
    parts += [f"{group} lacks {count}" for group, count in verdict.missing.items()]
    line = f"{verdict.verified} of {verdict.expected} nodes verified"
    return f"{line}; {', '.join(parts)}" if parts else line


def never_reported(node: NodeVerdict) -> bool:
    """Return True for a node without any valid evidence."""
    return node.outcome == "waiting" and not node.evidence_sha256
