"""The prices in `prices.json` of each cloud: source and date, plausibility, and the estimates that are derived from them."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.price_table import PriceTable
from gpuinfra.catalog.records import CapacityKind, MachineType, Price
from gpuinfra.cost import price
from gpuinfra.cost.price import node_price
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec import parse_spec, read_stack
from tests.rules.cases import declaration

TODAY = date(2026, 11, 22)
ROOT = Path(__file__).parents[2]
DECLARATIONS = sorted([*(ROOT / "stacks").glob("*.yaml"), *(ROOT / "tests" / "peers" / "specs").glob("*.yaml")])
NO_PRICE = {
    "Standard_ND128isr_GB300_v6",
    "Standard_ND128isrG5_GB300_v6",
    "Standard_ND96is_H200_v5",
    "a3-edgegpu-8g",
    "a4x-highgpu-4g",
}
"""Machine types without a public price."""
SERVICES = {
    "aws": {"disk_gib_month:gp3", *(f"lustre_gib_month:{tier}" for tier in (50, 100, 125, 200, 250, 500, 1000)), "lustre_scratch_gib_month", "home_gib_month:elastic", "home_gb", "nat_hour", "nat_gb", "address_hour", "endpoint_hour", "endpoint_gb", "cross_zone_gb", "internet_gb", "key_month", "alarm_month", "log_gb", "data_event_100k", "object_gb_month"},
    "azure": {"disk_gib_month:Premium_LRS", *(f"lustre_gib_month:{tier}" for tier in (40, 125, 250, 500)), "home_gib_month:Premium_LRS", "nat_hour", "nat_gb", "address_hour", "endpoint_hour", "endpoint_gb", "cross_zone_gb", "internet_gb", "bastion_hour", "dns_zone_month", "alert_month", "log_gb", "object_gb_month"},
    "gcp": {"disk_gib_month:hyperdisk-balanced", "disk_gib_month:pd-balanced", "disk_gib_month:pd-ssd", *(f"lustre_gib_month:{tier}" for tier in (125, 250, 500, 1000)), "home_gib_month:ZONAL", "nat_vm_hour", "nat_gb", "address_hour", "cross_zone_gb", "internet_gb", "key_month", "dns_zone_month", "alert_month", "schedule_month", "log_gb", "object_gb_month"},
}  # fmt: skip
"""Cloud -> price items that a plan of that cloud can use."""
SHARE = {"aws": (0.15, 1.0), "azure": (0.25, 0.94), "gcp": (0.15, 0.98)}
"""Cloud -> difference between a listed price and its estimate, and the share of prices within it. `docs/reference/prices.md` states these figures."""

SECOND = {
    "p4d.24xlarge": {"us-east-2": 21.95764, "us-west-2": 21.95764},
    "p4de.24xlarge": {"ap-northeast-1": 37.6223, "ap-southeast-1": 32.93646, "eu-central-1": 34.29122, "us-west-2": 27.44705},
    "p5.4xlarge": {
        "ap-northeast-1": 8.6, "ap-south-1": 8.256, "ap-southeast-2": 8.944, "ap-southeast-3": 9.4944, "eu-west-2": 8.944,
        "us-east-2": 6.88, "us-west-2": 6.88,
    },
    "p5.48xlarge": {
        "ap-northeast-1": 68.8, "ap-south-1": 66.048, "ap-southeast-2": 71.552, "ap-southeast-3": 75.9552, "ca-central-1": 63.296,
        "eu-north-1": 58.8928, "eu-west-2": 71.552, "us-east-2": 55.04, "us-west-1": 68.8, "us-west-2": 55.04,
    },
}  # fmt: skip
"""On-demand prices in skypilot-org/skypilot-catalog:catalogs/v8/aws/vms.csv@e385a0d, which is not the source of these prices in the catalog."""


def _table(cloud: str) -> PriceTable:
    table: PriceTable = importlib.import_module(f"{CLOUDS[cloud]}.prices").PRICES
    return table


def _machines() -> Iterator[tuple[str, MachineType]]:
    for cloud in CLOUDS:
        for machine in profile_of(cloud).machines.values():
            yield cloud, machine


MACHINES = [pytest.param(cloud, machine, id=f"{cloud}-{machine.name}") for cloud, machine in _machines()]


def _listed(machine: MachineType) -> dict[str, Price]:
    """On-demand prices that are not estimates, by region."""
    plain = (one for one in machine.prices if one.kind is CapacityKind.ON_DEMAND and not one.term)
    return {one.region: one for one in plain if not one.note.startswith("estimate")}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_source_has_a_text_and_a_date_and_is_used(cloud: str) -> None:
    """Each source of the data file has a date in the past and a text for users, and a row of the file uses it."""
    content = json.loads(_table(cloud).path.read_text(encoding="utf-8"))
    rows = [row for table in content["machines"].values() for row in table]
    rows += [row for service in content["services"].values() for row in service["prices"]]
    rows += content["ratios"]
    assert {row["from"] for row in rows} == set(content["sources"])
    for source in content["sources"].values():
        assert date(2025, 1, 1) < date.fromisoformat(source["read"]) <= date.today()
        assert len(source["source"]) > 20
    assert set(content["machines"]) <= set(profile_of(cloud).machines)


@pytest.mark.parametrize(("cloud", "machine"), MACHINES)
def test_a_machine_has_a_price_in_every_region_that_offers_it(cloud: str, machine: MachineType) -> None:
    """A machine type has a price or an estimate in each region of its record, for its first kind of capacity without a commitment."""
    if machine.name in NO_PRICE:
        assert not machine.prices
        return
    assert machine.prices
    kinds = [kind for kind in CapacityKind if kind in machine.capacity]
    for region in machine.zones:
        assert any(node_price(machine, kind, region)[0] for kind in kinds), region


@pytest.mark.parametrize(("cloud", "machine"), MACHINES)
def test_prices_of_a_machine_are_plausible_between_regions(cloud: str, machine: MachineType) -> None:
    """An on-demand price is between the lowest price and twice the lowest price, and a spot price is not above it."""
    listed = _listed(machine)
    least = min((one.usd_per_hour for one in listed.values()), default=0)
    for region, one in listed.items():
        assert least <= one.usd_per_hour <= 2.01 * least, region
    for one in machine.prices:
        plain = machine.price(CapacityKind.ON_DEMAND, one.region)
        if one.kind is CapacityKind.SPOT and plain:
            assert 0.05 * plain.usd_per_hour < one.usd_per_hour <= 1.001 * plain.usd_per_hour, one.region


def test_gpus_of_one_machine_type_cost_the_same_per_gpu() -> None:
    """Sizes of one family with the same GPU and without other differences have the same price per GPU in every region."""
    for cloud, one, eight in (
        ("aws", "p5.4xlarge", "p5.48xlarge"),
        ("azure", "Standard_NC24ads_A100_v4", "Standard_NC96ads_A100_v4"),
        ("azure", "Standard_NC40ads_H100_v5", "Standard_NC80adis_H100_v5"),
        ("gcp", "a2-highgpu-1g", "a2-highgpu-8g"),
        ("gcp", "a2-ultragpu-1g", "a2-ultragpu-8g"),
        ("gcp", "a3-highgpu-1g", "a3-highgpu-8g"),
    ):
        machines = profile_of(cloud).machines
        first, second = _listed(machines[one]), _listed(machines[eight])
        both = set(first) & set(second)
        assert len(both) >= 5
        for region in both:
            per_gpu = first[region].usd_per_hour / machines[one].gpus
            assert per_gpu == pytest.approx(second[region].usd_per_hour / machines[eight].gpus, rel=0.01), region


@pytest.mark.parametrize("cloud", CLOUDS)
def test_estimates_are_near_the_listed_prices(cloud: str) -> None:
    """The estimate of a price that is also listed differs from it by at most the share that the documentation states."""
    table, (difference, share) = _table(cloud), SHARE[cloud]
    errors = []
    for machine in profile_of(cloud).machines.values():
        listed = _listed(machine)
        base = listed.get(table.reference)
        if base is None or machine.gpu is None:
            continue
        for region in set(listed) & set(table.ratios) - {table.reference}:
            estimate = base.usd_per_hour * table.ratios[region].value
            errors.append(abs(listed[region].usd_per_hour / estimate - 1))
    assert len(errors) > 200
    assert sum(error <= difference for error in errors) / len(errors) >= share
    assert max(errors) < 0.34


@pytest.mark.parametrize("name", SECOND)
def test_prices_in_other_regions_equal_a_second_source(name: str) -> None:
    """The on-demand prices of AWS outside us-east-1 equal those of a second capture of the price list."""
    machine = profile_of("aws").machines[name]
    for region, usd in SECOND[name].items():
        found = machine.price(CapacityKind.ON_DEMAND, region)
        assert found is not None
        assert "skypilot" not in found.source
        assert found.usd_per_hour == pytest.approx(usd, rel=1e-6), region


def test_an_estimate_states_its_calculation() -> None:
    """An estimate is marked, and its note has the region, the factor and the machine type of the ratio."""
    machine = profile_of("azure").machines["Standard_ND96isr_H100_v5"]
    found, note = node_price(machine, CapacityKind.ON_DEMAND, "norwayeast")
    assert found is not None
    ratio = _table("azure").ratios["norwayeast"].value
    assert found.usd_per_hour == pytest.approx(98.32 * ratio, rel=1e-4)
    assert not found.certain
    assert note == f"estimate: price in eastus times {ratio:g}, the ratio of Standard_D4s_v5 between the regions"
    h200, _ = node_price(
        profile_of("azure").machines["Standard_ND96isr_H200_v5"], CapacityKind.ON_DEMAND, "switzerlandnorth"
    )
    assert h200 is not None
    assert h200.note.startswith("estimate: price in eastus2 times ")


def test_a_region_without_a_listed_machine_states_the_reason_of_its_ratio() -> None:
    """An estimate for a region without any public price names the region whose ratio it uses."""
    found, note = node_price(
        profile_of("azure").machines["Standard_ND96isr_H100_v5"], CapacityKind.ON_DEMAND, "southeastus"
    )
    assert found is not None
    assert not found.certain
    assert "no price of southeastus is public; the ratio is that of southcentralus" in note
    assert found.usd_per_hour == pytest.approx(98.32 * _table("azure").ratios["southcentralus"].value, rel=1e-4)


def test_a_service_that_is_listed_only_outside_the_reference_region_is_estimated_from_there() -> None:
    """The price list of us-west-2 is the basis for Lustre of type persistent_1 in other regions."""
    known = {one.region: one for one in profile_of("aws").service_prices if one.key == "lustre_gib_month:200"}
    assert known["us-west-2"].certain
    assert known["us-west-2"].usd == 0.29
    assert known["eu-central-1"].usd == pytest.approx(0.29 * 1.1979, rel=1e-3)
    assert known["eu-central-1"].note.startswith("estimate: price in us-west-2 times ")
    assert not known["us-east-1"].certain


@pytest.mark.parametrize("tier", [125, 250, 500])
def test_managed_lustre_on_azure_has_the_equal_price_of_the_other_clouds(tier: int) -> None:
    """The estimate is the price that AWS and Google Cloud list for the same throughput per TiB, and its note states that."""
    key = f"lustre_gib_month:{tier}"
    (aws, azure, gcp) = (
        next(one for one in profile_of(cloud).service_prices if (one.key, one.region) == (key, region))
        for cloud, region in (("aws", "us-east-1"), ("azure", "eastus"), ("gcp", "us-central1"))
    )
    assert aws.usd == azure.usd == gcp.usd == pytest.approx(0.08 + 0.00052 * tier)
    assert not azure.certain
    assert azure.note.startswith("estimate: no public copy of Azure's price was found")


def test_a_service_without_a_price_in_the_region_is_an_estimate() -> None:
    """The price of a service in another region is its price in the reference region times the ratio of the region."""
    (here,) = [one for one in profile_of("aws").service_prices if (one.key, one.region) == ("nat_hour", "eu-central-1")]
    assert here.usd == pytest.approx(0.045 * 0.2415 / 0.2016, rel=1e-3)
    assert not here.certain
    (listed,) = [one for one in profile_of("aws").service_prices if (one.key, one.region) == ("nat_hour", "us-east-1")]
    assert listed.certain


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_service_has_a_price_in_every_region_that_sells_a_machine(cloud: str) -> None:
    """Disks, Lustre, homes, NAT, endpoints, bastions, logs, data events and traffic have a price in each region in which a machine type of the catalog is sold."""
    profile = profile_of(cloud)
    sold = {region for machine in profile.machines.values() for region in (*machine.zones, *machine.block_regions)}
    sold |= {one.region for machine in profile.machines.values() for one in machine.prices} - {"*"}
    regions: dict[str, set[str]] = {}
    for one in profile.service_prices:
        regions.setdefault(one.key, set()).add(one.region)
    missing = {key: sorted(sold - found) for key, found in regions.items() if "*" not in found and sold - found}
    assert missing == {}
    assert SERVICES[cloud] <= set(regions)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_machine_without_gpus_has_a_price_in_every_region(cloud: str) -> None:
    """A CPU machine type has an on-demand price in each region in which a machine type of the catalog is sold."""
    machines = profile_of(cloud).machines.values()
    sold = {region for machine in machines for region in (*machine.zones, *machine.block_regions)}
    for machine in machines:
        if machine.gpu is None:
            assert not [region for region in sold if machine.price(CapacityKind.ON_DEMAND, region) is None], (
                machine.name
            )


@pytest.mark.parametrize("path", DECLARATIONS, ids=lambda path: path.stem.removeprefix("Pulumi."))
def test_every_line_of_a_declaration_has_a_price(path: Path) -> None:
    """No billed item of a shipped stack or of a peer cluster has an unknown price. Each price has a date and a source, and an estimate states its calculation."""
    cost = price(build_plan(read_stack(path).spec, TODAY), TODAY)
    assert [line.what for line in cost.lines if line.usd_per_unit_hour is None] == []
    assert cost.complete
    assert not [text for text in cost.unknown if re.search(r"unknown|not known|no price|not verified", text)]
    for line in cost.lines:
        assert line.read is not None
        assert line.source
        if "estimate" in line.note:
            assert not line.certain


def test_a_derived_budget_covers_nodes_outside_the_first_region() -> None:
    """Sixteen p5.48xlarge in us-west-2 cost 16 x 55.04 USD an hour, and the derived budget limit covers them."""
    where = {"cloud": "aws", "region": "us-west-2"}
    changes = {
        "where": where,
        "pools.0.machine": "p5.48xlarge",
        "pools.0.capacity": [{"kind": "on_demand", "count": 16}],
    }
    plan = build_plan(parse_spec(declaration(("aws", changes))), TODAY)
    cost = price(plan, TODAY)
    assert cost.usd_per_hour > 16 * 55.04
    assert plan.budget is not None
    assert plan.budget.limit_usd_per_month >= 16 * 55.04 * 730
