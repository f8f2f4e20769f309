"""Polls the ports until the verdict is final, the deadline passes or the wait is canceled. `Outcome.ended` lists every reason why the wait can end.

This module owns the loop and the cache, which keeps evidence and confirmed identities between polls.
`judge` determines the verdict, and the caller's `log` shows the progress.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpuinfra.handover.judge import Check, FleetVerdict, JudgeNode, NodeVerdict, Submission, judge_fleet, ranked
from gpuinfra.handover.names import Names
from gpuinfra.handover.ports import (
    EvidenceRef,
    GroupExpected,
    GroupProblem,
    Identity,
    IdentityExpired,
    IdentityRefused,
    IdentityUndecided,
    PoolExpected,
    Ports,
    PortUnavailable,
)
from gpuinfra.handover.refusals import Kind
from gpuinfra.json_text import parsed

POLL_S = 1.0
POLL_MAX_S = 15.0
STOCKOUT_PATIENCE_S = 300.0
STALE_PATIENCE_S = 1500.0
"""How long a group can leave outdated nodes in place without making progress. During a rolling replacement, a node is leaving, missing or new most
of the time. The only pauses are a warm-up and a checkpoint, which take ten minutes each on AWS."""
CONSOLE_LINES = 15
NOT_DUE = "not due"
"""The wait ends for this reason if no node is expected yet, because all counts are 0, a capacity block has not started, or a request is queued."""
NOT_DUE_TEXT = (
    "no nodes are expected yet: all counts are 0, the capacity block has not started, or the request is still queued"
)
MAX_EVIDENCE_SEARCHED = 20
"""Maximum number of pieces of evidence to check per instance when searching for evidence that the instance itself signed."""
READS_AT_ONCE = 10
"""Nodes whose evidence is read at the same time. Also the default size of the connection pools of botocore and requests."""


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


class Gatherer:
    """Polls the ports for one fleet and caches the results."""

    def __init__(
        self,
        ports: Ports,
        pools: Sequence[PoolExpected],
        *,
        judge_node: JudgeNode,
        trusted: Mapping[str, Identity] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ports = ports
        self._pools = pools
        self._judge_node = judge_node
        self._now = now
        self._owners = {pool.evidence_owner for pool in pools if pool.evidence_owner}
        self._trusted = dict(trusted or {})
        self._read: dict[tuple[str, str], bytes] = {}
        self._checks: dict[tuple[str, str], list[Check]] = {}
        self._refused: dict[tuple[str, str], str] = {}
        self._refs: dict[str, list[EvidenceRef]] = {}
        self.leaving = False
        """True if a node is terminating. The node occupies its reservation until it is gone, so missing capacity is not final."""

    @property
    def groups(self) -> list[GroupExpected]:
        """All groups in all pools."""
        return [group for pool in self._pools for group in pool.groups]

    def poll(self, names: Names | None = None) -> FleetVerdict:
        """Read membership and evidence once, and judge."""
        members = self._ports.membership.members(self.groups)
        self._refs = refs = ranked(self._ports.store.list(), self._owners)
        here = {m.instance_id for m in members if not m.leaving}
        self.leaving = any(m.leaving for m in members)
        reporting = {i: held for i, held in refs.items() if i in here}
        with ThreadPoolExecutor(max_workers=READS_AT_ONCE) as pool:
            submissions = dict(zip(reporting, pool.map(self._accepted, reporting, reporting.values()), strict=True))
        return judge_fleet(self._pools, members, submissions, judge_node=self._judge, now=self._now(), names=names)

    def data_of(self, node: NodeVerdict) -> bytes | None:
        """Return the evidence on which the verdict for a node is based, or None."""
        found = (data for (key, _), data in self._read.items() if key == node.evidence_key and node.evidence_key)
        return next((d for d in found if hashlib.sha256(d).hexdigest() == node.evidence_sha256), None)

    def history(self, node: NodeVerdict) -> Iterator[tuple[EvidenceRef, bytes]]:
        """Yield the evidence on which the verdict for a node is based, then earlier evidence of the same boot, newest first.

        Each document contains the hash of the previous one, so the series stops before evidence that the node did not write.
        """
        expected = node.evidence_sha256
        for ref in self._refs.get(node.instance_id, ()):
            if ref.boot_id != node.boot_id or (expected == node.evidence_sha256 and ref.key != node.evidence_key):
                continue
            data = self._submission(ref).data if expected == node.evidence_sha256 else self._ports.store.read(ref)
            if hashlib.sha256(data).hexdigest() != expected:
                return
            yield ref, data
            try:
                expected = str(parsed(data).get("previous"))
            except (ValueError, AttributeError):
                return

    def _accepted(self, instance_id: str, refs: Sequence[EvidenceRef]) -> Submission:
        """Return the newest evidence. In a store without per-writer folders, only evidence that the instance itself signed counts.

        In such a store, a compromised node can write newer evidence under another node's name but cannot sign it.
        """
        first = self._submission(refs[0])
        if self._owners or not _signed_by_another(first, instance_id):
            return first
        for ref in refs[1:MAX_EVIDENCE_SEARCHED]:
            other = self._submission(ref)
            if other.identity is not None and not _signed_by_another(other, instance_id):
                return other
        return first

    def _submission(self, ref: EvidenceRef) -> Submission:
        place = (ref.key, ref.etag)
        if place not in self._read:
            self._read[place] = self._ports.store.read(ref)
        data = self._read[place]
        sha256 = hashlib.sha256(data).hexdigest()
        identity, problem, final = self._identity(ref, sha256)
        return Submission(
            ref=ref, sha256=sha256, data=data, identity=identity, identity_problem=problem, identity_final=final
        )

    def _identity(self, ref: EvidenceRef, sha256: str) -> tuple[Identity | None, str, bool]:
        """Return the confirmed identity for this evidence. Confirmed hashes are cached, so each hash requires only one request."""
        if sha256 in self._trusted:
            return self._trusted[sha256], "", True
        raw = self._ports.store.proof(ref)
        if raw is None:
            return None, "the node's evidence has no identity proof yet", False
        if (sha256, hashlib.sha256(raw).hexdigest()) in self._refused:
            return None, self._refused[sha256, hashlib.sha256(raw).hexdigest()], True
        try:
            proof = parsed(raw)
            if not isinstance(proof, dict):
                raise IdentityRefused("the node's identity proof is not a JSON object")
            identity = self._ports.identity.verify(proof)
        except IdentityExpired as error:
            return None, f"{error}; the node signs a new proof every ten minutes", False
        except IdentityUndecided as error:
            return None, str(error), False
        except (IdentityRefused, ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, IdentityRefused) else "the node's identity proof is not JSON"
            self._refused[sha256, hashlib.sha256(raw).hexdigest()] = reason
            return None, reason, True
        self._trusted[sha256] = identity
        return identity, "", True

    def _judge(
        self, probes: Mapping[str, object], expectation: Mapping[str, object], journal: Mapping[str, object] | None
    ) -> list[Check]:
        """Judge with a cache, because parsing the probe output is slow."""
        wire = json.dumps([probes, journal, expectation], sort_keys=True)
        place = (hashlib.sha256(wire.encode()).hexdigest(), "")
        if place not in self._checks:
            self._checks[place] = self._judge_node(probes, expectation, journal)
        return self._checks[place]

    def problems(self, missing: Mapping[str, int]) -> list[GroupProblem]:
        """Return what prevents these groups from launching missing nodes or replacing outdated nodes."""
        short = {group.group: group for group in self.groups if group.name in missing}
        found = self._ports.membership.problems(list(short.values())) if short else []
        return [replace(one, name=short[one.group].name) if one.group in short else one for one in found]

    def proceed(self, verdict: FleetVerdict) -> list[str]:
        """Continue the replacement in groups in which every node is verified or outdated. Return the names of these groups."""
        ready = [group for group in self.groups if _has_verified_canary(verdict, group.name)]
        return self._ports.membership.proceed(ready) if ready else []

    def replace(self, node: NodeVerdict) -> None:
        """Request that the group of a node replaces the node. Raises `PortUnavailable`."""
        (group,) = (one for one in self.groups if one.name == node.group)
        self._ports.membership.replace(group, node.instance_id)

    def console(self, instance_id: str) -> list[str]:
        """Return the end of a console log. If the log is unavailable, return an empty string, so that the actual finding is still reported."""
        try:
            return self._ports.console.tail(instance_id, CONSOLE_LINES)
        except PortUnavailable:
            return []


_STALE_LOGGED = "outdated nodes"


def _signed_by_another(submission: Submission, instance_id: str) -> bool:
    """Return True if the cloud confirms that this instance did not sign this evidence."""
    identity = submission.identity
    if identity is None:
        return submission.identity_final
    return identity.instance_id != instance_id or identity.evidence_sha256 != submission.sha256


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
            for name in gatherer.proceed(verdict):
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
        only_missing = all(node.settled for node in verdict.nodes)
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
    rest = [node for node in verdict.nodes if node.outcome != "verified" and not node.settled]
    return bool(rest) and all(node.stale for node in rest) and not verdict.missing


def _has_verified_canary(verdict: FleetVerdict, group: str) -> bool:
    """Return True if a group has outdated nodes, and all other nodes are verified."""
    nodes = [node for node in verdict.nodes if node.group == group]
    new = [node for node in nodes if not node.stale]
    complete = group not in verdict.missing and all(node.outcome == "verified" for node in new)
    return bool(new) and len(new) < len(nodes) and complete


def canary_failed(verdict: FleetVerdict) -> bool:
    """Return True if a group has outdated nodes and a node with the new template that failed permanently. The group's replacement stops at this node."""
    outdated = {node.group for node in verdict.nodes if node.stale}
    if not outdated:
        return False
    others = [node for node in verdict.nodes if not (node.stale and node.group in outdated)]
    failed = {node.group for node in others if node.settled and node.outcome != "verified"}
    # The nodes of the other groups have reported.
    return bool(failed & outdated) and not verdict.missing and all(node.settled for node in others)


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
    parts = [f"{n.label} {n.outcome}" for n in rest[:6]]
    parts += [f"{len(rest) - 6} more"] if len(rest) > 6 else []
    parts += [f"{group} lacks {count}" for group, count in verdict.missing.items()]
    line = f"{verdict.verified} of {verdict.expected} nodes verified"
    return f"{line}; {', '.join(parts)}" if parts else line


def never_reported(node: NodeVerdict) -> bool:
    """Return True for a node without any valid evidence."""
    return node.outcome == "waiting" and not node.evidence_sha256
