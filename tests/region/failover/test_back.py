"""The steps of a failback: their order, the data that is never replaced, and a kill at any step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gpuinfra.clouds.region.exports import Export
from gpuinfra.clouds.region.failover import BucketPair, Copy
from gpuinfra.clouds.region.readiness import FAIL, OK, ReadinessLine
from gpuinfra.region.clone.model import Mode
from gpuinfra.region.failover.abort import abort_steps
from gpuinfra.region.failover.back import (
    CONFLICTS,
    SCHEMA,
    Returning,
    expected_stop,
    left_to_do,
    repeat_launch,
    steps,
    stop_line,
    undo_steps,
)
from gpuinfra.region.failover.journal import DONE, FailbackJournal, FailoverJournal
from gpuinfra.region.failover.run import FailoverResult, run_steps
from gpuinfra.remote.drain import JobStop
from tests.region.failover.returning import AHEAD, BOTH, NEWER, Returned
from tests.region.failover.test_abort import STEPS, Killed, interrupted, killed
from tests.region.failover.test_newest import Scheduled
from tests.region.failover.world import GOOD

CALLS = [
    "running gpu-0", "first: answers", "second: running gpu-0", "compare scratch-first",
    "compare scratch-first", "copy model", "compare scratch-first",
    "start gpu-0 2", "wait",
    "second: stop gpu-0", "second: running gpu-0", "second: running gpu-0",
    "attach scratch-second", "replicate scratch-first", "compare scratch-first", "replicate scratch-first again",
    "up aws-recovery", "first: import fs-1",
]  # fmt: skip


def run(world: Returned, folder: Path, ignore: str = "", **more: Any) -> FailoverResult:
    """Run all steps that are not done, with the journal in this folder, as the command does."""
    one = world.returning(ignore=ignore, **more)
    journal = FailbackJournal(folder / "Pulumi.aws-recovery.yaml", folder)
    try:
        if not journal.exists:
            journal.begin(one.back.stack, one.back.second, {})
        repeat_launch(journal)
        return run_steps(journal, steps(one), lambda line: None, ignore=one.back.ignore)
    finally:
        journal.close()


def test_second_region_stops_when_the_first_one_has_nodes_and_the_copy_ends_before_the_deployment(tmp_path: Path) -> None:  # fmt: skip
    """The second region works until the first one has nodes, and the deployment starts the replication when the bucket contains every object."""
    world = Returned()
    result = run(world, tmp_path)
    assert result.ok, result.problem
    assert world.calls == CALLS
    assert [one.name for one in result.steps] == [
        "check", "precopy", "launch", "nodes aws-recovery", "fence", "replicas", "replication", "copy", "replicate", "up aws-recovery",
        "import aws-recovery", "verify aws-recovery",
    ]  # fmt: skip
    assert "--refresh" in result.steps[9].what
    assert result.journal.entry("precopy")["found"] == "1 object (1.0 GiB) copied while the nodes ran"
    found = str(result.journal.entry("copy")["found"])
    assert found == "0 objects copied; 1 object deleted in the second region and kept in the first region"


def test_the_stop_is_as_long_as_in_the_failover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The durations of the steps during which no node runs are summed. Without them, the stop is unknown."""
    journal = FailoverJournal(tmp_path / "Pulumi.aws-recovery.yaml", tmp_path)
    with closing(journal):
        assert expected_stop(journal.minutes).startswith(
            "unknown, because the failover has no durations of these steps"
        )
        journal.begin("aws-recovery", "us-west-2", {})
        clock = {
            "fence": (0, 2),
            "up a": (0, 12),
            "up b": (12, 15),
            "import a": (15, 18),
            "verify b": (18, 22),
            "drain": (0, 50),
        }
        for step, (started, ended) in clock.items():
            monkeypatch.setattr("gpuinfra.region.failover.journal.now", lambda: f"2026-11-29T00:{started:02}:00Z")  # noqa: B023
            journal.start(step)
            monkeypatch.setattr("gpuinfra.region.failover.journal.now", lambda: f"2026-11-29T00:{ended:02}:00Z")  # noqa: B023
            journal.finish(step, DONE, "")
        journal.start("up c")
        assert expected_stop(journal.minutes).startswith(
            "about 24 minutes, as in the failover (fence 2, up 15, import 3, verify 4), "
        )


