"""What a plan announces and what the components register are the same resources, resource by resource."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.aws.resources import resources
from gpuinfra.clouds.planned import count
from gpuinfra.planning import make_plan
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
    "no trail": {"audit": {"trail": "none"}},
    "trail into an existing bucket": {"audit": {"bucket": "somebody-elses-audit"}},
    "lustre without a bucket": {"storage": [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800}]},
    "lustre without a bucket in an existing network": {
        "network": {"existing": {"id": "vpc-00000000000000001", "subnets": {"use1-az4": "subnet-00000000000000001"}}},
        "storage": [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800}],
    },
    "lustre on an existing bucket": {
        "storage": [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800, "bucket": "my-data"}]
    },
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
def test_a_shipped_stack_registers_what_its_plan_announces(stack: str) -> None:
    """Types, logical names and lifetimes of the plan's list are those of the program."""
    announced = {(one.type, one.name, bool(one.retained)) for one in resources(plan_of(stack))}
    registered = {(one.type, one.name, one.retained) for one in recording_of(stack).custom}
    assert announced == registered


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_registers_what_its_plan_announces(variant: str) -> None:
    """The same holds for what a declaration can leave out, hand in or add."""
    spec = parse_spec({**BASE, **VARIANTS[variant]})
    announced = {(one.type, one.name, bool(one.retained)) for one in resources(make_plan(spec, TODAY))}
    registered = {(one.type, one.name, one.retained) for one in recording_of_spec(spec).custom}
    assert announced == registered


LUSTRE: dict[str, Any] = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800}
GROUND = {
    "aws:ec2/vpc:Vpc": "train-network-vpc",
    "aws:ec2/subnet:Subnet": "train-network-private-4",
    "aws:ec2/securityGroup:SecurityGroup": "train-security-storage",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "train-scratch-0-lustre",
}


def _kept(**changes: Any) -> dict[str, list[str]]:
    """Type -> logical names of what a destroy leaves of networks and file systems, and of logs of file systems."""
    found: dict[str, list[str]] = {}
    for one in resources(make_plan(parse_spec({**BASE, **changes}), TODAY)):
        if one.retained and (
            one.type.startswith(("aws:ec2", "aws:vpc", "aws:fsx")) or one.name.endswith("0-log-group")
        ):
            found.setdefault(one.type, []).append(one.name)
    return found


def test_a_kept_file_system_keeps_what_it_stands_in_and_only_that() -> None:
    """VPC, the one subnet, the storage group and the log stay with it: not the NAT gateway's subnet, not another zone's."""
    pools = [BASE["pools"][0], {**BASE["pools"][0], "name": "other", "zone": "use1-az6"}]
    ground = {type_: [name] for type_, name in GROUND.items()}
    logs = {"aws:cloudwatch/logGroup:LogGroup": ["train-scratch-0-log-group"]}
    assert _kept(storage=[LUSTRE], pools=pools) == {**ground, **logs}


def test_a_file_system_that_ends_keeps_no_network() -> None:
    """Where a bucket keeps the data, or nothing does, the network goes with the stack."""
    assert _kept(storage=[{**LUSTRE, "bucket": "auto"}]) == {}
    assert _kept(storage=[{**LUSTRE, "deployment": "scratch_2"}]) == {}
    assert _kept() == {}


def test_in_another_s_network_only_the_group_stays() -> None:
    """A network that is not the stack's is nothing that it could keep; its own group in it is."""
    subnets = {"use1-az4": "subnet-00000000000000001"}
    kept = _kept(storage=[LUSTRE], network={"existing": {"id": "vpc-00000000000000001", "subnets": subnets}})
    assert "aws:ec2/vpc:Vpc" not in kept
    assert kept["aws:ec2/securityGroup:SecurityGroup"] == ["train-security-storage"]


def test_names_are_unique() -> None:
    """No two resources of one type share a logical name, however the parts of names are put together."""
    for stack in shipped_aws_stacks():
        names = [(one.type, one.name) for one in resources(plan_of(stack))]
        assert len(names) == len(set(names))


def test_more_nodes_are_no_more_resources() -> None:
    """A thousand times the nodes is the same list of resources."""
    few = parse_spec(BASE)
    pools = [{**BASE["pools"][0], "capacity": [{"kind": "on_demand", "count": 2000}]}]
    many = parse_spec({**BASE, "pools": pools})
    assert count(resources(make_plan(few, TODAY))) == count(resources(make_plan(many, TODAY)))
