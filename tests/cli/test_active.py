"""The commands that read the record of the active region: which ones stop, and which ones print a warning."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.base.shipped import shipped
from gpuinfra.cli import active as cli
from gpuinfra.cli import up
from gpuinfra.cli.active import active_elsewhere, check_start
from gpuinfra.cli.stacks import NoStack
from gpuinfra.clouds.aws.cloud import AwsCloud
from gpuinfra.clouds.region.active import SharedRecord
from gpuinfra.spec.load import LoadedStack, read_stack
from tests.clouds.stacks import TODAY
from tests.region.failover.shared import CLUSTER_STATE, MemoryRecord

OWN, SECOND = "us-east-2", "us-west-2"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryRecord:
    """The record of `aws-recovery`, which is deployed, in the current folder."""
    found = MemoryRecord()
    (tmp_path / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    for name in ("Pulumi.aws-recovery.yaml", "Pulumi.aws-p4d.yaml"):
        shutil.copyfile(shipped("stacks") / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUINFRA_TODAY", TODAY.isoformat())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(AwsCloud, "record", lambda *_: found)
    monkeypatch.setattr(cli, "exported", lambda name, **_: [CLUSTER_STATE])
    return found


def loaded(name: str = "aws-recovery") -> LoadedStack:
    """The stack."""
    return read_stack(Path(f"Pulumi.{name}.yaml"))


def fail_over(record: MemoryRecord, region: str = SECOND) -> None:
    """Record that the stack runs in a region."""
    body: dict[str, Any] = {"steps": {}, "ended": "2026-11-28T00:00:00Z"}
    SharedRecord(record, "aws-recovery", OWN).update("failover", body, region)


def test_up_stops_in_a_region_that_is_not_active(record: MemoryRecord) -> None:
    """`gpuinfra up` fails before the checks, with the command that returns, also with a confirmation."""
    fail_over(record)
    for words in ([], ["--confirm-active", OWN]):
        done = CliRunner().invoke(up.command, ["Pulumi.aws-recovery.yaml", "--yes", *words], standalone_mode=False)
        assert isinstance(done.exception, DeploymentError), done.exception
        assert f"aws-recovery does not run in {OWN}: {SECOND} is active since" in str(done.exception)
        assert str(done.exception).endswith("run: gpuinfra failback aws-recovery")


def test_up_without_the_record_asks_for_the_region(
    record: MemoryRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error contains the option; with it, the command warns and continues. Another region is a usage error."""
    record.down = True
    with pytest.raises(
        DeploymentError, match=f"second timed out; if {OWN} is the active region, add --confirm-active {OWN}"
    ):
        check_start(loaded(), tmp_path, None)
    with pytest.raises(UsageError, match=f"--confirm-active is {SECOND}; allowed: {OWN}"):
        check_start(loaded(), tmp_path, SECOND)
    check_start(loaded(), tmp_path, OWN)
    assert "gpuinfra: warn: the record of the active region of aws-recovery cannot be read" in capsys.readouterr().err


def test_up_in_the_active_region_continues(
    record: MemoryRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a record, with one of this region, before the first deployment, and without `recovery`."""
    check_start(loaded(), tmp_path, None)
    fail_over(record, OWN)
    check_start(loaded(), tmp_path, None)
    record.down = True
    check_start(loaded("aws-p4d"), tmp_path, None)

    def no_stack(name: str, **_: Any) -> None:
        raise NoStack(name)

    monkeypatch.setattr(cli, "exported", no_stack)
    check_start(loaded(), tmp_path, None)


def test_commands_that_change_nothing_warn(record: MemoryRecord, capsys: pytest.CaptureFixture[str]) -> None:
    """`drift` and `calendar` learn where the stack runs, and print a warning if the record cannot be read."""
    assert active_elsewhere(loaded(), [CLUSTER_STATE]) is None
    fail_over(record)
    found = active_elsewhere(loaded(), [CLUSTER_STATE])
    assert found is not None
    assert found.region == SECOND
    record.down = True
    assert active_elsewhere(loaded(), [CLUSTER_STATE]) is None
    assert "gpuinfra: warn: the record" in capsys.readouterr().err
