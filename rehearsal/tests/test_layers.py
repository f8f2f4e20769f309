"""Three stacks for one cluster: foundation, site and nodes, joined by stack references, in one rehearsed account."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Finished, Rehearse, cloud_resources

pytestmark = pytest.mark.usefixtures("needs_nodes")


@pytest.mark.long
@pytest.mark.long
def test_three_layers_make_one_cluster(rehearse: Rehearse) -> None:
    """Each layer uses the one below; nodes mount the site's file system; destroying the nodes leaves the other layers unchanged."""
    early = rehearse("up", "aws-site")
    assert early.code == 1
    assert "run: gpuinfra rehearse up aws-foundation" in early.err
    for stack in ("aws-foundation", "aws-site"):
        result = rehearse("up", stack)
        assert result.code == 0, result.out + result.err
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


@pytest.mark.long
def test_nodes_in_an_existing_network(rehearse: Rehearse) -> None:
    """No network is created, and the nodes are verified in the declared subnet."""
    result = rehearse("up", "aws-existing-network")
    assert result.code == 0, result.out + result.err
    assert result.report["totals"]["nodes_verified"] == 2
    assert not [
        one for one in result.state if one["type"].startswith(("aws:ec2/vpc:", "aws:ec2/subnet:", "aws:ec2/route"))
    ]
    (group,) = [one for one in result.state if one["type"] == "aws:autoscaling/group:Group"]
    assert group["inputs"]["vpcZoneIdentifiers"] == ["subnet-0123456789abcdef0"]


SECOND = """\
config:
  gcp:region: us-central1
  gpuinfra:cluster:
    name: eval
    where: {cloud: gcp, region: us-central1, zone: us-central1-b}
    use: {foundation: organization/gpuinfra/gcp-foundation, site: organization/gpuinfra/gcp-site}
    pools:
      - {name: gpu, machine: a3-ultragpu-8g, capacity: [{kind: spot, count: 1}]}
    storage:
      - {kind: lustre, mount: /scratch, capacity_gib: 18000, throughput_mb_s_per_tib: 500, bucket: auto}
"""
LAYERS = ("gcp-foundation", "gcp-site", "gcp-cluster")
TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
NETWORK = "gcp:compute/network:Network"


@pytest.mark.long
def test_three_layers_on_google_cloud(rehearse: Rehearse, tmp_path: Path) -> None:
    """Two clusters share a site; destroyed in reverse, each layer retains what it lists, and the next up adopts it."""
    result = _up(rehearse, *LAYERS)
    assert result.report["totals"]["nodes_verified"] == 2
    for node in result.report["nodes"]:
        assert "L1" in {check["id"] for check in node["checks"] if check["outcome"] == "pass"}

    second = tmp_path / "Pulumi.gcp-eval.yaml"
    second.write_text(SECOND, encoding="utf-8")
    other = rehearse("up", str(second))
    assert other.code == 0, other.out[-4000:] + other.err
    assert other.report["totals"]["nodes_verified"] == 1
    ground = tmp_path / "r" / "gcp-foundation"
    first_of, other_of = _subnets(ground, "gcp-cluster"), _subnets(ground, "gcp-eval")
    assert len(first_of) == 10
    assert first_of[:2] == other_of[:2]
    assert not set(first_of[2:]) & set(other_of[2:])
    assert len([type_ for type_, _, _ in cloud_resources(ground) if type_ == NETWORK]) == 4

    gone = rehearse("destroy", str(second))
    assert gone.code == 0, gone.out[-4000:] + gone.err
    again = rehearse("up", "gcp-cluster")
    assert again.code == 0, again.out[-4000:] + again.err
    assert set(again.report["engine"]["operations"]) == {"same"}
    assert again.report["totals"]["nodes_verified"] == 2

    kept = 0
    for stack in reversed(LAYERS):
        gone = rehearse("destroy", stack)
        assert gone.code == 0, gone.out[-4000:] + gone.err
        assert _state(ground, stack) == []
        left = [urn for _, _, urn in cloud_resources(ground) if urn.startswith(f"urn:pulumi:{stack}::")]
        assert [urn for urn in left if f"{urn.rpartition('::')[2]} (" not in gone.out] == []
        kept += len(left)
    assert kept == len(cloud_resources(ground)) > 10

    before = {(type_, identity) for type_, identity, _ in cloud_resources(ground)}
    result = _up(rehearse, *LAYERS)
    assert result.report["totals"]["nodes_verified"] == 2
    assert before <= {(type_, identity) for type_, identity, _ in cloud_resources(ground)}


def _up(rehearse: Rehearse, first: str, *then: str) -> Finished:
    """Bring stacks up in order, without replacements; returns the last result."""
    result = rehearse("up", first)
    assert result.code == 0, result.out[-4000:] + result.err
    assert "replace" not in str(result.report["engine"]["operations"])
    return _up(rehearse, *then) if then else result


def _state(ground: Path, stack: str) -> list[dict[str, Any]]:
    """Resources in the state of one of several stacks."""
    text = (ground / f"state/.pulumi/stacks/gpuinfra/{stack}.json").read_text(encoding="utf-8")
    return list(json.loads(text)["checkpoint"]["latest"].get("resources") or [])


def _subnets(ground: Path, stack: str) -> list[str]:
    """Subnet of each interface of a stack's nodes."""
    (template,) = [one for one in _state(ground, stack) if one["type"] == TEMPLATE]
    return [one["subnetwork"] for one in template["inputs"]["networkInterfaces"]]
