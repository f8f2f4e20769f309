"""The zones that the plan chooses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds import profile_of
from gpuinfra.clouds.aws.rules.nodes import local_zone_is_named
from gpuinfra.planning import make_plan
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
    assert not LOCAL & set(make_plan(spec, TODAY).zones)


def test_a_declared_local_zone_is_used() -> None:
    """A Local Zone that the declaration names is used."""
    spec = parse_spec(_declared([("p5.48xlarge", None)], "us-east-1", "use1-atl2-az1"))
    assert make_plan(spec, TODAY).zones == ("use1-atl2-az1",)


def test_a_machine_type_of_a_local_zone_requires_the_zone() -> None:
    """A machine type that only a Local Zone offers is an error without the zone, and accepted with it."""
    pool = {"name": "gpu", "machine": "p6e-gb200.36xlarge"}
    block = {"kind": "block", "id": "cr-00000000000000001", "count": 9, "starts_at": "2026-11-25T11:30:00Z", "ends_at": "2026-12-02T11:30:00Z"}  # fmt: skip
    spec = _declared([], "us-east-1") | {"pools": [{**pool, "capacity": [block]}]}
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
    plan = make_plan(parse_spec(bare), TODAY)
    default = next(one.chosen for one in plan.decisions if one.path == "where.zone")
    zones = {pool.name: pool.groups[0].zone for pool in plan.pools}
    written = _declared([(machine, zones[f"p{n}"]) for n, (machine, _) in enumerate(pools)], "us-east-1", default, storage=[lustre])  # fmt: skip
    assert [str(one) for one in check(parse_spec(written), TODAY) if one.level == "error"] == []


def test_a_file_system_in_its_own_zone_has_a_subnet() -> None:
    """The network has a subnet in the zone of each file system."""
    lustre = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800, "zone": "use1-az4"}
    plan = make_plan(parse_spec(_declared([("p5.48xlarge", "use1-az6")], "us-east-1", storage=[lustre])), TODAY)
    assert plan.network
    assert {one.subnet for one in plan.file_systems} <= {one.name for one in plan.network.subnets}


def test_a_file_system_is_in_the_zone_of_a_reservation() -> None:
    """Without a declared zone, everything is in the zone of the only reservation."""
    spec = _declared([("p5.48xlarge", None)], "us-east-1", storage=[{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800}])  # fmt: skip
    spec["pools"][0]["capacity"][0]["zone"] = "use1-az6"
    plan = make_plan(parse_spec(spec), TODAY)
    assert plan.zones == ("use1-az6",)
