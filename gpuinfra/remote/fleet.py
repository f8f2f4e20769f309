"""Short tasks on many hosts at once, each host at its own pace.

A task ends quickly: with a result, or with the wish to be called again later. So a few dozen threads serve hundreds of
hosts that install for half an hour, and a host that stalls holds one thread for as long as its own limit, never the rest.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, Kind

Value = TypeVar("Value")
TRIES = 5
"""Connections that may fail in a row before a host counts as lost."""


@dataclass(frozen=True)
class Again:
    """Call the task for this host again after some seconds."""

    after_s: float


@dataclass
class Outcome(Generic[Value]):
    """What became of one host."""

    host: Host
    value: Value | None = None
    problem: HostProblem | None = None
    seconds: float = 0.0


@dataclass
class Ended(Generic[Value]):
    """What became of all, in the order of the hosts."""

    outcomes: list[Outcome[Value]] = field(default_factory=list)
    interrupted: bool = False


def back_off(tries: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds before the next try: doubling, and spread so that hundreds do not come back together."""
    return min(30.0, 1.0 * 2 ** (tries - 1)) * (0.5 + chance())


class Fleet(Generic[Value]):
    """Runs one task on all hosts.

    `task` may raise `HostProblem`; one that may pass is tried again.
    `changed` is told each outcome, from whichever thread had it. `leave` ends what threads wait for.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        task: Callable[[Host], Value | Again],
        *,
        parallel: int = 64,
        changed: Callable[[Outcome[Value]], None] = lambda outcome: None,
        trouble: Callable[[Host, HostProblem, float], None] = lambda host, problem, pause: None,
        leave: Callable[[], None] = lambda: None,
        tries: int = TRIES,
    ) -> None:
        self._hosts = hosts
        self._task = task
        self._parallel = max(1, min(parallel, len(hosts)))
        self._changed = changed
        self._trouble = trouble
        self._leave = leave
        self._tries = tries
        self._guard = threading.Lock()
        # Apart, because a host that ends must not wake hundreds of workers that have nothing to do.
        self._work_due = threading.Condition(self._guard)
        self._all_ended = threading.Condition(self._guard)
        self._due: list[tuple[float, int, Host]] = []
        self._order = 0
        self._left = len(hosts)
        self._stopped = False
        self._failures: dict[str, int] = {}
        self._outcomes: dict[str, Outcome[Value]] = {}

    def run(self) -> Ended[Value]:
        """Every host to its end. An interrupt leaves cleanly: what runs on the hosts goes on without us."""
        began = time.monotonic()
        self._began = began
        with self._guard:
            for host in self._hosts:
                self._put(began, host)
        threads = [threading.Thread(target=self._work, daemon=True, name=f"ssh-{n}") for n in range(self._parallel)]
        interrupted = False
        try:
            for thread in threads:
                thread.start()
            with self._guard:
                while self._left:
                    self._all_ended.wait(0.5)
        except KeyboardInterrupt:
            interrupted = True
        with self._guard:
            self._stopped = True
            self._work_due.notify_all()
        self._leave()
        until = time.monotonic() + 10
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        with self._guard:
            for host in self._hosts:
                if host.name not in self._outcomes:
                    self._outcomes[host.name] = Outcome(
                        host, problem=left_behind(host), seconds=time.monotonic() - began
                    )
            return Ended([self._outcomes[host.name] for host in self._hosts], interrupted)

    def _put(self, due: float, host: Host) -> None:
        self._order += 1
        heapq.heappush(self._due, (due, self._order, host))

    def _next(self) -> Host | None:
        """The host that is due first; None when there is nothing more to do."""
        with self._guard:
            while not self._stopped and self._left:
                now = time.monotonic()
                if self._due and self._due[0][0] <= now:
                    return heapq.heappop(self._due)[2]
                self._work_due.wait(self._due[0][0] - now if self._due else None)
        return None

    def _work(self) -> None:
        while (host := self._next()) is not None:
            pause: float | None = None
            outcome: Outcome[Value] | None = None
            try:
                found = self._task(host)
                self._failures.pop(host.name, None)
                if isinstance(found, Again):
                    pause = found.after_s
                else:
                    outcome = Outcome(host, value=found)
            except HostProblem as problem:
                failures = self._failures[host.name] = self._failures.get(host.name, 0) + 1
                if self._stopped:
                    outcome = Outcome(host, problem=left_behind(host))
                elif problem.kind.passes and failures < self._tries:
                    pause = back_off(failures)
                    self._trouble(host, problem, pause)
                else:
                    outcome = Outcome(host, problem=problem)
            except Exception as error:  # one host's surprise is no reason to lose the others
                text = f"{host.name}: {type(error).__name__}: {error}".splitlines()[0]
                problem = HostProblem(Kind.DEFECT, text, "please report this")
                outcome = Outcome(host, problem=left_behind(host) if self._stopped else problem)
            with self._guard:
                if pause is not None:
                    self._put(time.monotonic() + pause, host)
                    self._work_due.notify()
                elif outcome is not None:
                    outcome.seconds = time.monotonic() - self._began
                    self._outcomes[host.name] = outcome
                    self._left -= 1
                    if not self._left:
                        self._work_due.notify_all()
                        self._all_ended.notify_all()
            if outcome is not None:
                self._changed(outcome)


def left_behind(host: Host) -> HostProblem:
    """What is said about a host that was not finished."""
    return HostProblem(
        Kind.INTERRUPTED,
        f"{host.name} was left before it was done",
        "what was started there goes on; run the same command again to go on watching",
    )


def by_kind(problems: Sequence[HostProblem]) -> list[tuple[Kind, list[HostProblem]]]:
    """Problems grouped for a summary, most frequent first."""
    groups: dict[Kind, list[HostProblem]] = {}
    for problem in problems:
        groups.setdefault(problem.kind, []).append(problem)
    return sorted(groups.items(), key=lambda pair: -len(pair[1]))
