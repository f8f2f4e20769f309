"""The fabric test of a rehearsed cluster: the nodes meet through the bucket of the stand-in cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

STACK = """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: lab
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    pools:
      - {name: gpu, machine: p4d.24xlarge, capacity: {kind: on_demand, count: 2}}
    handover: {deadline_minutes: 90}
"""


def test_two_nodes_are_verified_with_each_other(rehearse: Rehearse, tmp_path: Path) -> None:
    """Both nodes pass check B8 with the other node, and use their permissions for the folder of the test."""
    path = tmp_path / "home/Pulumi.lab.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(STACK, encoding="utf-8")
    result = rehearse("up", str(path), "--deadline", "5400s")
    assert result.code == 0, result.out + result.err
    nodes = result.report["nodes"]
    assert [node["outcome"] for node in nodes] == ["verified", "verified"]
    for node in nodes:
        (found,) = [check for check in node["checks"] if check["id"] == "B8"]
        assert (found["outcome"], found["unit"]) == ("pass", "GB/s")
    rights = result.report["rights"]
    assert rights["refused"] == []
    for right in ("JoinFabricTest: s3:PutObject", "FindOtherNodes: s3:ListBucket", "MeetOtherNodes: s3:GetObject"):
        assert any(one.endswith(right) for one in rights["used"]), (right, rights)
