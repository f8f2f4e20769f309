from __future__ import annotations

import copy
import ipaddress
import itertools
import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuinfra.base import day
from gpuinfra.base.registry import CLOUDS
from gpuinfra.base.shipped import shipped
from gpuinfra.clouds.aws.instances import schedule
from gpuinfra.node.checks import ALL
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from tests.plan.goldens import CASES, FOLDER, plans, text
from tests.rules.cases import ACCEPTED, TODAY, block, declaration, lustre, pool, reserved

PLANS = plans()


def _plan(cloud: str, **changes: Any) -> Plan:
    return build_plan(
        parse_spec(declaration((cloud, {key.replace("__", "."): v for key, v in changes.items()}))), TODAY
    )


@pytest.mark.parametrize("name", sorted(PLANS))
def test_plan_matches_its_golden_file(name: str) -> None:
    """Every decision is in a golden file (`python -m tests.plan.goldens` writes them)."""
    assert text(PLANS[name]) == (FOLDER / f"{name}.json").read_text()


def test_golden_files_belong_to_plans() -> None:
    """Every golden file belongs to a plan."""
    assert {path.stem for path in FOLDER.glob("*.json")} == set(PLANS)


@pytest.mark.parametrize("name", sorted(CASES))
def test_plan_does_not_depend_on_order(name: str) -> None:
    """The order of pools, file systems, tags and fields does not change the plan."""
    spec = declaration(CASES[name])
    for seed in range(5):
        shuffled = _shuffled(copy.deepcopy(spec), random.Random(seed))
        assert text(build_plan(parse_spec(shuffled), TODAY)) == text(PLANS[name])


