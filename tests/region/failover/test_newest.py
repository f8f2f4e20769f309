"""The newest data of a planned failover: jobs end with a checkpoint, file systems export, and then the buckets are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.region.exports import Export
from gpuinfra.region.failover.back import steps_not_run
from gpuinfra.region.failover.journal import FAILED, IGNORED, UNREACHABLE, FailoverJournal
from gpuinfra.region.failover.run import FailoverResult, first_region, run_steps
from gpuinfra.region.failover.steps import LIMIT_S, steps
from gpuinfra.remote.drain import JobStop, not_stopped
from tests.region.failover.world import World

STOPPED = {
    "gpu-1": JobStop(done=True, text="1 process stopped"),
    "gpu-2": JobStop(done=True, text="0 processes stopped"),
}


@dataclass
class Site:
    """The jobs and the file systems of the first region. It implements `gpuinfra.clouds.region.exports.Exports`."""

    world: World
    results: dict[str, JobStop] = field(default_factory=lambda: dict(STOPPED))
    busy: int = 0
    """Number of requests to start an export that find another transfer."""
    polls: int = 2
    """Number of requests until an export has ended."""
    names: tuple[str, ...] = ("fs-1",)

    def stop(self) -> dict[str, JobStop]:
        """Stop the jobs."""
        self.world.calls.append("stop jobs")
        return self.results

    def exporting(self, resources: Iterable[Any]) -> tuple[str, ...]:
        return self.names

    def start(self, file_system: str) -> Export | None:
        self.world._ask("first", f"export {file_system}")
        self.busy -= 1
        return None if self.busy >= 0 else Export(file_system=file_system, mark="")

    def ended(self, export: Export) -> bool:
        self.polls -= 1
        return self.polls < 0


@dataclass
class Scheduled(Site):
    """A site with scheduled exports. It implements `gpuinfra.clouds.region.exports.ScheduledExports`."""

    paused: bool = False

    def schedules(self, resources: Iterable[Any]) -> tuple[str, ...]:
        return ("every-hour",)

    def set_schedule(self, schedule: str, *, paused: bool) -> None:
        self.world._ask("first", f"{'pause' if paused else 'resume'} {schedule}")
        self.paused = paused


def run(site: Site, folder: Path, *, ignore: str = "", stop_first: bool = False) -> FailoverResult:
    """Run all steps that are not done."""
    failing = site.world.failing(stop_jobs=site.stop, exports=site, ignore=frozenset({ignore}), stop_first=stop_first)
    journal = FailoverJournal(folder / "Pulumi.aws-recovery.yaml", folder)
    try:
        if not journal.exists:
            journal.begin(failing.stack, failing.second, {}, stop_first=stop_first)
        first = first_region(failing, lambda evidence: True, stated=False)
        return run_steps(journal, steps(failing), lambda line: None, first, failing.ignore)
    finally:
        journal.close()


@pytest.mark.parametrize("stop_first", [False, True])
def test_jobs_end_before_the_nodes_and_files_are_exported_before_the_comparison(
    stop_first: bool, tmp_path: Path
) -> None:
    """The nodes are stopped after their jobs, the file systems export what was written last, and then the replica is compared."""
    world = World()
    result = run(Site(world), tmp_path, stop_first=stop_first)
    assert result.ok
    order = [call for call in world.calls if not call.startswith(("running", "up ", "import", "detach"))]
    assert order == ["stop jobs", "stop gpu-0", "export fs-1", "compare scratch-first", "disable scratch-first"]
    names = [one.name for one in result.steps]
    assert [name for name in names if name in ("jobs", "fence", "export", "drain")] == [
        "jobs",
        "fence",
        "export",
        "drain",
    ]
    assert result.journal.entry("jobs")["found"] == "jobs stopped on 2 nodes"
    assert result.journal.entry("export")["found"] == "exported: fs-1"


def test_jobs_that_do_not_stop_end_the_failover_before_the_fence(tmp_path: Path) -> None:
    """A node that cannot be reached can have unsaved work, so nothing is stopped, unless the user ignores the step."""
    world = World()
    site = Site(world, results={**STOPPED, "gpu-2": not_stopped("no route to host")})
    result = run(site, tmp_path)
    assert result.problem.startswith("jobs: the jobs on 1 node were not stopped")
    assert "gpu-2: jobs not stopped: no route to host; or add --ignore jobs" in result.problem
    assert "stop gpu-0" not in world.calls
    assert result.journal.state("jobs") == FAILED
    ignored = run(site, tmp_path, ignore="jobs")
    assert ignored.ok
    assert ignored.journal.state("jobs") == IGNORED


def test_jobs_run_until_the_second_region_is_still_verified(tmp_path: Path) -> None:
    """Nodes of the second region can end while the failover waits. Then the jobs of the first one are not stopped."""
    world = World(reads=[("verified", "verified"), ("verified", "failed")])
    result = run(Site(world), tmp_path)
    assert result.problem.startswith("jobs: not all nodes of")
    assert "stop jobs" not in world.calls
    assert run(Site(world), tmp_path).ok


def test_a_dead_region_is_found_before_a_login_to_its_nodes(tmp_path: Path) -> None:
    """Without the first region, no connection to a node is attempted, and both steps are recorded."""
    world = World(down={"first"})
    result = run(Site(world), tmp_path)
    assert result.ok
    assert "stop jobs" not in world.calls
    assert [result.journal.state(step) for step in ("jobs", "fence", "export", "drain")] == [UNREACHABLE] * 4


def test_a_region_without_nodes_has_no_jobs(tmp_path: Path) -> None:
    """The nodes can be stopped already, for example by `--stop-first` and a resumed run."""
    world = World(nodes=0)
    result = run(Site(world), tmp_path)
    assert result.ok
    assert result.journal.entry("jobs")["found"] == "no nodes are running"
    assert "stop jobs" not in world.calls


def test_nodes_outside_the_state_are_counted(tmp_path: Path) -> None:
    """A node that the state does not list has no address, and the result says that it was not asked."""
    result = run(Site(World(nodes=3)), tmp_path)
    assert (
        result.journal.entry("jobs")["found"]
        == "jobs stopped on 2 nodes; 1 node that the state does not list were not asked"
    )


def test_an_export_waits_for_a_transfer_that_runs(tmp_path: Path) -> None:
    """A scheduled export that runs does not count: the step starts its own afterwards, and repeats a failed step."""
    world = World()
    assert run(Site(world, busy=2), tmp_path).ok
    assert world.calls.count("export fs-1") == 3


def test_an_export_that_does_not_end_stops_the_failover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file systems, and `--ignore export` continues without the newest files."""
    now = [0.0]
    monkeypatch.setattr(
        "gpuinfra.region.failover.steps.time.monotonic", lambda: now.__setitem__(0, now[0] + 60) or now[0]
    )
    world = World()
    site = Site(world, polls=10**6, names=("fs-1", "fs-2"))
    problem = run(site, tmp_path).problem
    assert re.match(
        rf"export: the export did not finish within {LIMIT_S / 60:.0f} minutes: fs-1, fs-2; or add --ignore export",
        problem,
    )
    assert "compare scratch-first" not in world.calls
    assert run(site, tmp_path, ignore="export").ignored == ("export",)


