"""A cluster whose Lustre file system is created from a backup is rehearsed to a verified node, and a backup that does not fit is the finding."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, open_session
from tests.clouds.aws.test_restore import BACKUP, CONFIGURATION

from .conftest import Finished, Rehearse

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

STACK = """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: lab
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    pools:
      - {name: gpu, machine: g5.xlarge, capacity: {kind: on_demand, count: 1}}
    storage:
      - {kind: lustre, mount: /scratch, capacity_gib: 1200, restore_from: BACKUP}
"""


def describe(result: Finished, path: Path, **configuration: Any) -> None:
    """Set the fields of the backup in the account of a rehearsed stack."""
    original = {"FileSystemTypeVersion": "2.12", "StorageType": "SSD", "StorageCapacity": 1200}
    options = Options(stack=str(path), folder=result.root.parent, without_nodes=True)
    with open_session(options, view_for(io.StringIO())) as session:
        fields = {**original, "LustreConfiguration": {**CONFIGURATION, **configuration}}
        session.cloud.ask("external", {"id": BACKUP, **fields})


def test_a_file_system_is_created_from_a_backup(rehearse: Rehearse, tmp_path: Path) -> None:
    """With an unknown backup, nothing is created and the error names it. A backup with another compression is the finding.
    With a backup that fits, the node is verified, and a second `up` changes nothing after the backup is removed from the declaration."""
    path = tmp_path / "home/Pulumi.lab.yaml"
    path.parent.mkdir()
    path.write_text(STACK.replace("BACKUP", "backup-00000000000000001"), encoding="utf-8")
    result = rehearse("up", str(path))
    assert result.code == 1, result.out + result.err
    assert "backup-00000000000000001 does not exist in us-east-1" in result.out + result.err

    path.write_text(STACK.replace("BACKUP", BACKUP), encoding="utf-8")
    describe(result, path, DataCompressionType="NONE")
    result = rehearse("up", str(path))
    assert result.code == 1, result.out + result.err
    assert f"{BACKUP} has the data compression NONE" in result.out + result.err

    describe(result, path)
    result = rehearse("up", str(path))
    assert result.code == 0, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["verified"]

    path.write_text(STACK.replace(", restore_from: BACKUP", ""), encoding="utf-8")
    result = rehearse("up", str(path))
    assert result.code == 0, result.out + result.err
    assert "replace" not in result.out
    result = rehearse("destroy", str(path))
    assert result.code == 0, result.out + result.err
