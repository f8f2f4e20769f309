"""Azure-specific rules."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.clouds import images
from gpuinfra.clouds.azure.profile import FABRIC_LIMIT, LUSTRE_ZONE, PROFILE, URN, file_system_limit
from gpuinfra.clouds.azure.regions import LUSTRE_SKUS, LUSTRE_SUBNETS, PAIRS, RDMA_NETWORK, WITHOUT_ZONES
from gpuinfra.clouds.azure.rules import access, homes
from gpuinfra.plan.machines import entries_of, nearest_value, pools_of
from gpuinfra.plan.storage import created
from gpuinfra.spec.capacity import Reserved, Spot
from gpuinfra.spec.messages import listed, more_addresses
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.storage import Home

RESERVED_ADDRESSES = 5
"""Addresses that Azure reserves in each subnet."""


def _infiniband(pool: Pool, machine: MachineType) -> bool:
    return machine.fabric is not None and pool.fabric != "none"


def infiniband_pool_has_one_capacity_kind(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A pool with InfiniBand has one kind of capacity, because a fabric is a single scale set."""
    for path, pool, machine in pools_of(spec):
        if _infiniband(pool, machine) and len(pool.capacity) > 1:
            kinds = listed([entry.kind for entry in pool.capacity])
            what = f"has {kinds}; allowed: one kind of capacity in a pool with InfiniBand"
            hint = f"use one pool for each kind, such as {pool.name}-a and {pool.name}-b, which are separate fabrics"
            yield error(f"{path}.capacity", what, hint)


