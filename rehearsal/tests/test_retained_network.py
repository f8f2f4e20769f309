"""A retained file system: destroy retains its network as well, and the next `up` adopts both."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, cloud_resources

STACK = """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: lab
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    layers: [foundation, site]
    storage:
      - {kind: lustre, mount: /scratch, capacity_gib: 4800}
    budget: {recipients: [ops@example.com]}
"""
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
RETAINED = {
    LUSTRE: "lab-scratch-0-lustre",
    "aws:ec2/vpc:Vpc": "lab-network-vpc",
    "aws:ec2/subnet:Subnet": "lab-network-private-4",
    "aws:ec2/securityGroup:SecurityGroup": "lab-security-storage",
}
"""Retained network and file system resources: type -> logical name of the only one."""


def _held(root: Path) -> dict[str, list[tuple[str, str]]]:
    """Type -> (logical name, id) of each resource in the stand-in cloud."""
    found: dict[str, list[tuple[str, str]]] = {}
    for type_, identity, urn in cloud_resources(root):
        found.setdefault(type_, []).append((urn.rpartition("::")[2], identity))
    return found


@pytest.mark.long
def test_a_retained_file_system_retains_its_network_and_is_adopted(rehearse: Rehearse, tmp_path: Path) -> None:
    """Destroy succeeds and leaves the file system with its VPC, subnet, security group and log; the next `up` has the same ids."""
    path = tmp_path / "Pulumi.lab.yaml"
    path.write_text(STACK, encoding="utf-8")
    first = rehearse("up", str(path))
    assert first.code == 0, first.out[-4000:] + first.err
    before = _held(first.root)

    gone = rehearse("destroy", str(path))
    assert gone.code == 0, gone.out[-4000:] + gone.err
    left = _held(first.root)
    network = {
        type_: rows for type_, rows in left.items() if type_ == LUSTRE or type_.startswith(("aws:ec2", "aws:vpc"))
    }
    assert {type_: [name for name, _ in rows] for type_, rows in network.items()} == {
        type_: [name] for type_, name in RETAINED.items()
    }
    assert "lab-scratch-0-log-group" in [name for name, _ in left["aws:cloudwatch/logGroup:LogGroup"]]

    again = rehearse("up", str(path))
    assert again.code == 0, again.out[-4000:] + again.err
    after = _held(first.root)
    assert {type_: len(rows) for type_, rows in after.items()} == {type_: len(rows) for type_, rows in before.items()}
    for type_, rows in left.items():
        assert set(rows) <= set(after[type_]), type_
    assert "replace" not in str(again.report["engine"]["operations"])

    last = rehearse("up", str(path))
    assert last.code == 0, last.out[-4000:] + last.err
    assert set(last.report["engine"]["operations"]) == {"same"}
