"""Clusters that mount existing file systems are rehearsed on each cloud, and a server that refuses the mount is a finding of its node."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

AWS = """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: lab
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    network: {existing: {id: vpc-0123456789abcdef0, subnets: {use1-az4: subnet-0123456789abcdef0}}}
    pools:
      - {name: gpu, machine: g5.xlarge, capacity: {kind: on_demand, count: 1}}
    storage:
      - {kind: lustre, existing: {id: fs-0123456789abcdef0, mount_name: a1b2c3d4, security_group: sg-0123456789abcdef0}}
      - {kind: home, existing: {id: fs-0fedcba9876543210, security_group: sg-0fedcba9876543210}}
"""
GOOGLE = """\
config:
  gcp:region: us-central1
  gpuinfra:cluster:
    name: lab
    where: {cloud: gcp, region: us-central1, zone: us-central1-a}
    network:
      existing:
        id: projects/my-networks/global/networks/shared
        subnets: {us-central1: projects/my-networks/regions/us-central1/subnetworks/gpu-nodes}
    pools:
      - {name: gpu, machine: g2-standard-4, capacity: {kind: on_demand, count: 1}}
    storage:
      - kind: lustre
        existing: {id: projects/my-project/locations/us-central1-a/instances/scratch, address: 10.40.0.2, mount_name: scratch, address_range: 10.40.0.0/24}
      - {kind: home, existing: {id: projects/my-project/locations/us-central1-a/instances/homes, address: 10.41.0.2, mount_name: share1}}
"""
AZURE = """\
config:
  azure-native:location: southcentralus
  gpuinfra:cluster:
    name: lab
    where: {cloud: azure, region: southcentralus}
    network:
      existing:
        id: /subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/corp/providers/Microsoft.Network/virtualNetworks/corp
        subnets:
          southcentralus: /subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/corp/providers/Microsoft.Network/virtualNetworks/corp/subnets/gpu
    access: {evidence_from: [203.0.113.0/24]}
    pools:
      - {name: gpu, machine: Standard_NC24ads_A100_v4, capacity: {kind: on_demand, count: 1}}
    storage:
      - kind: lustre
        existing:
          id: /subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/corp/providers/Microsoft.StorageCache/amlFilesystems/scratch
          address: 10.0.4.4
      - kind: home
        existing:
          id: "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/corp/providers/Microsoft.Storage\\
            /storageAccounts/corphomes/fileServices/default/shares/home"
"""


def stack(folder: Path, content: str) -> str:
    """Write a stack file."""
    path = folder / "Pulumi.lab.yaml"
    path.write_text(content, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("content", [AWS, AZURE, GOOGLE], ids=["aws", "azure", "gcp"])
def test_a_node_with_existing_file_systems_is_verified(rehearse: Rehearse, tmp_path: Path, content: str) -> None:
    """The node mounts them and is verified under the generated permissions, and `destroy` succeeds without touching them."""
    path = stack(tmp_path, content)
    # A longer limit than the default one, for a busy machine; the run ends when the node has reported.
    result = rehearse("up", path, "--under-least-permissions", "--deadline", "1200s")
    assert result.code == 0, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["verified"]
    result = rehearse("destroy", path, "--under-least-permissions")
    assert result.code == 0, result.out + result.err


@pytest.mark.parametrize("content", [AWS, AZURE, GOOGLE], ids=["aws", "azure", "gcp"])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("lustre-mount-fails", "60-lustre is failed: mounting /scratch failed 3 times"),
        ("home-mount-refused", "62-home is failed: mounting /home failed 3 times"),
    ],
    ids=["lustre", "home"],
)
def test_an_existing_file_system_that_cannot_be_mounted_is_a_finding(
    rehearse: Rehearse, tmp_path: Path, content: str, fault: str, words: str
) -> None:
    """The node reports the step, the mount and what to do."""
    path = stack(tmp_path, content)
    result = rehearse("up", path, "--fault", f"node:gpu-1:{fault}", "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["failed"]
    for expected in (words, "what to do: "):
        assert expected in result.out, (expected, result.out)
