"""`gpuinfra rehearse life` on the stacks of all clouds: one with its shipped number of nodes, the others with two nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Finished, Rehearse, fewer_nodes

AWS = ("aws-p5-block", "aws-existing-network", "aws-recovery")
AZURE = ("azure-ndv4", "azure-ndv5", "azure-existing-network", "azure-recovery")
GOOGLE = ("gcp-a3mega", "gcp-a3high", "gcp-a3ultra", "gcp-existing-network")


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
@pytest.mark.parametrize("stack", GOOGLE)
def test_life_of_clusters_on_google_cloud(rehearse: Rehearse, stack: str, tmp_path: Path) -> None:
    """The same steps with managed instance groups and Google's identity tokens."""
    assert_lived(rehearse("life", fewer_nodes(stack, tmp_path), "--under-least-permissions"))


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", AZURE)
def test_life_of_clusters_on_azure(rehearse: Rehearse, stack: str, tmp_path: Path) -> None:
    """The same steps with scale sets and attested documents."""
    assert_lived(rehearse("life", fewer_nodes(stack, tmp_path), "--under-least-permissions"))


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", AWS)
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


def assert_lived(result: Finished) -> None:
    """Every step has its expected effect, and the operator and the nodes used every permission and no other."""
    assert result.code == 0, result.out[-6000:] + result.err
    steps = {s["step"]: s for s in result.report["life"]}
    assert all(s["ok"] for s in steps.values())
    assert "replace a node" in steps
    assert "no changes to resources or nodes" in steps["up again"]["found"]
    assert result.report["totals"]["nodes_verified"] == result.report["totals"]["nodes"] > 1
    under, rights = result.report["permissions"], result.report["rights"]
    assert (under["refused"], under["unused"]) == ([], [])
    assert (rights["refused"], rights["unused"]) == ([], [])
