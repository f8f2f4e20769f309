"""Rules specific to Google Cloud."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.clouds import images
from gpuinfra.clouds.gcp.profile import DEFAULT_TIER, HYPERDISK_ONLY, IMAGE_PATH, PROFILE, SERVICE_ADDRESSES
from gpuinfra.clouds.gcp.regions import LUSTRE_TIERS, RESERVED_ADDRESSES
from gpuinfra.clouds.gcp.rules import site
from gpuinfra.plan.machines import nearest_value, pools_of, zoning_of
from gpuinfra.plan.storage import created
from gpuinfra.spec.capacity import Reserved
from gpuinfra.spec.messages import listed, more_addresses
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown
from gpuinfra.spec.storage import ObjectMount

_RESERVATION = re.compile(
    r"(projects/[a-z][a-z0-9-]{4,28}[a-z0-9]/reservations/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
    r"(/reservationBlocks/[a-z0-9-]+(/reservationSubBlocks/[a-z0-9-]+)?)?"
)
_INSTANCE = re.compile(
    r"projects/[a-z][a-z0-9-]{4,28}[a-z0-9]/locations/[a-z0-9-]+/instances/[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
)
_LUSTRE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,7}")
"""https://docs.cloud.google.com/managed-lustre/docs/reference/rest/v1/projects.locations.instances (filesystem), retrieved 2026-11-23."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
"""https://cloud.google.com/storage/docs/buckets#naming"""


def project_id_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The project is specified by its project ID."""
    project = getattr(spec.where, "project", None)
    if project and not site.PROJECT.fullmatch(project):
        what = "is not a project ID; allowed: 6 to 30 lower-case letters, digits and hyphens, starting with a letter"
        yield error("where.project", what, "use the project ID, not the project name or number")


def reservation_name_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A reservation is specified as a name, a project and name, or a block of a reservation."""
    for path, pool, _ in pools_of(spec):
        for j, entry in enumerate(pool.capacity):
            if not isinstance(entry, Reserved):
                continue
            if entry.id and not _RESERVATION.fullmatch(entry.id):
                what = "is not a reservation; allowed: NAME, projects/PROJECT/reservations/NAME, or a block of a reservation"
                yield error(f"{path}.capacity[{j}].id", what, "copy the name of the reservation")


def rdma_pools_share_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Pools with RDMA are in one zone, because an RDMA network is zonal."""
    zones = {
        pool.zone or spec.where.zone for _, pool, machine in pools_of(spec) if machine.fabric and machine.fabric.is_rdma
    }
    zones.discard(None)
    if len(zones) > 1:
        what = f"use RDMA in {listed(sorted(str(z) for z in zones))}; allowed: one zone"
        yield error("pools", what, "use the same zone for these pools")


def machine_has_gpudirect(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A pool that requires the fabric has a machine type with GPUDirect networking."""
    for path, pool, machine in pools_of(spec):
        if pool.fabric == "required" and machine.fabric is None:
            what = f"is required, but {machine.name} has no GPUDirect networking"
            yield error(f"{path}.fabric", what, "use an A3 with 8 GPUs or a later machine type")


def gpudirect_stacks_are_not_mixed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The pools of a cluster use one GPUDirect stack, because different stacks do not connect to each other."""
    providers = sorted({m.fabric.provider for _, pool, m in pools_of(spec) if m.fabric and pool.fabric != "none"})
    if len(providers) > 1:
        what = f"use {listed(providers)}, which do not connect to each other"
        yield warn("pools", what, "run each job in one pool, or use separate clusters")


def subnets_have_enough_addresses(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each subnet has enough addresses for the nodes and for the four addresses that Google Cloud reserves."""
    if spec.network.existing:
        return
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
    except ValueError:
        return
    main = network.num_addresses // 8 - RESERVED_ADDRESSES
    if spec.nodes > main:
        what = f"is {network}, which has {main} addresses for nodes; the cluster needs {spec.nodes}"
        yield error("network.cidr", what, more_addresses(network.prefixlen, "fewer nodes"))
    fabric = [(pool, machine) for _, pool, machine in pools_of(spec) if machine.fabric and pool.fabric != "none"]
    count = sum(pool.nodes for pool, _ in fabric)
    part = 64 if any(m.fabric and m.fabric.is_rdma for _, m in fabric) else 32
    have = network.num_addresses // part - RESERVED_ADDRESSES
    if count > have:
        what = f"is {network}, which has {have} addresses for each fabric network; the cluster needs {count}"
        yield error("network.cidr", what, more_addresses(network.prefixlen, "fewer nodes"))


