"""Ask the ports again and again until the verdict is final, the deadline passes or somebody cancels.

Owns the loop and what is remembered between two looks: evidence already read, identities already vouched for.
What a verdict is, `judge` says; how it is shown, the caller's `say` decides.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuinfra.handover.judge import Check, FleetVerdict, JudgeNode, NodeVerdict, Submission, judge_fleet, ranked
from gpuinfra.handover.names import Names
from gpuinfra.handover.ports import (
    EvidenceRef,
    GroupExpected,
    Identity,
    IdentityExpired,
    IdentityRefused,
    PoolExpected,
    Ports,
    PortUnavailable,
    Trouble,
)

POLL_S = 1.0
POLL_MAX_S = 15.0
STOCKOUT_PATIENCE_S = 300.0
STALE_PATIENCE_S = 1500.0
"""How long a group may leave outdated nodes alone. One that rolls has a node leaving, missing or new nearly all the time;
it rests for a warm-up and a checkpoint, ten minutes each on AWS."""
CONSOLE_LINES = 15
NOT_DUE = "not due"
"""How the waiting ends where no group should hold a node yet: a block before its window, a queue that was not served."""
NOT_DUE_TEXT = "no node is due yet: their window has not opened, or their request still waits in the queue"
LOOKED_THROUGH = 20
"""Pieces of evidence of one instance that are looked through for one that it signed itself."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """How long to wait, and for how many."""

    mode: str = "all"
    """`all`, `floor`, `none`."""
    floor: int = 0
    deadline_s: float = 2700.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The last verdict, why the waiting ended, and what belongs beside it."""

    verdict: FleetVerdict
    ready: bool
    ended: str
    """`ready`, `not due`, `settled`, `deadline`, `stock-out`, `stale`, `cancelled`, `once`."""
    seconds: float
    troubles: tuple[Trouble, ...] = ()
    consoles: dict[str, list[str]] = field(default_factory=dict)
    """Instance id -> end of its console log, for those that never reported."""


class Gatherer:
    """One look after another at the same fleet."""

    def __init__(
        self,
        ports: Ports,
        pools: Sequence[PoolExpected],
        *,
        judge_node: JudgeNode,
        trusted: Mapping[str, Identity] | None = None,
    ) -> None:
        self._ports = ports
        self._pools = pools
        self._judge_node = judge_node
        self._owners = {pool.evidence_owner for pool in pools if pool.evidence_owner}
        self._trusted = dict(trusted or {})
        self._read: dict[tuple[str, str], bytes] = {}
        self._checks: dict[tuple[str, str], list[Check]] = {}
        self._refused: dict[tuple[str, str], str] = {}

    @property
    def groups(self) -> list[GroupExpected]:
        """All groups of all pools."""
        return [group for pool in self._pools for group in pool.groups]

    def look(self, names: Names | None = None) -> FleetVerdict:
        """Ask membership and evidence once, and judge."""
        members = self._ports.membership.members(self.groups)
        refs = ranked(self._ports.store.list(), self._owners)
        here = {m.instance_id for m in members if not m.leaving}
        submissions = {i: self._believed(i, held) for i, held in refs.items() if i in here}
        return judge_fleet(self._pools, members, submissions, judge_node=self._judge, names=names)

    def data_of(self, node: NodeVerdict) -> bytes | None:
        """The evidence that a node was judged by; None where there was none."""
        found = (data for (key, _), data in self._read.items() if key == node.evidence_key and node.evidence_key)
        return next((d for d in found if hashlib.sha256(d).hexdigest() == node.evidence_sha256), None)

    def _believed(self, instance_id: str, refs: Sequence[EvidenceRef]) -> Submission:
        """The newest evidence; where a store cannot hold writers to their own folders, the newest that its own instance signed.

        Without such rules a node that was broken into can put something newer under another's name. It cannot sign for it.
        """
        first = self._submission(refs[0])
        if self._owners or not _not_its_own(first, instance_id):
            return first
        for ref in refs[1:LOOKED_THROUGH]:
            other = self._submission(ref)
            if other.identity is not None and not _not_its_own(other, instance_id):
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
        """Who vouches for this evidence. A verified hash is kept: an identity is asked for once."""
        if sha256 in self._trusted:
            return self._trusted[sha256], "", True
        raw = self._ports.store.proof(ref)
        if raw is None:
            return None, "its evidence is there, its identity proof is not yet", False
        if (sha256, hashlib.sha256(raw).hexdigest()) in self._refused:
            return None, self._refused[sha256, hashlib.sha256(raw).hexdigest()], True
        try:
            proof = json.loads(raw)
            if not isinstance(proof, dict):
                raise IdentityRefused("its identity proof is not a JSON object")
            identity = self._ports.identity.verify(proof)
        except IdentityExpired as error:
            return None, f"{error}; the node signs a new one every ten minutes", False
        except (IdentityRefused, ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, IdentityRefused) else "its identity proof is not JSON"
            self._refused[sha256, hashlib.sha256(raw).hexdigest()] = reason
            return None, reason, True
        self._trusted[sha256] = identity
        return identity, "", True

    def _judge(
        self, probes: Mapping[str, object], expectation: Mapping[str, object], journal: Mapping[str, object] | None
    ) -> list[Check]:
        """Judging parses a lot of text, so the same evidence is judged once."""
        wire = json.dumps([probes, journal, expectation], sort_keys=True)
        place = (hashlib.sha256(wire.encode()).hexdigest(), "")
        if place not in self._checks:
            self._checks[place] = self._judge_node(probes, expectation, journal)
        return self._checks[place]

    def troubles(self, missing: Mapping[str, int]) -> list[Trouble]:
        """What keeps these groups from getting the nodes that they lack, or from renewing those that they have."""
        short = {group.group: group for group in self.groups if group.name in missing}
        found = self._ports.membership.troubles(list(short.values())) if short else []
        return [replace(one, name=short[one.group].name) if one.group in short else one for one in found]

    def console(self, instance_id: str) -> list[str]:
        """The end of a console log; a cloud that cannot give it must not hide the real finding."""
        try:
            return self._ports.console.tail(instance_id, CONSOLE_LINES)
        except PortUnavailable:
            return []


