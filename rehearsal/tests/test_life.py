"""`gpuinfra rehearse life` on the stacks of AWS: one with its shipped number of nodes, the others with two nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, assert_lived, fewer_nodes

STACKS = ("aws-p5-block", "aws-existing-network", "aws-monitoring", "aws-recovery")


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_life_of_a_p4d_cluster(rehearse: Rehearse) -> None:
    """Every step has its expected effect, under the minimum permissions."""
    result = rehearse("life", "aws-p4d", "--under-least-permissions")
    assert result.code == 0, result.out[-6000:] + result.err
    steps = {s["step"]: s for s in result.report["life"]}
    assert list(steps) == [
        "preview", "up", "up again", "add a node", "drift", "replace a node", "destroy", "adopt", "up after destroy",
    ]  # fmt: skip
    assert all(s["ok"] for s in steps.values())
    assert "no changes to resources or nodes" in steps["up again"]["found"]
    assert result.report["totals"]["nodes_verified"] == 5
    under = result.report["permissions"]
    assert (under["refused"], under["unused"]) == ([], [])


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", STACKS)
def test_life_of_other_clusters_on_aws(rehearse: Rehearse, stack: str, tmp_path: Path) -> None:
    """The same steps for a Capacity Block within its window and for nodes in an existing network."""
    assert_lived(rehearse("life", fewer_nodes(stack, tmp_path), "--under-least-permissions"))


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_life_of_three_layers_on_aws(rehearse: Rehearse) -> None:
    """Each layer runs on the layers below it, under its own policy; a layer without nodes has no steps about nodes."""
    for layer in ("aws-foundation", "aws-site"):
        result = rehearse("life", layer, "--under-least-permissions")
        assert result.code == 0, result.out[-6000:] + result.err
        assert [s["step"] for s in result.report["life"]] == [
            "preview", "up", "up again", "drift", "destroy", "adopt", "up after destroy",
        ]  # fmt: skip
        assert (result.report["permissions"]["refused"], result.report["permissions"]["unused"]) == ([], [])
    assert_lived(rehearse("life", "aws-cluster", "--under-least-permissions"))