def test_ready_states_how_long_the_stop_of_a_failback_is(tmp_path: Path) -> None:
    """The line has the durations in the record of the active region."""
    steps_done = {"up a": {"state": DONE, "started": "2026-11-29T00:00:00Z", "ended": "2026-11-29T00:12:00Z"}}
    line = stop_line({"steps": steps_done}, "us-east-2")
    assert (line.topic, line.name, line.state) == ("failback", "us-east-2", OK)
    assert line.reason.startswith("the time during which no job runs is about 12 minutes, as in the failover (up 12), ")


class Writing(Returned):
    """A second region that writes a new object after each pass, and the last one before its nodes end. `sizes` are the next sizes in GiB."""

    sizes: tuple[float, ...] = ()

    def copy(self, pair: BucketPair, copies: Iterable[Copy]) -> None:
        super().copy(pair, copies)
        if self.sizes:
            self.copies.append(replace(NEWER, key=f"step-{len(self.sizes)}", size=int(self.sizes[0] * 2**30)))
            self.sizes = self.sizes[1:]


def test_the_second_region_works_until_the_rest_is_small(tmp_path: Path) -> None:
    """Each pass copies what was written during the one before. The nodes stop when a pass no longer halves the rest, which is copied after the fence."""
    world = Writing()
    world.sizes = (0.25, 0.125, 0.125)
    result = run(world, tmp_path)
    assert result.ok, result.problem
    assert (
        result.journal.entry("precopy")["found"] == "3 objects (1.4 GiB) copied while the nodes ran; 0.1 GiB are left"
    )
    calls = [call for call in world.calls if call.startswith(("copy", "second: stop"))]
    assert calls == ["copy model", "copy step-3", "copy step-2", "second: stop gpu-0", "copy step-1"]
    assert world.copies == []


class Simple(Returned):
    """A cloud where a failover neither suspends launches nor keeps a disabled replication."""

    start_replication = attach_replica = None  # pyright: ignore[reportAssignmentType]

    def start_command(self, group: str) -> str:
        return ""


def test_a_cloud_whose_replication_is_deployed_again_has_no_steps_for_it(tmp_path: Path) -> None:
    """Without a disabled replication, the deployment restores it, and the commands that are left contain only the deployment."""
    world = Simple()
    result = run(world, tmp_path)
    assert result.ok, result.problem
    assert [one.name for one in result.steps] == [
        "check", "precopy", "launch", "nodes aws-recovery", "fence", "copy", "up aws-recovery", "import aws-recovery", "verify aws-recovery",
    ]  # fmt: skip
    (line,) = left_to_do(world.returning("hot"), world.second("hot"), "hot")
    assert line.endswith("as hot mode requires: pulumi up --refresh --stack aws-recovery-us-west-2")
    (line,) = left_to_do(world.returning("cold"), world.second("cold"), "cold")
    assert "because the resources are billed: pulumi destroy" in line


@pytest.mark.parametrize("moment", range(1, len(CALLS) + 1))
def test_kill_at_every_request_resumes(tmp_path: Path, moment: int) -> None:
    """After a kill before any request, the resumed run repeats only the interrupted step, and ends with the same data."""

    class Killed(BaseException):
        pass

    class Mortal(Returned):
        def _ask(self, region: str, call: str) -> None:
            super()._ask(region, call)
            if len(self.calls) == moment:
                raise Killed

        def mirror(self):  # type: ignore[no-untyped-def]
            mirror = super().mirror()
            ask = mirror._ask

            def dies(region: str, call: str) -> None:
                ask(region, call)
                if len(self.calls) == moment:
                    raise Killed

            mirror._ask = dies  # type: ignore[method-assign]
            return mirror

    world = Mortal()
    with pytest.raises(Killed):
        run(cast(Returned, world), tmp_path)
    killed = len(world.calls)
    result = run(world, tmp_path)
    assert result.ok, result.problem
    assert {result.journal.state(one.name) for one in result.steps} == {DONE}
    assert world.copies == []
    assert world.calls[killed:][-1].removesuffix(" again") == CALLS[-1]
    assert sum(call == "start gpu-0 2" for call in world.calls) <= 2
    assert "start gpu-0 2" not in world.calls[world.calls.index("second: stop gpu-0") + 1 :]


