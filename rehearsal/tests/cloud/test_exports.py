"""The exports of a failover, with the requests of gpuinfra to a stand-in cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.clouds.aws.region import exports as aws
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.exports import ScheduledExports
from gpuinfra.clouds.region.readiness import OK, WARN, ReadinessQuestion
from gpuinfra.plan.make import build_plan
from gpuinfra.region.failover.newest import export_all, set_schedules
from gpuinfra.spec.load import read_stack
from tests.region.clone.deployed import Deployed
from tests.region.clone.stacks import TODAY, file_of


@pytest.mark.long
@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_file_systems_of_a_shipped_stack_export(cloud: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state lists the file system, and the export ends. On AWS, the metric is read; on the other clouds, an export starts."""
    monkeypatch.setattr(aws, "SETTLED", aws.timedelta())
    stack = read_stack(file_of(f"{cloud}-recovery"))
    one = Deployed(stack, tmp_path)
    try:
        for name, value in one.environment.items():
            monkeypatch.setenv(name, value)
        exports = cloud_of(cloud).exports(stack.spec.where.region, stack.config)
        assert exports is not None
        (file_system,) = exports.exporting(one.resources)
        assert export_all(exports, one.resources, [None] * 3, 60).startswith("exported: ")
        assert file_system
        # What an export reports is no input, so the next deployment does not replace the file system.
        for system in one.cloud.store.list("azure-native:storagecache:AmlFilesystem"):
            assert system.outputs["hsm"]["archiveStatus"], "the export is not reported"
            assert set(system.inputs["hsm"]) == {"settings"}
    finally:
        one.close()


SCHEDULED = {
    "azure": ("azure-native:logic:Workflow", "Enabled", "Disabled"),
    "gcp": ("gcp:cloudscheduler/job:Job", "ENABLED", "PAUSED"),
}
"""Cloud -> type of a schedule, and the states of a schedule that runs and that is paused."""


@pytest.mark.long
@pytest.mark.parametrize("cloud", SCHEDULED)
def test_schedules_of_a_shipped_stack_are_paused_and_resumed(
    cloud: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A final export pauses the schedule, which can be repeated, `ready` reports it, and resuming starts it again. A vanished schedule is left alone."""
    type_, runs, paused = SCHEDULED[cloud]
    stack = read_stack(file_of(f"{cloud}-recovery"))
    one = Deployed(stack, tmp_path)
    try:
        for name, value in one.environment.items():
            monkeypatch.setenv(name, value)
        exports = cloud_of(cloud).exports(stack.spec.where.region, stack.config)
        assert isinstance(exports, ScheduledExports)
        (schedule,) = exports.schedules(one.resources)
        cloud_requests = cloud_of(cloud).failover(stack.spec.where.region, "second", stack.config)
        assert cloud_requests is not None
        assert any(schedule.rpartition("/")[2] in part for part in cloud_requests.beyond_reach(one.resources))

        def state() -> str:
            (found,) = one.cloud.store.list(type_)
            return str(found.outputs["state"])

        def ready() -> str:
            recovery = build_plan(stack.spec, TODAY).recovery
            assert recovery is not None
            question = ReadinessQuestion(
                region=stack.spec.where.region,
                recovery=recovery,
                rpo_minutes=120,
                resources=one.resources,
                config=stack.config,
            )
            lines = [line for line in cloud_of(cloud).readiness(question) or () if line.topic == "export"]
            assert [line.name.rpartition("/")[2] for line in lines] == [schedule.rpartition("/")[2]]
            return lines[0].state

        assert (state(), ready()) == (runs, OK)
        for _ in range(2):
            assert schedule.rpartition("/")[2] in export_all(exports, one.resources, [None] * 3, 60)
            assert (state(), ready()) == (paused, WARN)
        for _ in range(2):
            assert set_schedules(exports, one.resources, paused=False) == (schedule,)
            assert (state(), ready()) == (runs, OK)
        one.vanish(one.first(type_))
        set_schedules(exports, one.resources, paused=True)
        assert ready() == WARN
    finally:
        one.close()
