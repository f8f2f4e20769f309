"""Short tasks on many hosts in parallel.

A task returns either a result or the time of its next call. A few dozen threads can therefore serve hundreds of hosts on which the installation takes
half an hour, and a stalled host occupies one thread only until the host's time limit expires.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, ProblemKind

Value = TypeVar("Value")
TRIES = 5
"""Consecutive transient failures after which a host counts as failed."""


@dataclass(frozen=True)
class Reschedule:
    """Call the task for this host again after `after_s` seconds."""

    after_s: float


@dataclass
class HostOutcome(Generic[Value]):
    """The result or the problem of one host."""

    host: Host
    value: Value | None = None
    problem: HostProblem | None = None
    seconds: float = 0.0


@dataclass
class FleetResult(Generic[Value]):
    """The outcomes of all hosts, in host order."""

    outcomes: list[HostOutcome[Value]] = field(default_factory=list)
    interrupted: bool = False

    @property
    def problems(self) -> list[tuple[Host, HostProblem]]:
        """The hosts with a problem."""
        return [(one.host, one.problem) for one in self.outcomes if one.problem is not None]


def back_off(tries: int, chance: Callable[[], float] = random.random) -> float:
    """Return the seconds before the next attempt, with exponential backoff and jitter, so that hundreds of hosts do not retry at the same time."""
    return min(30.0, 1.0 * 2 ** (tries - 1)) * (0.5 + chance())


class HostFleet(Generic[Value]):
    """Runs one task on all hosts.

    `task` can raise `HostProblem`. Transient problems are retried.
    `on_outcome` and `on_retry` are called from worker threads. `on_stop` must end the waits of all threads.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        task: Callable[[Host], Value | Reschedule],
        *,
        parallel: int = 64,
        on_outcome: Callable[[HostOutcome[Value]], None] = lambda outcome: None,
        on_retry: Callable[[Host, HostProblem, float], None] = lambda host, problem, pause: None,
        on_stop: Callable[[], None] = lambda: None,
        tries: int = TRIES,
    ) -> None:
        self._hosts = hosts
        self._task = task
        self._parallel = max(1, min(parallel, len(hosts)))
        self._on_outcome = on_outcome
        self._on_retry = on_retry
        self._on_stop = on_stop
        self._tries = tries
        self._guard = threading.Lock()
        # Use two conditions, because a finished host must not wake hundreds of idle workers.
        self._work_due = threading.Condition(self._guard)
        self._all_ended = threading.Condition(self._guard)
        self._due: list[tuple[float, int, Host]] = []
        self._order = 0
        self._unfinished = len(hosts)
        self._stopped = False
        self._failures: dict[str, int] = {}
        self._outcomes: dict[str, HostOutcome[Value]] = {}

    def run(self) -> FleetResult[Value]:
        """Run the task on every host. An interrupt stops the workers; commands on the hosts continue."""
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
                while self._unfinished:
                    self._all_ended.wait(0.5)
        except KeyboardInterrupt:
            interrupted = True
        with self._guard:
            self._stopped = True
            self._work_due.notify_all()
        self._on_stop()
        until = time.monotonic() + 10
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        with self._guard:
            for host in self._hosts:
                if host.name not in self._outcomes:
                    self._outcomes[host.name] = HostOutcome(
                        host, problem=interrupted_problem(host), seconds=time.monotonic() - began
                    )
            return FleetResult([self._outcomes[host.name] for host in self._hosts], interrupted)

    def _put(self, due: float, host: Host) -> None:
        self._order += 1
        heapq.heappush(self._due, (due, self._order, host))

    def _next(self) -> Host | None:
        """Return the next host that is due, or None if none are left."""
        with self._guard:
            while not self._stopped and self._unfinished:
                now = time.monotonic()
                if self._due and self._due[0][0] <= now:
                    return heapq.heappop(self._due)[2]
                self._work_due.wait(self._due[0][0] - now if self._due else None)
        return None

    def _work(self) -> None:
        while (host := self._next()) is not None:
            pause: float | None = None
            outcome: HostOutcome[Value] | None = None
            try:
                result = self._task(host)
                self._failures.pop(host.name, None)
                if isinstance(result, Reschedule):
                    pause = result.after_s
                else:
                    outcome = HostOutcome(host, value=result)
            except HostProblem as problem:
                failures = self._failures[host.name] = self._failures.get(host.name, 0) + 1
                if self._stopped:
                    outcome = HostOutcome(host, problem=interrupted_problem(host))
                elif problem.kind.is_transient and failures < self._tries:
                    pause = back_off(failures)
                    self._on_retry(host, problem, pause)
                else:
                    outcome = HostOutcome(host, problem=problem)
            except Exception as error:  # an unexpected error on one host must not stop the others
                text = f"{host.title}: {type(error).__name__}: {error}".splitlines()[0]
                problem = HostProblem(ProblemKind.DEFECT, text, "report this as a bug")
                outcome = HostOutcome(host, problem=interrupted_problem(host) if self._stopped else problem)
            with self._guard:
                if pause is not None:
                    self._put(time.monotonic() + pause, host)
                    self._work_due.notify()
                elif outcome is not None:
                    outcome.seconds = time.monotonic() - self._began
                    self._outcomes[host.name] = outcome
                    self._unfinished -= 1
                    if not self._unfinished:
                        self._work_due.notify_all()
                        self._all_ended.notify_all()
            if outcome is not None:
                self._on_outcome(outcome)


def interrupted_problem(host: Host) -> HostProblem:
    """Return the problem of a host that did not finish before an interrupt."""
    return HostProblem(
        ProblemKind.INTERRUPTED,
        f"{host.title} was interrupted before it finished",
        "started steps continue on the host; run the same command again to follow them",
    )


def by_kind(problems: Iterable[tuple[Host, HostProblem]]) -> list[tuple[ProblemKind, list[tuple[Host, HostProblem]]]]:
    """Group hosts by the kind of their problem, with the most frequent kind first."""
    groups: dict[ProblemKind, list[tuple[Host, HostProblem]]] = {}
    for host, problem in problems:
        groups.setdefault(problem.kind, []).append((host, problem))
    return sorted(groups.items(), key=lambda pair: -len(pair[1]))