def infiniband_pool_fits_scale_set(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A pool with InfiniBand has at most 100 nodes, the limit of a scale set with a single placement group."""
    for path, pool, machine in pools_of(spec):
        if _infiniband(pool, machine) and pool.nodes > FABRIC_LIMIT:
            what = f"has {pool.nodes} nodes; allowed: up to {FABRIC_LIMIT} in one InfiniBand fabric"
            hint = "use several pools; each pool is a separate fabric"
            yield error(f"{path}.capacity", what, hint)


def network_avoids_rdma_range(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The network does not overlap 172.16.0.0/16, which Azure reserves for InfiniBand."""
    if not any(_infiniband(pool, machine) for _, pool, machine in pools_of(spec)):
        return
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
    except ValueError:
        return
    if network.version == 4 and network.overlaps(ipaddress.IPv4Network(RDMA_NETWORK)):
        what = f"is {network}, which overlaps {RDMA_NETWORK}, the range that Azure reserves for InfiniBand"
        yield error("network.cidr", what, "use 10.64.0.0/16")


def reservation_supports_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Azure offers capacity reservations for the machine type. ND sizes do not support them."""
    for path, pool, machine in pools_of(spec):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Reserved) and CapacityKind.RESERVED not in machine.capacity:
                what = f"is a reservation, but Azure offers no capacity reservation for {machine.name}"
                hint = "use on_demand or spot; an Azure reservation is a discount and reserves no capacity"
                yield error(f"{path}.capacity[{j}]", what, hint)


def reservation_zone_is_named(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A capacity reservation is in one zone, or in none: then only nodes without a zone use it. In a region with availability zones, the
    declaration states which of the two it is."""
    if spec.where.region in WITHOUT_ZONES or spec.where.region not in PROFILE.regions:
        return  # An unknown region has its own finding.
    for path, pool, entry in entries_of(spec):
        if isinstance(entry, Reserved) and not (pool.zone or spec.where.zone):
            what = (
                f"is not set, so the nodes of {path} have no zone, and only a reservation without a zone accepts them"
            )
            yield info("where.zone", what, "if the reservation is in a zone, set the number of this zone")
            return


def spot_is_cheaper(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Spot is cheaper than on-demand capacity, and a price limit has at most five decimal places."""
    for path, pool, machine in pools_of(spec):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Spot) and machine.gpu and machine.gpu.key == "H200":
                what = "is spot, whose price equaled the on-demand price when prices were last retrieved"
                yield warn(f"{path}.capacity[{j}].kind", what, "compare prices before you use spot")
            if (
                isinstance(entry, Spot)
                and entry.max_price_usd is not None
                and round(entry.max_price_usd, 5) != entry.max_price_usd
            ):
                what = f"is {entry.max_price_usd}; allowed: up to five decimal places"
                yield error(f"{path}.capacity[{j}].max_price_usd", what, "round it")


def image_fits_vm_size(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An image that is selected by its ID has the architecture of the machine type, and the ID is a resource ID or the URN of a marketplace image."""
    what = "is not an Azure image; allowed: a resource ID such as /subscriptions/.../images/my-image, or publisher:offer:sku:version"
    hint = "copy the URN from `az vm image list`, or the resource ID from the image in the portal"
    yield from images.misfits(spec, lambda ref: ref.startswith("/") or URN.fullmatch(ref), what, hint)


def multi_node_pool_has_infiniband(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A pool with several ND nodes uses a size with InfiniBand, which has the letter `r` in its name."""
    for path, pool, machine in pools_of(spec):
        bare = machine.name.startswith("Standard_ND") and machine.fabric is None
        if bare and pool.fabric == "required":
            what = f"is {machine.name}, which has no InfiniBand"
            yield error(f"{path}.machine", what, "use the size with an r in its name")
        elif bare and pool.nodes > 1:
            what = f"is {machine.name}, which does not connect the {pool.nodes} nodes over InfiniBand"
            hint = "use the size with an r in its name, or set fabric: none"
            level = warn if pool.fabric == "none" else error
            yield level(f"{path}.machine", what, hint)
        elif pool.fabric == "required" and machine.fabric is None:
            what = f"is required, but {machine.name} has no InfiniBand"
            yield error(f"{path}.fabric", what, "use an ND size with an r in its name")


def lustre_sku_is_offered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre supports the tier and the capacity, and the file system is not created from an FSx backup."""
    for i, entry in enumerate(spec.storage):
        if entry.kind != "lustre" or entry.existing:
            continue
        path = f"storage[{i}]"
        tier = entry.throughput_mb_s_per_tib
        if tier is not None and tier not in LUSTRE_SKUS:
            near = nearest_value(tuple(LUSTRE_SKUS), tier)
            what = f"is {tier}; allowed: {listed([str(t) for t in LUSTRE_SKUS])}"
            yield error(f"{path}.throughput_mb_s_per_tib", what, f"use {near}")
            continue
        sku, _, most = LUSTRE_SKUS[tier or 250]
        capacity = PROFILE.lustre(entry)
        if capacity.billed > most * 1024:
            what = f"is {entry.capacity_gib}; allowed: up to {most * 1024} for {sku} without a support request"
            yield error(f"{path}.capacity_gib", what, "lower the capacity, or use a different tier")
        else:
            yield from capacity.rounded(f"{path}.capacity_gib")
        if entry.restore_from:
            what = "is set, but only FSx for Lustre on AWS has backups"
            yield error(f"{path}.restore_from", what, "import the data from a bucket: set bucket")


def lustre_is_in_clients_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The file system is in the same zone as the pools."""
    for i, entry in enumerate(spec.storage):
        if entry.kind != "lustre" or entry.existing:
            continue
        zone = entry.zone or spec.where.zone
        for j, pool in enumerate(spec.pools):
            other = pool.zone or spec.where.zone
            if zone and other and zone != other:
                what = f"is {zone}, but pools[{j}] is in {other}"
                yield error(f"storage[{i}].zone", what, f"use {other}")


def lustre_zone_is_named(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """In a region with availability zones, a file system is in one zone, which the declaration must specify."""
    if spec.where.region in WITHOUT_ZONES or spec.where.region not in PROFILE.regions:
        return  # An unknown region has its own finding.
    for i, entry in enumerate(spec.storage):
        if entry.kind == "lustre" and not entry.existing and not (entry.zone or spec.where.zone):
            what = f"is not set, so the file system is in zone {LUSTRE_ZONE} of {spec.where.region}, and Azure can place the nodes in another zone"
            hint = "set where.zone to the zone that offers the machine in your subscription (`az vm list-skus --zone`); the zone cannot be changed later"
            yield warn(f"storage[{i}].zone", what, hint)


def lustre_subnet_is_large_enough(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The network is large enough for the subnet that each file system needs."""
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
    except ValueError:
        return
    prefix = min(28, network.prefixlen + 7)
    for entry in spec.storage:
        if entry.kind != "lustre" or entry.existing or spec.network.existing:
            continue
        tib = PROFILE.lustre(entry).billed / 1024
        need = next((size for most, size in LUSTRE_SUBNETS if tib <= most), None)
        if need is None or prefix > need:
            what = f"is {network}, which has a /{prefix} for each file system; {tib:g} TiB needs {'more than a /23' if need is None else f'a /{need}'}"
            yield error(
                "network.cidr",
                what,
                more_addresses(network.prefixlen, "a smaller file system, or one file system per stack"),
            )


def file_systems_fit_network(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The network has a subnet for each Lustre file system, in addition to the subnets for private endpoints, Bastion and Azure NetApp Files."""
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
        netapp = any(isinstance(entry, Home) and entry.service == "netapp" for _, entry in created(spec.storage))
        fits = file_system_limit(network, bastion=spec.access.bastion, netapp=netapp)
    except ValueError:
        return
    count = sum(entry.kind == "lustre" for _, entry in created(spec.storage))
    if count > fits and not spec.network.existing:
        what = (
            f"has {count} file systems; allowed: up to {max(0, fits)} in {network}, because each one has its own subnet"
        )
        yield error("storage", what, "use fewer file systems, or a second cluster with its own network")


def node_subnet_is_large_enough(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The node subnet has enough addresses for the nodes and for the five addresses that Azure reserves."""
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
    except ValueError:
        return
    have = network.num_addresses // 8 - RESERVED_ADDRESSES
    if not spec.network.existing and spec.nodes > have:
        what = f"is {network}, which has {have} addresses for nodes; the cluster needs {spec.nodes}"
        yield error("network.cidr", what, more_addresses(network.prefixlen, "fewer nodes"))


def region_has_pair(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The region has a paired region, to which storage is replicated."""
    if spec.where.region in PROFILE.regions and spec.where.region not in PAIRS:
        what = f"is {spec.where.region}, which has no paired region, so storage is replicated only within the region"
        yield info("where.region", what)


RULES = (*rules_in(vars()), *access.RULES, *homes.RULES)
