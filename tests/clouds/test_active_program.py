"""The check of the active region in a Pulumi program: which runs fail, and which warn."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from gpuinfra.clouds import active_program
from gpuinfra.clouds.active_program import check_active
from gpuinfra.clouds.aws.cloud import AwsCloud
from gpuinfra.clouds.region.active import CONFIRM_VARIABLE, SharedRecord
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.spec.load import read_stack
from tests.region.clone.stacks import TODAY, file_of
from tests.region.failover.shared import CLUSTER_STATE, MemoryRecord

STACK, SECOND = "aws-recovery", "us-west-2"


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings of a program whose last deployment has a second region."""
    found: list[str] = []
    monkeypatch.setattr(pulumi, "get_stack", lambda: STACK)
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: False)
    monkeypatch.setattr(pulumi.log, "warn", found.append)
    monkeypatch.setattr(active_program, "saved_resources", lambda: [CLUSTER_STATE])
    monkeypatch.setattr(active_program, "_settings", lambda cloud: {})
    monkeypatch.delenv(CONFIRM_VARIABLE, raising=False)
    return found


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> MemoryRecord:
    """The record of the stack."""
    found = MemoryRecord()
    monkeypatch.setattr(AwsCloud, "record", lambda *_: found)
    return found


def plan() -> Plan:
    """The plan of a stack with a second region."""
    return build_plan(read_stack(file_of(STACK)).spec, TODAY)


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "moving"])
def test_a_program_in_a_region_that_is_not_active_fails(
    preview: bool, ended: bool, warned: list[str], record: MemoryRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preview of `pulumi up` fails too, so nothing changes. The error names the command that returns. A confirmation does not replace the record."""
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: preview)
    body: dict[str, Any] = {"steps": {}, "ended": "2026-11-28T00:00:00Z" if ended else None}
    SharedRecord(record, STACK, plan().region).update("failover", body, SECOND)
    monkeypatch.setenv(CONFIRM_VARIABLE, plan().region)
    with pytest.raises(pulumi.RunError) as found:
        check_active("recovery", plan())
    assert f"{STACK} does not run in {plan().region}: {SECOND} is active since" in str(found.value)
    back = "gpuinfra failback aws-recovery" if ended else "gpuinfra failover aws-recovery --to us-west-2 --abort"
    assert str(found.value).endswith(f"run: {back}")


def test_a_program_in_the_active_region_continues(warned: list[str], record: MemoryRecord) -> None:
    """Without a record, and with a record of this region, the program continues without a warning."""
    check_active("recovery", plan())
    SharedRecord(record, STACK, plan().region).update("failover", {"steps": {}})
    check_active("recovery", plan())
    assert warned == []


def test_a_program_knows_that_the_stack_returns(warned: list[str], record: MemoryRecord) -> None:
    """Schedules of exports are created paused while a failback, or the undoing of a failover, is not finished. A failover alone does not pause them."""
    own, ended = plan().region, {"steps": {}, "ended": "2026-11-28T00:00:00Z"}
    assert not check_active("recovery", plan())
    for move, body, returns in (
        ("failover", {"steps": {}}, False),
        ("failover", {"steps": {}, "aborting": "2026-11-28T00:00:00Z"}, True),
        ("failover", ended, False),
        ("failback", {"steps": {}, "ended": None}, True),
        ("failback", ended, False),
    ):
        SharedRecord(record, STACK, own).update(move, body, own)
        assert check_active("recovery", plan()) is returns, (move, body)


def test_an_update_without_the_record_requires_a_confirmation(
    warned: list[str], record: MemoryRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update fails with the variable to set; with the variable, and in a preview, it warns."""
    record.down = True
    with pytest.raises(pulumi.RunError, match=f"{CONFIRM_VARIABLE}={plan().region}"):
        check_active("recovery", plan())
    monkeypatch.setenv(CONFIRM_VARIABLE, "us-west-2")
    with pytest.raises(pulumi.RunError):
        check_active("recovery", plan())
    monkeypatch.setenv(CONFIRM_VARIABLE, plan().region)
    check_active("recovery", plan())
    monkeypatch.delenv(CONFIRM_VARIABLE)
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: True)
    check_active("recovery", plan())
    assert ["cannot be read" in one for one in warned] == [True, True]


def test_a_stack_without_a_second_region_reads_nothing(
    warned: list[str], record: MemoryRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is not asked without `recovery`, and no cloud before the first deployment of a second region."""
    record.down = True
    monkeypatch.setattr(active_program, "saved_resources", list)
    check_active("recovery", plan())
    monkeypatch.setattr(active_program, "saved_resources", lambda: pytest.fail("the engine was asked"))
    check_active("p4d", build_plan(read_stack(file_of("aws-p4d")).spec, TODAY))
    assert warned == []
