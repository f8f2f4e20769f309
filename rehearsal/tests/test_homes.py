"""A cluster with home directories is rehearsed to a verified node on each service of each cloud."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import Rehearse

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

STACKS = {
    "aws": """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: lab
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    pools:
      - {name: gpu, machine: g5.xlarge, capacity: {kind: on_demand, count: 1}}
    storage:
      - {kind: home}
""",
    "azure": """\
config:
  azure-native:location: eastus
  gpuinfra:cluster:
    name: lab
    where: {cloud: azure, region: eastus}
    pools:
      - {name: gpu, machine: Standard_NC24ads_A100_v4, capacity: {kind: on_demand, count: 1}}
    storage:
      - {kind: home}
    access: {evidence_from: [203.0.113.0/24]}
""",
    "gcp": """\
config:
  gcp:region: us-central1
  gpuinfra:cluster:
    name: lab
    where: {cloud: gcp, region: us-central1, zone: us-central1-a}
    pools:
      - {name: gpu, machine: g2-standard-4, capacity: {kind: on_demand, count: 1}}
    storage:
      - {kind: home}
""",
}
STACKS["aws-openzfs"] = STACKS["aws"].replace(
    "{kind: home}", "{kind: home, service: openzfs, backup_days: 7}\n      - {kind: home, mount: /tools}"
)
STACKS["azure-netapp"] = STACKS["azure"].replace("{kind: home}", "{kind: home, service: netapp, snapshot_days: 7}")
REFUSED = {
    "aws": r"127\.0\.0\.1:/",
    "azure": r"127\.0\.0\.1:/",
    "aws-openzfs": r"fs-[0-9a-f]{17}\.fsx\.us-east-1\.amazonaws\.com:/fsx\b",
    "gcp": r"10(\.\d+){3}:/",
    "azure-netapp": r"10(\.\d+){3}:/lab-home-0",
}
"""What nodes mount: the end of a tunnel with TLS, or the file server."""


@pytest.mark.parametrize("cloud", STACKS)
def test_homes_are_mounted_under_least_permissions_or_are_the_finding_of_the_node(
    rehearse: Rehearse, tmp_path: Path, cloud: str
) -> None:
    """The generated permissions allow every call for the file system and its network access. A node mounts it and is verified.
    A node that the server refuses reports before the default time limit of a rehearsal: step, words of the server, mount and what to do."""
    path = tmp_path / "Pulumi.lab.yaml"
    path.write_text(STACKS[cloud].replace("count: 1", "count: 2"), encoding="utf-8")
    # A longer limit than the default one, for a busy machine; the run ends when the nodes have reported.
    options = ("--under-least-permissions", "--fault", "node:gpu-1:home-mount-refused", "--deadline", "1200s")
    result = rehearse("up", str(path), *options)
    assert result.code == 1, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["failed", "verified"]
    assert result.report["permissions"]["refused"] == []
    for words in ("62-home is failed: mounting /home failed 3 times", "what to do: "):
        assert words in result.out, (words, result.out)
    assert re.search(f"access denied by server while mounting {REFUSED[cloud]}", result.out), result.out
    result = rehearse("destroy", str(path), "--under-least-permissions")
    assert result.code == 0, result.out + result.err
