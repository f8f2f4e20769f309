from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import SpecError
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.cost import Cost, price
from gpuinfra.cost.compare import compare
from gpuinfra.cost.file import PriceFile, load
from gpuinfra.cost.price import node_price
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec import parse_spec
from tests.rules.cases import TODAY, block, declaration, gcp_recovery, lustre, pool, recovery, reserved


def _cost(cloud: str = "aws", prices: PriceFile | None = None, today: date = TODAY, **changes: Any) -> Cost:
    spec = parse_spec(declaration((cloud, {key.replace("__", "."): v for key, v in changes.items()})))
    return price(build_plan(spec, today), today, prices, duration_hours=spec.duration_hours)


def _line(cost: Cost, word: str) -> Any:
    return next(line for line in cost.lines if word in line.what)


def test_plan_price_is_the_sum_of_its_lines() -> None:
    """Two on-demand p4d cost twice the list price; the hourly price is the sum of all lines, the monthly price is 730 hours."""
    cost = _cost(storage=lustre())
    assert _line(cost, "p4d").usd_per_hour == pytest.approx(2 * 21.957642)
    assert cost.usd_per_hour == pytest.approx(sum(line.usd_per_hour or 0.0 for line in cost.lines))
    assert cost.usd_per_month == pytest.approx(cost.usd_per_hour * 730)
    assert cost.complete


def test_each_kind_of_capacity_has_its_own_price() -> None:
    """A reservation costs the list price, spot the upper bound of its range, a block its newest price."""
    assert _line(_cost(pools__0__capacity=reserved()), "reserved").usd_per_unit_hour == 21.957642
    assert _line(_cost(pools__0__capacity=[{"kind": "spot", "count": 1}]), "spot").usd_per_unit_hour == 8.2
    line = _line(_cost(pools__0__machine="p5.48xlarge", pools__0__capacity=block()), "block")
    assert (line.usd_per_unit_hour, line.read) == (41.528, date(2026, 8, 1))


def test_storage_is_billed_per_gib() -> None:
    """48 TiB of Lustre at 250 MB/s per TiB cost the billed capacity times the monthly price per GiB."""
    line = _line(_cost(storage=lustre(capacity_gib=49152, throughput_mb_s_per_tib=250)), "Lustre")
    # FSx sells steps of 2,400 GiB, so 50,400 GiB are billed.
    assert line.quantity == 50400
    assert line.usd_per_hour * 730 == pytest.approx(50400 * 0.210)
    assert not line.certain


def test_homes_that_grow_are_billed_for_their_declared_size() -> None:
    """Home directories on AWS have the price of the files that the declaration expects."""
    line = _line(_cost(storage=[{"kind": "home", "capacity_gib": 2048}]), "home directories")
    assert line.quantity == 2048
    assert line.usd_per_hour * 730 == pytest.approx(2048 * 0.30)
    assert not line.certain


def test_unknown_price_is_reported_and_not_zero() -> None:
    """An unknown price makes the sum incomplete and is listed."""
    cost = _cost(where={"cloud": "aws", "region": "ca-west-1"})
    assert _line(cost, "p4d").usd_per_hour is None
    assert not cost.complete
    assert any("on-demand price of p4d.24xlarge in ca-west-1 unknown" in text for text in cost.unknown)
    assert cost.as_dict()["complete"] is False
    # The sum of a NAT gateway and an address is no estimate for the cluster.
    assert not cost.nodes_priced
    assert cost.in_words.startswith("an unknown amount")


def test_sum_without_a_storage_price_is_a_minimum() -> None:
    """A known node price with an unknown storage price is shown as a minimum; a complete sum is shown as is."""
    known = _cost(storage=lustre())
    incomplete = replace(
        known,
        lines=tuple(
            replace(line, usd_per_unit_hour=line.usd_per_unit_hour if line.pool else None) for line in known.lines
        ),
    )
    assert incomplete.nodes_priced
    assert incomplete.in_words == f"at least {incomplete.usd_per_hour:,.2f} USD an hour"
    assert known.in_words == f"{known.usd_per_hour:,.2f} USD an hour"


def test_home_directories_of_a_fixed_size_are_billed_by_their_size() -> None:
    """2560 GiB of Filestore cost the monthly price per GiB of the list."""
    homes = _cost("gcp", storage=[{"kind": "home", "mount": "/home", "capacity_gib": 2560}])
    line = _line(homes, "/home: home directories, 2560 GiB")
    assert line.usd_per_hour * 730 == pytest.approx(2560 * 0.25)
    assert line.certain
    assert not any("filestore" in text for text in homes.unknown)


