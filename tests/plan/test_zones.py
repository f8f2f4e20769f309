"""The zones that the plan chooses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds.aws.rules.nodes import local_zone_is_named
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.plan.zones import Zoning, choose
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from tests.clouds.stacks import TODAY

AWS = profile_of("aws")
LOCAL = AWS.opt_in_zones
OFFERED = [
    (name, region)
    for name, machine in AWS.machines.items()
    for region in machine.zones
    if CapacityKind.ON_DEMAND in machine.capacity or CapacityKind.RESERVED in machine.capacity
]


def _declared(pools: list[tuple[str, str | None]], region: str, zone: str | None = None, **more: Any) -> dict[str, Any]:
    made = [
        {"name": f"p{n}", "machine": machine, "capacity": [{"kind": "reserved", "id": f"cr-{n:017d}", "count": 1}]}
        | ({"zone": own} if own else {})
        for n, (machine, own) in enumerate(pools)
    ]
    where = {"cloud": "aws", "region": region} | ({"zone": zone} if zone else {})
    return {"name": "train", "where": where, "pools": made, **more}


@pytest.mark.parametrize("region", ["us-east-1", "us-west-2", "us-east-2"])
@pytest.mark.parametrize("machine", sorted({name for name, _ in OFFERED}))
def test_a_local_zone_is_never_chosen(machine: str, region: str) -> None:
    """A plan without a declared zone has no Local Zone, for every machine type and region."""
    spec = parse_spec(_declared([(machine, None)], region))
    assert not LOCAL & set(build_plan(spec, TODAY).zones)


def test_a_declared_local_zone_is_used() -> None:
    """A Local Zone that the declaration names is used."""
    spec = parse_spec(_declared([("p5.48xlarge", None)], "us-east-1", "use1-atl2-az1"))
    assert build_plan(spec, TODAY).zones == ("use1-atl2-az1",)


def test_a_machine_type_of_a_local_zone_requires_the_zone() -> None:
    """A machine type that only a Local Zone offers is an error without the zone, and accepted with it."""
    pool = {"name": "gpu", "machine": "p6e-gb200.36xlarge"}
    block = {"kind": "block", "id": "cr-00000000000000001", "count": 9, "starts_at": "2026-11-25T11:30:00Z", "ends_at": "2026-12-02T11:30:00Z"}  # fmt: skip
    spec: dict[str, Any] = _declared([], "us-east-1") | {"pools": [{**pool, "capacity": [block]}]}
    # `check` reports one error for each path, and another rule refuses the only machine type of a Local Zone.
    assert [one.path for one in local_zone_is_named(parse_spec(spec), TODAY)] == ["pools[0].machine"]
    named = {**spec, "where": {**spec["where"], "zone": "us-east-1-dfw-2a"}}
    assert list(local_zone_is_named(parse_spec(named), TODAY)) == []


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted({name for name, _ in OFFERED})), st.sampled_from([None, "use1-az2", "use1-az6"])),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([None, "use1-az1", "use1-az4"]),
    st.booleans(),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_a_chosen_zone_passes_the_rules_of_a_declared_zone(
    pools: list[tuple[str, str | None]], storage: str | None, efa: bool
) -> None:
    """If a declaration without a zone has no error, it has none with the chosen zones written into it."""
    lustre = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 19200, "fabric": efa}
    lustre |= {"zone": storage} if storage else {}
    bare = _declared(pools, "us-east-1", storage=[lustre])
    if any(one.level == "error" for one in check(parse_spec(bare), TODAY)):
        return
    plan = build_plan(parse_spec(bare), TODAY)
    default = next(one.chosen for one in plan.decisions if one.path == "where.zone")
    zones = {pool.name: pool.groups[0].zone for pool in plan.pools}
    written = _declared([(machine, zones[f"p{n}"]) for n, (machine, _) in enumerate(pools)], "us-east-1", default, storage=[lustre])  # fmt: skip
    assert [str(one) for one in check(parse_spec(written), TODAY) if one.level == "error"] == []


def test_a_file_system_in_its_own_zone_has_a_subnet() -> None:
    """The network has a subnet in the zone of each file system."""
    lustre = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800, "zone": "use1-az4"}
    plan = build_plan(parse_spec(_declared([("p5.48xlarge", "use1-az6")], "us-east-1", storage=[lustre])), TODAY)
    assert plan.network
    assert {one.subnet for one in plan.file_systems} <= {one.name for one in plan.network.subnets}


def test_a_file_system_is_in_the_zone_of_a_reservation() -> None:
    """Without a declared zone, everything is in the zone of the only reservation."""
    spec = _declared([("p5.48xlarge", None)], "us-east-1", storage=[{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800}])  # fmt: skip
    spec["pools"][0]["capacity"][0]["zone"] = "use1-az6"
    plan = build_plan(parse_spec(spec), TODAY)
    assert plan.zones == ("use1-az6",)


def _chosen(offered: dict[str, set[str]], pools: list[tuple[str, str | None]], count: int = 1, **where: Any) -> Zoning:
    """The choice for pools (machine type, declared zone), with these zones of the machine types in us-east-1."""
    names = dict(zip(("p4d.24xlarge", "p5.48xlarge", "g6e.12xlarge"), "abc", strict=True))
    machines = {
        name: replace(AWS.machines[name], zones={"us-east-1": tuple(offered[short])} if short in offered else {})
        for name, short in names.items()
    }
    of = {short: name for name, short in names.items()}
    content = _declared([(of[short], zone) for short, zone in pools], "us-east-1", **where)
    for number, one in enumerate(content["pools"]):
        one["capacity"] = [{"kind": "on_demand", "count": count if number == 0 else 1}]
    return choose(parse_spec(content), machines, "first", frozenset({"local"}))


def test_the_first_common_zone_is_chosen() -> None:
    """Without a declared zone, the zone offers every machine type and is no opt-in zone."""
    found = _chosen({"a": {"z3", "z2", "local"}, "b": {"z1", "z2", "z3", "local"}}, [("a", None), ("b", None)])
    assert (found.default, found.by_pool) == ("z2", {"p0": "z2", "p1": "z2"})
    assert "the first of 2 zones that offer every machine type" in found.why


def test_the_zone_of_another_pool_is_preferred_if_it_offers_every_machine_type() -> None:
    """A declared zone is shared by the other pools, unless it does not offer their machine types."""
    offered = {"a": {"z1", "z2"}, "b": {"z1", "z2"}}
    found = _chosen(offered, [("a", "z2"), ("b", None)])
    assert (found.default, found.by_pool) == ("z2", {"p0": "z2", "p1": "z2"})
    assert "the zone of another pool" in found.why
    found = _chosen(offered, [("a", "z9"), ("b", None)])
    assert (found.default, found.by_pool) == ("z1", {"p0": "z9", "p1": "z1"})


def test_zones_of_all_pools_are_kept() -> None:
    """If every pool declares a zone, none is chosen, and the zone of the first pool is the default."""
    found = _chosen({"a": {"z1"}, "b": {"z1"}}, [("a", "z8"), ("b", "z9")])
    assert (found.default, found.by_pool) == ("z8", {"p0": "z8", "p1": "z9"})
    assert found.why == "the zone of the first pool"


def test_the_largest_pool_decides_if_no_zone_offers_every_machine_type() -> None:
    """The machine type with the most GPUs over all its nodes selects the zone, without opt-in zones."""
    offered = {"a": {"z5", "z4", "local"}, "c": {"z1"}}
    found = _chosen(offered, [("a", None), ("c", None)])
    assert (found.default, "this zone offers p4d.24xlarge" in found.why) == ("z4", True)
    assert _chosen(offered, [("c", None), ("a", None)], count=3).default == "z1"
    assert _chosen(offered, [("c", None), ("a", None)], count=1).default == "z4"
    assert _chosen({"a": {"local"}, "c": {"z1"}}, [("a", None), ("c", None)]).default == "first"


def test_machine_types_without_zones_are_in_the_first_zone_of_the_region() -> None:
    """A machine type without zones in the catalog does not limit the choice, and `where.zone` decides everything."""
    assert _chosen({}, [("a", None), ("b", None)]).default == "first"
    assert _chosen({"b": {"z7"}}, [("a", None), ("b", None)]).default == "z7"
    found = _chosen({"a": {"z1"}, "b": {"z2"}}, [("a", None), ("b", "z2")], zone="z3")
    assert (found.default, found.by_pool, found.why) == ("z3", {"p0": "z3", "p1": "z2"}, "set in where.zone")
