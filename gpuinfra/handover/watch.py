"""Polls the ports until the verdict is final, the deadline passes or the wait is canceled.

This module owns the loop. `gather` polls the ports, `judge` determines the verdict, and the caller's `log` shows the progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpuinfra.handover.causes import CapacityCause, WaitEnd
from gpuinfra.handover.connect import terms_of
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.handover.names import NodeNames
from gpuinfra.handover.ports import GroupProblem, PortUnavailable
from gpuinfra.handover.relay import FabricRelay
from gpuinfra.handover.uniform import difference_notes

POLL_S = 1.0
POLL_MAX_S = 15.0
RELAY_POLL_S = 0.25
"""Pause between two polls while nodes measure with each other. A poll itself takes longer."""
STOCKOUT_PATIENCE_S = 300.0
STALE_PATIENCE_S = 1500.0
"""How long a group can leave outdated nodes in place without making progress. During a rolling replacement, a node is leaving, missing or new most
of the time. The only pauses are a warm-up and a checkpoint, which take ten minutes each on AWS."""
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
class WaitOutcome:
    """The last verdict and why the wait ended."""

    verdict: FleetVerdict
    ready: bool
    ended: WaitEnd
    seconds: float
    problems: tuple[GroupProblem, ...] = ()
    consoles: dict[str, list[str]] = field(default_factory=dict)
    """End of the console log of each node that never reported, keyed by instance ID."""
    relay_problem: str = ""
    """Why the fabric test could not continue at the end, or empty."""


def watch(
    gatherer: Gatherer,
    wait: Wait,
    *,
    log: Callable[[str], None],
    cancelled: threading.Event,
    names: NodeNames | None = None,
    clock: Callable[[], float] = time.monotonic,
    relay: FabricRelay | None = None,
) -> WaitOutcome:
    """Poll until the verdict is ready or final, the deadline passes or the wait is canceled. Meanwhile, `relay` runs the fabric tests of the nodes."""
    relay = None if wait.mode == "none" else relay
    try:
        outcome = _watch(gatherer, wait, log, cancelled, names, clock, relay)
    finally:
        if relay is not None:
            relay.close()
    return outcome if relay is None else replace(outcome, relay_problem=relay.problem)


def _watch(
    gatherer: Gatherer,
    wait: Wait,
    log: Callable[[str], None],
    cancelled: threading.Event,
    names: NodeNames | None,
    clock: Callable[[], float],
    relay: FabricRelay | None,
) -> WaitOutcome:
    start = clock()
    pause, last_line, stuck_since, stale_since = POLL_S, "", None, None
    logged: set[str] = set()
    stale_logged = False
    problems: list[GroupProblem] = []
    while True:
        verdict = _poll(gatherer, names, log, cancelled, start, wait, clock)
        spent = clock() - start
        if verdict is None:
            ended = WaitEnd.CANCELLED if cancelled.is_set() else WaitEnd.DEADLINE
            return _end(gatherer, FleetVerdict(nodes=()), ended, spent, [], wait)
        names = verdict.names
        if (line := progress(verdict)) != last_line:
            last_line, pause = line, POLL_S
            log(line)
        if not verdict.expected:
            return _end(gatherer, verdict, WaitEnd.NOT_DUE, spent, problems, wait)
        if _enough(verdict, wait):
            for note in difference_notes((node.label, node.pool, node.checks) for node in verdict.nodes):
                log(note)
            return _end(gatherer, verdict, WaitEnd.READY, spent, problems, wait)
        if wait.mode == "none":
            return _end(gatherer, verdict, WaitEnd.ONCE, spent, problems, wait)
        if verdict.settled:
            return _end(gatherer, verdict, WaitEnd.SETTLED, spent, problems, wait)
        if canary_failed(verdict):
            return _end(gatherer, verdict, WaitEnd.CANARY, spent, problems, wait)
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
        stuck = any(problem.cause is not CapacityCause.THROTTLING for problem in problems) and not gatherer.leaving
        stuck_since = (stuck_since if stuck_since is not None else spent) if stuck else None
        patience = min(STOCKOUT_PATIENCE_S, wait.deadline_s / 2)
        only_missing = all(node.settled or node.needs_partner for node in verdict.nodes)
        if stuck_since is not None and only_missing and spent - stuck_since >= patience:
            return _end(gatherer, verdict, WaitEnd.STOCK_OUT, spent, problems, wait)
        stale_since = (stale_since if stale_since is not None else spent) if _only_stale_left(verdict) else None
        if stale_since is not None:
            if not stale_logged and spent - stale_since >= min(30.0, wait.deadline_s / 8):
                stale_logged = True
                log(stale_text(verdict))
            if spent - stale_since >= min(STALE_PATIENCE_S, wait.deadline_s / 2):
                return _end(gatherer, verdict, WaitEnd.STALE, spent, problems, wait)
        if spent >= wait.deadline_s:
            return _end(gatherer, verdict, WaitEnd.DEADLINE, spent, problems, wait)
        measures = False
        if relay is not None:
            measures = relay.turn(gatherer, verdict)
            if relay.problem and relay.problem not in logged:
                logged.add(relay.problem)
                log(f"the fabric test does not continue; retrying: {relay.problem}")
        longest = RELAY_POLL_S if measures else pause
        if cancelled.wait(max(0.05, min(pause, longest, wait.deadline_s - spent))):
            return _end(gatherer, verdict, WaitEnd.CANCELLED, clock() - start, problems, wait)
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


def stale_text(verdict: FleetVerdict) -> str:
    """Return one line about the outdated nodes that no group replaces."""
    stale = [node for node in verdict.nodes if node.stale]
    terms = terms_of(stale[0].cloud)
    who = ", ".join(node.label for node in stale[:6]) + (f" and {len(stale) - 6} more" if len(stale) > 6 else "")
    runs = "runs" if len(stale) == 1 else "run"
    return f"{who} {runs} an outdated {terms.template}, and no replacement is in progress; {terms.update}"


def _poll(
    gatherer: Gatherer,
    names: NodeNames | None,
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
    gatherer: Gatherer,
    verdict: FleetVerdict,
    ended: WaitEnd,
    spent: float,
    problems: Sequence[GroupProblem],
    wait: Wait,
) -> WaitOutcome:
    late = ended in (WaitEnd.DEADLINE, WaitEnd.STOCK_OUT)
    silent = [node.instance_id for node in verdict.nodes if node.outcome == "waiting"] if late else []
    return WaitOutcome(
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
