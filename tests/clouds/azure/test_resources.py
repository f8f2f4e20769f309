"""The table of resources and the registered resources are the same."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.azure.resources import resources
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.planned import count
from gpuinfra.spec import parse_spec
from tests.clouds.azure.variants import BASE, LUSTRE, VARIANTS, spec_of_variant, variant
from tests.clouds.stacks import TODAY, plan_of, recording_of, shipped_stacks

STACKS = shipped_stacks("azure")


@pytest.mark.parametrize("stack", STACKS)
def test_a_shipped_stack_registers_the_resources_of_its_table(stack: str) -> None:
    """Types, logical names and lifetimes in the table are those of the program."""
    announced = {(one.type, one.name, bool(one.retained)) for one in resources(plan_of(stack))}
    registered = {(one.type, one.name, one.retained) for one in recording_of(stack).custom}
    assert announced == registered
    assert plan_of(stack).resources == count(resources(plan_of(stack)))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_registers_the_resources_of_its_table(name: str) -> None:
    """The same is true with fields that are left out, existing resources, and optional parts."""
    announced = {
        (one.type, one.name, bool(one.retained)) for one in resources(build_plan(spec_of_variant(name), TODAY))
    }
    registered = {(one.type, one.name, one.retained) for one in variant(name).custom}
    assert announced == registered


def test_logical_names_are_unique() -> None:
    """No two resources of one type have the same logical name."""
    for stack in STACKS:
        names = [(one.type, one.name) for one in resources(plan_of(stack))]
        assert len(names) == len(set(names))


def test_more_nodes_need_no_more_resources() -> None:
    """A hundred nodes need the same resources as one, because one fabric is one scale set."""
    plans = []
    for nodes in (1, 100):
        pool = {**BASE["pools"][0], "capacity": [{"kind": "on_demand", "count": nodes}]}
        plans.append(build_plan(parse_spec({**BASE, "pools": [pool]}), TODAY))
    assert count(resources(plans[0])) == count(resources(plans[1]))


def _retained(**changes: Any) -> set[str]:
    """Names of retained networks and file systems."""
    plan = build_plan(parse_spec({**BASE, **changes}), TODAY)
    kinds = ("azure-native:network:", "azure-native:storagecache:")
    return {one.name for one in resources(plan) if one.retained and one.type.startswith(kinds)}


def test_a_retained_file_system_retains_its_network() -> None:
    """The network, the subnet, its security group and the NAT gateway are retained, but not the subnet of nodes or a private endpoint."""
    assert _retained(storage=[LUSTRE]) == {
        "train-scratch-0-lustre",
        "train-network-network",
        "train-network-storage-scratch-0",
        "train-network-nat-gateway",
        "train-network-nat-address",
        "train-security-storage",
    }


def test_a_removed_file_system_retains_no_network() -> None:
    """Without a file system, the network is removed with the stack. With a container, a file system and its network are retained."""
    linked = {**LUSTRE, "bucket": "auto", "importer_id": "00000000-0000-4000-8000-000000000009"}
    assert _retained(storage=[LUSTRE])
    assert _retained(storage=[LUSTRE]) <= _retained(storage=[linked])
    assert _retained() == set()


def test_retained_resources_are_in_retained_resource_groups() -> None:
    """Deleting a resource group deletes everything in it."""
    for stack in STACKS:
        recording = recording_of(stack)
        removed = {
            one.inputs["resourceGroupName"]
            for one in recording.of("azure-native:resources:ResourceGroup")
            if not one.retained
        }
        assert removed
        for one in recording.custom:
            assert not (one.retained and one.inputs.get("resourceGroupName") in removed), one.name
