"""The resources of a plan are the resources that its program registers."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.clouds.gcp.resources import resources
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import count
from gpuinfra.spec import parse_spec
from tests.clouds.gcp.variants import BASE, LUSTRE, SHARED, SHIPPED, VARIANTS, planned, recorded
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, plan_of, recording_of


def _planned(plan: Plan) -> set[tuple[str, str, bool]]:
    return {(one.type, one.name, bool(one.retained)) for one in resources(plan)}


def _registered(recording: Recording) -> set[tuple[str, str, bool]]:
    return {(one.type, one.name, one.retained) for one in recording.custom}


@pytest.mark.parametrize("stack", SHIPPED)
def test_a_shipped_stack_registers_the_resources_of_its_plan(stack: str) -> None:
    """Type, logical name and lifetime of each planned resource are those of the program."""
    assert _planned(plan_of(stack)) == _registered(recording_of(stack))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_registers_the_resources_of_its_plan(name: str) -> None:
    """The same is true where a declaration omits, passes in or adds resources."""
    assert _planned(planned(name)) == _registered(recorded(name))


@pytest.mark.parametrize("stack", SHIPPED)
def test_the_plan_counts_the_resources_of_the_program(stack: str) -> None:
    """`plan.resources` has the number of resources by type, and no resource is planned twice."""
    plan = plan_of(stack)
    assert sum(plan.resources.values()) == len(recording_of(stack).custom) == len(_planned(plan))


@pytest.mark.parametrize("stack", SHIPPED)
def test_retained_resources_have_the_parents_of_the_plan(stack: str) -> None:
    """Types and names of all parents match; otherwise `adopt` imports a resource under another URN."""
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
    """Type -> logical name of the retained networks, addresses, peerings and file systems."""
    words = ("compute", "servicenetworking", "lustre", "filestore")
    plan = build_plan(parse_spec({**BASE, **changes}), TODAY)
    return {
        t.type.split(":")[-1]: t.name for t in resources(plan) if t.retained and t.type.split(":")[1].startswith(words)
    }


def test_a_retained_file_system_retains_its_network_and_peering() -> None:
    """Network, addresses and peering are retained; subnets, firewall rules, data networks and Cloud NAT are removed."""
    assert _kept(storage=[LUSTRE]) == {
        "Network": "train-network-main",
        "GlobalAddress": "train-network-services",
        "Connection": "train-network-services",
        "Instance": "train-scratch-0-lustre",
    }


def test_a_removed_file_system_retains_no_network() -> None:
    """Without a file system, the network is removed with the stack. A link to a bucket does not change what is retained."""
    assert _kept() == {}
    assert _kept(storage=[{**LUSTRE, "bucket": "auto"}]) == _kept(storage=[LUSTRE]) != {}


def test_in_an_existing_network_only_the_file_system_is_retained() -> None:
    """A stack does not retain a network that it did not create."""
    assert _kept(storage=[LUSTRE], network={"existing": SHARED}) == {"Instance": "train-scratch-0-lustre"}


def test_the_number_of_resources_does_not_depend_on_the_number_of_nodes() -> None:
    """A pool of 1000 nodes has the same resources as a pool of two."""
    few = parse_spec(BASE)
    pools = [{**BASE["pools"][0], "capacity": [{"kind": "on_demand", "count": 1000}]}]
    many = parse_spec({**BASE, "pools": pools})
    assert count(resources(build_plan(few, TODAY))) == count(resources(build_plan(many, TODAY)))
