"""Clusters that mount buckets are rehearsed to a verified node, and a refused mount to its reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import Rehearse

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

STORAGE = """\
    storage:
      - {kind: object, mount: /data, bucket: my-training-data}
      - {kind: object, mount: /out, bucket: auto, read_only: false, cache_gib: 20}
"""
STACKS = {
    "gcp": """\
config:
  gcp:project: my-project
  gcp:region: us-central1
  gpuinfra:cluster:
    name: lab
    where: {cloud: gcp, region: us-central1, zone: us-central1-a}
    pools:
      - {name: gpu, machine: a2-ultragpu-1g, capacity: {kind: on_demand, count: 2}}
""",
    "aws": """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: lab
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    pools:
      - {name: gpu, machine: g6.2xlarge, capacity: {kind: on_demand, count: 2}}
""",
    "azure": """\
config:
  azure-native:location: eastus
  gpuinfra:cluster:
    name: lab
    where: {cloud: azure, region: eastus, zone: "1"}
    access: {evidence_from: [203.0.113.0/24]}
    pools:
      - {name: gpu, machine: Standard_NC24ads_A100_v4, capacity: {kind: on_demand, count: 2}}
""",
}
CONTAINER = (
    "/subscriptions/00000000-0000-4000-8000-000000000009/resourceGroups/data/providers/Microsoft.Storage"
    "/storageAccounts/corpora/blobServices/default/containers/my-training-data"
)
REFUSED = {
    "gcp": ("85-gcsfuse", "Bad credentials for bucket my-training-data: permission denied"),
    "aws": ("85-mountpoint-s3", "Client error: Forbidden: Access Denied"),
    "azure": ("85-blobfuse2", "BlockBlob::TestPipeline : [AuthorizationPermissionMismatch]"),
}
"""Cloud -> step, and the message of the client."""


@pytest.fixture(params=STACKS)
def cloud(request: pytest.FixtureRequest) -> str:
    """The cloud of the stack."""
    return str(request.param)


@pytest.fixture
def stack(cloud: str, tmp_path: Path) -> str:
    """The stack file."""
    path = tmp_path / "Pulumi.lab.yaml"
    storage = STORAGE.replace("my-training-data", CONTAINER) if cloud == "azure" else STORAGE
    path.write_text(STACKS[cloud] + storage, encoding="utf-8")
    return str(path)


def test_buckets_are_mounted_under_least_permissions_or_are_the_finding_of_the_node(
    rehearse: Rehearse, stack: str, cloud: str
) -> None:
    """A node mounts an existing bucket and a created one with its permissions. If the cloud denies access to a node, the report names
    the node, the step and the message of the client. `destroy` retains the created bucket only."""
    fault = ("--fault", "node:gpu-1:bucket-mount-refused", "--deadline", "600s")
    result = rehearse("up", stack, "--under-least-permissions", *fault)
    said = result.out + result.err
    assert result.code == 1, said
    broken, node = result.report["nodes"]
    assert (broken["outcome"], node["outcome"]) == ("failed", "verified")
    assert "L4" in {check["id"] for check in node["checks"] if check["outcome"] == "pass"}
    assert result.report["permissions"]["refused"] == []
    step, message = REFUSED[cloud]
    assert "gpu-1" in said
    assert step in said
    assert message in " ".join(said.split())
    # A line about progress contains the names of resources.
    said = "\n".join(line for line in said.splitlines() if " resources; now " not in line)
    assert not re.search(r"lab-node-(\w+-0-)?mount", said), "a grant that the nodes do not use is a finding"
    assert "ListMounts" not in said, "the nodes list each bucket at the mount"
    result = rehearse("destroy", stack, "--under-least-permissions")
    assert result.code == 0, result.out + result.err
    kept = {one["name"]: one["id"] for one in result.report["kept"]}
    assert f"lab-out-0-{'account' if cloud == 'azure' else 'bucket'}" in kept
    assert not [name for name, id in kept.items() if name.startswith("lab-data") or "my-training-data" in id]
