"""Runs the steps of a failover or a failback, and records each in the journal before and after it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.base.errors import DeploymentError, GpuinfraError
from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.region.failover import BucketPair, Failover, Unreachable
from gpuinfra.region.failover.journal import DONE, FAILED, UNREACHABLE, FailoverJournal
from gpuinfra.region.failover.steps import FailoverStep

SCHEMA = "gpuinfra.failover/1"
ASSUMED = "--unreachable"


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
        return tuple(one.name for one in self.steps if self.journal.state(one.name) == UNREACHABLE)

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
            "journal": str(self.journal.path),
            "steps": rows,
        }


def run_steps(
    journal: FailoverJournal,
    steps: Sequence[FailoverStep],
    say: Callable[[str], None],
    probe: Callable[[], None],
    *,
    unreachable: bool,
) -> FailoverResult:
    """Run the steps that the journal does not list as done. `probe` raises `Unreachable` if the second region does not respond.

    With `unreachable`, or after the first region has failed to respond once, the steps in the first region are not attempted, except for
    requests to global services.
    """
    reason = ASSUMED if unreachable else ""
    for number, step in enumerate(steps, 1):
        head = f"{number}/{len(steps)} {step.name}"
        state = journal.state(step.name)
        if state == DONE:
            say(f"{head}: done at {journal.entry(step.name).get('ended')}")
            continue
        say(f"{head}: {step.what}")
        begun = time.monotonic()
        journal.start(step.name)
        try:
            if step.first and reason and not step.outside:
                raise Unreachable(reason)
            outcome, result = step.run(state is not None), DONE
        except Unreachable as problem:
            text = one_line(problem)
            if not step.first:
                return _failed(steps, journal, step, f"{text}; {step.where} did not respond")
            if not reason:
                try:
                    probe()
                except Unreachable as other:
                    text = f"neither region responds: {text}; {one_line(other)}; check the network of this machine"
                    return _failed(steps, journal, step, text)
                except GpuinfraError as other:
                    text = f"the first region does not respond: {text}; the second region refused the request: {other}"
                    return _failed(steps, journal, step, text)
            reason, outcome, result = text, f"the first region did not respond: {text}", UNREACHABLE
        except GpuinfraError as problem:
            return _failed(steps, journal, step, str(problem))
        journal.finish(step.name, result, outcome)
        say(f"    {result} after {time.monotonic() - begun:.0f} s: {outcome}")
    journal.end()
    return FailoverResult(steps=tuple(steps), journal=journal)


def probe_of(cloud: Failover, pairs: Sequence[BucketPair]) -> Callable[[], None]:
    """Return a function that checks whether the second region responds."""

    def probe() -> None:
        if not pairs:
            raise DeploymentError(
                "the state contains no replica, so it is unknown whether the second region responds; if the first region fails, add --unreachable"
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
