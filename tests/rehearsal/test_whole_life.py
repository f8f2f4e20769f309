"""Acceptance: a whole life of the cluster."""

from __future__ import annotations

import pytest

from .conftest import Rehearse, Told

AWS = ("aws-p5-block", "aws-existing-network")
AZURE = ("azure-ndv4", "azure-ndv5", "azure-existing-network")
GOOGLE = ("gcp-a3mega", "gcp-a3high", "gcp-a3ultra", "gcp-existing-network")


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_life_of_the_p4d_cluster(rehearse: Rehearse) -> None:
    """up, up again, a node more, drift, a replaced node, destroy, up again: every step shows what it has to."""
    told = rehearse("life", "aws-p4d", "--under-least-permissions")
    assert told.code == 0, told.out[-6000:] + told.err
    steps = {s["step"]: s for s in told.report["life"]}
    assert list(steps) == [
        "preview", "up", "up again", "one node more", "drift made by hand", "a node replaced by its group", "destroy",
        "up again after destroy",
    ]  # fmt: skip
    assert all(s["ok"] for s in steps.values())
    assert "no changes, no node touched" in steps["up again"]["found"]
    assert told.report["totals"]["nodes_verified"] == 5
    under = told.report["permissions"]
    assert (under["refused"], under["unused"]) == ([], [])


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", GOOGLE)
def test_life_of_clusters_on_google_cloud(rehearse: Rehearse, stack: str) -> None:
    """The same life: groups make nodes, nodes install themselves and report, Google's own tokens vouch for them."""
    assert_lived(rehearse("life", stack, "--under-least-permissions"))


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", AZURE)
def test_life_of_clusters_on_azure(rehearse: Rehearse, stack: str) -> None:
    """The same life: scale sets make nodes, nodes install themselves and report, attested documents vouch for them."""
    assert_lived(rehearse("life", stack, "--under-least-permissions"))


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", AWS)
def test_life_of_other_clusters_on_aws(rehearse: Rehearse, stack: str) -> None:
    """The same life for a Capacity Block inside its window, and for nodes in a network of somebody else."""
    assert_lived(rehearse("life", stack, "--under-least-permissions"))


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_life_of_three_layers_on_aws(rehearse: Rehearse) -> None:
    """Each layer lives on the ones below it, under its own policy; a layer without nodes leaves out what is about nodes."""
    for layer in ("aws-foundation", "aws-site"):
        told = rehearse("life", layer, "--under-least-permissions")
        assert told.code == 0, told.out[-6000:] + told.err
        assert [s["step"] for s in told.report["life"]] == [
            "preview", "up", "up again", "drift made by hand", "destroy", "up again after destroy",
        ]  # fmt: skip
        assert (told.report["permissions"]["refused"], told.report["permissions"]["unused"]) == ([], [])
    assert_lived(rehearse("life", "aws-cluster", "--under-least-permissions"))


def assert_lived(told: Told) -> None:
    """Every step held, under the policy that is printed for its operator, and nobody had a right that nothing used."""
    assert told.code == 0, told.out[-6000:] + told.err
    steps = {s["step"]: s for s in told.report["life"]}
    assert all(s["ok"] for s in steps.values())
    assert "a node replaced by its group" in steps
    assert "no changes, no node touched" in steps["up again"]["found"]
    assert told.report["totals"]["nodes_verified"] == told.report["totals"]["nodes"] > 1
    under, rights = told.report["permissions"], told.report["rights"]
    assert (under["refused"], under["unused"]) == ([], [])
    assert (rights["refused"], rights["unused"]) == ([], [])
