"""What a plan announces and what the components register are the same resources, resource by resource."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.azure.resources import resources
from gpuinfra.clouds.planned import count
from gpuinfra.planning import make_plan
from gpuinfra.spec import parse_spec
from tests.clouds.azure.variants import BASE, LUSTRE, VARIANTS, spec_of_variant, variant
from tests.clouds.stacks import TODAY, plan_of, recording_of, shipped_stacks

STACKS = shipped_stacks("azure")


@pytest.mark.parametrize("stack", STACKS)
def test_a_shipped_stack_registers_what_its_plan_announces(stack: str) -> None:
    """Types, logical names and lifetimes of the plan's list are those of the program."""
    announced = {(one.type, one.name, bool(one.retained)) for one in resources(plan_of(stack))}
    registered = {(one.type, one.name, one.retained) for one in recording_of(stack).custom}
    assert announced == registered
    assert plan_of(stack).resources == count(resources(plan_of(stack)))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_registers_what_its_plan_announces(name: str) -> None:
    """The same holds for what a declaration can leave out, hand in or add."""
    announced = {(one.type, one.name, bool(one.retained)) for one in resources(make_plan(spec_of_variant(name), TODAY))}
    registered = {(one.type, one.name, one.retained) for one in variant(name).custom}
    assert announced == registered


def test_names_are_unique() -> None:
    """No two resources of one type share a logical name, however the parts of names are put together."""
    for stack in STACKS:
        names = [(one.type, one.name) for one in resources(plan_of(stack))]
        assert len(names) == len(set(names))


def test_more_nodes_are_no_more_resources() -> None:
    """A hundred nodes are the same list of resources as one: one fabric is one set."""
    plans = []
    for nodes in (1, 100):
        pool = {**BASE["pools"][0], "capacity": [{"kind": "on_demand", "count": nodes}]}
        plans.append(make_plan(parse_spec({**BASE, "pools": [pool]}), TODAY))
    assert count(resources(plans[0])) == count(resources(plans[1]))


def _kept(**changes: Any) -> set[str]:
    """Names of what a destroy leaves of networks and file systems."""
    plan = make_plan(parse_spec({**BASE, **changes}), TODAY)
    kinds = ("azure-native:network:", "azure-native:storagecache:")
    return {one.name for one in resources(plan) if one.retained and one.type.startswith(kinds)}


def test_a_kept_file_system_keeps_what_it_stands_in_and_only_that() -> None:
    """Network, its own subnet, that subnet's rules and its way out stay with it: not the nodes' subnet, not a private endpoint."""
    assert _kept(storage=[LUSTRE]) == {
        "train-scratch-0-lustre",
        "train-network-network",
        "train-network-storage-scratch-0",
        "train-network-nat-gateway",
        "train-network-nat-address",
        "train-security-storage",
    }


def test_a_file_system_that_ends_keeps_no_network() -> None:
    """Where a container keeps the data, the network goes with the stack."""
    assert _kept(storage=[{**LUSTRE, "bucket": "auto", "importer_id": "00000000-0000-4000-8000-000000000009"}]) == set()
    assert _kept() == set()


def test_every_kept_thing_lies_in_a_kept_resource_group() -> None:
    """Deleting a resource group deletes everything in it, so no kept thing may be in one that goes."""
    for stack in STACKS:
        recording = recording_of(stack)
        going = {
            one.inputs["resourceGroupName"]
            for one in recording.of("azure-native:resources:ResourceGroup")
            if not one.retained
        }
        assert going
        for one in recording.custom:
            assert not (one.retained and one.inputs.get("resourceGroupName") in going), one.name