def test_jobs_alone_do_not_move_the_stack() -> None:
    """The first region stays the active one until the fence."""
    world = World()
    site = Site(world)
    failing = world.failing(stop_jobs=site.stop, exports=site)
    activates = {one.name: one.activates for one in steps(failing)}
    assert activates["jobs"] is None
    assert activates["fence"] == "us-west-2"


def test_without_a_bucket_there_is_no_export() -> None:
    """A stack whose file systems have no bucket has no export step, and one without nodes no jobs step."""
    world = World()
    site = Site(world, names=())
    names = [one.name for one in steps(world.failing(exports=site))]
    assert "export" not in names
    assert "jobs" not in names


def test_export_errors_end_the_step(tmp_path: Path) -> None:
    """A failed export is an error with its reason."""

    class Failing(Site):
        def ended(self, export: Export) -> bool:
            raise DeploymentError("the export is Failed: no access")

    assert run(Failing(World()), tmp_path).problem.startswith("export: the export is Failed: no access")


def test_scheduled_exports_are_paused_before_the_final_export(tmp_path: Path) -> None:
    """An export of the schedule that runs is waited for, and no other one starts after the final one, also if that one fails and is ignored."""
    site = Scheduled(World(), busy=1)
    (step,) = (one for one in steps(site.world.failing(exports=site)) if one.name == "export")
    assert step.what.startswith("pause the scheduled exports every-hour, and wait until fs-1 has exported")
    result = run(site, tmp_path)
    assert result.ok
    assert [call for call in site.world.calls if "every-hour" in call or "export" in call] == [
        "pause every-hour",
        "export fs-1",
        "export fs-1",
    ]
    assert result.journal.entry("export")["found"] == "exported: fs-1; scheduled exports are paused: every-hour"


def test_scheduled_exports_of_the_second_region_are_resumed_after_the_import(tmp_path: Path) -> None:
    """The schedule of the second region runs when its file systems have the newest files, and no step resumes one that is not declared."""
    site = Scheduled(World())
    failing = site.world.failing(exports_there=site)
    assert "schedule" not in [one.name for one in steps(failing)]
    (stack,) = failing.stacks
    systems = tuple(replace(one, export_minutes=60) for one in stack.plan.file_systems)
    found = steps(replace(failing, stacks=(replace(stack, plan=replace(stack.plan, file_systems=systems)),)))
    names = [one.name for one in found]
    assert names.index("schedule") > names.index(f"import {stack.loaded.name}")
    (step,) = (one for one in found if one.name == "schedule")
    assert step.run(False) == "scheduled exports resumed: every-hour"
    assert site.world.calls == ["resume every-hour"]


def test_scheduled_exports_stay_paused_if_the_final_export_is_ignored(tmp_path: Path) -> None:
    """A failed export that the user ignores leaves no schedule that could write later."""

    class Failing(Scheduled):
        def ended(self, export: Export) -> bool:
            raise DeploymentError("the export is Failed: no access")

    site = Failing(World())
    assert run(site, tmp_path, ignore="export").ignored == ("export",)
    assert site.paused


def test_a_schedule_in_a_region_that_does_not_respond_is_paused_later(tmp_path: Path) -> None:
    """The step is recorded, a failback is refused until it is done, and the resumed failover pauses the schedule."""
    site = Scheduled(World(down={"first"}))
    result = run(site, tmp_path)
    assert "export" in result.unreachable
    assert "export" in steps_not_run(result.journal)
    site.world.down.clear()
    assert run(site, tmp_path).ok
    assert site.paused