def test_a_failback_without_capacity_leaves_the_second_region_alone(tmp_path: Path) -> None:
    """The second region keeps its jobs and nodes, the resumed run launches again, and the undone one stops what it launched."""
    world = Returned(shortage="no capacity in use1-az1")
    result = run(world, tmp_path)
    assert result.problem == "nodes aws-recovery: no capacity in use1-az1"
    assert result.journal.undo == ", or undo the failback with --abort"
    assert world.calls == [*CALLS[:7], "start gpu-0 2", "wait"]
    assert not run(world, tmp_path).ok
    assert world.calls[9:] == ["start gpu-0 2", "wait"]
    world.nodes = 1
    (step,) = undo_steps(world.returning())
    step.run(False)
    assert world.calls[11:] == ["stop gpu-0", "running gpu-0", "running gpu-0"]
    world.shortage = ""
    assert run(world, tmp_path).ok


def test_nodes_that_end_after_their_verification_are_launched_again(tmp_path: Path) -> None:
    """A fence of the second region requires nodes in the first one, and a repeated run obtains them again before it."""
    world = Returned(reads=[("verified", "lost")])
    result = run(world, tmp_path)
    assert result.problem.startswith("fence: not all nodes of aws-recovery are verified: gpu-2: lost")
    assert "second: stop gpu-0" not in world.calls
    before = len(world.calls)
    assert run(world, tmp_path).ok
    assert world.calls[before : before + 3] == ["start gpu-0 2", "wait", "second: stop gpu-0"]


def test_queued_nodes_are_requested_by_the_deployment(tmp_path: Path) -> None:
    """Without nodes that can be launched first, the second region is stopped without a verification, and the deployment obtains the nodes."""
    world = Returned(outcomes=())
    returning = replace(world.returning(), resources=[{"urn": "urn:pulumi:s::p::t::train-other-0"}])
    with closing(FailbackJournal(tmp_path / "Pulumi.aws-recovery.yaml", tmp_path)) as journal:
        journal.begin("aws-recovery", "us-east-1", {})
        result = run_steps(journal, steps(returning), lambda line: None)
    assert result.problem.startswith("verify aws-recovery: no nodes of aws-recovery are expected")
    assert [call for call in world.calls if call.startswith(("start", "wait", "second: stop", "up"))] == [
        "start gpu-0 0", "second: stop gpu-0", "up aws-recovery",
    ]  # fmt: skip


def test_the_second_region_can_be_stopped_first(tmp_path: Path) -> None:
    """With `--stop-first`, nothing is launched in the first region before the copy ends."""
    world = Returned()
    result = run(world, tmp_path, stop_first=True)
    assert result.ok, result.problem
    first = [call for call in world.calls if call.startswith(("start", "wait", "second: stop", "up"))]
    assert first == ["second: stop gpu-0", "start gpu-0 2", "up aws-recovery"]


class Exporting:
    """A cloud where an export of each file system is requested."""

    def __init__(self, world: Returned) -> None:
        self._world = world

    def exporting(self, resources: object) -> tuple[str, ...]:
        return ("fs-2",)

    def start(self, file_system: str) -> Export:
        self._world._ask("second", f"export {file_system}")
        return Export(file_system=file_system, mark="")

    def ended(self, export: Export) -> bool:
        return True


def test_the_newest_data_of_the_second_region_is_kept(tmp_path: Path) -> None:
    """Jobs get time for a checkpoint before their nodes stop, and the file systems export before the last copy. Both steps can be ignored."""
    world = Returned()
    stops: list[str] = []

    def stop() -> Mapping[str, JobStop]:
        world._ask("second", "stop jobs")
        return {"gpu-1": JobStop(done=not stops, text="; ".join(stops))}

    more = {"stop_jobs": stop, "exports": Exporting(world)}
    stops.append("no login")
    result = run(world, tmp_path, **more)
    assert result.problem.startswith("jobs: the jobs on 1 node were not stopped")
    assert "or add --ignore jobs to continue without this step" in result.problem
    assert run(world, tmp_path, ignore="jobs", **more).ignored == ("jobs",)
    order = [
        call
        for call in world.calls
        if call in ("stop jobs", "second: stop gpu-0", "export fs-2", "attach scratch-second")
    ]
    assert order == ["stop jobs", "stop jobs", "second: stop gpu-0", "export fs-2", "attach scratch-second"]


