"""Rules that only Azure has."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import date

from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.clouds.azure.profile import FABRIC_LIMIT, PROFILE
from gpuinfra.clouds.azure.regions import LUSTRE_SKUS, LUSTRE_SUBNETS, PAIRS, RDMA_NETWORK
from gpuinfra.clouds.azure.rules import access
from gpuinfra.clouds.machines import machines_of
from gpuinfra.clouds.profile import Rule
from gpuinfra.findings import Finding, error, info, warn
from gpuinfra.spec.capacity import Reserved, Spot
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import CustomImage, Pool

RESERVED_ADDRESSES = 5
"""Addresses that Azure keeps in each subnet."""


def _nearest(known: tuple[int, ...], wanted: int) -> int:
    return min(known, key=lambda one: abs(one - wanted))


def _pools(spec: ClusterSpec) -> Iterator[tuple[str, Pool, MachineType]]:
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        if pool.machine in machines:
            yield f"pools[{i}]", pool, machines[pool.machine]


def _infiniband(pool: Pool, machine: MachineType) -> bool:
    return machine.fabric is not None and pool.fabric != "none"


def infiniband_pool_is_one_kind(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """One InfiniBand fabric is one scale set, and a scale set is of one kind."""
    for path, pool, machine in _pools(spec):
        if _infiniband(pool, machine) and len(pool.capacity) > 1:
            kinds = listed([entry.kind for entry in pool.capacity])
            what = f"mixes {kinds}, but one InfiniBand fabric is one scale set of one kind"
            hint = f"make one pool for each: {pool.name}-a and {pool.name}-b; they are two fabrics"
            yield error(infiniband_pool_is_one_kind, f"{path}.capacity", what, hint)


def infiniband_pool_fits_one_set(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """One fabric has at most 100 nodes, because one fabric is one scale set with a single placement group."""
    for path, pool, machine in _pools(spec):
        if _infiniband(pool, machine) and pool.nodes > FABRIC_LIMIT:
            what = f"has {pool.nodes} nodes; one InfiniBand fabric has at most {FABRIC_LIMIT}"
            hint = "make several pools, each a fabric of its own, or ask Azure to raise the limit to 300"
            yield error(infiniband_pool_fits_one_set, f"{path}.capacity", what, hint)


def network_leaves_rdma_range(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The service keeps 172.16.0.0/16 for InfiniBand."""
    if not any(_infiniband(pool, machine) for _, pool, machine in _pools(spec)):
        return
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
    except ValueError:
        return
    if network.version == 4 and network.overlaps(ipaddress.IPv4Network(RDMA_NETWORK)):
        what = f"is {network}, which overlaps {RDMA_NETWORK}, the range that Azure keeps for InfiniBand"
        yield error(network_leaves_rdma_range, "network.cidr", what, "take 10.64.0.0/16")


def reservation_takes_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Capacity reservations exclude every ND size, and do not go with a single placement group."""
    for path, pool, machine in _pools(spec):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Reserved) and CapacityKind.RESERVED not in machine.capacity:
                what = f"is a reservation, but on-demand capacity reservations exclude {machine.name}"
                hint = "Azure's discount of that name is a price and no capacity: take on_demand or spot"
                yield error(reservation_takes_machine, f"{path}.capacity[{j}]", what, hint)
            if isinstance(entry, Reserved) and (entry.group_arn or entry.placement_group or entry.overflow):
                what = "uses a field that only AWS has (group_arn, placement_group, overflow)"
                yield error(reservation_takes_machine, f"{path}.capacity[{j}]", what, "take it out")


def spot_saves_something(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Where spot was seen at the on-demand price, it only adds interruptions."""
    for path, pool, machine in _pools(spec):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Spot) and machine.gpu and machine.gpu.key == "H200":
                what = "is spot, whose price equalled on-demand when it was last read"
                yield warn(
                    spot_saves_something, f"{path}.capacity[{j}].kind", what, "compare prices before choosing it"
                )
            if (
                isinstance(entry, Spot)
                and entry.max_price_usd is not None
                and round(entry.max_price_usd, 5) != entry.max_price_usd
            ):
                what = f"is {entry.max_price_usd}; Azure takes five decimals"
                yield error(spot_saves_something, f"{path}.capacity[{j}].max_price_usd", what, "round it")