STALE = "outdated nodes are left alone"


def _not_its_own(submission: Submission, instance_id: str) -> bool:
    """Whether the cloud has said, for good, that this instance did not sign this evidence."""
    identity = submission.identity
    if identity is None:
        return submission.identity_final
    return identity.instance_id != instance_id or identity.evidence_sha256 != submission.sha256


def watch(
    gatherer: Gatherer,
    wait: Wait,
    *,
    say: Callable[[str], None],
    cancelled: threading.Event,
    names: Names | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Look until there is nothing more to wait for."""
    start = clock()
    pause, said, stuck_since, stale_since = POLL_S, "", None, None
    told: set[str] = set()
    troubles: list[Trouble] = []
    while True:
        verdict = _look(gatherer, names, say, cancelled, start, wait, clock)
        spent = clock() - start
        if verdict is None:
            return _end(
                gatherer, FleetVerdict(nodes=()), "cancelled" if cancelled.is_set() else "deadline", spent, [], wait
            )
        names = verdict.names
        if (line := progress(verdict)) != said:
            said, pause = line, POLL_S
            say(line)
        if not verdict.expected:
            return _end(gatherer, verdict, NOT_DUE, spent, troubles, wait)
        if _enough(verdict, wait):
            return _end(gatherer, verdict, "ready", spent, troubles, wait)
        if wait.mode == "none":
            return _end(gatherer, verdict, "once", spent, troubles, wait)
        if verdict.settled:
            return _end(gatherer, verdict, "settled", spent, troubles, wait)
        try:
            outdated = {node.group: 0 for node in verdict.nodes if node.stale}
            troubles = gatherer.troubles({**outdated, **verdict.missing})
        except PortUnavailable:
            troubles = []
        for trouble in troubles:
            if trouble.message not in told:
                told.add(trouble.message)
                say(f"{trouble.group}: {trouble.message}")
        stuck_since = (stuck_since if stuck_since is not None else spent) if troubles else None
        patience = min(STOCKOUT_PATIENCE_S, wait.deadline_s / 2)
        only_missing = all(node.settled for node in verdict.nodes)
        if stuck_since is not None and only_missing and spent - stuck_since >= patience:
            return _end(gatherer, verdict, "stock-out", spent, troubles, wait)
        stale_since = (stale_since if stale_since is not None else spent) if _left_alone(verdict) else None
        if stale_since is not None:
            if STALE not in told and spent - stale_since >= min(30.0, wait.deadline_s / 8):
                told.add(STALE)
                say(_stale_text(verdict))
            if spent - stale_since >= min(STALE_PATIENCE_S, wait.deadline_s / 2):
                return _end(gatherer, verdict, "stale", spent, troubles, wait)
        if spent >= wait.deadline_s:
            return _end(gatherer, verdict, "deadline", spent, troubles, wait)
        if cancelled.wait(max(0.05, min(pause, wait.deadline_s - spent))):
            return _end(gatherer, verdict, "cancelled", clock() - start, troubles, wait)
        pause = min(pause * 1.2, POLL_MAX_S, max(POLL_S, wait.deadline_s / 60))


def _left_alone(verdict: FleetVerdict) -> bool:
    """True while all that is not verified is outdated, and no group does anything about it."""
    rest = [node for node in verdict.nodes if node.outcome != "verified" and not node.settled]
    return bool(rest) and all(node.stale for node in rest) and not verdict.missing


def _stale_text(verdict: FleetVerdict) -> str:
    stale = [node.label for node in verdict.nodes if node.stale]
    who = ", ".join(stale[:6]) + (f" and {len(stale) - 6} more" if len(stale) > 6 else "")
    one = len(stale) == 1
    return (
        f"{who} {'runs' if one else 'run'} an outdated launch template and nothing replaces {'it' if one else 'them'} just now: "
        "where no instance refresh of the group is under way, start one, or terminate the instance"
    )


def _look(
    gatherer: Gatherer,
    names: Names | None,
    say: Callable[[str], None],
    cancelled: threading.Event,
    start: float,
    wait: Wait,
    clock: Callable[[], float],
) -> FleetVerdict | None:
    """One look, tried again while the cloud cannot be asked; None when time ran out or somebody cancelled."""
    pause = POLL_S
    while True:
        try:
            return gatherer.look(names)
        except PortUnavailable as error:
            left = wait.deadline_s - (clock() - start)
            if left <= 0 or wait.mode == "none":
                raise
            say(f"the cloud cannot be asked just now, trying again: {error}")
            if cancelled.wait(min(pause, left)):
                return None
            pause = min(pause * 2, POLL_MAX_S)


def _enough(verdict: FleetVerdict, wait: Wait) -> bool:
    if wait.mode == "floor":
        return verdict.verified >= wait.floor
    return verdict.complete


def _end(
    gatherer: Gatherer, verdict: FleetVerdict, ended: str, spent: float, troubles: Sequence[Trouble], wait: Wait
) -> Outcome:
    silent = (
        [n.instance_id for n in verdict.nodes if n.outcome == "waiting"] if ended in ("deadline", "stock-out") else []
    )
    return Outcome(
        verdict=verdict,
        ready=bool(verdict.nodes) and _enough(verdict, wait),
        ended=ended,
        seconds=round(spent, 1),
        troubles=tuple(troubles),
        consoles={i: gatherer.console(i) for i in silent[:20]},
    )


def progress(verdict: FleetVerdict) -> str:
    """One line: how many are verified, and who is not yet."""
    rest = [n for n in verdict.nodes if n.outcome != "verified"]
    parts = [f"{n.label} {n.outcome}" for n in rest[:6]]
    parts += [f"{len(rest) - 6} more"] if len(rest) > 6 else []
    parts += [f"{group} lacks {count}" for group, count in verdict.missing.items()]
    line = f"{verdict.verified} of {verdict.expected} nodes verified"
    return f"{line}; {', '.join(parts)}" if parts else line


def never_reported(node: NodeVerdict) -> bool:
    """True for a node of which nothing that counts was seen."""
    return node.outcome == "waiting" and not node.evidence_sha256
