"""AWS rules for the fabric, addresses, disks, images and access of nodes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.clouds import images
from gpuinfra.clouds.aws.profile import PROFILE, ROOT_MIN_GIB
from gpuinfra.clouds.aws.regions import LOCAL_ZONES, partition
from gpuinfra.plan.machines import entries_of, machines_of, pools_of, zoning_of
from gpuinfra.spec.capacity import Reserved
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.messages import listed, more_addresses
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown

IMAGE = re.compile(r"ami-[a-z0-9]+|/aws/service/[A-Za-z0-9_./-]+")
"""An AMI ID, or the name of a public parameter
(https://docs.aws.amazon.com/systems-manager/latest/userguide/sysman-parameter-name-constraints.html, retrieved 2026-11-22)."""
_VPC = re.compile(r"vpc-[0-9a-f]{8}(?:[0-9a-f]{9})?")
"""IDs have 8 or 17 hexadecimal digits (https://docs.aws.amazon.com/ec2/latest/userguide/resource-ids.html, retrieved 2026-11-22)."""
_SUBNET = re.compile(r"subnet-[0-9a-f]{8}(?:[0-9a-f]{9})?")
_GROUP_NAME = re.compile(r"(?! )[ -~]{1,255}(?<! )")
RESERVED_ADDRESSES = 5
"""Addresses that AWS reserves in each subnet."""
GP3_MIB_S_PER_IOPS = 0.25
GP3_IOPS_PER_GIB = 500
"""https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html, retrieved 2026-11-22."""


def machine_has_efa(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A pool that requires the fabric has a machine type with EFA."""
    for path, pool, machine in pools_of(spec):
        if pool.fabric == "required" and machine.fabric is None:
            larger = [m.name for m in machines_of(spec).values() if m.family == machine.family and m.fabric]
            hint = f"use {listed(larger)}, which have EFA" if larger else "use a different machine type"
            yield error(f"{path}.fabric", f"is required, but {machine.name} has no EFA", hint)


def efa_pools_share_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Pools of one machine type with EFA are in one zone, because EFA does not cross zones."""
    first: dict[str, tuple[str, str]] = {}
    for path, pool, machine in pools_of(spec):
        zone = pool.zone or spec.where.zone
        if machine.fabric is None or pool.fabric == "none" or zone is None:
            continue
        other_path, other = first.setdefault(machine.name, (path, zone))
        if other != zone:
            what = f"is {zone}, but {other_path}, which has the same machine type, is in {other}, and EFA does not cross zones"
            yield warn(f"{path}.zone", what, "use one zone to run a job on both pools")


def p4_pools_are_alone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A cluster with p4d or p4de has no other machine type with EFA, because EFA on these types connects only to the same type."""
    machines = machines_of(spec)
    types = {pool.machine: i for i, pool in enumerate(spec.pools) if (m := machines.get(pool.machine)) and m.fabric}
    for name, i in types.items():
        if machines[name].family == "p4" and len(types) > 1:
            others = listed(sorted(set(types) - {name}))
            what = f"is {name}, whose EFA does not connect to {others} of the other pools"
            yield warn(f"pools[{i}].machine", what, "run each job in one pool")


def subnet_has_enough_addresses(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The subnet of a zone has enough addresses for the interfaces of its nodes and the five addresses that AWS reserves."""
    if spec.network.existing:
        return
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
    except ValueError:
        return
    have = network.num_addresses // 8 - RESERVED_ADDRESSES
    machines = machines_of(spec)
    need: dict[str | None, int] = {}
    for pool in spec.pools:
        machine = machines.get(pool.machine)
        zone = pool.zone or spec.where.zone
        need[zone] = need.get(zone, 0) + pool.nodes * (machine.ips if machine else 1)
    for zone, count in need.items():
        if count > have:
            what = f"is {network}, which has {have} addresses for each zone; {zone or 'the zone'} needs {count}"
            yield error("network.cidr", what, more_addresses(network.prefixlen, "fewer nodes in a zone, or more zones"))


def one_local_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack uses at most one Local Zone, because subnets are numbered by zone."""
    local = {zone for zones in LOCAL_ZONES.values() for zone in zones}
    used = sorted({zone for zone in (spec.where.zone, *(pool.zone for pool in spec.pools)) if zone in local})
    if len(used) > 1:
        yield error(
            "pools", f"use {listed(used)}; allowed: one Local Zone per stack", "use one stack for each Local Zone"
        )
    for zone in used:
        yield info("where.zone", f"is {zone}, a Local Zone; the account must opt in to it")


def local_zone_is_named(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """If a Region offers a machine type only in a Local Zone, the declaration specifies that zone.
    The plan never chooses a Local Zone, because an account must opt in to it."""
    zoning = zoning_of(spec)
    for path, pool, machine in pools_of(spec):
        zones = set(machine.zones.get(spec.where.region, ()))
        if zones and not zones - PROFILE.opt_in_zones and zoning.by_pool[pool.name] not in PROFILE.opt_in_zones:
            what = f"is {machine.name}, which {spec.where.region} offers only in {listed(sorted(zones))}, a Local Zone"
            hint = f"set zone: {min(zones)} after you opt in to the zone"
            yield error(f"{path}.machine", what, hint)


def existing_network_covers_zones(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing network has a subnet for each zone that the cluster uses."""
    existing = spec.network.existing
    if existing is None:
        return
    if not _VPC.fullmatch(existing.id):
        what = f"is {shown(existing.id)}, which is not a VPC ID; allowed: an ID such as vpc-0123456789abcdef0"
        yield error("network.existing.id", what, "copy it from the console")
    for zone, subnet in existing.subnets.items():
        if not _SUBNET.fullmatch(subnet):
            what = f"is {shown(subnet)}, which is not a subnet ID; allowed: an ID such as subnet-0123456789abcdef0"
            yield error(f"network.existing.subnets.{zone}", what, "copy it from the console")
    if "cidr" in spec.network.model_fields_set:
        yield error("network.cidr", "has no effect, because network.existing is set", "remove it")
    zones = {zone for zone in (spec.where.zone, *(pool.zone for pool in spec.pools)) if zone}
    if not zones:
        yield error("where.zone", "is required with an existing network", "set it to a zone of the network")
    for zone in sorted(zones - set(existing.subnets)):
        what = f"has no subnet in {zone}"
        yield error("network.existing.subnets", what, f"add `{zone}: subnet-...`")


def placement_group_name_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The name of a placement group has up to 255 characters of the set that EC2 prints (EC2 API reference, CreatePlacementGroup: ASCII)."""
    for path, _, entry in entries_of(spec):
        if isinstance(entry, Reserved) and entry.placement_group and not _GROUP_NAME.fullmatch(entry.placement_group):
            what = f"is {shown(entry.placement_group)}; allowed: up to 255 ASCII characters without spaces at the ends"
            yield error(f"{path}.placement_group", what, "copy the name from the console")


def root_disk_is_allowed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The root disk is large enough for its image, and its IOPS and throughput have the ratios that gp3 allows."""
    for path, pool, machine in pools_of(spec):
        wanted = images.wanted(spec, pool)
        image, _ = PROFILE.image(spec, pool, machine)
        least = wanted.size_gib or 8 if isinstance(wanted, CustomImage) else ROOT_MIN_GIB if image.prebuilt else 8
        disk = PROFILE.disk(pool, machine, image)
        if disk.size_gib < least:
            what = f"is {disk.size_gib}; the image needs {least} GiB"
            yield error(f"{path}.disk.size_gib", what, f"use {least} or more, or remove it")
        elif machine.gpu and not image.prebuilt and disk.size_gib < 100:
            what = f"is {disk.size_gib}; the driver, the toolkit and containers need 50 GiB of free space"
            yield warn(f"{path}.disk.size_gib", what, "use 100 or more")
        if disk.iops and disk.iops > disk.size_gib * GP3_IOPS_PER_GIB:
            what = (
                f"is {disk.iops}, which needs {-(-disk.iops // GP3_IOPS_PER_GIB)} GiB; the disk has {disk.size_gib} GiB"
            )
            yield error(f"{path}.disk.iops", what, "raise size_gib, or lower iops")
        iops = disk.iops or 3000
        if disk.throughput_mib_s and disk.throughput_mib_s > iops * GP3_MIB_S_PER_IOPS:
            what = f"is {disk.throughput_mib_s}, which needs {round(disk.throughput_mib_s / GP3_MIB_S_PER_IOPS)} iops; the disk has {iops}"
            yield error(f"{path}.disk.throughput_mib_s", what, "raise iops, or lower the throughput")


def image_fits_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A custom image has the architecture of the machine type, and is specified as an AMI ID or an SSM parameter."""
    what = "is not an AMI ID; allowed: an ID such as ami-0123456789abcdef0, or an SSM parameter under /aws/service/"
    yield from images.misfits(spec, IMAGE.fullmatch, what, "copy it from the console")


def idle_connections_are_dropped(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Instances on Nitro v6 drop idle TCP connections after 350 seconds."""
    for path, _, machine in pools_of(spec):
        if machine.hypervisor == "nitro-v6":
            what = f"is {machine.name}, which drops idle TCP connections after 350 s"
            yield info(f"{path}.machine", what, "use TCP keepalive for long sessions")


def name_is_not_reserved(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The name of the cluster does not start with `sg-`. Security group names start with the cluster name,
    and EC2 reserves that prefix (EC2 API `CreateSecurityGroup`)."""
    if spec.name.startswith("sg-") and "site" in spec.made_layers:
        what = f"is {spec.name}; allowed on AWS: a name that does not start with sg-, which EC2 reserves for IDs"
        yield error("name", what, f"use {spec.name.removeprefix('sg-')}")


BROAD_POLICIES = frozenset({"AdministratorAccess", "AmazonS3FullAccess", "IAMFullAccess", "PowerUserAccess"})
"""AWS managed policies that allow writing to every bucket or changing roles
(https://docs.aws.amazon.com/aws-managed-policy/latest/reference/policy-list.html, retrieved 2026-11-22)."""


INGRESS_RULES = 60
"""Default quota of inbound rules in a security group (https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html, retrieved 2026-11-23)."""


def ingress_rules_fit(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The declared connections fit into one security group. AWS needs a rule for each network and port range."""
    rules = sum(len(entry.sources) * len(entry.ports) for entry in spec.access.ingress)
    # Rules of the stack itself: between nodes, and up to two for each kind of file server.
    limit = INGRESS_RULES - 5
    if rules > limit:
        what = f"needs {rules} rules, one for each network and port range; allowed: up to {limit}"
        yield error("access.ingress", what, "use larger networks or port ranges")


def node_policies_are_limited(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The managed policies of the nodes are listed once, belong to the partition of the Region,
    and do not allow a node to change roles or the evidence of other nodes."""
    home = f"arn:{partition(spec.where.region)}:"
    access = spec.access
    named = [(f"access.node_policies[{i}]", arn) for i, arn in enumerate(access.node_policies)]
    boundary = [("access.permissions_boundary", access.permissions_boundary)] if access.permissions_boundary else []
    for path, arn in (*named, *boundary):
        if not arn.startswith(home):
            yield error(
                path,
                f"is {arn}; allowed in {spec.where.region}: an ARN that starts with {home}",
                f"use {home}{arn.split(':', 2)[2]}",
            )
    for i, (path, arn) in enumerate(named):
        if arn in access.node_policies[:i]:
            yield error(path, f"is {arn}, which is listed twice", "remove it")
        elif ":iam::aws:" in arn and arn.rpartition("/")[2] in BROAD_POLICIES:
            what = f"is {arn}, which allows a node to change its own permissions or the evidence of other nodes"
            yield error(path, what, "use a policy that allows only the data that the nodes need")


RULES = rules_in(vars())