def test_file_shares_are_billed_by_their_provisioned_size() -> None:
    """2048 GiB of Azure Files cost the monthly price per GiB, with the date and the source of the price; the price is an estimate."""
    line = _line(_cost("azure", storage=[{"kind": "home", "capacity_gib": 2048}]), "/home: home directories, 2048 GiB")
    assert line.usd_per_hour * 730 == pytest.approx(2048 * 0.16)
    assert not line.certain
    assert line.read == date(2025, 8, 14)


def test_resources_with_a_price_per_month_or_hour_are_counted() -> None:
    """Two keys cost 1 USD a month each, and a Bastion host is billed by the hour. The price of a Bastion host is an estimate."""
    keys = _line(_cost(), "encryption key")
    assert keys.quantity == 2
    assert keys.usd_per_hour * 730 == pytest.approx(2.0)
    bastion = _line(_cost("azure", access__bastion=True), "1 x Bastion host")
    assert bastion.usd_per_hour == pytest.approx(0.29)
    assert not bastion.certain
    assert "Standard tier" in bastion.note


def test_stale_prices_are_listed() -> None:
    """A price older than 100 days is listed as stale."""
    assert _cost(today=date(2026, 8, 1)).stale == ()
    assert any("p4d" in text for text in _cost(today=date(2026, 11, 21)).stale)


def test_declared_duration_is_priced() -> None:
    """A duration of 100 hours costs 100 times the hourly price."""
    cost = _cost(duration_hours=100)
    assert cost.usd_for_duration == pytest.approx(cost.usd_per_hour * 100)


def test_price_file_overrides_the_catalog(tmp_path: Path) -> None:
    """Prices of the price file replace list prices, with their own date and source."""
    path = tmp_path / "prices.yaml"
    path.write_text(
        "read: 2026-11-01\nsource: our agreement\nmachines: {p4d.24xlarge: {on_demand: 12.5}}\n"
        'services: {"lustre_gib_month:250": 0.1}\n'
    )
    cost = _cost(prices=load(path), storage=lustre())
    assert _line(cost, "p4d").usd_per_unit_hour == 12.5
    assert _line(cost, "p4d").source == "our agreement"
    assert _line(cost, "Lustre").usd_per_unit_hour == pytest.approx(0.1 / 730)


def test_price_of_a_price_file_can_have_a_value_for_each_region(tmp_path: Path) -> None:
    """A region has its own value, or the value for all other regions, or the list price."""
    path = tmp_path / "prices.yaml"
    path.write_text(
        "read: 2026-11-01\nmachines: {p4d.24xlarge: {on_demand: {us-west-2: 12.5}}}\n"
        'services: {nat_hour: {us-east-1: 0.02, "*": 0.03}}\n'
    )
    own = load(path)
    assert _line(_cost(prices=own), "p4d").usd_per_unit_hour == 21.957642
    west = _cost(prices=own, where={"cloud": "aws", "region": "us-west-2"})
    assert _line(west, "p4d").usd_per_unit_hour == 12.5
    assert _line(_cost(prices=own), "x NAT gateway").usd_per_unit_hour == 0.02
    assert _line(west, "x NAT gateway").usd_per_unit_hour == 0.03


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("read: yesterday\n", ["read is 'yesterday'", "a date"]),
        ("read: 2026-11-01\nmachins: {}\n", ["machins", "did you mean machines?"]),
        ("read: 2026-11-01\nmachines: {p4d: {on_demnd: 1}}\n", ["on_demnd", "did you mean on_demand?"]),
        ("read: 2026-11-01\nmachines: {p4d: {spot: -1}}\n", ["spot is -1", "above 0"]),
        (
            "read: 2026-11-01\nservices: {nat_hour: {us-east-1: free}}\n",
            ["services.nat_hour.us-east-1 is 'free'", "above 0"],
        ),
        ("read: 2026-11-01\nservices: {nat_hour: {}}\n", ["services.nat_hour is", "for each region"]),
        ("read: 2026-11-01\nservices: [1]\n", ["services is a list of length 1", "a mapping"]),
    ],
)
def test_invalid_price_file_is_rejected(tmp_path: Path, text: str, words: list[str]) -> None:
    """A mistake in a price file is reported like one in a declaration."""
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load(path)
    for word in words:
        assert word in str(caught.value)