@pytest.mark.parametrize("conflict", [BOTH, AHEAD])
def test_newer_objects_in_the_first_region_stop_the_run_before_the_first_change(tmp_path: Path, conflict: object) -> None:  # fmt: skip
    """An object that is newer in the first region or differs from the replica is listed, and the nodes of the second region keep running."""
    world = Returned(conflicts=[conflict])  # type: ignore[list-item]
    result = run(world, tmp_path)
    assert not result.ok
    assert f"scratch-first/{world.conflicts[0].key} {world.conflicts[0].reason}" in result.problem
    assert "--ignore conflicts" in result.problem
    assert world.calls == CALLS[:4]


def test_conflicts_that_appear_after_the_check_stop_the_copy(tmp_path: Path) -> None:
    """The copy compares again, so an object that was written after the check is not replaced either."""

    class Late(Returned):
        def start_replication(self, pair: object) -> None:
            self.conflicts.append(BOTH)

    world = Late()
    result = run(world, tmp_path)
    assert result.problem.startswith("copy: 1 object in us-east-1")
    assert not any(call.startswith(("copy log", "up")) for call in world.calls)


def test_ignored_conflicts_keep_both_versions(tmp_path: Path) -> None:
    """With `--ignore conflicts`, the later version becomes the current one; an object that is newer in the first region stays and is named."""
    world = Returned(conflicts=[BOTH, AHEAD])
    result = run(world, tmp_path, ignore=CONFLICTS)
    assert result.ok, result.problem
    assert [call for call in world.calls if call.startswith("copy")] == ["copy model", "copy log"]
    assert "1 object kept in the first region: \n  scratch-first/late is newer" in str(
        result.journal.entry("copy")["found"]
    )


def test_nodes_in_the_first_region_stop_the_run(tmp_path: Path) -> None:
    """If the first region has nodes, the stack did not fail over completely, and nothing is changed."""
    world = Returned(nodes=2)
    result = run(world, tmp_path)
    assert "nodes are running in us-east-1" in result.problem
    assert "gpu-0 2" in result.problem
    assert world.calls == CALLS[:1]


def test_failed_check_changes_nothing(tmp_path: Path) -> None:
    """A stack file that does not match, or a missing quota in the first region, stops the run."""
    world = Returned(
        lines=[GOOD, ReadinessLine(topic="difference", name="pools", state=FAIL, reason="differs", fix="edit")]
    )
    result = run(world, tmp_path)
    assert "--ignore difference" in result.problem
    assert world.calls == []
    assert run(world, tmp_path, ignore="difference").ok


@pytest.mark.parametrize("region", ["first", "second"])
def test_region_that_does_not_respond_ends_the_run(tmp_path: Path, region: str) -> None:
    """No step is skipped: a failback requires both regions, and continues when they respond."""
    world = Returned(down={region})
    result = run(world, tmp_path)
    assert not result.ok
    assert "timed out" in result.problem
    assert "did not respond" in result.problem
    assert result.unreachable == ()
    assert not any(call.startswith(("start", "up")) for call in world.calls)
    world.down.clear()
    assert run(world, tmp_path).ok