def service_range_is_large_enough(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The network has 1024 addresses each for Managed Lustre and Filestore."""
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
    except ValueError:
        return
    services = len({entry.kind for _, entry in created(spec.storage) if entry.kind in ("lustre", "home")})
    have = network.num_addresses // 8
    if have < services * SERVICE_ADDRESSES:
        what = f"is {network}, which has {have} addresses for file systems; Managed Lustre and Filestore need {SERVICE_ADDRESSES} each"
        yield error("network.cidr", what, "use a /19 for one of them, or a /18 for both")


def network_quota_is_enough(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The network quota of the project covers a network for each interface."""
    names = {nic.network for _, pool, m in pools_of(spec) if pool.fabric != "none" for nic in m.nics}
    if len(names) > 5 and not spec.network.existing:
        what = f"need {len(names)} networks from the project's quota, which also counts the `default` network"
        yield info("pools", what, "check the quota in the console")


def disk_settings_fit_family(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`iops` and `throughput_mib_s` are set only for machine types with Hyperdisk."""
    for path, pool, machine in pools_of(spec):
        if machine.family not in HYPERDISK_ONLY and (pool.disk.iops or pool.disk.throughput_mib_s):
            what = f"is set, but the root disk of {machine.name} is pd-balanced, whose performance depends on its size"
            yield error(f"{path}.disk", what, "remove iops and throughput_mib_s")


def image_fits_architecture(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An image that is selected by its ID has the architecture of the machine type, and the ID is the path of an image or of an image family."""
    what = "is not a Google Cloud image; allowed: projects/P/global/images/I, or projects/P/global/images/family/F"
    hint = "copy it from `gcloud compute images list --uri`, starting at `projects/`"
    yield from images.misfits(spec, IMAGE_PATH.fullmatch, what, hint)


def lustre_size_is_offered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre supports the tier and the capacity, and the file system is not created from an FSx backup."""
    for i, entry in enumerate(spec.storage):
        if entry.kind != "lustre" or entry.existing:
            continue
        path = f"storage[{i}]"
        tier = entry.throughput_mb_s_per_tib or DEFAULT_TIER
        if tier not in LUSTRE_TIERS:
            near = nearest_value(tuple(LUSTRE_TIERS), tier)
            what = f"is {tier}; allowed: {listed([str(t) for t in LUSTRE_TIERS])}"
            yield error(f"{path}.throughput_mb_s_per_tib", what, f"use {near}")
            continue
        most = LUSTRE_TIERS[tier][1]
        capacity = PROFILE.lustre(entry)
        if capacity.billed > most:
            what = f"is {entry.capacity_gib}; allowed: up to {most} for this tier"
            yield error(f"{path}.capacity_gib", what, "lower the capacity, or use a different tier")
        else:
            yield from capacity.rounded(f"{path}.capacity_gib")
        if entry.restore_from:
            what = "is set, but only FSx for Lustre on AWS has backups"
            yield error(f"{path}.restore_from", what, "import the data from a bucket: set bucket")


def lustre_is_near_clients(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A file system is in the zone of the pools, for its throughput.
    Google Cloud Blog, "5 best practices for Managed Lustre on Google Kubernetes Engine", 2025-09-19."""
    zones = zoning_of(spec)
    for i, entry in enumerate(spec.storage):
        zone = (entry.zone if entry.kind == "lustre" else None) or zones.default
        if entry.kind != "lustre" or entry.existing:
            continue
        for j, pool in enumerate(spec.pools):
            if zone != (other := zones.by_pool[pool.name]):
                where = "is" if entry.zone else "is not set, so the file system is in"
                what = f"{where} {zone}, but pools[{j}] is in {other}: traffic between zones is slower and billed"
                yield warn(f"storage[{i}].zone", what, f"use {other}")
                break


def mounted_bucket_has_no_key(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Only AWS supports `key_arn`, because Cloud Storage itself uses the key of a bucket for all clients with access."""
    for i, entry in enumerate(spec.storage):
        if entry.kind == "object" and entry.key_arn:
            what = "is set, but Cloud Storage uses the key of a bucket for all clients with access"
            yield error(f"storage[{i}].key_arn", what, "remove it")


def used_bucket_name_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A bucket that nodes mount or that is linked to a Lustre file system is `auto` or the name of a bucket, without `gs://` and without a folder."""
    for i, entry in enumerate(spec.storage):
        if entry.kind == "home" or entry.bucket is None:
            continue
        if entry.bucket != "auto" and not _BUCKET.fullmatch(entry.bucket):
            folder = "folders; bucket_prefix selects a folder" if entry.kind == "lustre" else "folders"
            what = f"is {shown(entry.bucket)}; allowed: auto, or 3 to 222 lower-case letters, digits, hyphens, underscores and dots"
            yield error(f"storage[{i}].bucket", what, f"use the name of the bucket, without gs:// and {folder}")


def filestore_size_is_offered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A zonal Filestore instance has 1024 to 9984 GiB in increments of 256 GiB, or 10240 to 102400 GiB in increments of 2560 GiB."""
    for i, entry in enumerate(spec.storage):
        if entry.kind != "home" or entry.existing:
            continue
        size = entry.capacity_gib
        small, large = range(1_024, 9_984 + 1, 256), range(10_240, 102_400 + 1, 2_560)
        if size not in small and size not in large:
            what = f"is {size}; allowed: 1024 to 9984 in increments of 256 GiB, or 10240 to 102400 in increments of 2560 GiB"
            least = next((one for one in (*small, *large) if one >= size), large[-1])
            yield error(f"storage[{i}].capacity_gib", what, f"use {least}")


def existing_instance_is_identified(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing file system has the path of an instance of Managed Lustre or Filestore, its address and mount name, and, for Lustre,
    the address range of its servers."""
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, ObjectMount) or (existing := entry.existing) is None:
            continue
        path, lustre = f"storage[{i}].existing", entry.kind == "lustre"
        service, command = ("Managed Lustre", "lustre") if lustre else ("Filestore", "filestore")
        describe = f"run: gcloud {command} instances describe NAME --location=LOCATION"
        if not _INSTANCE.fullmatch(existing.id):
            what = f"is {shown(existing.id)}; allowed: the path of an instance of {service}, projects/P/locations/L/instances/N"
            yield error(f"{path}.id", what, describe)
        if existing.address is None:
            yield error(f"{path}.address", f"is required for {service}", describe)
        if existing.mount_name is None:
            yield error(f"{path}.mount_name", f"is required for {service}", describe)
        elif lustre and not _LUSTRE_NAME.fullmatch(existing.mount_name):
            what = f"is {shown(existing.mount_name)}; allowed: up to 8 letters and digits"
            yield error(f"{path}.mount_name", what, "use the file system name of the instance, without a path")
        if lustre and existing.address_range is None:
            what = "is required, because the servers open connections to the nodes"
            yield error(f"{path}.address_range", what, "use the instance's address range in the network peering")
        elif existing.address_range and not lustre:
            what = "is set, but Filestore servers do not open connections to the nodes"
            yield error(f"{path}.address_range", what, "remove it")
        elif existing.address_range and (problem := _not_private(existing.address_range)):
            what = f"is {shown(existing.address_range)}; allowed: {problem}"
            yield error(f"{path}.address_range", what, "use the range of the instance, such as 10.40.0.0/24")
        for name in ("security_group", "efa_enabled"):
            if getattr(existing, name):
                yield error(f"{path}.{name}", "is set, but only AWS supports it", "remove it")


def repaired_groups_create_nodes_again(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A group of queued nodes does not create a deleted node again, so its nodes are not replaced
    (https://docs.cloud.google.com/ai-hypercomputer/docs/create/create-mig-with-a4-or-a3ultra)."""
    if spec.repair.mode != "replace":
        return
    for path, pool, _ in pools_of(spec):
        for j, entry in enumerate(pool.capacity):
            if entry.kind == "flex":
                what = "is flex, but repair.mode is replace, and a group of queued nodes does not create a replaced node again"
                yield error(
                    f"{path}.capacity[{j}].kind", what, "set repair.mode to hold, or use another kind of capacity"
                )


def _not_private(text: str) -> str:
    """Return an empty string for a network of private addresses. Otherwise, return what is allowed."""
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        return "a network without host bits"
    return "" if network.prefixlen >= 8 and network.is_private else "a network of private addresses, at most a /8"


RULES = (*rules_in(vars()), *site.RULES)
