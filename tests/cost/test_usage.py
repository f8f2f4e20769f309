"""The prices of usage that a plan lists: when each is listed, and what it is for."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.catalog.records import ServicePrice
from gpuinfra.cost import price
from gpuinfra.cost.usage import rates
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec import parse_spec, read_stack
from tests.rules.cases import TODAY, declaration, lustre

STACKS = Path(__file__).parents[2] / "stacks"
MORE = {"name": "more", "machine": "p4d.24xlarge", "zone": "use1-az6", "capacity": [{"kind": "on_demand", "count": 1}]}
"""A pool in a second zone."""


def _plan(cloud: str = "aws", **changes: Any) -> Plan:
    return build_plan(parse_spec(declaration((cloud, {k.replace("__", "."): v for k, v in changes.items()}))), TODAY)


def _shipped(name: str) -> Plan:
    return build_plan(read_stack(STACKS / f"Pulumi.{name}.yaml").spec, TODAY)


def _listed(plan: Plan) -> set[str]:
    return {one.what.partition(" (")[0] for one in price(plan, TODAY).rates}


def test_a_network_without_nat_has_traffic_through_endpoints_only() -> None:
    """Nodes that reach the cloud's services only through endpoints cause no traffic through NAT and none to the internet."""
    found = _listed(_plan(network__egress="endpoints"))
    assert "traffic through private endpoints" in found
    assert not {"traffic through NAT gateways", "traffic to the internet"} & found


def test_nodes_in_the_network_of_another_stack_can_send_to_the_internet() -> None:
    """A stack of nodes without a network lists traffic to the internet; a stack of a site without nodes does not."""
    assert _shipped("aws-cluster").network is None
    assert "traffic to the internet" in _listed(_shipped("aws-cluster"))
    assert "traffic through NAT gateways" not in _listed(_shipped("aws-cluster"))
    assert "traffic to the internet" not in _listed(_shipped("aws-site"))
    assert "traffic through NAT gateways" in _listed(_shipped("aws-site"))


def test_a_stack_without_logs_lists_no_logs() -> None:
    """Only a stack that creates the trail or the network creates logs."""
    assert not {"logs, flow logs and audit records", "data events of the audit trail"} & _listed(
        _shipped("aws-cluster")
    )
    assert {"logs, flow logs and audit records", "data events of the audit trail"} <= _listed(
        _shipped("aws-foundation")
    )


def test_usage_without_a_price_is_named_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud without prices lists each usage with its unit, and the price is not certain."""
    monkeypatch.setattr(type(profile_of("aws")), "service_prices", ())
    cost = price(_plan(), TODAY)
    assert {(one.usd, one.read, one.certain) for one in cost.rates} == {(None, None, False)}
    assert "traffic to the internet: billed per GB; price in us-east-1 unknown" in cost.unknown


def test_usage_that_a_cloud_does_not_charge_is_not_listed() -> None:
    """A price of 0 is a fact and not a line. Each other price is listed with its certainty."""
    free = ServicePrice(key="cross_zone_gb", unit="GB", region="*", usd=0, read=date(2026, 11, 1), source="free")
    plan = _plan(pools__1=MORE)
    assert [one.what for one in rates(plan, (), lambda key: free)] == []
    paid = replace(free, usd=0.5, certain=False, note="a note")
    found = {one.what.partition(" (")[0]: one for one in rates(plan, (), lambda key: paid)}
    assert set(found) == {"traffic to the internet", "traffic between zones"}
    assert str(found["traffic between zones"]).endswith(": about 0.5 USD per GB")
    assert {(one.note, one.source, one.region, one.read) for one in found.values()} == {
        ("a note", "free", "us-east-1", date(2026, 11, 1))
    }


def test_a_file_system_in_the_zone_of_the_nodes_causes_no_traffic_between_zones() -> None:
    """Only file servers with a zone count: a mounted bucket, elastic home directories, and the zone of the nodes do not."""
    assert "traffic between zones" not in _listed(_plan(storage=lustre()))
    bucket = {"kind": "object", "mount": "/data", "bucket": "my-data"}
    storage = [*lustre(), bucket, {"kind": "home", "capacity_gib": 1024}]
    (rate,) = [one for one in price(_plan(storage=storage, pools__1=MORE), TODAY).rates if "between zones" in one.what]
    assert rate.what == "traffic between zones (nodes in use1-az4, use1-az6; /scratch in use1-az4, nodes in use1-az6)"


def test_homes_on_google_cloud_are_in_a_zone() -> None:
    """A Filestore instance is in one zone, and nodes in another zone cause traffic between zones."""
    pool = {
        "name": "more",
        "machine": "a3-highgpu-8g",
        "zone": "us-central1-b",
        "capacity": [{"kind": "spot", "count": 1}],
    }
    homes = [{"kind": "home", "mount": "/home", "capacity_gib": 2560}]
    (rate,) = [one for one in price(_plan("gcp", storage=homes, pools__1=pool), TODAY).rates if "zones" in one.what]
    assert "/home in us-central1-a, nodes in us-central1-b" in rate.what
    assert rate.usd == 0.01
    assert not rate.certain
