"""Three stacks, one cluster: foundation, site and nodes joined by stack references, in one rehearsed account."""

from __future__ import annotations

import pytest

from .conftest import Rehearse

pytestmark = pytest.mark.usefixtures("needs_nodes")


def test_three_layers_make_one_cluster(rehearse: Rehearse) -> None:
    """Each layer uses what the one before made; nodes mount the site's file system; destroying the nodes leaves the rest alone."""
    early = rehearse("up", "aws-site")
    assert early.code == 1
    assert "first: gpuinfra rehearse up aws-foundation" in early.err
    for stack in ("aws-foundation", "aws-site"):
        told = rehearse("up", stack)
        assert told.code == 0, told.out + told.err
    cluster = rehearse("up", "aws-cluster")
    assert cluster.code == 0, cluster.out + cluster.err
    assert cluster.report["totals"]["nodes_verified"] == 2
    for node in cluster.report["nodes"]:
        assert "L1" in {check["id"] for check in node["checks"] if check["outcome"] == "pass"}
    gone = rehearse("destroy", "aws-cluster")
    assert gone.code == 0, gone.out + gone.err
    site = rehearse("up", "aws-site")
    assert site.code == 0, site.out + site.err
    assert set(site.report["engine"]["operations"]) == {"same"}


def test_nodes_come_into_a_network_that_is_there_already(rehearse: Rehearse) -> None:
    """Nothing of the network is made, and the nodes are verified in the subnet that was named."""
    told = rehearse("up", "aws-existing-network")
    assert told.code == 0, told.out + told.err
    assert told.report["totals"]["nodes_verified"] == 2
    assert not [
        one for one in told.state if one["type"].startswith(("aws:ec2/vpc:", "aws:ec2/subnet:", "aws:ec2/route"))
    ]
    (group,) = [one for one in told.state if one["type"] == "aws:autoscaling/group:Group"]
    assert group["inputs"]["vpcZoneIdentifiers"] == ["subnet-0123456789abcdef0"]
