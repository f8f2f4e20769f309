"""The fabric test of a rehearsed cluster: the nodes meet through the bucket of the stand-in cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, fewer_nodes

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

RIGHTS = {
    "aws-p4d": ("JoinFabricTest: s3:PutObject", "FindOtherNodes: s3:ListBucket", "MeetOtherNodes: s3:GetObject"),
    "azure-ndv5": (),
    "gcp-a3mega": ("train-node-fabric",),
}
"""Stack -> ends of the names of rights of the nodes that only the fabric test uses."""


@pytest.mark.parametrize("stack", RIGHTS)
def test_two_nodes_are_verified_with_each_other(stack: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """By default, both nodes pass check B8 with the other node, and use their permissions for the folder of the test."""
    result = rehearse("up", fewer_nodes(stack, tmp_path), "--deadline", "5400s")
    assert result.code == 0, result.out + result.err
    nodes = result.report["nodes"]
    assert [node["outcome"] for node in nodes] == ["verified", "verified"]
    for node in nodes:
        (found,) = [check for check in node["checks"] if check["id"] == "B8"]
        assert (found["outcome"], found["unit"]) == ("pass", "GB/s")
    rights = result.report["rights"]
    assert rights["refused"] == []
    for right in RIGHTS[stack]:
        assert any(one.endswith(right) for one in rights["used"]), (right, rights)
