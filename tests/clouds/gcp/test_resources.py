"""What a plan announces and what the components register are the same resources, resource by resource."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.gcp.resources import resources
from gpuinfra.clouds.planned import count
from gpuinfra.plan.model import Plan
from gpuinfra.planning import make_plan
from gpuinfra.spec import parse_spec
from tests.clouds.gcp.variants import BASE, LUSTRE, SHARED, SHIPPED, VARIANTS, planned, recorded
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, plan_of, recording_of


def _announced(plan: Plan) -> set[tuple[str, str, bool]]:
    return {(one.type, one.name, bool(one.retained)) for one in resources(plan)}


def _registered(recording: Recording) -> set[tuple[str, str, bool]]:
    return {(one.type, one.name, one.retained) for one in recording.custom}


@pytest.mark.parametrize("stack", SHIPPED)
def test_a_shipped_stack_registers_what_its_plan_announces(stack: str) -> None:
    """Types, logical names and lifetimes of the plan's list are those of the program."""
    assert _announced(plan_of(stack)) == _registered(recording_of(stack))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_registers_what_its_plan_announces(name: str) -> None:
    """The same holds for what a declaration can leave out, hand in or add."""
    assert _announced(planned(name)) == _registered(recorded(name))


@pytest.mark.parametrize("stack", SHIPPED)
def test_the_plan_s_own_count_is_that_of_the_program(stack: str) -> None:
    """`plan.resources` says how many of each type there will be, and nothing is announced twice under one name."""
    plan = plan_of(stack)
    assert sum(plan.resources.values()) == len(recording_of(stack).custom) == len(_announced(plan))


@pytest.mark.parametrize("stack", SHIPPED)
def test_a_kept_thing_is_under_the_components_that_the_plan_says(stack: str) -> None:
    """Parents are right to the name, or what is taken back after a destroy would come back under another URN."""
    recording = recording_of(stack)
    urns = {(one.type, one.name): one.urn for one in recording.resources}
    for one in resources(plan_of(stack)):
        if not one.retained:
            continue
        made = recording.one(one.type, one.name)
        assert one.parents, one.name
        assert made.parent == urns[one.parents[-1]], one.name
        above = [
            one.parent for parent in one.parents[1:] for one in recording.resources if (one.type, one.name) == parent
        ]
        assert above == [urns[parent] for parent in one.parents[:-1]], one.name


def _kept(**changes: Any) -> dict[str, str]:
    """Logical name -> type of what a destroy leaves of networks, addresses, peerings and file systems."""
    words = ("compute", "servicenetworking", "lustre", "filestore")
    plan = make_plan(parse_spec({**BASE, **changes}), TODAY)
    return {
        t.type.split(":")[-1]: t.name for t in resources(plan) if t.retained and t.type.split(":")[1].startswith(words)
    }


def test_a_kept_file_system_keeps_what_it_lies_behind_and_only_that() -> None:
    """Network, addresses and peering stay with it; subnets, walls, data networks and the way out go."""
    assert _kept(storage=[LUSTRE]) == {
        "Network": "train-network-main",
        "GlobalAddress": "train-network-services",
        "Connection": "train-network-services",
        "Instance": "train-scratch-0-lustre",
    }


def test_a_file_system_that_ends_keeps_no_network() -> None:
    """Where a bucket keeps the data, or there is none, the network goes with the stack."""
    assert _kept(storage=[{**LUSTRE, "bucket": "auto"}]) == {}
    assert _kept() == {}


def test_in_another_s_network_only_the_file_system_stays() -> None:
    """A network that is not the stack's is nothing that it could keep."""
    assert _kept(storage=[LUSTRE], network={"existing": SHARED}) == {"Instance": "train-scratch-0-lustre"}


def test_more_nodes_are_no_more_resources() -> None:
    """Hundreds of nodes are the same list of resources; a group holds a thousand."""
    few = parse_spec(BASE)
    pools = [{**BASE["pools"][0], "capacity": [{"kind": "on_demand", "count": 1000}]}]
    many = parse_spec({**BASE, "pools": pools})
    assert count(resources(make_plan(few, TODAY))) == count(resources(make_plan(many, TODAY)))
