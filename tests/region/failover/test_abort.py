"""`failover --abort` after each step: what it undoes in the first region, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gpuinfra.region.failover.abort import abort_steps
from gpuinfra.region.failover.journal import DONE, FailoverJournal
from gpuinfra.region.failover.run import run_steps
from gpuinfra.region.failover.steps import FailoverStep, steps
from tests.region.failover.returning import Returned

STEPS = ("check", "up", "verify", "fence", "drain", "replication", "replicas", "import")
STOP_FIRST = ("check", "fence", "drain", "replication", "replicas", "up", "import", "verify")
FIRST = ("stop", "disable", "start", "replicate", "up aws-recovery")
"""The requests that change the first region."""


class Killed(BaseException):
    """The process ended."""


def killed(steps: Sequence[FailoverStep], number: int, *, after: bool) -> tuple[FailoverStep, ...]:
    """The steps, with a kill before or after the effect of one of them."""

    def run(again: bool) -> str:
        if after:
            steps[number].run(again)
        raise Killed

    return (*steps[:number], replace(steps[number], run=run), *steps[number + 1 :])


def abort(world: Returned, folder: Path, mode: str = "cold", kill: int | None = None) -> FailoverJournal:
    """Undo the failover of the journal, as the command does."""
    with closing(FailoverJournal(folder / "Pulumi.aws-recovery.yaml", folder)) as journal:
        remove = None if mode == "hot" else lambda again: world._ask("second", "remove")
        found = abort_steps(world.returning(), journal, remove)
        if kill is not None and kill < len(found):
            found = killed(found, kill, after=True)
        journal.abort()
        result = run_steps(journal, found, lambda line: None)
        assert result.ok, result.problem
        assert all(journal.state(one.name) == DONE for one in found)
        return journal


def interrupted(world: Returned, folder: Path, number: int, *, after: bool, stop_first: bool = False) -> None:
    """A failover that was killed at a step."""
    failing = world.failing(stop_first=stop_first)
    with closing(FailoverJournal(folder / "Pulumi.aws-recovery.yaml", folder)) as journal:
        journal.begin(failing.stack, failing.second, {}, stop_first=stop_first)
        with pytest.raises(Killed):
            run_steps(journal, killed(steps(failing), number, after=after), lambda line: None)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("stop_first", [False, True])
@pytest.mark.parametrize("number", range(8))
def test_a_failover_is_undone_after_each_step(number: int, stop_first: bool, after: bool, tmp_path: Path) -> None:
    """Until the fence, the first region is left alone. Later, it replicates and runs again, and data is copied only if the second region could write."""
    names = STOP_FIRST if stop_first else STEPS
    world, started = Returned(nodes=0), names[: number + 1]
    interrupted(world, tmp_path, number, after=after, stop_first=stop_first)
    before = len(world.calls)
    journal = abort(world, tmp_path)
    calls = world.calls[before:]
    fenced = "fence" in started
    assert any(call.startswith(FIRST) for call in calls) is fenced, calls
    written = ("up" if stop_first else "import") in started
    wanted = ["replicate scratch-first", "start gpu-0 2", "up aws-recovery"]
    if written:  # The second region is stopped when the first one has nodes.
        wanted = ["start gpu-0 2", "wait", "second: stop gpu-0", "replicate scratch-first", "up aws-recovery"]
    assert [call for call in calls if call in wanted] == (wanted if fenced else [])
    assert ("copy model" in calls) is written
    assert ("replicate scratch-first again" in calls) is fenced
    attached = ("attach scratch-second",) if "replicas" in started else ()
    assert tuple(call for call in calls if call.startswith("attach")) == attached
    assert calls[-1] == "remove"
    assert ("second: stop gpu-0" in calls) is written
    if written:
        assert calls.index("second: stop gpu-0") < calls.index("copy model") < calls.index("up aws-recovery")
    assert not journal.ended or journal.aborting


@pytest.mark.parametrize("number", range(11))
def test_a_killed_abort_continues(number: int, tmp_path: Path) -> None:
    """A repeated abort ends with the same steps, and repeats only the step that was interrupted."""
    world = Returned(nodes=0)
    interrupted(world, tmp_path, len(STEPS) - 1, after=True)
    with closing(FailoverJournal(tmp_path / "Pulumi.aws-recovery.yaml", tmp_path)) as journal:
        count = len(abort_steps(world.returning(), journal, lambda again: None))
    assert count == 11
    with pytest.raises(Killed):
        abort(world, tmp_path, kill=number)
    before = len(world.calls)
    abort(world, tmp_path)
    assert len([call for call in world.calls[before:] if call == "replicate scratch-first"]) == (number <= 4)


def test_nodes_of_a_hot_region_stay_unless_they_could_write(tmp_path: Path) -> None:
    """In mode hot, the nodes of the second region ran before the failover."""
    world = Returned(nodes=0)
    interrupted(world, tmp_path, STEPS.index("drain"), after=True)
    abort(world, tmp_path, mode="hot")
    assert not {"second: stop gpu-0", "remove"} & set(world.calls)


def test_a_second_region_that_does_not_respond_is_released_last(tmp_path: Path) -> None:
    """If no data was written there, the first region runs again first, and the abort states what is left."""
    world = Returned(nodes=0)
    interrupted(world, tmp_path, STEPS.index("replication"), after=True)
    world.down.add("second")
    with pytest.raises(AssertionError, match="abort replicate: second timed out"):
        abort(world, tmp_path)
    assert "up aws-recovery" in world.calls
    world.down.clear()
    abort(world, tmp_path)
    assert world.calls[-1] == "remove"


def test_a_read_only_replica_is_compared_only_with_the_time_of_its_last_copy(tmp_path: Path) -> None:
    """Where `up` attaches the replicas, a kill while they are detached is completed first, because the comparison requires this time."""

    class ReadOnly(Returned):
        start_replication = attach_replica = None  # pyright: ignore[reportAssignmentType]

    world = ReadOnly(nodes=0)
    interrupted(world, tmp_path, STEPS.index("replicas"), after=False)
    before = len(world.calls)
    abort(world, tmp_path)
    calls = world.calls[before:]
    assert calls.index("detach scratch-second") < calls.index("copy model")


def test_a_detached_second_region_that_does_not_respond_is_attached_last(tmp_path: Path) -> None:
    """If it wrote no data, the first region runs again before the abort fails, and the next abort attaches the replicas."""
    world = Returned(nodes=0)
    interrupted(world, tmp_path, STEPS.index("replicas"), after=True)
    world.down.add("second")
    with pytest.raises(AssertionError, match="abort replicas: second timed out"):
        abort(world, tmp_path)
    assert "up aws-recovery" in world.calls
    world.down.clear()
    abort(world, tmp_path)
    assert world.calls[-3:] == ["attach scratch-second", "replicate scratch-first again", "remove"]