def test_replicas_that_keep_changing_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If each comparison finds new objects, something writes to the replica, and the first region does not start."""

    class Written(Returned):
        def copy(self, pair: object, copies: object) -> None:
            pass

    now = [0.0]
    monkeypatch.setattr(
        "gpuinfra.region.failover.steps.time.monotonic", lambda: now.__setitem__(0, now[0] + 60) or now[0]
    )
    result = run(Written(), tmp_path)
    assert result.journal.state("precopy") == DONE
    assert "copy: after 60 minutes, the replicas are still changing: model" in result.problem


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("cold", "pulumi destroy --stack aws-recovery-us-west-2"),
        ("pilot-light", "pulumi destroy --stack aws-recovery-us-west-2"),
        ("hot", "start gpu-0 && pulumi up --refresh --stack aws-recovery-us-west-2"),
    ],
)
def test_the_rest_in_the_second_region_depends_on_the_mode(mode: Mode, text: str) -> None:
    """In mode hot the nodes start again, otherwise they are removed; the file systems of mode pilot-light stay."""
    world = Returned()
    (line,) = left_to_do(world.returning(mode), world.second(mode), mode)
    assert line.endswith(text)


def test_document_has_the_schema_of_a_failback(tmp_path: Path) -> None:
    """The JSON form names the first region and its own schema."""
    document = run(Returned(), tmp_path).document("aws-recovery", SCHEMA)
    assert (document["schema"], document["region"]) == ("gpuinfra.failback/1", "us-east-1")


def returning(world: Returned, site: Scheduled) -> Returning:
    """A failback whose first region has scheduled exports."""
    one = world.returning()
    (stack,) = one.back.stacks
    systems = [replace(each, export_minutes=60) for each in stack.plan.file_systems]
    stack = replace(stack, plan=replace(stack.plan, file_systems=tuple(systems)))
    return replace(one, exports=site, back=replace(one.back, stacks=(stack,)))


def test_scheduled_exports_are_resumed_last(tmp_path: Path) -> None:
    """The check pauses a schedule that was resumed by hand, and the last step resumes it, when the file systems have the newest files.
    A step that was killed runs again."""
    world = Returned()
    one = returning(world, Scheduled(world))
    found = steps(one)
    with closing(FailbackJournal(tmp_path / "Pulumi.aws-recovery.yaml", tmp_path)) as journal:
        journal.begin(one.back.stack, one.back.second, {})
        with pytest.raises(Killed):
            run_steps(journal, killed(found, len(found) - 1, after=True), lambda line: None)
        result = run_steps(journal, found, lambda line: None)
        assert result.ok, result.problem
        assert journal.entry("schedule")["found"] == "scheduled exports resumed: every-hour"
    paused, copied = world.calls.index("pause every-hour"), world.calls.index("copy model")
    assert paused < copied < world.calls.index("first: import fs-1") < world.calls.index("resume every-hour")
    assert world.calls[-2:] == ["resume every-hour"] * 2


def test_no_step_resumes_exports_that_are_not_declared() -> None:
    """A stack without a schedule, and a cloud without schedules, have no such step."""
    world = Returned()
    undeclared = replace(world.returning(), exports=Scheduled(world))
    assert "schedule" not in [one.name for one in (*steps(undeclared), *steps(world.returning()))]


@pytest.mark.parametrize("step", ["fence", "drain", "import"])
def test_an_abort_resumes_scheduled_exports_after_the_deployment(step: str, tmp_path: Path) -> None:
    """Before the fence, nothing is paused. Later, the schedule is resumed when the first region runs with the newest files."""
    world = Returned(nodes=0)
    interrupted(world, tmp_path, STEPS.index(step), after=True)
    with closing(FailoverJournal(tmp_path / "Pulumi.aws-recovery.yaml", tmp_path)) as journal:
        journal.abort()
        result = run_steps(journal, abort_steps(returning(world, Scheduled(world)), journal, None), lambda line: None)
        assert result.ok, result.problem
    last = max(world.calls.index(one) for one in ("up aws-recovery", "first: import fs-1") if one in world.calls)
    assert last < world.calls.index("resume every-hour")


def test_an_abort_before_the_fence_leaves_the_schedule_alone(tmp_path: Path) -> None:
    """The failover has not paused it."""
    world = Returned(nodes=0)
    interrupted(world, tmp_path, STEPS.index("verify"), after=True)
    with closing(FailoverJournal(tmp_path / "Pulumi.aws-recovery.yaml", tmp_path)) as journal:
        names = [one.name for one in abort_steps(returning(world, Scheduled(world)), journal, None)]
    assert "abort schedule" not in names
