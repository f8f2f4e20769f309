"""Runs the steps of a failover or a failback, and records each in the journal before and after it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.base.errors import DeploymentError, GpuinfraError
from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.failover import BucketPair, Failover, Unreachable
from gpuinfra.clouds.region.reach import ConnectionFailure, prove
from gpuinfra.region.failover.journal import DONE, FAILED, IGNORED, UNREACHABLE, FailoverJournal
from gpuinfra.region.failover.steps import Failing, FailoverStep

SCHEMA = "gpuinfra.failover/1"


@dataclass(frozen=True, kw_only=True)
class FailoverResult:
    """The result of a run."""

    steps: tuple[FailoverStep, ...]
    journal: FailoverJournal
    problem: str = ""
    """Why the run stopped early. Empty if all steps ran."""

    @property
    def ok(self) -> bool:
        """Whether every step ran. Steps in a first region that does not respond are recorded instead."""
        return not self.problem

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Steps for which the first region did not respond."""
        return self._in(UNREACHABLE)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Steps that failed and that the user ignored."""
        return self._in(IGNORED)

    def _in(self, state: str) -> tuple[str, ...]:
        return tuple(one.name for one in self.steps if self.journal.state(one.name) == state)

    def document(self, stack: str, schema: str = SCHEMA) -> dict[str, Any]:
        """Return the stable JSON form."""
        rows = [{"name": one.name, "what": one.what, "first_region": one.first, **_entry(self.journal, one.name)} for one in self.steps]  # fmt: skip
        return {
            "schema": schema,
            "stack": stack,
            "region": self.journal.region,
            "ok": self.ok,
            "problem": self.problem,
            "unreachable": list(self.unreachable),
            "ignored": list(self.ignored),
            "evidence": list(self.journal.evidence),
            "journal": str(self.journal.path),
            "steps": rows,
        }


@dataclass(frozen=True, kw_only=True)
class FirstRegion:
    """How a failover continues without the first region."""

    name: str
    prove: Callable[[], tuple[ConnectionFailure, ...]]
    """Returns the evidence that no service of the region responds. Raises `DeploymentError` if one responds."""
    probe: Callable[[], None]
    """Raises `Unreachable` if the second region does not respond either."""
    confirmed: Callable[[Sequence[ConnectionFailure]], bool]
    """Returns whether the user names the region as unreachable, given the evidence."""
    stated: bool = False
    """Whether the user stated before the run that the region is unreachable."""


def first_region(
    failing: Failing, confirmed: Callable[[Sequence[ConnectionFailure]], bool], *, stated: bool
) -> FirstRegion:
    """Return how a failover of this stack continues without its first region."""
    cloud, pairs = failing.cloud, failing.cloud.pairs(failing.resources)
    return FirstRegion(
        name=failing.region,
        prove=lambda: prove(failing.region, cloud.services(failing.resources), sleep=failing.sleep),
        probe=probe_of(cloud, pairs),
        confirmed=confirmed,
        stated=stated,
    )


class _Skipped(Exception):
    """A step that does not run, because the first region is unreachable."""


class _Stop(Exception):
    """The first region does not respond, and the run cannot continue without it."""


def run_steps(
    journal: FailoverJournal,
    steps: Sequence[FailoverStep],
    say: Callable[[str], None],
    first: FirstRegion | None = None,
    ignore: Collection[str] = (),
) -> FailoverResult:
    """Run the steps that the journal does not list as done.

    A step in the first region is skipped if the region is proven unreachable and the user confirms it. A step that fails is skipped if `ignore` contains
    its name in `--ignore`. Requests to global services are always attempted. Without `first`, no region counts as unreachable.
    """
    away = _Absence(journal, first, say)
    for number, step in enumerate(steps, 1):
        head = f"{number}/{len(steps)} {step.name}"
        state = journal.state(step.name)
        if state == DONE:
            say(f"{head}: done at {journal.entry(step.name).get('ended')}")
            continue
        say(f"{head}: {step.what}")
        begun = time.monotonic()
        journal.start(step.name, step.activates)
        try:
            outcome, result = away.run(step, again=state is not None), DONE
        except _Skipped as reason:
            outcome, result = str(reason), UNREACHABLE
        except _Stop as problem:
            return _failed(steps, journal, step, str(problem))
        except (Unreachable, GpuinfraError) as problem:
            text = (
                str(problem)
                if isinstance(problem, GpuinfraError)
                else f"{one_line(problem)}; {step.where} did not respond"
            )
            if not step.ignored_as:
                return _failed(steps, journal, step, text)
            if step.ignored_as not in ignore:
                return _failed(
                    steps, journal, step, f"{text}; or add --ignore {step.ignored_as} to continue without this step"
                )
            outcome, result = f"skipped, because of --ignore {step.ignored_as}: {text}", IGNORED
        journal.finish(step.name, result, outcome)
        say(f"    {result} after {time.monotonic() - begun:.0f} s: {outcome}")
    journal.end()
    return FailoverResult(steps=tuple(steps), journal=journal)


class _Absence:
    """Runs steps, and decides whether the first region is unreachable. The decision holds for the rest of the run."""

    def __init__(self, journal: FailoverJournal, first: FirstRegion | None, say: Callable[[str], None]) -> None:
        self._journal, self._first, self._say = journal, first, say
        self._reason, self._responds = "", False

    def run(self, step: FailoverStep, *, again: bool) -> str:
        """Run a step. Raises `_Skipped` if it requires the first region and the region is unreachable."""
        first = self._first
        if first is None or not step.first:
            return step.run(again)
        if first.stated and not self._reason and not self._responds:
            try:
                self._prove(first)
            except DeploymentError as problem:
                self._responds = True
                self._say(f"    {problem}; the steps in {first.name} run")
        if self._reason and not step.outside:
            raise _Skipped(self._reason)
        try:
            return step.run(again)
        except Unreachable as problem:
            if step.outside:
                raise
            text = one_line(problem)
        self._say(f"    {text}; checking for {reach.PROOF_S:.0f} s whether {first.name} is unreachable")
        try:
            self._prove(first)
        except DeploymentError as other:
            raise DeploymentError(
                f"{text}; {first.name} is not proven unreachable, because {other}; run the command again"
            ) from None
        raise _Skipped(self._reason)

    def _prove(self, first: FirstRegion) -> None:
        """Set the reason if the region is unreachable. Raises `DeploymentError` otherwise."""
        evidence = first.prove()
        last = {one.service: one for one in evidence}
        text = "; ".join(f"{one.service} at {one.at}: {one.error}" for one in last.values())
        try:
            first.probe()
        except Unreachable as problem:
            raise _Stop(
                f"neither region responds: {text}; {one_line(problem)}; check the network of this machine"
            ) from None
        except GpuinfraError as problem:
            raise _Stop(
                f"{first.name} does not respond: {text}; the second region refused the request: {problem}"
            ) from None
        if not first.confirmed(evidence):
            raise _Stop(
                f"no service of {first.name} responded for {reach.PROOF_S:.0f} s: {text}; to continue without {first.name}, add --unreachable {first.name}"
            )
        self._journal.prove(evidence)
        self._reason = f"{first.name} did not respond for {reach.PROOF_S:.0f} s: {text}"


def probe_of(cloud: Failover, pairs: Sequence[BucketPair]) -> Callable[[], None]:
    """Return a function that checks whether the second region responds."""

    def probe() -> None:
        if not pairs:
            raise DeploymentError(
                "the state contains no replica, so it is unknown whether the second region responds; run the command again when the first region responds"
            )
        cloud.answers(pairs[0])

    return probe


def _failed(
    steps: Sequence[FailoverStep], journal: FailoverJournal, step: FailoverStep, problem: str
) -> FailoverResult:
    journal.finish(step.name, FAILED, problem)
    return FailoverResult(steps=tuple(steps), journal=journal, problem=f"{step.name}: {problem}")


def _entry(journal: FailoverJournal, name: str) -> dict[str, Any]:
    entry = journal.entry(name)
    return {key: entry.get(key) for key in ("state", "started", "ended", "found")}
