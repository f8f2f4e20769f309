"""Selects the pairs of the fabric test of one pool, and derives the result of each node from the reports of the nodes.

The module is pure. A node has a result when it measured with the partners of a hypercube that were there: the nodes have places in the order in which
they became ready, and place i measures with the places i XOR 1, i XOR 2, i XOR 4, so each node has log2(n) partners at all distances. A pair is slow or
failed if one of its nodes says so, and good if both say so. A node without a good pair then measures with good nodes, until it is good, or slow with two
partners of which one is good. No pair waits for other pairs, so a node that hangs or lies delays only its partners, and each of them once or twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuinfra.handover.judge import NodeVerdict
from gpuinfra.node.checks.fabric_test import TestState
from gpuinfra.node.fabric import ABSENT, FAIL, PASS
from gpuinfra.node.fabric_relay import MAX_REASON, FabricRuling, FabricSheet, NodeCall, NodeReport
from gpuinfra.node.outcome import shortened
from gpuinfra.node.pairs import MOST_PARTNERS
from gpuinfra.node.probes import PROBES

RUN_S = PROBES["pair"].timeout_s + 60.0
"""Maximum duration of an all-reduce with the wait for the partner, in seconds."""
LATE_S = 120.0
"""Time after the outcome of one node after which the outcome of its partner is not waited for."""
PATIENCE_S = 120.0
"""Time for which a node with a good pair waits for a partner that still measures, and half of the time for which a node without one waits for another
partner after each pair."""
EVENTFUL_S = 120.0
"""Time after an event for which the next event is expected within seconds."""
AGAIN_S = 300.0
"""Time after a result after which a node is asked again if its evidence does not contain the result, for example because its service was restarted."""
HELP_S = 60.0
"""Time after which more good nodes are asked to be the partner of a node without one. Nodes whose GPUs run jobs do not answer."""
MOST_ASKED = 2_000
"""Maximum number of nodes without a result that are asked at the same time, and of their helpers, because a sheet has a limit. The others follow when the
evidence of the first ones contains their results."""
MOST_TRIES, MOST_MISSED = 2, 3
"""Maximum number of all-reduces for one pair, and maximum number of times that a node does not arrive. A node has no further pairs afterwards."""


@dataclass
class _Run:
    """One all-reduce of two nodes."""

    id: str
    nodes: tuple[str, str]
    started: float
    words: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    arrived: dict[str, NodeReport] = field(default_factory=dict)
    first_word: float | None = None
    withdrawn: bool = False
    """True after one node left. The sheet no longer asks its partner for the all-reduce."""

    def other(self, name: str) -> str:
        return self.nodes[1] if name == self.nodes[0] else self.nodes[0]


@dataclass
class _Peer:
    """One boot of a node that is asked."""

    name: str
    boot: str
    ask: int
    helps: bool
    """True for a verified node, which is the partner of a node without a result."""
    ready: bool = False
    run: _Run | None = None
    free_since: float = 0.0
    ruling: FabricRuling | None = None
    ruled_at: float = 0.0


class PoolTest:
    """The fabric test of one pool while one command waits for its nodes."""

    def __init__(self, test: str) -> None:
        self._test = test
        self._peers: dict[str, _Peer] = {}
        self._boots: dict[str, str] = {}
        """The nodes that can take part in this turn, and the boot of each of them. Includes those that are not asked."""
        self._newest_boots: dict[str, str] = {}
        self._places: dict[str, int] = {}
        """The nodes that were ready, in this order."""
        self._asks: Counter[str] = Counter()
        self._open: list[_Run] = []
        self._runs = 0
        self._good: dict[str, set[str]] = {}
        """Node -> partners with which it was good."""
        self._bad: dict[str, dict[str, str]] = {}
        """Node -> partner with which it was not good -> reason."""
        self._tries: Counter[frozenset[str]] = Counter()
        self._missed: Counter[str] = Counter()
        self._alone_since: float | None = None
        self._changed = float("-inf")
        """Time of the last event."""

    def turn(self, nodes: Sequence[NodeVerdict], reports: Mapping[str, NodeReport], now: float) -> FabricSheet:
        """Read the reports, and return what the nodes are asked for now."""
        self._update(nodes, now)
        for peer in tuple(self._peers.values()):
            report = reports.get(peer.name)
            if report is not None and (report.test, report.ask) == (self._test, peer.ask):
                self._read(peer, report, now)
        for run in tuple(self._open):
            self._finish(run, now)
        self._assign(now)
        self._rule(now)
        self._ask_helpers(nodes, now)
        return FabricSheet(self._test, {peer.name: self._call(peer) for peer in self._peers.values()})

    def is_eventful(self, now: float) -> bool:
        """Return whether the next event is expected soon."""
        return now - self._changed < EVENTFUL_S

    # The nodes

    def _update(self, nodes: Sequence[NodeVerdict], now: float) -> None:
        """Ask the nodes without a result, and forget nodes that left, failed or restarted."""
        self._boots = {one.instance_id: one.boot_id for one in nodes if one.needs_partner or one.outcome == "verified"}
        for name, boot in self._boots.items():
            if self._newest_boots.setdefault(name, boot) != boot:
                self._newest_boots[name] = boot
                self._forget(name)
        for peer in [one for one in self._peers.values() if self._boots.get(one.name) != one.boot]:
            self._release(peer, now)
        places = MOST_ASKED - sum(not peer.helps for peer in self._peers.values())
        for node in nodes:
            peer = self._peers.get(node.instance_id)
            if node.outcome == "verified" and peer is not None and not peer.helps:
                # Its evidence contains the result.
                self._release(peer, now)
                places += 1
                continue
            if not (node.untested or (node.undecided and not node.settled)):
                continue
            if peer is None or peer.helps:
                if places > 0:
                    places -= 1
                    self._ask(node, now, helps=False)
            elif peer.ruling is not None and self._asks_again(peer, node, now):
                self._ask(node, now, helps=False)

    def _ask(self, node: NodeVerdict, now: float, *, helps: bool) -> None:
        name = node.instance_id
        self._asks[name] += 1
        self._peers[name] = _Peer(name, node.boot_id, self._asks[name], helps)
        self._changed = now

    def _asks_again(self, peer: _Peer, node: NodeVerdict, now: float) -> bool:
        """Return whether a node that has a ruling needs another one."""
        if node.undecided:
            return self._has_candidate(peer.name)
        if now - peer.ruled_at >= AGAIN_S:
            self._forget(peer.name)
            return True
        return False

    def _forget(self, name: str) -> None:
        """Drop the pairs of a node, whose raw output is lost."""
        for partner in self._good.pop(name, set()):
            self._good[partner].discard(name)
        for partner in self._bad.pop(name, {}):
            self._bad[partner].pop(name)
        for pair in [one for one in self._tries if name in one]:
            del self._tries[pair]

    def _release(self, peer: _Peer, now: float) -> None:
        self._leave(peer, now)
        del self._peers[peer.name]

    def _leave(self, peer: _Peer, now: float) -> None:
        """The node takes no further part in its all-reduce."""
        run, peer.ready, peer.run, self._changed = peer.run, False, None, now
        if run is not None:
            run.words.setdefault(peer.name, ABSENT)
            run.withdrawn = True

    def _read(self, peer: _Peer, report: NodeReport, now: float) -> None:
        if peer.ready and not report.ready:
            self._leave(peer, now)
        elif report.ready and not peer.ready:
            peer.ready, peer.free_since, self._changed = True, now, now
            self._places.setdefault(peer.name, len(self._places))
        run = peer.run
        if run is None or report.run != run.id:
            return
        if report.gpus and peer.name not in run.arrived:
            run.arrived[peer.name], self._changed = report, now
        if report.outcome and peer.name not in run.words:
            run.words[peer.name], run.reasons[peer.name], self._changed = report.outcome, report.reason, now
            run.first_word = now if run.first_word is None else run.first_word

    # The pairs

    def _finish(self, run: _Run, now: float) -> None:
        """End an all-reduce whose nodes have outcomes or did not report one in time."""
        late = run.first_word is not None and now - run.first_word > LATE_S
        for name in run.nodes:
            if name not in run.words and (late or now - run.started > RUN_S):
                run.words[name] = ABSENT
                self._missed[name] += name not in run.arrived
        complete = len(run.words) == 2
        for name in run.nodes:
            peer, word = self._peers.get(name), run.words.get(name)
            # A node that did not arrive stops waiting when the sheet no longer asks it for the all-reduce.
            is_free = complete or word == ABSENT or (run.withdrawn and name not in run.arrived)
            if peer is not None and peer.run is run and is_free:
                peer.run, peer.free_since, self._changed = None, now, now
        if complete or not any(peer.run is run for peer in self._peers.values()):
            self._open.remove(run)
        if complete:
            self._record(run)

    def _record(self, run: _Run) -> None:
        first, second = run.nodes
        words = {run.words[first], run.words[second]}
        failed = first if run.words[first] == FAIL else second
        for name, partner in (run.nodes, (second, first)):
            self._good.setdefault(name, set())
            self._bad.setdefault(name, {})
            if words == {PASS}:
                self._good[name].add(partner)
            elif FAIL in words:
                self._bad[name][partner] = run.reasons.get(failed, "")

    def _is_good(self, name: str) -> bool:
        return bool(self._good.get(name))

    def _is_measured(self, name: str) -> bool:
        return bool(self._good.get(name) or self._bad.get(name))

    def _can_pair(self, name: str, other: str) -> bool:
        """Return whether two nodes can still measure with each other."""
        if name == other or other in self._good.get(name, ()) or other in self._bad.get(name, ()):
            return False
        return self._tries[frozenset((name, other))] < MOST_TRIES and self._missed[other] < MOST_MISSED

    def _is_suspect(self, name: str) -> bool:
        return not self._is_good(name) and (bool(self._bad.get(name)) or self._missed[name] > 0)

    def _is_free(self, peer: _Peer) -> bool:
        return peer.ready and peer.run is None and peer.ruling is None and self._missed[peer.name] < MOST_MISSED

    def _partners(self, peer: _Peer, places: Sequence[str]) -> Iterator[_Peer]:
        """Yield the other nodes of the hypercube that can still measure with this node."""
        place = self._places[peer.name]
        for power in range(max(0, len(places) - 1).bit_length()):
            at = place ^ (1 << power)
            other = self._peers.get(places[at]) if at < len(places) else None
            if other is None or not other.ready or other.ruling is not None or self._is_suspect(other.name):
                continue
            if self._can_pair(peer.name, other.name):
                yield other

    def _assign(self, now: float) -> None:
        """Start all-reduces between free nodes."""
        places = tuple(self._places)
        free = [peer for name in places if (peer := self._peers.get(name)) and self._is_free(peer)]
        for peer in free:
            if peer.run is None and not self._is_suspect(peer.name):
                partner = next((one for one in self._partners(peer, places) if self._is_free(one)), None)
                if partner is not None:
                    self._start(peer, partner, now)
        rest = sorted((peer for peer in free if peer.run is None), key=lambda one: not self._is_good(one.name))
        for peer in reversed(rest):
            if peer.run is None and not self._is_good(peer.name) and not self._is_decided(peer.name):
                partner = next((one for one in rest if one.run is None and self._can_pair(peer.name, one.name)), None)
                if partner is not None:
                    self._start(peer, partner, now)

    def _is_decided(self, name: str) -> bool:
        """Return whether a node needs no further partner: it is slow with two nodes of which one is good, or slow with many nodes."""
        partners = self._bad.get(name, {})
        return len(partners) >= MOST_PARTNERS or (len(partners) >= 2 and any(map(self._is_good, partners)))

    def _start(self, peer: _Peer, partner: _Peer, now: float) -> None:
        self._runs += 1
        self._changed = now
        self._tries[frozenset((peer.name, partner.name))] += 1
        peer.run = partner.run = run = _Run(f"{self._runs:04d}", (peer.name, partner.name), now)
        self._open.append(run)

    # The results

    def _rule(self, now: float) -> None:
        """Give results to the nodes that need no further pair."""
        places = tuple(self._places)
        for peer in self._peers.values():
            name, waited = peer.name, now - peer.free_since
            if peer.helps or not self._is_free(peer) or not self._is_measured(name):
                continue
            if self._is_good(name):
                if waited < PATIENCE_S and any(one.run for one in self._partners(peer, places)):
                    continue
                paths = sorted(filter(self._is_good, self._bad[name]))[:MOST_PARTNERS]
                peer.ruling = FabricRuling(TestState.GOOD, "", tuple(paths), len(places))
            elif self._is_decided(name) or waited >= 2 * PATIENCE_S or not self._has_candidate(name):
                partners = self._bad[name]
                state = TestState.SLOW if any(map(self._is_good, partners)) else TestState.UNKNOWN
                text = "; ".join(f"with {one}: {reason or 'slow'}" for one, reason in partners.items())
                peer.ruling = FabricRuling(state, shortened(text, 2 * MAX_REASON), (), len(places))
            if peer.ruling is not None:
                peer.ruled_at = self._changed = now

    def _has_candidate(self, name: str) -> bool:
        """Return whether another node of the pool can become the partner of a node."""
        return any(self._can_pair(name, other) for other in self._boots)

    def _ask_helpers(self, nodes: Sequence[NodeVerdict], now: float) -> None:
        """Ask verified nodes while a node has no other partner, and release them afterwards."""
        open_ = [peer for peer in self._peers.values() if not peer.helps and peer.ruling is None and peer.ready]
        helpers = [peer for peer in self._peers.values() if peer.helps]
        if not open_:
            for peer in helpers:
                self._release(peer, now)
        alone = [
            peer
            for peer in open_
            if not (peer.run or self._is_good(peer.name) or any(self._can_pair(peer.name, one.name) for one in open_))
        ]
        if not alone:
            self._alone_since = None
            return
        self._alone_since = now if self._alone_since is None else self._alone_since
        most = (len(alone) + 1) * (1 + int((now - self._alone_since) // HELP_S))
        verified = [node for node in nodes if node.outcome == "verified" and node.instance_id not in self._peers]
        for node in verified[: max(0, min(most, MOST_ASKED) - len(helpers))]:
            self._ask(node, now, helps=True)

    def _call(self, peer: _Peer) -> NodeCall:
        run = peer.run
        if run is None or run.withdrawn or peer.name in run.words:
            return NodeCall(peer.boot, peer.ask, ruling=peer.ruling)
        partner = run.other(peer.name)
        arrived = run.arrived.get(partner)
        gpus, unique_id = (arrived.gpus, arrived.unique_id) if arrived else (0, "")
        return NodeCall(peer.boot, peer.ask, run.id, partner, run.nodes.index(peer.name), gpus, unique_id)
