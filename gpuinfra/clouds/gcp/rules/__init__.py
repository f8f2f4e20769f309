"""Rules that only Google Cloud has."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.catalog.records import MachineType
from gpuinfra.clouds.gcp.profile import DEFAULT_TIER, HYPERDISK_ONLY, PROFILE
from gpuinfra.clouds.gcp.regions import LUSTRE_TIERS, RESERVED_ADDRESSES
from gpuinfra.clouds.gcp.rules import site
from gpuinfra.clouds.machines import machines_of
from gpuinfra.clouds.profile import Rule
from gpuinfra.findings import Finding, error, info, warn
from gpuinfra.spec.capacity import Reserved
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import CustomImage, Pool

_RESERVATION = re.compile(
    r"(projects/[a-z][a-z0-9-]{4,28}[a-z0-9]/reservations/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
    r"(/reservationBlocks/[a-z0-9-]+(/reservationSubBlocks/[a-z0-9-]+)?)?"
)
_PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")


def _nearest(known: tuple[int, ...], wanted: int) -> int:
    return min(known, key=lambda one: abs(one - wanted))


def _pools(spec: ClusterSpec) -> Iterator[tuple[str, Pool, MachineType]]:
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        if pool.machine in machines:
            yield f"pools[{i}]", pool, machines[pool.machine]


def project_has_its_form(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A project id is 6 to 30 lower-case letters, digits and dashes."""
    project = getattr(spec.where, "project", None)
    if project and not _PROJECT.fullmatch(project):
        what = "is no project id: 6 to 30 lower-case letters, digits and dashes, from a letter"
        yield error(project_has_its_form, "where.project", what, "write the id, neither the name nor the number")


