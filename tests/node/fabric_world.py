"""A pool of nodes that runs the real protocol of `gpuinfra.node.fabric` on a store in memory and a simulated clock."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from gpuinfra.node import fabric
from gpuinfra.node.console import MissingPrerequisite

PAGE = 1000
"""Keys that one list request returns, as on S3."""
MEASURE_S, ARRIVE_S, HANG_S = 40.0, 120.0, 300.0


@dataclass
class Process:
    """One process of the command on a node."""

    name: str
    steps: Generator[fabric.Step, Any, fabric.RoundPlan]
    alive: bool = True
    plan: fabric.RoundPlan | None = None
    problem: str = ""
    ended: type[MissingPrerequisite] | None = None
    requests: int = 0


@dataclass
class World:
    """The store, the clock and the faults."""

    nodes: int
    join_s: float = 900.0
    slow: frozenset[str] = frozenset()
    slow_paths: frozenset[frozenset[str]] = frozenset()
    broken: frozenset[str] = frozenset()
    """Nodes on which the all-reduce fails before it waits for the partner."""
    objects: dict[str, bytes] = field(default_factory=dict)
    now: float = 0.0
    processes: list[Process] = field(default_factory=list)
    measured: Counter[frozenset[str]] = field(default_factory=Counter)
    before_put: Callable[[str], None] = lambda key: None
    on_meeting: Callable[[frozenset[str]], None] = lambda pair: None
    stopped: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Nodes that do nothing between two times, such as a machine that swaps."""

    def __post_init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._waiting: dict[tuple[str, str], tuple[Process, str]] = {}
        self.folders: dict[str, list[str]] = {}

    def add(self, key: str, data: bytes) -> None:
        """Store an object. Keys are also kept by folder, because a list request must not read all of them."""
        self.objects[key] = data
        kind, number, _ = key.split("/", 2)
        for folder in (f"{kind}/", f"{kind}/{number}/"):
            self.folders.setdefault(folder, []).append(key)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Run an action at a time."""
        heapq.heappush(self._events, (time, next(self._order), action))

    def start(self, name: str, time: float = 0.0, incarnation: str = "") -> None:
        """Start the command on a node."""

        def begin() -> None:
            own = incarnation or f"{int(self.now):09d}"
            process = Process(name, iter(()))  # pyright: ignore[reportArgumentType]
            settings = fabric.Settings(name=name, incarnation=own, nodes=self.nodes, join_s=self.join_s)
            process.steps = fabric.run(settings, _Store(self, process), lambda: self.now)
            self.processes.append(process)
            self._resume(process, None)

        self.at(time, begin)

    def kill(self, name: str, time: float) -> None:
        """Kill all processes on a node."""

        def end() -> None:
            for process in self.processes:
                if process.name == name:
                    process.alive = False

        self.at(time, end)

    def terminate(self, name: str, time: float) -> None:
        """End the process on a node as systemd does, so that it leaves."""

        def end() -> None:
            for process in self.processes:
                if process.name == name and process.alive:
                    process.steps.close()
                    process.alive = False

        self.at(time, end)

    def run(self) -> None:
        """Run until nothing happens anymore."""
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            action()

    def verdicts(self) -> list[dict[str, Any]]:
        """The different verdicts of the processes that are alive."""
        found: list[dict[str, Any]] = []
        for process in self.processes:
            if process.alive and process.plan is not None:
                assert process.plan.verdict is not None
                if process.plan.verdict not in found:
                    found.append(dict(process.plan.verdict))
        return found

    def _resume(self, process: Process, value: Any) -> None:
        if not process.alive:
            return
        begin, end = self.stopped.get(process.name, (0.0, 0.0))
        if begin <= self.now < end:
            self.at(end, lambda: self._resume(process, value))
            return
        try:
            step = process.steps.send(value)
        except StopIteration as ended:
            process.plan = ended.value
            return
        except MissingPrerequisite as error:
            process.problem, process.ended = str(error), type(error)
            return
        if isinstance(step, fabric.Pause):
            self.at(self.now + step.seconds, lambda: self._resume(process, None))
        else:
            self._measure(process, step)

    def _measure(self, process: Process, step: fabric.Measure) -> None:
        if process.name in self.broken:
            failed = fabric.AllReduceOutcome(fabric.FAIL, "NCCL is not installed")
            self.at(self.now + 1, lambda: self._resume(process, failed))
            return
        here = (step.run, process.name)
        other, theirs = self._waiting.pop((step.run, step.partner), (None, ""))
        if other is not None and other.alive and theirs == process.name:
            pair = frozenset((process.name, other.name))
            self.measured[pair] += 1
            self.on_meeting(pair)
            bad = bool(pair & self.slow) or pair in self.slow_paths
            outcome = (
                fabric.AllReduceOutcome(fabric.FAIL, "61.0 of 150 GB/s")
                if bad
                else fabric.AllReduceOutcome(fabric.PASS)
            )
            for one, partner in ((process, other), (other, process)):
                self.at(self.now + MEASURE_S, lambda one=one, partner=partner: self._end(one, partner, outcome))
            return
        self._waiting[here] = (process, step.partner)

        def give_up() -> None:
            if self._waiting.get(here, (None, ""))[0] is process:
                del self._waiting[here]
                self._resume(process, fabric.AllReduceOutcome(fabric.ABSENT, "did not arrive"))

        self.at(self.now + ARRIVE_S, give_up)

    def _end(self, process: Process, partner: Process, outcome: fabric.AllReduceOutcome) -> None:
        if partner.alive:
            self._resume(process, outcome)
        else:  # the collective hangs until its time limit
            late = fabric.AllReduceOutcome(fabric.FAIL, "timed out")
            self.at(self.now + HANG_S, lambda: self._resume(process, late))


@dataclass
class _Store:
    world: World
    process: Process

    def put(self, key: str, data: bytes) -> bool:
        self.process.requests += 1
        self.world.before_put(key)
        if not self.process.alive:
            return False
        if key in self.world.objects:
            return False
        self.world.add(key, data)
        return True

    def get(self, key: str) -> bytes | None:
        self.process.requests += 1
        return self.world.objects.get(key)

    def list(self, prefix: str) -> list[str]:
        found = self.world.folders.get(prefix, [])
        self.process.requests += max(1, -(-len(found) // PAGE))
        return list(found)
