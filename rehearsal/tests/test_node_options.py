"""A cluster with packages, containers, open ports and further permissions of the nodes is rehearsed on each cloud, and each fault is one clear finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse
from .test_users import MACHINES, WHERE

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

STACK = """\
config:
  gpuinfra:cluster:
    name: lab
    where: {where}
    pools:
      - {{name: gpu, machine: {machine}, capacity: {{kind: on_demand, count: 1}}}}
    software: {{containers: [docker, enroot], packages: [htop, nvme-cli=2.8-1]}}
    access:
      evidence_from: {evidence_from}
      ingress: [{{sources: [10.0.0.0/16], ports: ["8080"]}}]
      {permissions}
"""
_REGISTRY = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/shared/providers/Microsoft.ContainerRegistry/registries/images"
PERMISSIONS = {
    "aws": "node_policies: [arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly]",
    "azure": f"node_roles: [{{role: 7f951dda-4ed3-4680-a7ca-43fe172d538d, scope: {_REGISTRY}}}]",
    "gcp": "node_roles: [{role: roles/artifactregistry.reader}]",
}
OPENED = {"aws": "SecurityGroupIngressRule", "azure": "NetworkSecurityGroup", "gcp": "Firewall"}
"""Cloud -> type of the resource that opens the port."""
GRANTED = {"aws": "RolePolicyAttachment", "azure": "RoleAssignment", "gcp": "IAMMember"}
"""Cloud -> type of the resource that gives the nodes further permissions."""
NO_QUOTA = {
    "aws": "your current vCPU limit of 0",
    "azure": "exceeding approved Total Regional Cores quota",
    "gcp": "Quota 'GPUS_ALL_REGIONS' exceeded",
}
"""Cloud -> words of its message."""


def written(folder: Path, cloud: str) -> str:
    """The stack file of a cloud."""
    path = folder / "Pulumi.lab.yaml"
    ranges = "[203.0.113.0/24]" if cloud == "azure" else "[]"
    text = STACK.format(
        where=WHERE[cloud], machine=MACHINES[cloud], evidence_from=ranges, permissions=PERMISSIONS[cloud]
    )
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("cloud", WHERE)
def test_a_node_with_all_options_is_verified_under_least_permissions(
    rehearse: Rehearse, tmp_path: Path, cloud: str
) -> None:
    """The generated permissions allow every call, and the node has both container runtimes."""
    path = written(tmp_path, cloud)
    result = rehearse("up", path, "--under-least-permissions")
    assert result.code == 0, result.out + result.err
    (node,) = result.report["nodes"]
    assert node["outcome"] == "verified"
    assert {"C1", "C5"} <= {check["id"] for check in node["checks"] if check["outcome"] == "pass"}
    kinds = " ".join(one["type"] for one in result.state)
    assert OPENED[cloud] in kinds
    assert GRANTED[cloud] in kinds
    result = rehearse("destroy", path, "--under-least-permissions")
    assert result.code == 0, result.out + result.err


@pytest.mark.parametrize("cloud", WHERE)
def test_a_changed_download_of_a_container_runtime_is_the_finding(
    rehearse: Rehearse, tmp_path: Path, cloud: str
) -> None:
    """The finding names the step and both checksums."""
    result = rehearse("up", written(tmp_path, cloud), "--fault", "node:gpu-1:enroot-corrupt", "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    for words in ("71-enroot is failed: ", "but the lock requires", "what to do: "):
        assert words in result.out, (words, result.out)


MISSING = "the repositories of this node do not contain htop nvme-cli=2.8-1 (software.packages)"
PACKAGES = {
    "packages-missing": ("95-packages is failed: ", MISSING, "what to do: "),
    "packages-unreachable": (
        "95-packages is failed: ",
        "E: Failed to fetch ",
        "503 Service Unavailable",
        "what to do: ",
    ),
}
"""Fault -> words of the finding."""


@pytest.mark.parametrize("fault", PACKAGES)
@pytest.mark.parametrize("cloud", WHERE)
def test_a_package_that_the_node_cannot_install_is_the_finding(
    rehearse: Rehearse, tmp_path: Path, cloud: str, fault: str
) -> None:
    """The finding names the step, and the package or the response of the repository."""
    result = rehearse("up", written(tmp_path, cloud), "--fault", f"node:gpu-1:{fault}", "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    for words in PACKAGES[fault]:
        assert words in result.out, (words, result.out)


@pytest.mark.parametrize("cloud", WHERE)
def test_a_quota_is_the_finding(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """The finding has the message of the cloud and what to do."""
    result = rehearse("up", written(tmp_path, cloud), "--fault", "cloud:no-quota:gpu", "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    for words in (NO_QUOTA[cloud], "what to do: request a higher quota"):
        assert words in result.out, (words, result.out)


@pytest.mark.parametrize("kinds", [OPENED, GRANTED], ids=["ports", "permissions"])
@pytest.mark.parametrize("cloud", WHERE)
def test_the_next_up_continues_after_an_error_of_an_option(
    rehearse: Rehearse, tmp_path: Path, cloud: str, kinds: dict[str, str]
) -> None:
    """An open port or a permission that the cloud refuses once is reported with its resource and a hint, and the next up completes."""
    path = written(tmp_path, cloud)
    result = rehearse("up", path, "--fault", f"cloud:error:{kinds[cloud]}:1")
    assert result.code == 1, result.out + result.err
    tail = "\n".join(result.out.splitlines()[-40:])
    assert f":{kinds[cloud]}" in tail
    assert "what to do: " in tail
    result = rehearse("up", path)
    assert result.code == 0, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["verified"]