def test_kinds_of_capacity_are_compared_with_break_even_hours() -> None:
    """For the same nodes, each kind of capacity has its price and, if billed in full, its break-even hours per month."""
    spec = parse_spec(declaration(("aws", {"pools.0.capacity": [{"kind": "on_demand", "count": 2}]})))
    rows = {row.way: row for row in compare(build_plan(spec, TODAY), TODAY)}
    assert rows["on_demand"].usd_per_hour == pytest.approx(43.915284)
    one_year = rows["on_demand 1y"]
    assert one_year.usd_per_month == pytest.approx(2 * 13.92 * 730)
    # A commitment is billed for every hour, so it breaks even at 730 x 13.92 / 21.957642 hours of use.
    assert one_year.break_even_hours == pytest.approx(730 * 13.92 / 21.957642)
    assert rows["spot"].break_even_hours is None
    assert rows["block"].usd_per_hour == pytest.approx(2 * 11.80)


def test_the_comparison_counts_the_nodes_of_all_pools() -> None:
    """Two pools of one machine type cost as much as one pool with all their nodes."""
    one = parse_spec(declaration(("aws", {"pools.0.capacity": [{"kind": "on_demand", "count": 9}]})))
    two = parse_spec(
        declaration(("aws", {"pools.0.capacity.0.count": 1, "pools.1": pool("more", "p4d.24xlarge", count=8)}))
    )
    first, second = (
        {row.way: row.usd_per_hour for row in compare(build_plan(spec, TODAY), TODAY)} for spec in (one, two)
    )
    assert first == pytest.approx(second)
    assert first