def image_fits_size(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """GB sizes take arm64 images, all others x86_64."""
    for path, pool, machine in _pools(spec):
        wanted = pool.image or spec.software.image
        if isinstance(wanted, CustomImage) and wanted.arch != machine.arch:
            what = f"is {wanted.arch}, but {machine.name} is {machine.arch}"
            yield error(image_fits_size, f"{path}.image.arch", what, "name an image that was built for it")


def several_nodes_have_infiniband(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An ND size whose name lacks the r has no usable InfiniBand."""
    for path, pool, machine in _pools(spec):
        bare = machine.name.startswith("Standard_ND") and machine.fabric is None
        if bare and pool.fabric == "required":
            what = f"is {machine.name}, which has no usable InfiniBand"
            yield error(several_nodes_have_infiniband, f"{path}.machine", what, "take the size with an r in its name")
        elif bare and pool.nodes > 1:
            what = f"is {machine.name}, whose {pool.nodes} nodes have no InfiniBand between them"
            hint = "take the size with an r in its name, or say fabric: none"
            say = warn if pool.fabric == "none" else error
            yield say(several_nodes_have_infiniband, f"{path}.machine", what, hint)
        elif pool.fabric == "required" and machine.fabric is None:
            what = f"is required, but {machine.name} has no InfiniBand"
            yield error(several_nodes_have_infiniband, f"{path}.fabric", what, "take an ND size with an r in its name")


def lustre_tier_exists(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre has four tiers, a largest size, and nothing of FSx."""
    for i, entry in enumerate(spec.storage):
        if entry.kind != "lustre":
            continue
        path = f"storage[{i}]"
        tier = entry.throughput_mb_s_per_tib
        if tier is not None and tier not in LUSTRE_SKUS:
            near = _nearest(tuple(LUSTRE_SKUS), tier)
            what = f"is {tier}; Azure has {listed([str(t) for t in LUSTRE_SKUS])}"
            yield error(lustre_tier_exists, f"{path}.throughput_mb_s_per_tib", what, f"take {near}")
            continue
        sku, _, most = LUSTRE_SKUS[tier or 250]
        bought = PROFILE.lustre(entry)
        if bought.sold > most * 1024:
            what = f"is {entry.capacity_gib}; {sku} has at most {most * 1024} without a ticket"
            yield error(lustre_tier_exists, f"{path}.capacity_gib", what, "lower it or take another tier")
        elif bought.sold != bought.asked:
            what = f"is {bought.asked}, and {bought.sold} is bought: {bought.why}"
            yield info(lustre_tier_exists, f"{path}.capacity_gib", what, f"write {bought.sold} to say it yourself")
        if entry.deployment or entry.version or entry.metadata_iops or entry.fabric or entry.backup_days:
            what = "uses a field that only AWS has (deployment, version, metadata_iops, fabric, backup_days)"
            yield error(lustre_tier_exists, path, what, "take it out")


def lustre_is_in_clients_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre is in one zone, its clients' zone."""
    for i, entry in enumerate(spec.storage):
        if entry.kind != "lustre":
            continue
        zone = entry.zone or spec.where.zone
        for j, pool in enumerate(spec.pools):
            other = pool.zone or spec.where.zone
            if zone and other and zone != other:
                what = f"is {zone}, but pools[{j}] is in {other}"
                yield error(lustre_is_in_clients_zone, f"storage[{i}].zone", what, f"put it in {other}")


def lustre_subnet_is_large_enough(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A file system has a subnet of its own, as large as its capacity asks for."""
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
    except ValueError:
        return
    prefix = min(28, network.prefixlen + 7)
    for entry in spec.storage:
        if entry.kind != "lustre" or spec.network.existing:
            continue
        tib = PROFILE.lustre(entry).sold / 1024
        need = next((size for most, size in LUSTRE_SUBNETS if tib <= most), None)
        if need is None or prefix > need:
            what = f"is {network}, which gives a file system a /{prefix}; {tib:g} TiB needs {'more than a /23' if need is None else f'a /{need}'}"
            yield error(lustre_subnet_is_large_enough, "network.cidr", what, "take a larger network, such as a /16")


def node_subnet_is_large_enough(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The nodes' subnet has an address for each node and five that Azure keeps."""
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
    except ValueError:
        return
    have = network.num_addresses // 8 - RESERVED_ADDRESSES
    if not spec.network.existing and spec.nodes > have:
        what = f"is {network}, which gives nodes {have} addresses; {spec.nodes} are needed"
        yield error(node_subnet_is_large_enough, "network.cidr", what, "take a larger network")


def region_has_a_pair(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A region without a pair keeps no second copy of storage elsewhere."""
    if spec.where.region in PROFILE.regions and spec.where.region not in PAIRS:
        what = f"is {spec.where.region}, which has no paired region: storage is copied inside it only"
        yield info(region_has_a_pair, "where.region", what)


RULES: tuple[Rule, ...] = (
    infiniband_pool_is_one_kind,
    infiniband_pool_fits_one_set,
    network_leaves_rdma_range,
    reservation_takes_machine,
    spot_saves_something,
    image_fits_size,
    several_nodes_have_infiniband,
    lustre_tier_exists,
    lustre_is_in_clients_zone,
    lustre_subnet_is_large_enough,
    node_subnet_is_large_enough,
    region_has_a_pair,
    *access.RULES,
)
