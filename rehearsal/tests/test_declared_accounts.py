"""Stacks that declare their project, subscription or AWS profile and roles are rehearsed to a verified node."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra_rehearsal.endpoints import declared_account

from .conftest import Rehearse

SUBSCRIPTION = "00000000-0000-4000-8000-00000000000d"
STACKS = {
    "aws": """\
config:
  aws:region: us-east-1
  aws:profile: team
  aws:assumeRoles:
    - {roleArn: "arn:aws:iam::123456789012:role/hub"}
    - {roleArn: "arn:aws:iam::123456789012:role/deploy", externalId: e-1, duration: 1h}
  gpuinfra:cluster:
    name: lab
    where: {cloud: aws, region: us-east-1}
    pools:
      - {name: gpu, machine: g5.xlarge, capacity: {kind: on_demand, count: 1}}
""",
    "gcp": """\
config:
  gcp:region: us-central1
  gpuinfra:cluster:
    name: lab
    where: {cloud: gcp, region: us-central1, zone: us-central1-a, project: mine-0001}
    pools:
      - {name: gpu, machine: a2-highgpu-1g, capacity: {kind: on_demand, count: 1}}
""",
    "azure": f"""\
config:
  azure-native:location: eastus
  azure-native:subscriptionId: {SUBSCRIPTION}
  gpuinfra:cluster:
    name: lab
    where: {{cloud: azure, region: eastus, zone: "1"}}
    access: {{evidence_from: [203.0.113.0/24]}}
    pools:
      - {{name: gpu, machine: Standard_NC24ads_A100_v4, capacity: {{kind: on_demand, count: 1}}}}
""",
}


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("cloud", STACKS)
def test_a_node_in_the_declared_account_is_verified(cloud: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """The operator of the stand-in cloud has the declared project, subscription, profile and roles, so the identity proof of the node names the account."""
    stack = tmp_path / "Pulumi.lab.yaml"
    stack.write_text(STACKS[cloud], encoding="utf-8")
    done = rehearse("up", str(stack))
    assert done.code == 0, done.err
    assert "1 of 1 nodes and 1 of 1 GPUs verified" in done.out


def test_only_declared_accounts_have_names() -> None:
    """The stand-in cloud takes the project and the subscription of the settings; without them, it uses its own."""
    assert declared_account(
        {"gcp:project": "mine", "azure-native:subscriptionId": SUBSCRIPTION, "aws:region": "x"}
    ) == {
        "GPUINFRA_STAND_IN_PROJECT": "mine",
        "GPUINFRA_STAND_IN_SUBSCRIPTION": SUBSCRIPTION,
    }
    assert declared_account({"gcp:region": "us-central1"}) == {}
