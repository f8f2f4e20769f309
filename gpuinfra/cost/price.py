"""Calculates the price of a plan from the catalog and from your own price file, which takes precedence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from gpuinfra.catalog.records import CapacityKind, MachineType, Price, ServicePrice
from gpuinfra.cost.model import HOURS_PER_MONTH, Cost, CostLine, Rate
from gpuinfra.cost.usage import rates
from gpuinfra.plan.logs import MB_PER_DAY
from gpuinfra.plan.model import FileSystemPlan, Group, Plan, PoolPlan
from gpuinfra.plan.planned import PlannedResource
from gpuinfra.plan.planned import PriceRule as Counted
from gpuinfra.plan.profile import planned_cloud, profile_of

if TYPE_CHECKING:
    from gpuinfra.cost.file import PriceFile

NAT_MAX_NODES = 32
"""Maximum number of nodes for which Google Cloud bills NAT."""
BY_REQUEST = "requests to buckets, keys, DNS zones and notifications: billed per request"
MOUNTED = ("requests of the nodes to mounted buckets, and reads of a bucket in another region: billed by usage",)
REPLICATED = (
    "replication of data other than checkpoints and its storage in both regions, replication requests, and replication metrics: billed by usage",
)


def price(plan: Plan, today: date, prices: PriceFile | None = None, *, duration_hours: int | None = None) -> Cost:
    """Return the price of a plan. `prices` is your own price file."""
    resources = planned_cloud(plan.cloud).resources(plan)
    lines = tuple(_lines(plan, resources, prices))
    dates = [line.read for line in lines if line.read]
    usage = tuple(_rates(plan, resources, prices))
    return Cost(
        lines=lines,
        excluded=(
            *(f"{one.mount}: {one.id}, existing, billed to its owner" for one in plan.existing_file_systems),
            *map(str, usage),
            BY_REQUEST,
            *(MOUNTED if plan.mounted_buckets else ()),
            *(REPLICATED if plan.recovery else ()),
        ),
        rates=usage,
        oldest=min(dates, default=None),
        as_of=today,
        duration_hours=duration_hours,
    )


def _rates(plan: Plan, resources: Iterable[PlannedResource], prices: PriceFile | None) -> Iterator[Rate]:
    listed = profile_of(plan.cloud).service_prices
    return rates(plan, resources, lambda key: _service(key, plan, listed, prices))


def _lines(plan: Plan, resources: Iterable[PlannedResource], prices: PriceFile | None) -> Iterator[CostLine]:
    cloud, each = profile_of(plan.cloud), _each(resources)
    for pool in plan.pools:
        machine = cloud.machines.get(pool.machine)
        for group in pool.groups:
            yield _nodes(pool, group, machine, plan.region, prices)
        yield from _disks(pool, plan, cloud.service_prices, prices)
    if plan.monitoring:
        disk = plan.monitoring.disk
        service_price = _service(f"disk_gib_month:{disk.kind}", plan, cloud.service_prices, prices)
        what = f"{plan.monitoring.pool}: data disk of {disk.size_gib} GiB"
        yield _line(what, "disk", disk.size_gib, "GiB-month", service_price, plan)
    for file_system in plan.file_systems:
        yield from _file_system(file_system, plan, cloud.service_prices, prices)
    yield from _logs(plan, cloud.service_prices, prices)
    yield from _counted(plan, each, cloud.service_prices, prices)
    yield from _metrics(plan, cloud.service_prices, prices)
    yield from _network(plan, each, cloud.service_prices, prices)
    yield from _replication(plan, cloud.service_prices, prices)
    yield from _image_copies(plan, cloud.service_prices, prices)
    yield from _home_replicas(plan, cloud.service_prices, prices)


def _nodes(
    pool: PoolPlan, group: Group, machine: MachineType | None, region: str, prices: PriceFile | None
) -> CostLine:
    kind = CapacityKind(group.kind)
    if machine is None:
        own = prices.node(pool.machine, kind, region) if prices else None
        listed_price, note = (
            own,
            "" if own else f"{pool.machine} is declared in the spec, but your price file does not contain its price",
        )
    else:
        listed_price, note = node_price(machine, kind, region, prices)
    return CostLine(
        what=f"{pool.name}: {group.max_count} x {pool.machine}, {kind.value.replace('_', '-')}",
        quantity=group.max_count,
        unit="node-hour",
        usd_per_unit_hour=listed_price.usd_per_hour if listed_price else None,
        kind=kind.value,
        pool=pool.name,
        read=listed_price.read if listed_price else None,
        source=listed_price.source if listed_price else "",
        certain=listed_price.certain if listed_price else False,
        note=note,
    )


def node_prices(plan: Plan, prices: PriceFile | None = None) -> dict[str, float | None]:
    """Return the hourly price of one node without its disks, keyed by group name. None if the price is unknown."""
    machines = profile_of(plan.cloud).machines
    return {
        group.name: _nodes(pool, group, machines.get(pool.machine), plan.region, prices).usd_per_unit_hour
        for pool in plan.pools
        for group in pool.groups
    }


def node_price(
    machine: MachineType, kind: CapacityKind, region: str, prices: PriceFile | None = None
) -> tuple[Price | None, str]:
    """Return the hourly price of a node and a note about it."""
    if prices and (own := prices.node(machine.name, kind, region)):
        return own, own.note
    if listed_price := machine.price(kind, region):
        upfront = "billed upfront for the whole block" if kind is CapacityKind.BLOCK else ""
        return listed_price, upfront or listed_price.note
    if kind is CapacityKind.RESERVED and (listed_price := machine.price(CapacityKind.ON_DEMAND, region)):
        return listed_price, "a reservation is billed at the on-demand price, used or not"
    if kind is CapacityKind.FLEX and (listed_price := machine.price(CapacityKind.ON_DEMAND, region)):
        return replace(listed_price, certain=False), "flex-start price unknown; this is the on-demand price"
    if kind is CapacityKind.SPOT and (listed_price := machine.price(CapacityKind.ON_DEMAND, region)):
        return listed_price, "spot price unknown; the on-demand price is the maximum"
    return None, f"{kind.value.replace('_', '-')} price of {machine.name} in {region} unknown"


def _service(
    key: str, plan: Plan, listed: tuple[ServicePrice, ...], prices: PriceFile | None, *, region: str | None = None
) -> ServicePrice | None:
    where = region or plan.region
    if prices and (own := prices.service(key, where)):
        return own
    return next((p for p in listed if p.key == key and p.region in (where, "*")), None)


def _disks(
    pool: PoolPlan, plan: Plan, listed: tuple[ServicePrice, ...], prices: PriceFile | None
) -> Iterator[CostLine]:
    count = sum(group.max_count for group in pool.groups)
    service_price = _service(f"disk_gib_month:{pool.disk.kind}", plan, listed, prices)
    what = f"{pool.name}: {count} root disks of {pool.disk.size_gib} GiB"
    yield _line(what, "disk", count * pool.disk.size_gib, "GiB-month", service_price, plan)


def _file_system(
    entry: FileSystemPlan, plan: Plan, listed: tuple[ServicePrice, ...], prices: PriceFile | None
) -> Iterator[CostLine]:
    if entry.kind == "home" and entry.kind in profile_of(plan.cloud).storage_kinds and not entry.replica:
        service_price = _service(f"home_gib_month:{entry.deployment}", plan, listed, prices)
        size = f"{entry.capacity_gib} GiB"
        what = f"{entry.mount}: home directories, {f'if they hold {size}' if entry.deployment == 'elastic' else size}"
        yield _line(what, "storage", entry.capacity_gib, "GiB-month", service_price, plan)
    if speed := entry.throughput_mb_s:
        service_price = _service(f"home_mb_s_month:{entry.deployment}", plan, listed, prices)
        what = f"{entry.mount}: throughput of the home directories, {speed} MB/s"
        yield _line(what, "storage", speed, "MB/s-month", service_price, plan)
    if entry.kind != "lustre" or not entry.capacity_gib:
        return
    tier = entry.throughput_mb_s_per_tib
    key = f"lustre_gib_month:{tier}" if tier else "lustre_scratch_gib_month"
    service_price = _service(key, plan, listed, prices)
    what = f"{entry.mount}: Lustre, {entry.capacity_gib} GiB" + (f" at {tier} MB/s per TiB" if tier else "")
    yield _line(what, "storage", entry.capacity_gib, "GiB-month", service_price, plan)


def _network(
    plan: Plan, each: Counter[Counted], listed: tuple[ServicePrice, ...], prices: PriceFile | None
) -> Iterator[CostLine]:
    network = plan.network
    if network is None or "site" not in plan.layers:
        return

    def hourly(count: int, what: str, service_price: ServicePrice | None) -> CostLine:
        return _line(f"{count:g} x {what}", "network", count, "hour", service_price, plan)

    if network.existing_id is None and network.egress == "nat":
        gateways = sum(subnet.role == "nat" for subnet in network.subnets) or 1
        if by_node := _service("nat_vm_hour", plan, listed, prices):
            served = min(sum(group.max_count for pool in plan.pools for group in pool.groups), NAT_MAX_NODES)
            yield hourly(served, "nodes behind NAT", by_node)
        else:
            yield hourly(gateways, "NAT gateway", _service("nat_hour", plan, listed, prices))
        address = _service("address_hour", plan, listed, prices)
        yield hourly(gateways, "public address of the NAT gateway", address)
    # An endpoint that is billed once, regardless of its subnets, is counted with the resources.
    if network.interface_endpoints and not any(row.item == "endpoint_hour" for row in each):
        count = len(network.interface_endpoints) * sum(s.role == "nodes" for s in network.subnets)
        yield hourly(count, "interface endpoint", _service("endpoint_hour", plan, listed, prices))


def _logs(plan: Plan, listed: tuple[ServicePrice, ...], prices: PriceFile | None) -> Iterator[CostLine]:
    """Yield a line for the logs of the nodes, whose volume is assumed. Storage is billed beyond the first months or not at all, and is not included."""
    if plan.logs is None or not plan.nodes:
        return
    monthly = plan.nodes * MB_PER_DAY * HOURS_PER_MONTH / 24 / 1000
    what = f"logs of the nodes: {monthly:,.1f} GB a month, if each node writes {MB_PER_DAY} MB a day"
    yield _line(what, "service", monthly, "GB-month", _service("log_gb", plan, listed, prices), plan)


def _counted(
    plan: Plan, each: Counter[Counted], listed: tuple[ServicePrice, ...], prices: PriceFile | None
) -> Iterator[CostLine]:
    """Yield a line for each kind of resource that is billed by the hour or month, regardless of its size."""
    for row, count in sorted(each.items(), key=lambda one: one[0].each):
        unit = (row.item or "").rpartition("_")[2]
        service_price = _service(row.item or "", plan, listed, prices)
        yield _line(f"{count} x {row.each}", "service", count, unit, service_price, plan)


def _metrics(plan: Plan, listed: tuple[ServicePrice, ...], prices: PriceFile | None) -> Iterator[CostLine]:
    """Yield a line for the metrics that the control node writes to the managed store."""
    if plan.monitoring is None or plan.monitoring.store is None:
        return
    written = plan.monitoring.store.samples_per_day * HOURS_PER_MONTH / 24 / 1e7
    service_price = _service("metric_samples_10m", plan, listed, prices)
    what = f"metrics in the managed store: about {written * 10:,.0f} million samples a month"
    yield _line(what, "service", written, "10 million samples a month", service_price, plan)


def _each(resources: Iterable[PlannedResource]) -> Counter[Counted]:
    """Count the resources that are billed as one unit of a price item."""
    return Counter(one.kind.price for one in resources if one.kind and one.kind.price.each)


def _replication(plan: Plan, listed: tuple[ServicePrice, ...], prices: PriceFile | None) -> Iterator[CostLine]:
    recovery, replication = plan.recovery, profile_of(plan.cloud).replication
    if recovery is None or replication is None:
        return
    monthly, days = recovery.checkpoint_gb_per_month, replication.retained_days
    what = f"checkpoints replicated to {recovery.region}: {monthly:,.0f} GB a month"
    service_price = _service("replication_gb", plan, (*listed, *_transfer(plan, recovery.region)), prices)
    yield _line(what, "network", monthly, "GB-month", service_price, plan)
    if replication.has_fee:
        fee = _service("replication_time_gb", plan, listed, prices)
        what = f"fee of {replication.service}: {monthly:,.0f} GB a month"
        yield _line(what, "network", monthly, "GB-month", fee, plan)
    # Checkpoints that are never deleted or replaced require more storage.
    stored = monthly * days * 24 / HOURS_PER_MONTH
    for region in (plan.region, recovery.region):
        what = f"checkpoints of the last {days} days in the bucket in {region}: {stored:,.0f} GB from day {days} on"
        if region == recovery.region and not replication.replicates_deletions:
            what += ", and more until you delete them there, because deletions are not replicated"
        service_price = _service("object_gb_month", plan, listed, prices, region=region)
        yield _line(what, "storage", stored, "GB-month", service_price, plan, region=region)


def _image_copies(plan: Plan, listed: tuple[ServicePrice, ...], prices: PriceFile | None) -> Iterator[CostLine]:
    """Yield a line for each copy of an image. Its volume is not larger than the root disks that start from it, and empty blocks are not stored."""
    for image in plan.recovery.images if plan.recovery else ():
        if not image.copied:
            continue
        size = min(pool.disk.size_gib for pool in plan.pools if pool.image.ref == image.ref)
        region = plan.recovery.region if plan.recovery else plan.region
        service_price = _service("snapshot_gb_month", plan, listed, prices, region=region)
        what = f"copy of image {image.ref} in {region}: at most {size} GiB"
        yield _line(what, "storage", size, "GB-month", service_price, plan, region=region)


def _home_replicas(plan: Plan, listed: tuple[ServicePrice, ...], prices: PriceFile | None) -> Iterator[CostLine]:
    """Yield a line for each replica of home directories. The files that change are unknown."""
    for home in plan.recovery.homes if plan.recovery else ():
        region = plan.recovery.region if plan.recovery else plan.region
        (entry,) = (one for one in plan.file_systems if one.name == home.name)
        service_price = _service(f"home_gib_month:{entry.deployment}", plan, listed, prices, region=region)
        transfer = _service("replication_gb", plan, (*listed, *_transfer(plan, region)), prices)
        what = f"{entry.mount}: replica of the home directories in {region}, if they hold {entry.capacity_gib} GiB"
        if transfer:
            what += f"; in addition, {transfer.usd:g} USD for the transfer of each changed GB"
        yield _line(what, "storage", entry.capacity_gib, "GiB-month", service_price, plan, region=region)


def _transfer(plan: Plan, target: str) -> Iterator[ServicePrice]:
    price = planned_cloud(plan.cloud).transfer_price(plan.region, target)
    if price and price.usd_per_gb is not None:
        yield ServicePrice(
            key="replication_gb",
            unit="GB",
            region=plan.region,
            usd=price.usd_per_gb,
            read=price.read,
            source=price.source,
            certain=price.certain,
        )


def _line(
    what: str,
    kind: str,
    quantity: float,
    unit: str,
    service_price: ServicePrice | None,
    plan: Plan,
    *,
    region: str | None = None,
) -> CostLine:
    months = HOURS_PER_MONTH if unit.endswith("month") else 1
    if service_price is None:
        note = f"price in {region or plan.region} unknown"
        return CostLine(
            what=what, quantity=quantity, unit=unit, usd_per_unit_hour=None, kind=kind, certain=False, note=note
        )
    return CostLine(
        what=what,
        quantity=quantity,
        unit=unit,
        usd_per_unit_hour=service_price.usd / months,
        kind=kind,
        read=service_price.read,
        source=service_price.source,
        certain=service_price.certain,
        note=service_price.note,
    )
