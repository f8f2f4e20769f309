"""The prices of usage, which a plan cannot predict: logs, data events, objects and traffic. The total does not include them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gpuinfra.catalog.records import ServicePrice
from gpuinfra.cost.model import Rate
from gpuinfra.plan.model import FileSystemPlan, Plan
from gpuinfra.plan.planned import PlannedResource

USAGE = {
    "log_gb": ("logs, flow logs and audit records", "GB"),
    "data_event_100k": ("data events of the audit trail", "100,000 events"),
    "object_gb_month": ("objects in buckets", "GB-month"),
    "home_gb": ("reads and writes of home directories", "GB"),
    "metric_gb_month": ("metrics in the managed store", "GB-month"),
    "metric_query_1b": ("queries of the managed store", "1 billion samples"),
    "nat_gb": ("traffic through NAT gateways", "GB"),
    "endpoint_gb": ("traffic through private endpoints", "GB"),
    "internet_gb": ("traffic to the internet", "GB"),
    "cross_zone_gb": ("traffic between zones", "GB"),
}
"""Price item -> what is billed, and its unit."""
GATEWAYS = {"nat_hour": "nat_gb", "nat_vm_hour": "nat_gb", "endpoint_hour": "endpoint_gb"}
"""Maps the hourly price of a resource to the price of the traffic through it."""

Find = Callable[[str], ServicePrice | None]


def rates(plan: Plan, resources: Iterable[PlannedResource], find: Find) -> Iterator[Rate]:
    """Yield the price of each kind of usage that the plan can cause and the cloud bills."""
    causes = dict(_causes(plan, resources))
    for item, (what, unit) in USAGE.items():
        if item not in causes:
            continue
        what = f"{what} ({causes[item]})" if causes[item] else what
        price = find(item)
        if price is None:
            yield Rate(what=what, unit=unit, region=plan.region, usd=None, certain=False)
        elif price.usd:
            yield Rate(
                what=what,
                unit=unit,
                region=plan.region,
                usd=price.usd,
                read=price.read,
                source=price.source,
                certain=price.certain,
                note=price.note,
            )


def _causes(plan: Plan, resources: Iterable[PlannedResource]) -> Iterator[tuple[str, str]]:
    """Yield the items of usage, each with its cause if the plan has a specific one."""
    for resource in resources:
        row = resource.kind.price if resource.kind else None
        if row and row.rate and (row.rate != "data_event_100k" or plan.audit.data_events):
            yield row.rate, ""
        if row and row.item in GATEWAYS:
            yield GATEWAYS[row.item], ""
    if plan.pools and (plan.network is None or plan.network.egress == "nat"):
        yield "internet_gb", ""
    if cause := "; ".join(cross_zone(plan)):
        yield "cross_zone_gb", cause


def cross_zone(plan: Plan) -> Iterator[str]:
    """Yield what is in different zones: the nodes, and a file system and nodes. The NAT gateway of a zone serves the nodes of that zone."""
    nodes = sorted({group.zone for pool in plan.pools for group in pool.groups})
    if len(nodes) > 1:
        yield f"nodes in {', '.join(nodes)}"
    subnets = {subnet.name: subnet.zone for subnet in plan.network.subnets} if plan.network else {}
    for entry in plan.file_systems:
        zone, others = _zone(entry, subnets), []
        if zone in plan.zones:
            others = [other for other in nodes if other != zone]
        if others:
            yield f"{entry.mount} in {zone}, nodes in {', '.join(others)}"


def _zone(entry: FileSystemPlan, subnets: Mapping[str, str]) -> str | None:
    """Return the zone of the file servers. Elastic home directories have a mount target in each zone, and a mounted bucket has no zone."""
    if entry.kind == "object" or entry.deployment == "elastic":
        return None
    return entry.zone or subnets.get(entry.subnet)
