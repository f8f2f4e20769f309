"""A simulated pool: the real `PoolTest` of the handover, a clock, and nodes that read the sheet and report, as `fabric_service.py` does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gpuinfra.handover.causes import NodeCause
from gpuinfra.handover.judge import NodeVerdict
from gpuinfra.handover.pairing import PoolTest
from gpuinfra.node.checks.fabric_test import TestState
from gpuinfra.node.fabric import ABSENT, FAIL, PASS
from gpuinfra.node.fabric_relay import FabricRuling, FabricSheet, NodeCall, NodeReport

TEST = "0123456789abcdef"
POLL_S, READ_S, MEASURE_S, ARRIVE_S, HANG_S = 2.0, 5.0, 40.0, 300.0, 600.0
"""Pause of the handover and of a node, and the duration of an all-reduce, of a wait for the partner, and of an all-reduce whose partner died."""


@dataclass
class PoolNode:
    """One node."""

    name: str
    boot: str = "boot-0001"
    starts: float = 0.0
    slow: bool = False
    busy: bool = False
    """A job uses its GPUs."""
    dead: bool = False
    verified: bool = False
    report: NodeReport | None = None
    ruling: FabricRuling | None = None
    asks: int = 0
    until: float = 0.0
    """Time at which the current all-reduce ends."""
    outcome: str = ""
    reads: int = 0

    @property
    def verdict(self) -> NodeVerdict:
        """The verdict of the handover, as `judge.py` derives it from the evidence."""
        state = None if self.ruling is None else self.ruling.state
        good = self.verified or state is TestState.GOOD
        failed = state in (TestState.SLOW, TestState.UNKNOWN)
        return NodeVerdict(
            label=self.name, cloud="aws", pool="gpu", group="gpu-0", instance_id=self.name, reason="", boot_id=self.boot,
            outcome="verified" if good else "failed" if failed else "waiting",
            cause=None if good else NodeCause.CHECKS_FAILED if failed else NodeCause.UNTESTED,
            settled=good or state is TestState.SLOW, undecided=state is TestState.UNKNOWN,
        )  # fmt: skip


@dataclass
class Pool:
    """The pool, and the handover that polls it."""

    nodes: dict[str, PoolNode]
    slow_paths: frozenset[frozenset[str]] = frozenset()
    hostile: Callable[[PoolNode, NodeCall, Pool], NodeReport | None] | None = None
    """What the nodes in `liars` report instead of the truth."""
    liars: frozenset[str] = frozenset()
    now: float = 0.0
    test: PoolTest = field(default_factory=lambda: PoolTest(TEST))
    sheet: FabricSheet = field(default_factory=lambda: FabricSheet(TEST, {}))
    measured: Counter[frozenset[str]] = field(default_factory=Counter)

    def run(self, limit_s: float, until: Callable[[], bool] | None = None) -> float:
        """Poll until all nodes without a fault have a result, or until the time is over. Return the time."""
        order = random.Random(len(self.nodes))
        read = {name: order.uniform(0, READ_S) for name in self.nodes}
        done = until or (lambda: all(one.ruling or one.verified or one.dead for one in self.nodes.values()))
        end = self.now + limit_s
        while self.now < end and not done():
            present = [one for one in self.nodes.values() if one.starts <= self.now and not one.dead]
            reports = {one.name: one.report for one in present if one.report is not None}
            self.sheet = self.test.turn([one.verdict for one in present], reports, self.now)
            for one in present:
                if read.setdefault(one.name, 0.0) <= self.now:
                    read[one.name] = self.now + READ_S
                    self._read(one)
            self.now += POLL_S
        return self.now

    def _read(self, node: PoolNode) -> None:
        node.reads += 1
        call = self.sheet.calls.get(node.name)
        if call is None or call.boot != node.boot:
            return
        if node.name in self.liars and self.hostile is not None:
            node.report = self.hostile(node, call, self)
            return
        fresh = NodeReport(test=TEST, ask=call.ask, ready=not node.busy)
        last = node.report
        if call.ruling is not None:
            if node.asks != call.ask:
                node.asks, node.ruling = call.ask, call.ruling if not node.verified else None
        elif last is None or last.ask != call.ask or last.ready == node.busy:
            node.report = fresh
        elif last.run and not last.outcome:
            self._measure(node, call, last)
        elif call.run and call.run != last.run:
            node.report = replace(fresh, run=call.run, gpus=8, unique_id="" if call.place else "0" * 256)
            node.until, node.outcome = self.now + ARRIVE_S, ABSENT

    def _measure(self, node: PoolNode, call: NodeCall, last: NodeReport) -> None:
        """Continue an all-reduce: meet the partner, and report the outcome when it ends."""
        if node.outcome == ABSENT and call.run != last.run:
            node.until = self.now  # withdrawn
        elif node.outcome == ABSENT and call.gpus:
            pair = frozenset((node.name, call.partner))
            self.measured[pair] += 1
            partner = self.nodes[call.partner]
            bad = node.slow or partner.slow or pair in self.slow_paths
            hangs = partner.dead or (call.partner in self.liars)
            node.outcome = FAIL if bad or hangs else PASS
            node.until = self.now + (HANG_S if hangs else MEASURE_S)
        if self.now >= node.until:
            reason = "61.0 of 150 GB/s" if node.outcome == FAIL else ""
            node.report = replace(last, outcome=node.outcome, reason=reason)


def pool(count: int, spread_s: float = 0.0, **more: object) -> Pool:
    """A pool whose nodes start within some time."""
    at = random.Random(count)
    nodes = [PoolNode(f"i-{number:04d}", starts=at.uniform(0, spread_s)) for number in range(count)]
    return Pool({one.name: one for one in nodes}, **more)  # type: ignore[arg-type]


def states(world: Pool) -> dict[str, str]:
    """The result of each node."""
    return {name: one.ruling.state.value for name, one in world.nodes.items() if one.ruling is not None}