def _shuffled(spec: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    for key in ("pools", "storage"):
        if key in spec:
            dice.shuffle(spec[key])
    items = list(spec.items())
    dice.shuffle(items)
    return dict(items)


@pytest.mark.parametrize(
    "extra",
    [pool("a", "m7i.xlarge", 3), pool("zz", "p5.48xlarge", 4, "spot"), pool("b", "p4d.24xlarge", zone="use1-az6")],
    ids=["first by name", "last by name", "in another zone"],
)
def test_another_pool_changes_no_name_or_address(extra: dict[str, Any]) -> None:
    """Adding a pool changes no name and no address of existing pools."""
    before = declaration(("aws", {"storage": lustre()}))
    after = copy.deepcopy(before)
    after["pools"].append(extra)
    old, new = build_plan(parse_spec(before), TODAY), build_plan(parse_spec(after), TODAY)
    assert set(old.network.subnets) <= set(new.network.subnets)  # type: ignore[union-attr]
    assert set(old.pools[0].groups) <= {group for entry in new.pools for group in entry.groups}
    assert old.file_systems == new.file_systems


@pytest.mark.parametrize("name", sorted(PLANS))
def test_addresses_never_overlap(name: str) -> None:
    """Subnets do not overlap, are inside the network, and have an address for each of their nodes."""
    network = PLANS[name].network
    if network is None or network.existing_id:
        return
    subnets = [ipaddress.ip_network(subnet.cidr) for subnet in network.subnets]
    if network.service_range:
        subnets.append(ipaddress.ip_network(network.service_range))
    for one, other in itertools.combinations(subnets, 2):
        assert not one.overlaps(other), (one, other)
    whole = ipaddress.ip_network(network.cidr)
    assert all(subnet.subnet_of(whole) for subnet in subnets)  # type: ignore[arg-type]


def test_accepted_declarations_can_be_planned() -> None:
    """A declaration without errors has a plan, on every cloud."""
    count = 0
    for cases in ACCEPTED.values():
        for case in cases:
            spec = parse_spec(declaration(case))
            if any(finding.level == "error" for finding in check(spec, TODAY)):
                continue
            plan = build_plan(spec, TODAY)
            assert sum(plan.resources.values()) > 0
            count += 1
    assert count > 100


def test_every_machine_can_be_planned() -> None:
    """Each machine type of each catalog has a plan with its layout, steps and expectation."""
    for cloud in CLOUDS:
        profile = profile_of(cloud)
        for machine in profile.machines.values():
            kind = min(machine.capacity, key=lambda k: ["on_demand", "spot", "reserved", "flex", "block"].index(k))
            entry: dict[str, Any] = {"kind": kind.value, "count": machine.unit_nodes[0] if machine.unit_nodes else 2}
            entry |= {"flex": {"max_run_hours": 1}, "reserved": {"id": "train"}}.get(kind.value, {})
            capacity = block(count=entry["count"]) if kind == "block" else [entry]
            region = next(iter(machine.zones), {"aws": "us-east-1", "azure": "eastus", "gcp": "us-central1"}[cloud])
            changes = {"where": {"cloud": cloud, "region": region}, "pools__0__machine": machine.name}
            plan = _plan(cloud, **changes, pools__0__capacity=capacity, software__kernel="5.15.0-1042-gcp-tcpx")
            expected = plan.pools[0].expectation
            assert len(plan.pools[0].nics) == len(machine.nics)
            assert expected["gpus"] == machine.gpus
            assert set(expected["required"]) <= set(ALL)
            ids = [step.id for step in plan.pools[0].steps]
            assert ids == sorted(ids)
            assert ("35-fabric-manager" in ids) == machine.nvswitch
            assert any(one.startswith("50-") for one in ids) == (machine.fabric is not None)
            assert all((shipped("bootstrap") / f"{one}.sh").is_file() for one in ids)


def test_p4d_expectation() -> None:
    """The expectation of p4d has eight A100 with twelve links each, four EFA devices, and allowed skips."""
    expected = _plan("aws", storage=lustre()).pools[0].expectation
    assert (expected["gpus"], expected.get("gpu_name"), expected.get("nvlinks_per_gpu")) == (
        8,
        "NVIDIA A100-SXM4-40GB",
        12,
    )
    assert (expected["fabric_devices"], expected["fabric_provider"]) == (4, "efa")
    assert "F1" in expected["required"]  # type: ignore[operator]
    assert "F2" not in expected["required"]  # type: ignore[operator]
    assert set(expected["skips"]) == {"F2", "F6"}  # type: ignore[call-overload]
    assert expected["file_systems"] == ["/scratch"]
    minimum = {"P1", "P2", "D1", "D2", "D3", "D5", "D6", *(f"G{n}" for n in range(1, 7)), "G10", "G13"}
    assert minimum | {"F1", "F3", "X1", "N1", "S1", "S2"} <= set(expected["required"])  # type: ignore[arg-type]


def test_a_pool_without_gpus_requires_the_runtime_check_only_with_docker() -> None:
    """C1 is required if containers use GPUs, or if the declaration lists Docker."""
    small = {"pools__0__machine": "m7i.xlarge", "pools__0__capacity": [{"kind": "on_demand", "count": 1}]}
    for containers in ([], ["docker"], ["enroot"]):
        required = _plan("aws", **small, software__containers=containers).pools[0].expectation["required"]
        assert ("C1" in required, "C5" in required) == ("docker" in containers, "enroot" in containers)
        assert not {"C2", "C3", "G1", "D1"} & set(required)


def test_tcpx_nodes_need_no_library_on_the_host() -> None:
    """TCPX runs in containers, so N3 is not required with a kernel for TCPX; with TCPXO it is."""
    a3 = {"pools__0__machine": "a3-highgpu-8g", "pools__0__capacity": [{"kind": "reserved", "id": "train", "count": 2}]}
    for kernel, provider in (("5.15.0-1042-gcp-tcpx", "tcpx"), (None, "tcpxo")):
        expected = _plan("gcp", **a3, software__kernel=kernel).pools[0].expectation
        assert expected["fabric_provider"] == provider
        assert ("N3" in expected["required"]) == (provider == "tcpxo")
        assert "N6" in expected["required"]


@pytest.mark.parametrize(
    ("cloud", "machine", "addresses"),
    [
        ("aws", "p5.48xlarge", ""),
        ("azure", "Standard_ND96isr_H100_v5", "169.254.169.254 168.63.129.16"),
        ("gcp", "a3-megagpu-8g", "169.254.169.254 fd20:ce::254"),
    ],
)
@pytest.mark.parametrize("reach", [False, True])
def test_nodes_block_the_metadata_service_without_a_hop_limit(
    cloud: str, machine: str, addresses: str, reach: bool
) -> None:
    """A cloud without a hop limit gets the step and the check; if containers are allowed, the step removes the block."""
    pool = _plan(cloud, pools__0__machine=machine, pools__0__containers_reach_metadata=reach).pools[0]
    wanted = "" if reach else addresses
    assert pool.versions.get("METADATA_GUARDED", "") == wanted
    assert ("C4" in list(pool.expectation["required"])) is bool(wanted)  # type: ignore[call-overload]
    assert pool.expectation.get("metadata_guarded", []) == wanted.split()
    assert ("72-metadata" in [step.id for step in pool.steps]) is bool(addresses)
    assert pool.metadata_hop_limit == (2 if reach else 1)


def test_placement_depends_on_capacity() -> None:
    """A reservation outside a placement group has none; the other nodes of the pool have a cluster placement group."""
    plan = _plan(
        "aws", pools__0__capacity=[*reserved(), {"kind": "spot", "count": 2}, {"kind": "on_demand", "count": 2}]
    )
    by_kind = {group.kind: group for group in plan.pools[0].groups}
    assert by_kind["reserved"].placement_group is None
    assert "11 of 16" in by_kind["reserved"].placement_reason
    assert by_kind["spot"].placement_group == by_kind["on_demand"].placement_group == "gpu-near"
    assert {group.zone for group in plan.pools[0].groups} == {"use1-az4"}
    inside = _plan("aws", pools__0__capacity=reserved(placement_group="mine")).pools[0].groups[0]
    assert (inside.placement_group, inside.placement_existing) == ("mine", True)


def test_overflow_uses_reservations_first() -> None:
    """With overflow, the group uses reservations first; without it, reservations only."""
    only = _plan("aws", pools__0__capacity=reserved()).pools[0].groups[0]
    first = _plan("aws", pools__0__capacity=reserved(overflow=True)).pools[0].groups[0]
    assert only.reservation_preference == "capacity-reservations-only"
    assert first.reservation_preference == "capacity-reservations-first"


def test_block_starts_empty_and_ends_early() -> None:
    """The nodes of a block start with its window and stop before AWS terminates them."""
    group = _plan("aws", pools__0__capacity=block()).pools[0].groups[0]
    assert (group.count, group.max_count) == (0, 2)
    assert group.starts_at == "2026-12-01T11:30:00Z"
    assert group.ends_at == "2026-12-08T10:55:00Z"
    assert group.terminate_first
    open_now = _plan("aws", pools__0__capacity=block(starts_at="2026-11-20T11:30:00Z")).pools[0].groups[0]
    assert open_now.count == 2


def test_block_of_ultraservers_ends_an_hour_early() -> None:
    """AWS terminates instances in an UltraServer 60 minutes before the end of a Capacity Block, so they stop 65 minutes before it."""
    gb200 = {"pools__0__machine": "p6e-gb200.36xlarge", "where__zone": "us-east-1-dfw-2a"}
    group = _plan("aws", pools__0__capacity=block(count=9), **gb200).pools[0].groups[0]
    assert group.ends_at == "2026-12-08T10:25:00Z"


@pytest.mark.parametrize(
    ("now", "count", "actions"),
    [
        ("2026-12-01T11:29:00+00:00", 0, {"start", "end"}),
        ("2026-12-01T11:30:00+00:00", 2, {"end"}),
        ("2026-12-08T10:54:00+00:00", 2, {"end"}),
        ("2026-12-08T10:55:00+00:00", 0, set()),
    ],
)
def test_block_follows_the_time_of_the_day(now: str, count: int, actions: set[str]) -> None:
    """On the days on which a block starts and ends, the number of nodes depends on the time. Auto Scaling gets no action in the past."""
    moment = datetime.fromisoformat(now)
    spec = parse_spec(declaration(("aws", {"pools.0.capacity": block()})))
    group = build_plan(spec, moment.date(), moment).pools[0].groups[0]
    assert (group.count, {action for action, _ in schedule(group)}) == (count, actions)


def test_the_present_is_the_time_unless_a_date_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chosen date has no time, and the present has one in UTC."""
    monkeypatch.setenv(day.VARIABLE, "2026-12-01")
    assert day.now() is None
    monkeypatch.delenv(day.VARIABLE)
    found = day.now()
    assert found is not None
    assert found.utcoffset() == timedelta(0)


def test_zone_offers_all_machine_types() -> None:
    """Without a zone, the plan chooses the first zone that offers every machine type, and gives the reason."""
    plan = _plan(
        "aws",
        where={"cloud": "aws", "region": "us-east-1"},
        pools=[pool("a", "p4d.24xlarge"), pool("b", "p5en.48xlarge")],
    )
    assert plan.zones == ("use1-az2",)
    assert "offer every machine type" in plan.decisions[0].why
    lone = _plan(
        "aws",
        where={"cloud": "aws", "region": "us-east-1"},
        pools=[pool("a", "p4de.24xlarge", 4), pool("b", "p5en.48xlarge", zone="use1-az2")],
    )
    assert lone.zones == ("use1-az2", "use1-az4")
    bound = _plan("aws", where={"cloud": "aws", "region": "us-east-1"}, pools__0__capacity=reserved(zone="use1-az6"))
    assert bound.pools[0].groups[0].zone == "use1-az6"


@pytest.mark.parametrize(
    ("cloud", "machine", "limit"), [("gcp", "a3-megagpu-8g", 1000), ("azure", "Standard_NC96ads_A100_v4", 600)]
)
def test_groups_are_split_at_their_limit(cloud: str, machine: str, limit: int) -> None:
    """4,000 nodes need ceil(nodes / limit) groups, and the same other resources."""
    few = _plan(cloud, pools__0__machine=machine, pools__0__capacity=[{"kind": "spot", "count": 4}])
    many = _plan(cloud, pools__0__machine=machine, pools__0__capacity=[{"kind": "spot", "count": 4000}])
    assert len(few.pools[0].groups) == 1
    assert [group.count for group in many.pools[0].groups] == [limit] * (4000 // limit) + (
        [4000 % limit] if 4000 % limit else []
    )
    grown = {kind for kind in many.resources if many.resources[kind] != few.resources[kind]}
    assert all("roup" in kind or "ScaleSet" in kind or "emplate" in kind for kind in grown)


def test_aws_resources_do_not_grow_with_nodes() -> None:
    """4,000 nodes on AWS need as many resources as four."""
    few, many = (_plan("aws", pools__0__capacity=[{"kind": "spot", "count": n}]) for n in (4, 4000))
    assert few.resources == many.resources


def test_used_layers_are_not_created() -> None:
    """A cluster that uses another stack's foundation and site creates neither, and its nodes have the mounts."""
    use = {"foundation": "o/g/base", "site": "o/g/site"}
    plan = _plan("aws", use=use, storage=lustre())
    assert plan.layers == ("cluster",)
    assert plan.network is None
    assert plan.budget is None
    assert plan.file_systems == ()
    assert plan.pools[0].expectation["file_systems"] == ["/scratch"]
    assert any(step.id == "60-lustre" for step in plan.pools[0].steps)


def test_derived_budget_covers_the_month() -> None:
    """A derived limit is the price of a month plus 10 percent; a declared limit is used as it is."""
    from gpuinfra.cost import price

    plan = _plan("aws")
    month = price(plan, TODAY).usd_per_month
    assert plan.budget is not None
    assert month * 1.1 <= plan.budget.limit_usd_per_month < month * 1.1 + 100
    given = _plan("aws", budget={"limit_usd_per_month": 5.5, "recipients": ["a@b.co"]}).budget
    assert given is not None
    assert (given.limit_usd_per_month, given.derived) == (5.5, False)
    assert (given.currency, given.amount_per_month) == ("USD", 5.5)


def test_budget_in_the_currency_of_the_billing_account() -> None:
    """The amount of a budget is the limit in USD times the exchange rate."""
    plan = _plan("gcp", budget={"limit_usd_per_month": 1000, "currency": "EUR", "units_per_usd": 0.925})
    assert plan.budget is not None
    assert (plan.budget.limit_usd_per_month, plan.budget.amount_per_month) == (1000, 925.0)


@pytest.mark.parametrize(("cloud", "region", "more"), [("aws", "us-west-2", {}), ("gcp", "us-east4", {"replication_minutes": 30})])  # fmt: skip
def test_derived_budget_includes_what_runs_in_the_second_region(cloud: str, region: str, more: dict[str, int]) -> None:
    """The budget counts all resources with the tag of the cluster: with mode hot those of two clusters, with pilot-light also the second file systems."""
    from gpuinfra.cost import price

    targets = {"rpo_minutes": 600, "rto_minutes": 600, "checkpoint_gib": 1, "checkpoint_minutes": 30, **more}
    plans = {
        mode: _plan(cloud, storage=lustre(bucket="auto"), recovery={"region": region, "mode": mode, **targets, **site})
        for mode, site in (("cold", {"site_minutes": 30}), ("pilot-light", {}), ("hot", {}))
    }
    limits = {mode: plan.budget.limit_usd_per_month for mode, plan in plans.items() if plan.budget}
    month = {mode: price(plan, TODAY) for mode, plan in plans.items()}
    there = price(replace(plans["hot"], region=region, recovery=None), TODAY)
    nodes = 730 * sum(line.usd_per_hour or 0 for line in there.lines if line.pool)
    assert nodes > 0
    assert month["cold"].usd_per_month * 1.1 <= limits["cold"] < month["cold"].usd_per_month * 1.1 + 100
    assert limits["cold"] < limits["pilot-light"] < limits["cold"] + nodes
    assert limits["hot"] >= limits["pilot-light"] + nodes
    budget = {"limit_usd_per_month": 5.5, "recipients": ["a@b.co"]}
    given = _plan(
        cloud, storage=lustre(bucket="auto"), budget=budget, recovery={"region": region, "mode": "hot", **targets}
    ).budget
    assert given is not None
    assert given.limit_usd_per_month == 5.5


@pytest.mark.parametrize(
    ("region", "zone", "expected"),
    [("southcentralus", None, "1"), ("southcentralus", "3", "3"), ("westus", None, None)],
)
def test_managed_lustre_is_in_a_zone_where_the_region_has_zones(
    region: str, zone: str | None, expected: str | None
) -> None:
    """Azure requires one zone in regions with zones (create-file-system-resource-manager, required information)."""
    where = {"cloud": "azure", "region": region, **({"zone": zone} if zone else {})}
    (file_system,) = _plan("azure", where=where, storage=lustre(capacity_gib=8192)).file_systems
    assert file_system.zone == expected
