"""Which file systems end with their stack: only those whose data is elsewhere, or temporary by declaration."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gpuinfra.clouds.aws.resources import resources
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Lifetime, Plan
from gpuinfra.spec import parse_spec
from tests.clouds.stacks import TODAY, recording_of, recording_of_spec, shipped_aws_stacks, spec_of

EVENTS = ("NEW", "CHANGED", "DELETED")
SUBSETS = [list(some) for n in range(4) for some in itertools.combinations(EVENTS, n)]
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"


def _spec(**storage: Any) -> Any:
    whole = spec_of("aws-p4d").model_dump(mode="json", exclude_unset=True)
    return parse_spec({**whole, "storage": [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800, **storage}]})


def _plan(**storage: Any) -> Plan:
    return build_plan(_spec(**storage), TODAY)


@pytest.mark.parametrize("deployment", ["persistent_2", "persistent_1"])
@pytest.mark.parametrize("path", ["/", "/data"])
@pytest.mark.parametrize("bucket", [None, "auto", "my-training-data"])
def test_a_persistent_file_system_ends_only_if_everything_is_exported(
    bucket: str | None, path: str, deployment: str
) -> None:
    """It ends with its stack if it exports new, changed and deleted files of its root; each other link retains it."""
    for events in SUBSETS:
        for prefix in ("", "datasets/imagenet"):
            link = {"bucket": bucket, "bucket_path": path, "export_events": events}
            link |= {"bucket_prefix": prefix} if bucket else {}
            plan = _plan(deployment=deployment, **link)
            (one,) = plan.file_systems
            ends = bucket is not None and path == "/" and set(events) == set(EVENTS)
            assert (one.lifetime is Lifetime.ENDS) == ends, link
            assert one.lifetime_reason
            (row,) = [found for found in resources(plan) if found.type == LUSTRE]
            assert (row.retained is None) == ends, link


@pytest.mark.parametrize("events", [[], ["NEW"], ["NEW", "CHANGED"], list(EVENTS)])
def test_the_program_retains_what_the_plan_retains(events: list[str]) -> None:
    """The file system, its network and its log group have retainOnDelete if not everything is exported; the bucket has it always."""
    recording = recording_of_spec(_spec(bucket="auto", export_events=events))
    retained = {one.type for one in recording.custom if one.retained}
    kept = set(events) != set(EVENTS)
    for type_ in (LUSTRE, "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/securityGroup:SecurityGroup"):
        assert (type_ in retained) == kept, type_
    assert "aws:s3/bucket:Bucket" in retained


@pytest.mark.parametrize("stack", shipped_aws_stacks())
def test_an_address_is_released_after_the_subnet_of_its_gateway(stack: str) -> None:
    """Each subnet of a NAT gateway depends on the address, so that `destroy` waits for the network interface of the gateway before it releases the address."""
    recording = recording_of(stack)
    subnets = {one.id: one for one in recording.of("aws:ec2/subnet:Subnet")}
    addresses = {one.name: one for one in recording.of("aws:ec2/eip:Eip")}
    gateways = recording.of("aws:ec2/natGateway:NatGateway")
    assert len(gateways) == len(addresses)
    for gateway in gateways:
        subnet = subnets[gateway.inputs["subnetId"]]
        assert addresses[f"{subnet.name}-address"].urn in subnet.depends_on
