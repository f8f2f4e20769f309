"""Options of the nodes: users, files, variables, packages, containers, a script of a URL, open ports and further permissions.

A cluster with all of them is rehearsed on each cloud, and each fault is one clear finding.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.rules.cases import KEYS

from .conftest import Rehearse
from .test_fault_runs import section

pytestmark = [pytest.mark.usefixtures("needs_nodes"), pytest.mark.long]

WHERE = {
    "aws": "{cloud: aws, region: us-east-1, zone: use1-az4}",
    "azure": "{cloud: azure, region: eastus}",
    "gcp": "{cloud: gcp, region: us-central1, zone: us-central1-a}",
}
MACHINES = {"aws": "g5.xlarge", "azure": "Standard_NC24ads_A100_v4", "gcp": "a2-highgpu-1g"}
URL = "https://example.com/agent.sh"
DIGEST = hashlib.sha256(b"the published script").hexdigest()
STACK = """\
config:
  gpuinfra:cluster:
    name: lab
    where: {where}
    pools:
      - {{name: gpu, machine: {machine}, capacity: {{kind: on_demand, count: {count}}}}}
    software:
      containers: [docker, enroot]
      packages: [htop, nvme-cli=2.8-1]
      environment: {{HF_HOME: /srv/huggingface}}
      files:
        - {{path: /etc/site.conf, file: setup/site.conf, owner: alice, mode: "0600"}}
      steps:
        - {{name: agent, url: "{url}", sha256: {digest}}}
    access:
      evidence_from: {evidence_from}
      users: [{{name: alice, uid: 2001, sudo: true, ssh_keys: ["{key}"]}}]
      ingress: [{{sources: [10.0.0.0/16], ports: ["8080"]}}]
      {permissions}
"""
_GROUP = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/shared"
_REGISTRY = f"{_GROUP}/providers/Microsoft.ContainerRegistry/registries/images"
PERMISSIONS = {
    "aws": "node_policies: [arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly]",
    "azure": f"node_roles: [{{role: 7f951dda-4ed3-4680-a7ca-43fe172d538d, scope: {_REGISTRY}}}]",
    "gcp": "node_roles: [{role: roles/artifactregistry.reader}]",
}
OPENED = {"aws": "SecurityGroupIngressRule", "azure": "NetworkSecurityGroup", "gcp": "Firewall"}
"""Cloud -> type of the resource that opens the port."""
GRANTED = {"aws": "RolePolicyAttachment", "azure": "RoleAssignment", "gcp": "IAMMember"}
"""Cloud -> type of the resource that gives the nodes further permissions."""
FAULTS = {
    "accounts-locked": ("64-users is failed", "useradd"),
    "image-profile": (
        "S3 ",
        "HF_HOME is '/opt/site/huggingface' in login shells instead of '/srv/huggingface'",
    ),
    "enroot-corrupt": ("71-enroot is failed: ", "but the lock requires"),
    "packages-missing": (
        "95-packages is failed: ",
        "the repositories of this node do not contain htop nvme-cli=2.8-1 (software.packages)",
    ),
    "packages-unreachable": ("95-packages is failed: ", "E: Failed to fetch ", "503 Service Unavailable"),
    "script-corrupt": (
        f"own-agent is failed: the script of {URL} has the SHA-256 ",
        f"requires {DIGEST}",
    ),
}
"""Fault of a node -> words of its finding."""


def written(folder: Path, cloud: str, count: int = 1) -> str:
    """The stack file of a cloud, and its local file."""
    path = folder / "home/Pulumi.lab.yaml"
    (path.parent / "setup").mkdir(parents=True)
    (path.parent / "setup/site.conf").write_text("a = 1\n", encoding="utf-8")
    text = STACK.format(
        where=WHERE[cloud],
        machine=MACHINES[cloud],
        count=count,
        evidence_from="[203.0.113.0/24]" if cloud == "azure" else "[]",
        key=KEYS[0],
        url=URL,
        digest=DIGEST,
        permissions=PERMISSIONS[cloud],
    )
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("cloud", WHERE)
def test_a_node_with_all_options_is_verified_after_an_error(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """An open port or a permission that the cloud refuses once is reported with its resource and a hint.
    The next up completes, the generated permissions allow every call, and the node has both container runtimes."""
    path = written(tmp_path, cloud)
    for kinds in (OPENED, GRANTED):
        result = rehearse("up", path, "--under-least-permissions", "--fault", f"cloud:error:{kinds[cloud]}:1")
        assert result.code == 1, result.out + result.err
        tail = "\n".join(result.out.splitlines()[-40:])
        assert f":{kinds[cloud]}" in tail
        assert "what to do: " in tail
    result = rehearse("up", path, "--under-least-permissions")
    assert result.code == 0, result.out + result.err
    (node,) = result.report["nodes"]
    assert node["outcome"] == "verified"
    assert {"C1", "C5"} <= {check["id"] for check in node["checks"] if check["outcome"] == "pass"}
    created = " ".join(one["type"] for one in result.state)
    assert OPENED[cloud] in created
    assert GRANTED[cloud] in created
    result = rehearse("destroy", path, "--under-least-permissions")
    assert result.code == 0, result.out + result.err


@pytest.mark.parametrize("cloud", WHERE)
def test_each_fault_of_an_option_is_the_finding_of_its_node(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """The finding names the step or check, and the account, variable, checksums, package or response of the repository."""
    faults = [word for n, name in enumerate(FAULTS, start=1) for word in ("--fault", f"node:gpu-{n}:{name}")]
    result = rehearse("up", written(tmp_path, cloud, len(FAULTS)), *faults, "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    for number, words in enumerate(FAULTS.values(), start=1):
        text = section(result, f"gpu-{number}")
        for word in (*words, "what to do: "):
            assert word in text, (word, text)