def reservation_has_its_form(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A reservation is named by name, by project and name, or by a block inside it."""
    for path, pool, _ in _pools(spec):
        for j, entry in enumerate(pool.capacity):
            if not isinstance(entry, Reserved):
                continue
            if entry.id and not _RESERVATION.fullmatch(entry.id):
                what = "is no reservation: NAME, projects/P/reservations/NAME, or a block of it"
                yield error(reservation_has_its_form, f"{path}.capacity[{j}].id", what, "copy its name")
            if entry.group_arn or entry.placement_group or entry.overflow:
                what = "uses a field that only AWS has (group_arn, placement_group, overflow)"
                yield error(reservation_has_its_form, f"{path}.capacity[{j}]", what, "take it out")


def pool_is_one_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Everything that is zonal in one cluster is in one zone: an RDMA network is bound to its zone."""
    zones = {
        pool.zone or spec.where.zone for _, pool, machine in _pools(spec) if machine.fabric and machine.fabric.is_rdma
    }
    zones.discard(None)
    if len(zones) > 1:
        what = f"put RDMA machines in {listed(sorted(str(z) for z in zones))}; an RDMA network is bound to one zone"
        yield error(pool_is_one_zone, "pools", what, "put them in one zone")


def fabric_is_there(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A pool that needs the fabric has a machine with one."""
    for path, pool, machine in _pools(spec):
        if pool.fabric == "required" and machine.fabric is None:
            what = f"is required, but {machine.name} has no GPUDirect network"
            yield error(fabric_is_there, f"{path}.fabric", what, "take an 8-GPU A3 or later")


def flavours_do_not_share_data_networks(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """TCPX and TCPXO machines in one cluster are two fabrics; their plugins are a reported failure when mixed."""
    providers = sorted({m.fabric.provider for _, pool, m in _pools(spec) if m.fabric and pool.fabric != "none"})
    if len(providers) > 1:
        what = f"use {listed(providers)}, which do not talk to each other"
        yield warn(flavours_do_not_share_data_networks, "pools", what, "run jobs inside one pool, or make two clusters")


def subnets_hold_nodes(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Every subnet has an address for each node, and four that Google keeps."""
    if spec.network.existing:
        return
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
    except ValueError:
        return
    main = network.num_addresses // 8 - RESERVED_ADDRESSES
    if spec.nodes > main:
        what = f"is {network}, which gives nodes {main} addresses; {spec.nodes} are needed"
        yield error(subnets_hold_nodes, "network.cidr", what, "take a larger network")
    fabric = [(pool, machine) for _, pool, machine in _pools(spec) if machine.fabric and pool.fabric != "none"]
    count = sum(pool.nodes for pool, _ in fabric)
    part = 64 if any(m.fabric and m.fabric.is_rdma for _, m in fabric) else 32
    have = network.num_addresses // part - RESERVED_ADDRESSES
    if count > have:
        what = f"is {network}, which gives each fabric interface {have} addresses; {count} are needed"
        yield error(subnets_hold_nodes, "network.cidr", what, "take a larger network")


def networks_fit_quota(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A machine with a network for each interface takes many of a project's networks."""
    names = {nic.network for _, pool, m in _pools(spec) if pool.fabric != "none" for nic in m.nics}
    if len(names) > 5 and not spec.network.existing:
        what = f"take {len(names)} networks of the project's quota, which counts `default` too"
        yield info(networks_fit_quota, "pools", what, "the console shows how many are left")


def disk_fits_family(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Persistent Disk has no settings for operations and throughput; Hyperdisk has."""
    for path, pool, machine in _pools(spec):
        if machine.family not in HYPERDISK_ONLY and (pool.disk.iops or pool.disk.throughput_mib_s):
            what = f"is set, but the root disk of {machine.name} is pd-balanced, whose speed follows from its size"
            yield error(disk_fits_family, f"{path}.disk", what, "take iops and throughput_mib_s out")


def image_fits_architecture(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """arm64 images go with A4X only."""
    for path, pool, machine in _pools(spec):
        wanted = pool.image or spec.software.image
        if isinstance(wanted, CustomImage) and wanted.arch != machine.arch:
            what = f"is {wanted.arch}, but {machine.name} is {machine.arch}"
            yield error(image_fits_architecture, f"{path}.image.arch", what, "name an image that was built for it")


def lustre_is_sold_so(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre has four tiers, each with its least, its most and its steps."""
    for i, entry in enumerate(spec.storage):
        if entry.kind != "lustre":
            continue
        path = f"storage[{i}]"
        tier = entry.throughput_mb_s_per_tib or DEFAULT_TIER
        if tier not in LUSTRE_TIERS:
            near = _nearest(tuple(LUSTRE_TIERS), tier)
            what = f"is {tier}; Google Cloud has {listed([str(t) for t in LUSTRE_TIERS])}"
            yield error(lustre_is_sold_so, f"{path}.throughput_mb_s_per_tib", what, f"take {near}")
            continue
        most = LUSTRE_TIERS[tier][1]
        bought = PROFILE.lustre(entry)
        if bought.sold > most:
            what = f"is {entry.capacity_gib}; this tier has at most {most}"
            yield error(lustre_is_sold_so, f"{path}.capacity_gib", what, "lower it or take another tier")
        elif bought.sold != bought.asked:
            what = f"is {bought.asked}, and {bought.sold} is bought: {bought.why}"
            yield info(lustre_is_sold_so, f"{path}.capacity_gib", what, f"write {bought.sold} to say it yourself")
        if entry.deployment or entry.version or entry.metadata_iops or entry.fabric or entry.backup_days:
            what = "uses a field that only AWS has (deployment, version, metadata_iops, fabric, backup_days)"
            yield error(lustre_is_sold_so, path, what, "take it out")


def filestore_is_sold_so(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A zonal Filestore has 100 to 102400 GiB, from 10240 on in steps of 2560."""
    for i, entry in enumerate(spec.storage):
        if entry.kind != "home":
            continue
        size = entry.capacity_gib
        if size < 100 or (size > 10_240 and size % 2_560):
            what = f"is {size}; Filestore has 100 to 102400, from 10240 on in steps of 2560"
            yield error(filestore_is_sold_so, f"storage[{i}].capacity_gib", what, f"take {-(-size // 2560) * 2560}")


RULES: tuple[Rule, ...] = (
    project_has_its_form,
    reservation_has_its_form,
    pool_is_one_zone,
    fabric_is_there,
    flavours_do_not_share_data_networks,
    subnets_hold_nodes,
    networks_fit_quota,
    disk_fits_family,
    image_fits_architecture,
    lustre_is_sold_so,
    filestore_is_sold_so,
    *site.RULES,
)
