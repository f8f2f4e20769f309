"""AWS: fabric, addresses, disks, images and access of nodes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import date

from gpuinfra.clouds.aws.profile import PROFILE, ROOT_MIN_GIB
from gpuinfra.clouds.aws.regions import LOCAL_ZONES
from gpuinfra.clouds.machines import machines_of
from gpuinfra.findings import Finding, error, info, warn
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import CustomImage

RESERVED_ADDRESSES = 5
"""Addresses that AWS keeps in each subnet."""
GP3_MOST_MIB_S = 1000
GP3_MOST_IOPS = 16000
GP3_MIB_S_PER_IOPS = 0.25


def fabric_exists(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A pool that needs the fabric has a machine with EFA."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        if machine and pool.fabric == "required" and machine.fabric is None:
            larger = [m.name for m in machines.values() if m.family == machine.family and m.fabric]
            hint = f"in its family {listed(larger)} have" if larger else "take another machine"
            yield error(fabric_exists, f"pools[{i}].fabric", f"is required, but {machine.name} has no EFA", hint)


def fabric_stays_in_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """EFA does not cross zones: pools of one machine in two zones cannot run one job."""
    machines = machines_of(spec)
    first: dict[str, tuple[int, str]] = {}
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        zone = pool.zone or spec.where.zone
        if machine is None or machine.fabric is None or pool.fabric == "none" or zone is None:
            continue
        index, other = first.setdefault(machine.name, (i, zone))
        if other != zone:
            what = f"is {zone}, but pools[{index}] with the same machine is in {other}, and EFA does not cross zones"
            yield warn(fabric_stays_in_zone, f"pools[{i}].zone", what, "put them in one zone if one job is to use both")


def p4_talks_to_itself(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The EFA of p4d and p4de talks to its own type only."""
    machines = machines_of(spec)
    types = {pool.machine: i for i, pool in enumerate(spec.pools) if (m := machines.get(pool.machine)) and m.fabric}
    for name, i in types.items():
        if machines[name].family == "p4" and len(types) > 1:
            others = listed(sorted(set(types) - {name}))
            what = f"is {name}, whose EFA does not talk to {others} of the other pools"
            yield warn(p4_talks_to_itself, f"pools[{i}].machine", what, "run jobs inside one pool")


