"""The fabric test of a rehearsed cluster: the handover selects the pairs, and the nodes report through the bucket of the stand-in cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, fewer_nodes

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]


@pytest.mark.parametrize("stack", ["aws-p4d", "azure-ndv5", "gcp-a3mega"])
def test_two_nodes_are_verified_with_each_other(stack: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """By default, both nodes pass check B8 with the other node, with the permissions that each node has."""
    result = rehearse("up", fewer_nodes(stack, tmp_path), "--deadline", "5400s")
    assert result.code == 0, result.out + result.err
    nodes = result.report["nodes"]
    assert [node["outcome"] for node in nodes] == ["verified", "verified"]
    for node in nodes:
        (found,) = [check for check in node["checks"] if check["id"] == "B8"]
        assert (found["outcome"], found["unit"]) == ("pass", "GB/s")
    assert result.report["rights"]["refused"] == []
