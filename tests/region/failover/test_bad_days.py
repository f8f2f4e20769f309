"""Two operators at the same time, and a record of the active region that is throttled."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.region.active import SharedRecord
from gpuinfra.region.failover import back
from gpuinfra.region.failover.journal import DONE, FailbackJournal, FailoverJournal
from gpuinfra.region.failover.run import run_steps
from gpuinfra.region.failover.steps import steps
from tests.region.failover.returning import Returned
from tests.region.failover.shared import MemoryRecord
from tests.region.failover.world import World

STACK, FIRST, SECOND = "aws-recovery", "us-east-1", "us-west-2"


def failover(world: World, machine: Path, *, resume: bool = False) -> FailoverJournal:
    """Fail over from a machine."""
    machine.mkdir(exist_ok=True)
    with closing(FailoverJournal(machine / f"Pulumi.{STACK}.yaml", machine / "state")) as journal:
        journal.share(SharedRecord(world.record, STACK, FIRST))
        if not resume:
            journal.begin(STACK, SECOND, {})
        result = run_steps(journal, steps(world.failing()), lambda _: None)
        assert result.ok, result.problem
        return journal


@pytest.mark.parametrize(
    "moment",
    ["up aws-recovery-us-west-2", "stop gpu-0", "compare scratch-first", "detach scratch-second", "import fs-1"],
)
def test_a_second_operator_takes_over(moment: str, tmp_path: Path) -> None:
    """If a second operator resumes a failover that still runs, the first run stops before its next step, and the second one completes the failover."""

    class Watched(World):
        others = 0

        def _ask(self, region: str, call: str) -> None:
            super()._ask(region, call)
            if call == moment and not self.others:
                self.others = 1
                failover(self, tmp_path / "second", resume=True)

    world = Watched()
    with pytest.raises(
        DeploymentError, match="was changed by a different run while this run was in progress, so this run stops"
    ):
        failover(world, tmp_path / "first")
    for call in ("disable scratch-first", "detach scratch-second", "import fs-1"):
        assert world.calls.count(call) == 1 + (call == moment), call
    active = world.record.active()
    assert (active.region, active.epoch) == (SECOND, 1)
    assert {one["state"] for one in active.moves["failover"]["steps"].values()} == {DONE}
    before = list(world.calls)
    failover(world, tmp_path / "first", resume=True)
    assert world.calls == before


class Throttled(MemoryRecord):
    """A record whose service refuses one write for longer than a request is repeated."""

    refused = 0
    """Number of the write that is refused. 0: none."""
    asked = 0

    def write(self, text: bytes, tag: str | None) -> str:
        self.asked += 1
        if self.asked == self.refused:
            raise DeploymentError(
                "SlowDown: the service responds, but its last response after 60 s is still this error"
            )
        return super().write(text, tag)


def failback(world: Returned, folder: Path) -> None:
    """Fail back, or continue a failback."""
    returning = world.returning()
    with closing(FailbackJournal(folder / f"Pulumi.{STACK}.yaml", folder / "state")) as journal:
        journal.share(SharedRecord(world.record, STACK, FIRST))
        if not journal.exists:
            journal.begin(STACK, FIRST, {})
        result = run_steps(journal, back.steps(returning), lambda _: None)
        assert result.ok, result.problem


def test_a_throttled_record_stops_a_failback_until_it_is_resumed(tmp_path: Path) -> None:
    """Whichever write is refused, the run ends with the error, the first region becomes active before it is deployed, and the resumed run ends with the same
    data."""
    number, every = 0, 1
    while number < every:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        world = Returned(record=Throttled())
        record = world.record
        assert isinstance(record, Throttled)
        SharedRecord(record, STACK, FIRST).update("failover", {"steps": {}, "ended": "2026-11-29T00:00:00Z"}, SECOND)
        record.refused = record.asked + number
        with pytest.raises(DeploymentError, match="SlowDown"):
            failback(world, folder)
        started = [call for call in world.calls if call.startswith("up")]
        assert not started or record.active().region == FIRST
        failback(world, folder)
        every = record.asked - 2
        assert record.active().region == FIRST
        assert world.copies == []
        assert sum(call.startswith("copy ") for call in world.calls) == 1
    assert every > 10
