"""Clusters with declared users are rehearsed to verified nodes, and an account that cannot be created is the finding of its node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.cases import KEYS

from .conftest import Rehearse

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

WHERE = {
    "aws": "{cloud: aws, region: us-east-1, zone: use1-az4}",
    "azure": "{cloud: azure, region: eastus}",
    "gcp": "{cloud: gcp, region: us-central1, zone: us-central1-a}",
}
MACHINES = {"aws": "g5.xlarge", "azure": "Standard_NC24ads_A100_v4", "gcp": "a2-highgpu-1g"}
STACK = """\
config:
  gpuinfra:cluster:
    name: lab
    where: {where}
    pools:
      - {{name: gpu, machine: {machine}, capacity: {{kind: on_demand, count: 1}}}}
    access: {{evidence_from: {evidence_from}, users: [{{name: alice, uid: 2001, sudo: true, ssh_keys: ["{key}"]}}]}}
"""


def written(folder: Path, cloud: str) -> Path:
    """The stack file of a cloud."""
    path = folder / "home/Pulumi.lab.yaml"
    path.parent.mkdir()
    ranges = "[203.0.113.0/24]" if cloud == "azure" else "[]"
    text = STACK.format(where=WHERE[cloud], machine=MACHINES[cloud], key=KEYS[0], evidence_from=ranges)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("cloud", WHERE)
def test_nodes_with_users_are_verified(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """On each cloud, the node with a declared user is verified."""
    path = written(tmp_path, cloud)
    result = rehearse("up", str(path))
    assert result.code == 0, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["verified"]
    result = rehearse("destroy", str(path))
    assert result.code == 0, result.out + result.err


@pytest.mark.parametrize("cloud", WHERE)
def test_an_account_that_cannot_be_created_is_the_finding(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """If the accounts of the node are locked, the finding names the step and the message of useradd."""
    path = written(tmp_path, cloud)
    result = rehearse("up", str(path), "--fault", "node:gpu-1:accounts-locked", "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    for words in ("64-users is failed", "useradd", "what to do: "):
        assert words in result.out, (words, result.out)
