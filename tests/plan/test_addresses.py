"""Addresses of generated plans: for each declaration that the rules accept, no two ranges overlap and each range is large enough."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuinfra.base.registry import CLOUDS
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.rules import check
from gpuinfra.spec import ClusterSpec, parse_spec
from tests.rules.cases import BASES

TODAY = date(2026, 11, 21)
ZONES = {
    "aws": ("us-east-1", ("use1-az1", "use1-az2", "use1-az4", "use1-az6")),
    "azure": ("eastus", ("1", "2", "3")),
    "gcp": ("us-central1", ("us-central1-a", "us-central1-b", "us-central1-c")),
}
CAPACITY_GIB = {"aws": 4800, "azure": 8192, "gcp": 18000}
LARGE_GIB = {"aws": 24000, "azure": 131072, "gcp": 36000}
RESERVED = 5
"""Addresses that AWS and Azure reserve in each subnet; Google Cloud reserves four."""
SMALLEST = {"aws": 28, "azure": 29, "gcp": 29}
"""The longest prefix of a subnet: AWS, VPC user guide, subnet sizing; Azure, virtual network FAQ; Google Cloud, VPC subnets, valid ranges
(2026-11-24)."""
SERVICE_ADDRESSES = 1024
"""Addresses of the range of Managed Lustre or Filestore (docs/reference/gcp.md)."""


@st.composite
def declarations(draw: st.DrawFn, cloud: str) -> dict[str, Any]:
    """A declaration with any network, number of file systems and number of pools; the rules decide whether it is valid."""
    region, zones = ZONES[cloud]
    machines = sorted(profile_of(cloud).machines)
    pools = []
    for index in range(draw(st.integers(1, 4))):
        pool: dict[str, Any] = {
            "name": f"p{index}",
            "machine": draw(st.sampled_from(machines)),
            "capacity": [{"kind": "on_demand", "count": draw(st.sampled_from([1, 2, 18, 100, 1000]))}],
        }
        if draw(st.booleans()):
            pool["zone"] = draw(st.sampled_from(zones))
        pools.append(pool)
    prefix = draw(st.integers(16, 26))
    base = draw(st.integers(0, 2**14 - 1))
    network = ipaddress.ip_network((int(ipaddress.IPv4Address("10.0.0.0")) + (base << 10), prefix), strict=False)
    storage: list[dict[str, Any]] = [
        _lustre(cloud, index, large=draw(st.booleans())) for index in range(draw(st.integers(0, 19)))
    ]
    if draw(st.booleans()):
        storage.append({"kind": "home", "mount": "/home", "capacity_gib": 1024})
    return {
        **BASES[cloud],
        "where": {"cloud": cloud, "region": region, "zone": draw(st.sampled_from(zones))},
        "pools": pools,
        "storage": storage,
        "network": {"cidr": str(network), "egress": draw(st.sampled_from(["nat", "endpoints"]))},
        "access": {"evidence_from": ["203.0.113.0/24"], "bastion": draw(st.booleans())} if cloud == "azure" else {},
    }


def _lustre(cloud: str, index: int, *, large: bool = False) -> dict[str, Any]:
    size = (LARGE_GIB if large else CAPACITY_GIB)[cloud]
    return {"kind": "lustre", "mount": f"/scratch{index}", "capacity_gib": size}


def _many(cloud: str, count: int, bastion: bool = False, cidr: str = "10.64.0.0/16") -> dict[str, Any]:
    """A valid declaration with a number of file systems."""
    storage = [_lustre(cloud, index) for index in range(count)]
    access = {"evidence_from": ["203.0.113.0/24"], "bastion": bastion} if cloud == "azure" else {}
    return {**BASES[cloud], "storage": storage, "network": {"cidr": cidr}, "access": access}


def _plan(declaration: dict[str, Any]) -> tuple[ClusterSpec, Plan] | None:
    """The plan, or None if the rules refuse the declaration."""
    spec = parse_spec(declaration)
    if any(finding.level == "error" for finding in check(spec, TODAY)):
        return None
    return spec, build_plan(spec, TODAY)


def _ranges(plan: Plan) -> Iterator[tuple[str, ipaddress.IPv4Network]]:
    """Every range of addresses of a plan, with its name."""
    assert plan.network is not None
    for one in (*plan.network.subnets, *(two for own in plan.own_networks for two in own.subnets)):
        yield one.name, ipaddress.IPv4Network(one.cidr)
    if plan.network.service_range:
        yield "services", ipaddress.IPv4Network(plan.network.service_range)


def problems(spec: ClusterSpec, plan: Plan) -> Iterator[str]:
    """What is wrong with the addresses of a plan."""
    assert plan.network is not None
    ranges = list(_ranges(plan))
    whole = ipaddress.IPv4Network(plan.network.cidr)
    for (name, one), (other, two) in itertools.combinations(ranges, 2):
        if one.overlaps(two):
            yield f"{name} {one} overlaps {other} {two}"
    for name, one in ranges:
        if not one.subnet_of(whole):
            yield f"{name} {one} is outside {whole}"
        if name != "services" and one.prefixlen > SMALLEST[plan.cloud]:
            yield f"{name} {one} is smaller than the smallest subnet, /{SMALLEST[plan.cloud]}"
    for subnet in plan.network.subnets:
        if subnet.role == "nodes":
            nodes = sum(group.count for pool in plan.pools if pool.subnet == subnet.name for group in pool.groups)
            have = ipaddress.IPv4Network(subnet.cidr).num_addresses - RESERVED
            if nodes > have:
                yield f"{subnet.name} has {have} addresses for {nodes} nodes"
    if plan.network.service_range:
        services = len({entry.kind for entry in spec.storage if entry.kind in ("lustre", "home")})
        have = ipaddress.IPv4Network(plan.network.service_range).num_addresses
        if have < services * SERVICE_ADDRESSES:
            yield f"{have} addresses for {services} services"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_generated_plans_have_disjoint_ranges(cloud: str) -> None:
    """A declaration is refused by a finding, or its plan has disjoint ranges inside the network with an address for each node."""
    accepted: list[int] = []

    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(declarations(cloud))
    def property_holds(declaration: dict[str, Any]) -> None:
        made = _plan(declaration)
        if made is not None:
            accepted.append(1)
            assert list(problems(*made)) == []

    property_holds()
    assert len(accepted) > 5


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("bastion", [False, True])
@pytest.mark.parametrize("prefix", [16, 19, 20, 21, 22])
def test_any_number_of_file_systems_is_planned_or_refused(cloud: str, bastion: bool, prefix: int) -> None:
    """With 0 to 20 file systems, each plan has disjoint ranges, and a number that does not fit has a finding."""
    for count in range(21):
        made = _plan(_many(cloud, count, bastion, f"10.64.0.0/{prefix}"))
        if made is not None:
            assert list(problems(*made)) == [], count


def test_the_number_of_file_systems_that_fit_is_in_the_finding() -> None:
    """On Azure, 15 file systems fit into a /16, 14 with Bastion, 13 with NetApp homes, and the finding names the number and the fix."""
    homes = {"kind": "home", "mount": "/home", "service": "netapp", "capacity_gib": 1024}
    for bastion, extra, fits in ((False, [], 15), (True, [], 14), (False, [homes], 13), (True, [homes], 13)):
        full, more = _many("azure", fits, bastion), _many("azure", fits + 1, bastion)
        for one in (full, more):
            one["storage"] += extra
        made = _plan(full)
        assert made is not None
        assert list(problems(*made)) == []
        found = [one for one in check(parse_spec(more), TODAY) if one.level == "error"]
        assert [one.path for one in found] == ["storage"]
        assert f"allowed: up to {fits}" in found[0].message
