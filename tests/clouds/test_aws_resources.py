"""The resources of a plan are the resources that the components register."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.aws.resources import resources
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.planned import count
from gpuinfra.spec import parse_spec
from tests.clouds.stacks import TODAY, plan_of, recording_of, recording_of_spec, shipped_aws_stacks

BASE: dict[str, Any] = {
    "name": "train",
    "where": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"},
    "pools": [{"name": "gpu", "machine": "p4d.24xlarge", "capacity": [{"kind": "on_demand", "count": 2}]}],
}

VARIANTS: dict[str, dict[str, Any]] = {
    "no storage": {},
    "endpoints": {"network": {"egress": "endpoints"}},
    "existing network": {
        "network": {"existing": {"id": "vpc-00000000000000001", "subnets": {"use1-az4": "subnet-00000000000000001"}}}
    },
    "ports open to a peered network": {
        "access": {"ingress": [{"sources": ["10.0.0.0/16", "10.8.0.0/16"], "ports": ["8080", "9000-9100"]}]}
    },
    "no trail": {"audit": {"trail": "none"}},
    "trail into an existing bucket": {"audit": {"bucket": "other-audit"}},
    "lustre without a bucket": {"storage": [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800}]},
    "lustre without a bucket in an existing network": {
        "network": {"existing": {"id": "vpc-00000000000000001", "subnets": {"use1-az4": "subnet-00000000000000001"}}},
        "storage": [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800}],
    },
    "lustre on an existing bucket": {
        "storage": [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800, "bucket": "my-data"}]
    },
    "image of a date": {"software": {"image": "2026-09-29"}},
    "own image": {
        "pools": [
            {
                "name": "gpu",
                "machine": "p4d.24xlarge",
                "image": {"ref": "ami-0123456789abcdef0", "os": "ubuntu-22.04", "arch": "x86_64", "prebuilt": True},
                "capacity": [{"kind": "on_demand", "count": 2}],
            }
        ]
    },
    "foundation and site alone": {"pools": []},
    "two pools": {
        "pools": [
            {
                "name": "gpu",
                "machine": "p4d.24xlarge",
                "capacity": [{"kind": "on_demand", "count": 2}, {"kind": "spot", "count": 1}],
            },
            {"name": "small", "machine": "g5.xlarge", "capacity": [{"kind": "spot", "count": 1}]},
        ]
    },
}


@pytest.mark.parametrize("stack", shipped_aws_stacks())
def test_a_shipped_stack_registers_the_resources_of_its_plan(stack: str) -> None:
    """Types, logical names and lifetimes are equal."""
    planned = {(one.type, one.name, bool(one.retained)) for one in resources(plan_of(stack))}
    registered = {(one.type, one.name, one.retained) for one in recording_of(stack).custom}
    assert planned == registered


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_registers_the_resources_of_its_plan(variant: str) -> None:
    """The same applies to optional parts of a declaration and to existing resources."""
    spec = parse_spec({**BASE, **VARIANTS[variant]})
    planned = {(one.type, one.name, bool(one.retained)) for one in resources(build_plan(spec, TODAY))}
    registered = {(one.type, one.name, one.retained) for one in recording_of_spec(spec).custom}
    assert planned == registered


LUSTRE: dict[str, Any] = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800}
IN_USE = {
    "aws:ec2/vpc:Vpc": "train-network-vpc",
    "aws:ec2/subnet:Subnet": "train-network-private-4",
    "aws:ec2/securityGroup:SecurityGroup": "train-security-storage",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "train-scratch-0-lustre",
}


def _kept(**changes: Any) -> dict[str, list[str]]:
    """Type -> logical names of the retained resources of networks and file systems."""
    found: dict[str, list[str]] = {}
    for one in resources(build_plan(parse_spec({**BASE, **changes}), TODAY)):
        if one.retained and (
            one.type.startswith(("aws:ec2", "aws:vpc", "aws:fsx")) or one.name.endswith("0-log-group")
        ):
            found.setdefault(one.type, []).append(one.name)
    return found


def test_destroy_retains_only_the_network_of_a_retained_file_system() -> None:
    """VPC, its subnet, the storage group and the log group are retained, but not subnets of the NAT gateway or of other zones."""
    pools = [BASE["pools"][0], {**BASE["pools"][0], "name": "other", "zone": "use1-az6"}]
    network = {type_: [name] for type_, name in IN_USE.items()}
    logs = {"aws:cloudwatch/logGroup:LogGroup": ["train-scratch-0-log-group"]}
    assert _kept(storage=[LUSTRE], pools=pools) == {**network, **logs}


def test_destroy_removes_the_network_without_a_retained_file_system() -> None:
    """With the data in a bucket, or with scratch data, the network is removed."""
    assert _kept(storage=[{**LUSTRE, "bucket": "auto"}]) == {}
    assert _kept(storage=[{**LUSTRE, "deployment": "scratch_2"}]) == {}
    assert _kept() == {}


def test_destroy_retains_the_storage_group_in_an_existing_network() -> None:
    """The stack does not own an existing network, but owns its security group in it."""
    subnets = {"use1-az4": "subnet-00000000000000001"}
    kept = _kept(storage=[LUSTRE], network={"existing": {"id": "vpc-00000000000000001", "subnets": subnets}})
    assert "aws:ec2/vpc:Vpc" not in kept
    assert kept["aws:ec2/securityGroup:SecurityGroup"] == ["train-security-storage"]


def test_names_are_unique() -> None:
    """No two resources of one type have the same logical name."""
    for stack in shipped_aws_stacks():
        names = [(one.type, one.name) for one in resources(plan_of(stack))]
        assert len(names) == len(set(names))


def test_the_number_of_resources_does_not_depend_on_the_number_of_nodes() -> None:
    """2000 nodes need the same resources as 2."""
    few = parse_spec(BASE)
    pools = [{**BASE["pools"][0], "capacity": [{"kind": "on_demand", "count": 2000}]}]
    many = parse_spec({**BASE, "pools": pools})
    assert count(resources(build_plan(few, TODAY))) == count(resources(build_plan(many, TODAY)))