def test_the_comparison_uses_the_prices_of_the_region_and_the_machines_with_gpus() -> None:
    """A price of another region never counts, and neither does a pool without GPUs."""
    machine = profile_of("aws").machines["p4d.24xlarge"]
    here = next(one for one in machine.prices if one.kind is CapacityKind.ON_DEMAND and one.region == "us-east-1")
    there = replace(here, region="eu-west-1", usd_per_hour=1.0, read=date(2027, 1, 1))
    machines = {**profile_of("aws").machines, machine.name: replace(machine, prices=(*machine.prices, there))}
    spec = parse_spec(
        declaration(
            (
                "aws",
                {
                    "pools.0.capacity": [{"kind": "on_demand", "count": 2}],
                    "pools.1": pool("login", "m7i.2xlarge", count=5),
                },
            )
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(profile_of("aws")), "machines", machines)
        rows = {row.way: row for row in compare(build_plan(spec, TODAY), TODAY)}
    assert rows["on_demand"].usd_per_hour == pytest.approx(2 * here.usd_per_hour)
    assert "block" in rows


def test_nat_is_billed_by_each_clouds_model() -> None:
    """AWS and Azure bill each gateway; Google Cloud bills up to 32 nodes."""
    assert _line(_cost(), "NAT").usd_per_hour == pytest.approx(0.045)
    gcp = _line(_cost("gcp", pools__0__capacity=[{"kind": "spot", "count": 50}]), "NAT")
    assert gcp.usd_per_hour == pytest.approx(32 * 0.0014)


def test_a_block_is_billed_upfront_and_a_spot_price_has_a_maximum() -> None:
    """Only a block has the note about its upfront bill. Where the spot price is unknown, the on-demand price is the maximum."""
    aws = profile_of("aws").machines
    block_price, note = node_price(aws["p5.48xlarge"], CapacityKind.BLOCK, "us-east-1")
    assert block_price is not None
    assert note == "billed upfront for the whole block"
    _, note = node_price(aws["p5.48xlarge"], CapacityKind.ON_DEMAND, "us-east-1")
    assert "upfront" not in note
    full = aws["p4d.24xlarge"]
    no_spot = replace(full, prices=tuple(one for one in full.prices if one.kind is not CapacityKind.SPOT))
    found, note = node_price(no_spot, CapacityKind.SPOT, "us-east-1")
    assert found == full.price(CapacityKind.ON_DEMAND, "us-east-1")
    assert note == "spot price unknown; the on-demand price is the maximum"


def test_network_services_are_counted_by_their_subnets() -> None:
    """An interface endpoint has an address in each node subnet and in no other. A network without NAT subnets has one gateway."""
    endpoints = _cost(network__egress="endpoints")
    spec = parse_spec(declaration(("aws", {"network.egress": "endpoints"})))
    network = build_plan(spec, TODAY).network
    assert network is not None
    nodes = [one for one in network.subnets if one.role == "nodes"]
    assert _line(endpoints, "interface endpoint").quantity == len(network.interface_endpoints) * len(nodes) > 0
    more = replace(network, subnets=(*network.subnets, *(replace(nodes[0], role="data") for _ in range(3))))
    wider = price(replace(build_plan(spec, TODAY), network=more), TODAY)
    assert _line(wider, "interface endpoint").quantity == _line(endpoints, "interface endpoint").quantity
    assert _line(_cost("gcp"), "public address").quantity == 1


def test_only_lustre_is_billed_as_lustre() -> None:
    """A file system of another kind, or without a known capacity, has no line of Lustre."""
    plan = build_plan(parse_spec(declaration(("aws", {"storage": lustre()}))), TODAY)
    (lustre_entry,) = plan.file_systems
    for changed in ({"kind": "home"}, {"capacity_gib": None}):
        other = replace(plan, file_systems=(replace(lustre_entry, **changed),))  # pyright: ignore[reportArgumentType]
        assert not [line for line in price(other, TODAY).lines if "Lustre" in line.what]


def test_traffic_between_zones_is_listed_where_a_stack_can_cause_it() -> None:
    """Nodes in two zones, and a file system in the zone of one of them, have the price per GB of traffic between zones.
    One zone has none, and Azure charges none."""
    more = {
        "name": "more",
        "machine": "p4d.24xlarge",
        "zone": "use1-az6",
        "capacity": [{"kind": "on_demand", "count": 1}],
    }
    cost = _cost(storage=lustre(), pools__1=more)
    (rate,) = [one for one in cost.rates if "between zones" in one.what]
    assert "nodes in use1-az4, use1-az6" in rate.what
    assert "/scratch in use1-az4, nodes in use1-az6" in rate.what
    assert (rate.usd, rate.unit, rate.certain, rate.note.split(";")[0]) == (
        0.01,
        "GB",
        True,
        "billed in each direction",
    )
    assert f"{rate.what}: 0.01 USD per GB" in cost.unknown
    assert not [one for one in _cost(storage=lustre()).rates if "between zones" in one.what]
    homes = [{"kind": "home", "capacity_gib": 1024}]
    assert not [one for one in _cost(storage=homes, pools__1=more).rates if "/home" in one.what]
    gcp = {
        "name": "more",
        "machine": "a3-highgpu-8g",
        "zone": "us-central1-b",
        "capacity": [{"kind": "spot", "count": 1}],
    }
    assert [one for one in _cost("gcp", pools__1=gcp).rates if "between zones" in one.what]


def test_usage_has_a_price_per_unit_and_is_not_in_the_total() -> None:
    """Logs, data events, objects, NAT and traffic to the internet have a price per unit with date and source. A price file overrides it."""
    cost = _cost()
    rates = {one.what: one for one in cost.rates}
    assert rates["logs, flow logs and audit records"].usd == 0.5
    assert rates["data events of the audit trail"].unit == "100,000 events"
    assert {"objects in buckets", "traffic through NAT gateways", "traffic to the internet"} < set(rates)
    assert all(one.usd and one.read and one.source for one in cost.rates)
    assert cost.usd_per_hour == pytest.approx(sum(line.usd_per_hour or 0.0 for line in cost.lines))
    assert [row["what"] for row in cost.as_dict()["rates"]] == list(rates)
    own = PriceFile(read=TODAY, source="ours", machines={}, services={"log_gb": {"*": 0.4}})
    assert "logs, flow logs and audit records: 0.4 USD per GB" in _cost(prices=own).unknown
    assert "data events of the audit trail" not in {one.what for one in _cost(audit__data_events=False).rates}


def test_a_second_region_is_billed_for_transfer_the_fee_and_90_days_of_checkpoints() -> None:
    """Each GB costs the transfer between the regions and the fee; both regions store the checkpoints of 90 days."""
    cost = _cost(**recovery())
    gb = 100 * 2**30 / 1e9 * 2 * 24
    assert _line(cost, "replicated to us-west-2").usd_per_hour == pytest.approx(gb / 24 * 0.02, rel=1e-4)
    assert _line(cost, "fee of S3").usd_per_hour == pytest.approx(gb / 24 * 0.015, rel=1e-4)
    stored = [one for one in cost.lines if "last 90 days" in one.what]
    assert [one.quantity for one in stored] == [pytest.approx(gb * 90, rel=1e-4)] * 2
    assert ["us-east-1" in one.what for one in stored] == [True, False]
    assert all(one.usd_per_hour * 730 == pytest.approx(gb * 90 * 0.023, rel=1e-4) for one in stored if one.usd_per_hour)
    assert any("replication requests" in one for one in cost.unknown)


def test_transfer_between_regions_has_the_price_of_the_pair() -> None:
    """The price of replication is the price that a clone to the same region shows. A region without a storage price is listed."""
    cost = _cost(**recovery(region="us-east-2"))
    assert _line(cost, "replicated to us-east-2").usd_per_hour * 730 == pytest.approx(156766.3 * 0.01, rel=1e-4)
    cost = _cost(**recovery(region="ca-west-1"))
    assert any("bucket in ca-west-1" in one and "price in ca-west-1 unknown" in one for one in cost.unknown)


def test_only_the_replica_grows_if_deletions_are_not_replicated() -> None:
    """Google Cloud does not replicate deletions, so the storage of the second region can exceed its price. The storage of the first region cannot."""
    grows = "because deletions are not replicated"
    cost = _cost("gcp", **gcp_recovery())
    assert grows in _line(cost, "bucket in us-east4").what
    assert grows not in _line(cost, "bucket in us-central1").what
    assert not [line for line in _cost(**recovery()).lines if grows in line.what]


def test_a_replication_without_a_transfer_price_is_not_known() -> None:
    """No source has the price between continents on Google Cloud, so the line has no price, and the total is a minimum."""
    cost = _cost("gcp", **gcp_recovery(region="asia-southeast1"))
    assert _line(cost, "replicated to asia-southeast1").usd_per_hour is None
    assert any("replicated to asia-southeast1" in one for one in cost.unknown)
    assert not cost.complete


def test_a_node_without_a_price_is_not_certain() -> None:
    """The line of a machine that only the declaration describes has no price and is not a list price."""
    interfaces = [{"card": card, "device": 0, "kind": "efa"} for card in range(4)]
    record = {"name": "p9.48xlarge", "like": "p4d.24xlarge", "interfaces": interfaces}
    line = _line(_cost(machines=[record], pools__0__machine="p9.48xlarge"), "p9.48xlarge")
    assert line.usd_per_hour is None
    assert not line.certain


def test_provisioned_home_directories_are_billed_for_size_and_throughput() -> None:
    """FSx for OpenZFS has one line for its size and one for its throughput, whether or not files use them."""
    homes = {"kind": "home", "service": "openzfs", "capacity_gib": 500, "throughput_mb_s": 320}
    cost = _cost(storage=[homes])
    size, speed = _line(cost, "home directories, 500 GiB"), _line(cost, "throughput of the home directories")
    assert (size.quantity, size.usd_per_hour * 730) == (500, pytest.approx(500 * 0.09))
    assert (speed.quantity, speed.usd_per_hour * 730) == (320, pytest.approx(320 * 0.26))
    assert "320 MB/s" in speed.what
    assert not size.certain


def test_capacity_pools_are_billed_in_steps() -> None:
    """Azure NetApp Files is billed for the size of the capacity pool, a multiple of 1 TiB; a level without a price is unknown."""
    homes = {"kind": "home", "service": "netapp", "capacity_gib": 1500}
    place = {"where": {"cloud": "azure", "region": "eastus"}, "pools__0__machine": "Standard_ND96asr_v4"}
    line = _line(_cost("azure", storage=[homes], **place), "home directories")
    assert (line.quantity, line.usd_per_hour * 730) == (2048, pytest.approx(2048 * 0.29419))
    ultra = _cost("azure", storage=[{**homes, "service_level": "ultra"}], **place)
    assert any("home directories" in text for text in ultra.unknown)
    assert not ultra.complete


def test_elastic_home_directories_are_priced_for_the_declared_size() -> None:
    """Amazon EFS is billed by its content, so the line states the size for which it applies."""
    homes = [{"kind": "home", "mount": "/home", "capacity_gib": 1024}]
    assert _line(_cost(storage=homes), "home directories, if they hold 1024 GiB").quantity == 1024