def addresses_suffice(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The zone's subnet has an address for every interface that needs one, and room for AWS's own five."""
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
            what = f"is {network}, which gives a zone {have} addresses; {zone or 'the zone'} needs {count}"
            yield error(addresses_suffice, "network.cidr", what, "take a larger network or more zones")


def one_local_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """One stack uses at most one Local Zone, because addresses are dealt out by the number of the zone."""
    local = {zone for zones in LOCAL_ZONES.values() for zone in zones}
    used = sorted({zone for zone in (spec.where.zone, *(pool.zone for pool in spec.pools)) if zone in local})
    if len(used) > 1:
        yield error(
            one_local_zone,
            "pools",
            f"use {listed(used)}; one stack has room for one Local Zone",
            "make a stack for each",
        )
    for zone in used:
        yield info(one_local_zone, "where.zone", f"uses {zone}, a Local Zone, which the account has to opt in to")


def existing_network_has_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing network names a subnet for every zone that is used."""
    existing = spec.network.existing
    if existing is None:
        return
    if not existing.id.startswith("vpc-"):
        what = "is no VPC id; they are written vpc-0123456789abcdef0"
        yield error(existing_network_has_zone, "network.existing.id", what, "copy it from the console")
    zones = {zone for zone in (spec.where.zone, *(pool.zone for pool in spec.pools)) if zone}
    if not zones:
        yield error(
            existing_network_has_zone,
            "where.zone",
            "is left out, but the network exists already",
            "say which of its zones",
        )
    for zone in sorted(zones - set(existing.subnets)):
        what = f"names no subnet in {zone}"
        yield error(existing_network_has_zone, "network.existing.subnets", what, f"add `{zone}: subnet-...`")


def disk_can_be_made(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The root disk holds its image, and its throughput is one that gp3 has."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        if machine is None:
            continue
        wanted = pool.image or spec.software.image
        image, _ = PROFILE.image(spec, pool, machine)
        least = wanted.size_gib or 8 if isinstance(wanted, CustomImage) else ROOT_MIN_GIB if image.prebuilt else 8
        disk = PROFILE.disk(pool, machine, image)
        if disk.size_gib < least:
            what = f"is {disk.size_gib}; the image needs {least}"
            yield error(disk_can_be_made, f"pools[{i}].disk.size_gib", what, "leave it out")
        elif machine.gpu and not image.prebuilt and disk.size_gib < 100:
            what = f"is {disk.size_gib}; driver, toolkit and images need 50 GiB free after the system"
            yield warn(disk_can_be_made, f"pools[{i}].disk.size_gib", what, "take 100 or more")
        if disk.throughput_mib_s and disk.throughput_mib_s > GP3_MOST_MIB_S:
            what = f"is {disk.throughput_mib_s}; gp3 has at most {GP3_MOST_MIB_S}"
            yield error(disk_can_be_made, f"pools[{i}].disk.throughput_mib_s", what, "lower it")
        iops = disk.iops or 3000
        if iops > GP3_MOST_IOPS:
            yield error(
                disk_can_be_made, f"pools[{i}].disk.iops", f"is {iops}; gp3 has at most {GP3_MOST_IOPS}", "lower it"
            )
        if disk.throughput_mib_s and disk.throughput_mib_s > iops * GP3_MIB_S_PER_IOPS:
            what = f"is {disk.throughput_mib_s}, which needs {round(disk.throughput_mib_s / GP3_MIB_S_PER_IOPS)} iops; there are {iops}"
            yield error(disk_can_be_made, f"pools[{i}].disk.throughput_mib_s", what, "raise iops or lower it")


def image_fits_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The image is built for the machine's architecture."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        wanted = pool.image or spec.software.image
        if machine and isinstance(wanted, CustomImage):
            if wanted.arch != machine.arch:
                what = f"is {wanted.arch}, but {machine.name} is {machine.arch}"
                yield error(image_fits_machine, f"pools[{i}].image.arch", what, "name an image that was built for it")
            if not wanted.ref.startswith(("ami-", "/aws/service/")):
                what = "is no AMI id; they are written ami-0123456789abcdef0"
                yield error(image_fits_machine, f"pools[{i}].image.ref", what, "copy it from the console")


def idle_connections_survive(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """On the newest platform an idle TCP connection is forgotten after 350 seconds."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        if machine and machine.hypervisor == "nitro-v6":
            what = f"is {machine.name}, which forgets idle TCP connections after 350 s"
            yield info(idle_connections_survive, f"pools[{i}].machine", what, "long idle sessions need keepalive")


def people_come_by_sessions(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """On AWS no port is opened for people and nobody is granted anything: Session Manager is the way in, and IAM says for whom."""
    if spec.access.ssh_from:
        what = "opens nothing on AWS, where people come through Session Manager and port 22 stays closed"
        yield warn(people_come_by_sessions, "access.ssh_from", what, "leave it out; `gpuinfra ssh` takes that way")
    if spec.access.operators:
        what = "gives nobody anything on AWS, where IAM says who deploys and who reads evidence"
        yield warn(
            people_come_by_sessions, "access.operators", what, "attach what `gpuinfra permissions` prints to them"
        )


RULES = (
    fabric_exists,
    fabric_stays_in_zone,
    p4_talks_to_itself,
    addresses_suffice,
    one_local_zone,
    existing_network_has_zone,
    disk_can_be_made,
    image_fits_machine,
    idle_connections_survive,
    people_come_by_sessions,
)
