"""Rules that hold on every cloud."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import date, datetime, timedelta

from gpuinfra.clouds import profile_of
from gpuinfra.clouds.profile import Rule
from gpuinfra.clouds.records import CapacityKind
from gpuinfra.rules.finding import Finding
from gpuinfra.rules.say import error, info, warn
from gpuinfra.spec.capacity import Block, Reserved
from gpuinfra.spec.machines import machines_of
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import CustomImage
from gpuinfra.spec.shown import shown


def region_is_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The region exists on this cloud."""
    known = list(profile_of(spec.cloud).regions)
    if spec.where.region not in known:
        near = nearest(spec.where.region, known)
        hint = f"did you mean {near}?" if near else f"regions are {listed(known, 40)}"
        yield error(
            region_is_known,
            "where.region",
            f"is {shown(spec.where.region)}, which is no region of {profile_of(spec.cloud).title}",
            hint,
        )


def zone_is_in_region(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Every zone belongs to the region."""
    cloud = profile_of(spec.cloud)
    if spec.where.region not in cloud.regions:
        return
    places = [("where.zone", spec.where.zone)]
    places += [(f"pools[{i}].zone", pool.zone) for i, pool in enumerate(spec.pools)]
    places += [(f"storage[{i}].zone", entry.zone) for i, entry in enumerate(spec.storage) if entry.kind == "lustre"]
    for path, zone in places:
        if zone is None:
            continue
        region = cloud.region_of_zone(zone, spec.where.region)
        if region == spec.where.region:
            continue
        known = sorted({z for machine in cloud.machines.values() for z in machine.zones.get(spec.where.region, ())})
        near = nearest(zone, known)
        hint = (
            f"did you mean {near}?" if near else f"zones there are written like {cloud.first_zone(spec.where.region)}"
        )
        what = f"is in {region}" if region else f"is no zone of {cloud.title}"
        yield error(zone_is_in_region, path, f"is {shown(zone)}, which {what}; the region is {spec.where.region}", hint)


def machine_is_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The machine type is in this cloud's catalogue."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        if pool.machine not in machines:
            near = nearest(pool.machine, list(machines))
            hint = f"did you mean {near}?" if near else f"`gpuinfra catalog --cloud {spec.cloud}` lists them"
            yield error(
                machine_is_known,
                f"pools[{i}].machine",
                f"is {shown(pool.machine)}, which is not in the catalogue of {profile_of(spec.cloud).title}",
                hint,
            )
        for j, candidate in enumerate(pool.fallback):
            if candidate.machine and candidate.machine not in machines:
                near = nearest(candidate.machine, list(machines))
                hint = f"did you mean {near}?" if near else f"`gpuinfra catalog --cloud {spec.cloud}` lists them"
                yield error(
                    machine_is_known,
                    f"pools[{i}].fallback[{j}].machine",
                    f"is {shown(candidate.machine)}, which is not in the catalogue",
                    hint,
                )


def capacity_kind_exists(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The cloud sells this kind of capacity, and sells it for this machine."""
    machines = machines_of(spec)
    cloud = profile_of(spec.cloud)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        for j, entry in enumerate(pool.capacity):
            path = f"pools[{i}].capacity[{j}].kind"
            kind = CapacityKind(entry.kind)
            if kind not in cloud.capacity_kinds:
                allowed = listed(sorted(k.value for k in cloud.capacity_kinds))
                yield error(
                    capacity_kind_exists,
                    path,
                    f"is {kind.value}, which {cloud.title} does not have; allowed are {allowed}",
                    "take one of those",
                )
            elif machine and kind not in machine.capacity:
                allowed = listed(sorted(k.value for k in machine.capacity))
                yield error(
                    capacity_kind_exists,
                    path,
                    f"is {kind.value}, but {machine.name} is not sold so; allowed are {allowed}",
                    "take one of those, or another machine",
                )


def names_are_unique(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Pools have different names, file systems different mounts that do not lie inside each other."""
    seen: dict[str, int] = {}
    for i, pool in enumerate(spec.pools):
        if pool.name in seen:
            yield error(
                names_are_unique,
                f"pools[{i}].name",
                f"is {pool.name}, as pools[{seen[pool.name]}] is already",
                "give it a name of its own",
            )
        seen.setdefault(pool.name, i)
    mounts: list[str] = []
    for i, entry in enumerate(spec.storage):
        for other in mounts:
            if entry.mount == other or entry.mount.startswith(other + "/") or other.startswith(entry.mount + "/"):
                yield error(
                    names_are_unique,
                    f"storage[{i}].mount",
                    f"is {entry.mount}, which lies in or over {other}",
                    "mount it beside",
                )
        mounts.append(entry.mount)


_SYSTEM = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
    "/var",
)


def mount_is_free(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nothing is mounted over the system."""
    for i, entry in enumerate(spec.storage):
        top = "/" + entry.mount.split("/")[1]
        if top in _SYSTEM or ".." in entry.mount.split("/"):
            yield error(
                mount_is_free,
                f"storage[{i}].mount",
                f"is {entry.mount}, which belongs to the system",
                "mount it under a folder of its own, such as /scratch",
            )


def pools_are_there(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack that makes the cluster layer has pools."""
    if "cluster" in spec.made_layers and not spec.pools:
        yield error(
            pools_are_there,
            "pools",
            "is empty, but this stack makes the cluster layer",
            "add a pool, or say which layers it makes",
        )
    if spec.layers is not None and "cluster" not in spec.layers and spec.pools:
        yield error(
            pools_are_there,
            "layers",
            f"is {listed(list(spec.layers))}, but there are pools",
            "add cluster, or take the pools out",
        )


def layer_is_made_or_used(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Every layer below the cluster is made here or named in `use`, not both."""
    made = spec.made_layers
    for layer in ("foundation", "site"):
        used = getattr(spec.use, layer)
        if used and spec.layers is not None and layer in spec.layers:
            yield error(
                layer_is_made_or_used,
                f"use.{layer}",
                f"names another stack, but layers makes {layer} here too",
                "keep one of them",
            )
        if not used and layer not in made and "cluster" in made:
            yield error(
                layer_is_made_or_used,
                "layers",
                f"leaves out {layer}, and use.{layer} names no stack that has it",
                f"add use.{layer}, or add {layer} to layers",
            )


def storage_needs_site(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """File systems are made by the site layer and mounted by the cluster layer; a stack with neither has no use for one."""
    # A cluster that uses another stack's site repeats what that site declares: its steps and checks follow from it.
    if spec.storage and not {"site", "cluster"} & set(spec.made_layers):
        what = "is declared here, but this stack makes neither a site nor nodes"
        yield error(storage_needs_site, "storage", what, "move it to the stack that makes the site")


def site_storage_is_repeated(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A cluster on another stack's site says which of its file systems nodes mount, because a plan looks nothing up."""
    if spec.use.site and spec.pools and not spec.storage:
        what = "is empty, so nodes mount none of the file systems of use.site"
        yield info(site_storage_is_repeated, "storage", what, "repeat what the site declares, if nodes need it")


def window_is_open(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A block's window lies in the right order and has not ended."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if not isinstance(entry, Block):
                continue
            path = f"pools[{i}].capacity[{j}]"
            try:
                starts, ends = datetime.fromisoformat(entry.starts_at), datetime.fromisoformat(entry.ends_at)
            except ValueError:
                yield error(window_is_open, path, "has a start or end that is no date", "write 2026-12-01T11:30:00Z")
                continue
            if ends <= starts:
                yield error(
                    window_is_open,
                    f"{path}.ends_at",
                    f"is {entry.ends_at}, not after its start {entry.starts_at}",
                    "write the end of the block",
                )
            elif ends.date() < today:
                yield error(
                    window_is_open,
                    f"{path}.ends_at",
                    f"is {entry.ends_at}, which has passed",
                    "name a block that has not ended",
                )
            elif ends - starts < timedelta(hours=2):
                yield error(
                    window_is_open,
                    f"{path}.ends_at",
                    "leaves less than two hours",
                    "nodes are gone 35 minutes before the end",
                )


def reservation_covers_pool(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """No more nodes than a reservation is known to hold."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if (
                isinstance(entry, Reserved)
                and entry.holds is not None
                and entry.count > entry.holds
                and not entry.overflow
            ):
                yield error(
                    reservation_covers_pool,
                    f"pools[{i}].capacity[{j}].count",
                    f"is {entry.count}, but the reservation holds {entry.holds} x {pool.machine}",
                    "lower the count or name a larger one",
                )


def reservation_is_named(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A reserved entry names one reservation or one group of them."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Reserved) and (entry.id is None) == (entry.group_arn is None):
                both = "both id and group_arn" if entry.id else "neither id nor group_arn"
                yield error(reservation_is_named, f"pools[{i}].capacity[{j}]", f"has {both}", "give one of them")


def fallback_replaces_reservations(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A candidate elsewhere says what takes the place of reserved entries, because a reservation does not move."""
    for i, pool in enumerate(spec.pools):
        bound = any(entry.kind in ("reserved", "block") for entry in pool.capacity)
        for j, candidate in enumerate(pool.fallback):
            path = f"pools[{i}].fallback[{j}]"
            if candidate.zone is None and candidate.machine is None:
                yield error(
                    fallback_replaces_reservations, path, "names neither zone nor machine", "say where else to try"
                )
            elif bound and candidate.capacity is None:
                yield error(
                    fallback_replaces_reservations,
                    path,
                    "moves a pool that is on a reservation, and says nothing of what takes its place",
                    "add capacity to it",
                )


def cidr_is_private(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The network's addresses are private ones, on a boundary, and large enough."""
    if spec.network.existing:
        return
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=True)
    except ValueError:
        yield error(
            cidr_is_private,
            "network.cidr",
            f"is {shown(spec.network.cidr)}; allowed is a private network such as 10.64.0.0/16",
            "end it in zeros",
        )
        return
    private = [
        ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
    ]
    if network.version != 4 or not any(network.subnet_of(p) for p in private if p.version == 4):  # type: ignore[arg-type]
        yield error(
            cidr_is_private, "network.cidr", f"is {network}, which is no private network", "take one in 10.0.0.0/8"
        )
    elif not 16 <= network.prefixlen <= 20:
        yield error(
            cidr_is_private, "network.cidr", f"is a /{network.prefixlen}; allowed are /16 to /20", "take 10.64.0.0/16"
        )


def image_is_prebuilt_without_egress(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Without a way out, steps cannot fetch from vendors: the image has to bring everything, or a mirror is named."""
    if spec.network.egress != "endpoints" or spec.software.mirror_url:
        return
    for i, pool in enumerate(spec.pools):
        machine = machines_of(spec).get(pool.machine)
        if machine is None:
            continue
        wanted = pool.image or spec.software.image
        prebuilt = (
            wanted.prebuilt
            if isinstance(wanted, CustomImage)
            else profile_of(spec.cloud).image(spec, pool, machine)[0].prebuilt
        )
        if not prebuilt:
            yield error(
                image_is_prebuilt_without_egress,
                f"pools[{i}].image",
                "installs from vendors' servers, but network.egress is endpoints, so nodes cannot reach them",
                "take a prebuilt image, name software.mirror_url, or let egress be nat",
            )


def trail_is_made(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An account without an audit trail is a decision that somebody has to see."""
    if "foundation" in spec.made_layers and spec.audit.trail == "none":
        yield warn(trail_is_made, "audit.trail", "is none, so nobody will know who did what", "take create or existing")


def floor_is_reachable(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A floor is given exactly when it is waited for, and is not more than there are nodes."""
    handover = spec.handover
    if handover.wait == "floor" and handover.floor is None:
        yield error(
            floor_is_reachable,
            "handover.floor",
            "is missing, but handover.wait is floor",
            "say how many nodes are enough",
        )
    if handover.floor is not None and handover.wait != "floor":
        yield error(
            floor_is_reachable,
            "handover.floor",
            f"is {handover.floor}, but handover.wait is {handover.wait}",
            "let wait be floor",
        )
    if handover.floor is not None and handover.floor > spec.nodes:
        yield error(
            floor_is_reachable, "handover.floor", f"is {handover.floor}, but there are {spec.nodes} nodes", "lower it"
        )


def tags_fit(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Tags fit what the cloud takes and do not claim gpuinfra's own."""
    limit = profile_of(spec.cloud).tag_limit - 10
    for path, tags in (("tags", spec.tags), *((f"pools[{i}].tags", pool.tags) for i, pool in enumerate(spec.pools))):
        if len(tags) > limit:
            yield error(tags_fit, path, f"has {len(tags)} tags; allowed are {limit}", "keep the most useful ones")
        for key in tags:
            if key.lower().startswith(("aws:", "gpuinfra:")):
                yield error(tags_fit, path, f"has {shown(key)}, which is reserved", "choose another name")


def zones_sell_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The machine has been seen in the pool's zone."""
    machines = machines_of(spec)
    cloud = profile_of(spec.cloud)
    region = spec.where.region
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        if machine is None or not machine.zones or region not in cloud.regions:
            continue
        zones = machine.zones.get(region, ())
        if region not in machine.zones:
            seen = listed(sorted(machine.zones))
            yield warn(
                zones_sell_machine,
                f"pools[{i}].machine",
                f"is {machine.name}, which was not seen in {region} when the catalogue was read; it was in {seen}",
                "check the offering, or move",
            )
            continue
        zone = pool.zone or spec.where.zone
        if zone and zones and zone not in zones:
            yield warn(
                zones_sell_machine,
                f"pools[{i}].machine",
                f"is {machine.name}, which was not seen in {zone} when the catalogue was read; it was in {listed(list(zones))}",
                "check the offering, or move",
            )


def quota_covers_pool(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nodes times vCPUs are within the quota that a person knows of; blocks do not count."""
    for i, pool in enumerate(spec.pools):
        machine = machines_of(spec).get(pool.machine)
        if machine is None or pool.quota_vcpus is None:
            continue
        counted = [entry for entry in pool.capacity if not isinstance(entry, Block)]
        need = sum(entry.count for entry in counted) * machine.vcpus
        if need > pool.quota_vcpus:
            codes = sorted(
                {machine.quotas[CapacityKind(e.kind)] for e in counted if CapacityKind(e.kind) in machine.quotas}
            )
            hint = f"ask for more ({', '.join(codes)})" if codes else "ask for more"
            yield error(
                quota_covers_pool,
                f"pools[{i}].quota_vcpus",
                f"is {pool.quota_vcpus}, but {need} vCPUs are needed",
                hint,
            )


def spot_price_is_left_alone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A limit on the spot price interrupts more often and saves nothing."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if entry.kind == "spot" and entry.max_price_usd is not None:
                yield info(
                    spot_price_is_left_alone,
                    f"pools[{i}].capacity[{j}].max_price_usd",
                    "is set, so nodes are taken back whenever the price passes it",
                    "leave it out",
                )


def nobody_enters_from_everywhere(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Port 22 is never open to the whole world."""
    for i, cidr in enumerate(spec.access.ssh_from):
        path = f"access.ssh_from[{i}]"
        try:
            network = ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            yield error(
                nobody_enters_from_everywhere,
                path,
                f"is {shown(cidr)}; allowed is a network such as 203.0.113.0/24",
                "mend it",
            )
            continue
        if network.prefixlen == 0:
            yield error(
                nobody_enters_from_everywhere,
                path,
                f"is {network}: everybody",
                "name the networks that operators come from",
            )
        elif network.is_global and network.prefixlen < (16 if network.version == 4 else 32):
            yield warn(
                nobody_enters_from_everywhere, path, f"is {network}, which is very large", "name smaller networks"
            )


def compliance_is_confirmed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A lock that nobody can shorten is confirmed by a field of its own."""
    audit = spec.audit
    if audit.lock_mode == "compliance" and not audit.confirm_compliance:
        what = f"is compliance: for {audit.lock_days} days nobody can delete an entry, the account's owner included"
        yield error(
            compliance_is_confirmed, "audit.lock_mode", what, "add confirm_compliance: true, or take governance"
        )


def record_resembles_a_machine(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A machine that the declaration describes is new, and resembles one that is known."""
    known = profile_of(spec.cloud).machines
    for i, record in enumerate(spec.machines):
        if record.name in known:
            what = f"is {record.name}, which the catalogue has"
            yield error(record_resembles_a_machine, f"machines[{i}].name", what, "take it out of machines")
        if record.like not in known:
            near = nearest(record.like, list(known))
            hint = f"did you mean {near}?" if near else f"`gpuinfra catalog --cloud {spec.cloud}` lists them"
            yield error(
                record_resembles_a_machine,
                f"machines[{i}].like",
                f"is {shown(record.like)}, which is not in the catalogue",
                hint,
            )


RULES: tuple[Rule, ...] = (
    nobody_enters_from_everywhere,
    compliance_is_confirmed,
    record_resembles_a_machine,
    region_is_known,
    zone_is_in_region,
    machine_is_known,
    capacity_kind_exists,
    names_are_unique,
    mount_is_free,
    pools_are_there,
    layer_is_made_or_used,
    storage_needs_site,
    site_storage_is_repeated,
    window_is_open,
    reservation_covers_pool,
    reservation_is_named,
    fallback_replaces_reservations,
    cidr_is_private,
    image_is_prebuilt_without_egress,
    trail_is_made,
    floor_is_reachable,
    tags_fit,
    zones_sell_machine,
    quota_covers_pool,
    spot_price_is_left_alone,
)
