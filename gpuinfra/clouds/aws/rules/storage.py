"""AWS rules for FSx, EFS and buckets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.clouds.aws.profile import EFA_STEP_GIB, OPENZFS_ROOT, PROFILE, TIERS, dns_name, exports_everything
from gpuinfra.clouds.aws.regions import WITHOUT_OPENZFS
from gpuinfra.plan.machines import machines_of, nearest_value
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown
from gpuinfra.spec.storage import Home, Lustre, ObjectMount

_BUCKET = re.compile(
    r"(?!xn--|sthree-|amzn-s3-demo-)(?!.*\.\.)(?![0-9]+(\.[0-9]+){3}$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
)
_OTHER_BUCKETS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
"""https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, retrieved 2026-11-22."""
_FILE_SYSTEM = re.compile(r"fs-[0-9a-f]{8,40}")
_SECURITY_GROUP = re.compile(r"sg-[0-9a-f]{8,17}")
_MOUNT_NAME = re.compile(r"[A-Za-z0-9]{1,8}")
"""https://docs.aws.amazon.com/fsx/latest/APIReference/API_LustreFileSystemConfiguration.html (MountName) and API_CreateMountTarget of EFS,
retrieved 2026-11-23."""
_ASSIGNED = re.compile(r"(fs|fc|svm)-[0-9a-f]+\.(fsx|efs)\..*|.*\.(fsx|efs)\.[a-z0-9-]+\.amazonaws\.com")
"""DNS names that AWS assigns to file systems."""
_KEY = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+")
METADATA_IOPS = (1500, 3000, 6000, 12000, *range(24000, 192001, 12000))


def _lustre(spec: ClusterSpec) -> Iterator[tuple[str, Lustre, str]]:
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre) and entry.existing is None:
            yield f"storage[{i}]", entry, entry.deployment or "persistent_2"


def existing_fsx_or_efs_is_identified(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing file system specifies an FSx or EFS ID, a DNS name with the same service and ID, its security group, and, for Lustre, its mount name."""
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, ObjectMount) or (existing := entry.existing) is None:
            continue
        path, lustre = f"storage[{i}].existing", isinstance(entry, Lustre)
        openzfs = isinstance(entry, Home) and entry.service == "openzfs"
        service = "FSx for Lustre" if lustre else "FSx for OpenZFS" if openzfs else "Amazon EFS"
        if not _FILE_SYSTEM.fullmatch(existing.id):
            what = f"is {shown(existing.id)}; allowed: the ID of an {service} file system, fs-0123456789abcdef0"
            yield error(
                f"{path}.id",
                what,
                "specify the ID of the file system; ARNs, names, and IDs of volumes or caches are not allowed",
            )
            continue
        own = dns_name(existing.id, spec.where.region, fsx=lustre or openzfs)
        # An unknown region has its own finding.
        address = existing.address if spec.where.region in PROFILE.regions else None
        if address and not lustre and not openzfs and address != own:
            what = f"is {shown(address)}; allowed: {own}, because nodes verify the certificate of the mount targets for this name"
            yield error(f"{path}.address", what, "remove it")
        elif address and address != own and _ASSIGNED.fullmatch(address):
            what = f"is {shown(address)}, which is not a DNS name of the FSx file system {existing.id}; allowed: {own}, or another name of its servers"
            yield error(f"{path}.address", what, "remove the address, or correct the ID")
        if lustre and not existing.mount_name:
            command = f"aws fsx describe-file-systems --file-system-ids {existing.id} --query 'FileSystems[].LustreConfiguration.MountName'"
            yield error(f"{path}.mount_name", "is required for FSx for Lustre", f"run: {command}")
        elif lustre and existing.mount_name and not _MOUNT_NAME.fullmatch(existing.mount_name):
            what = f"is {shown(existing.mount_name)}; allowed: up to 8 letters and digits"
            yield error(f"{path}.mount_name", what, "use the mount name that FSx returns, without a path")
        if (
            openzfs
            and existing.mount_name
            and not f"/{existing.mount_name.lstrip('/')}/".startswith(f"{OPENZFS_ROOT}/")
        ):
            what = f"is {shown(existing.mount_name)}; allowed: {OPENZFS_ROOT}, or the path of a volume, {OPENZFS_ROOT}/NAME"
            yield error(f"{path}.mount_name", what, f"use the path that FSx shows, which begins with {OPENZFS_ROOT}")
        if existing.security_group is None:
            what = "is required: the nodes reach only the security groups that the declaration specifies"
            yield error(
                f"{path}.security_group", what, "use the security group of the file system's network interfaces"
            )
        elif not _SECURITY_GROUP.fullmatch(existing.security_group):
            what = f"is {shown(existing.security_group)}; allowed: the ID of a security group, sg-0123456789abcdef0"
            yield error(f"{path}.security_group", what, "use the ID instead of the name")
        if existing.address_range:
            what = "is set, but on AWS the security group rules of the nodes use security_group instead"
            yield error(f"{path}.address_range", what, "remove it")


def homes_are_in_availability_zones(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack with home directories does not use a Local Zone: EFS supports mount targets only in Availability Zones (EFS user guide,
    "Creating mount targets", retrieved 2026-11-22), and gpuinfra creates FSx for OpenZFS only there."""
    zones = [("where.zone", spec.where.zone), *((f"pools[{i}].zone", pool.zone) for i, pool in enumerate(spec.pools))]
    local = [f"{path} is {zone}" for path, zone in zones if zone in PROFILE.opt_in_zones]
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Home) and local:
            why = (
                "gpuinfra does not create FSx for OpenZFS in Local Zones"
                if entry.service == "openzfs"
                else "EFS does not support mount targets in Local Zones"
            )
            what = f"is home, but {listed(local)}, and {why}"
            yield error(
                f"storage[{i}].kind",
                what,
                "remove the home directories, or use Availability Zones instead of Local Zones",
            )


def openzfs_is_offered_in_region(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The Region offers FSx for OpenZFS of the deployment type that gpuinfra creates."""
    for i, entry in enumerate(spec.storage):
        openzfs = isinstance(entry, Home) and entry.service == "openzfs" and not entry.existing
        if openzfs and spec.where.region in WITHOUT_OPENZFS:
            what = f"is openzfs, but {spec.where.region} does not offer FSx for OpenZFS with the deployment type SINGLE_AZ_2"
            yield error(f"storage[{i}].service", what, "use service: efs, or a different Region")


def mounted_bucket_key_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`key_arn` is the ARN of a KMS key, and its bucket exists. A bucket that the stack creates uses the stack's key."""
    for i, entry in enumerate(spec.storage):
        if not isinstance(entry, ObjectMount) or entry.key_arn is None:
            continue
        path = f"storage[{i}].key_arn"
        if entry.bucket == "auto":
            yield error(
                path,
                "is set, but bucket is auto, so the stack creates the bucket and encrypts it with the stack's key",
                "remove it",
            )
        elif not _KEY.fullmatch(entry.key_arn):
            what = f"is {shown(entry.key_arn)}; allowed: the ARN of a key, arn:aws:kms:REGION:ACCOUNT:key/ID"
            yield error(
                path,
                what,
                "use the ARN of the key, because IAM policies cannot grant access to a key by the ARN of an alias",
            )


def lustre_tier_is_offered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The throughput is a tier that the deployment type supports."""
    for path, entry, kind in _lustre(spec):
        tier = entry.throughput_mb_s_per_tib
        if tier is None or tier in TIERS[kind]:
            continue
        if not TIERS[kind]:
            what = f"is {tier}, but {kind} has a fixed throughput"
            yield error(f"{path}.throughput_mb_s_per_tib", what, "remove it")
        else:
            near = nearest_value(TIERS[kind], tier)
            what = f"is {tier}; allowed for {kind}: {listed([str(t) for t in TIERS[kind]])}"
            yield error(f"{path}.throughput_mb_s_per_tib", what, f"use {near}")


def lustre_size_is_billed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Capacity is rounded up to a size that FSx offers. The finding shows the billed capacity."""
    for path, entry, _ in _lustre(spec):
        if entry.fabric and (entry.throughput_mb_s_per_tib or 250) not in EFA_STEP_GIB:
            continue
        yield from PROFILE.lustre(entry).rounded(f"{path}.capacity_gib")


def lustre_efa_is_supported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """EFA access to the file system requires persistent_2 and machine types on Nitro v4 or later."""
    machines = machines_of(spec)
    for index, entry in enumerate(spec.storage):
        if not isinstance(entry, Lustre) or not entry.fabric:
            continue
        path, kind = f"storage[{index}]", entry.deployment or "persistent_2"
        if kind != "persistent_2":
            yield error(f"{path}.fabric", f"is true, but {kind} does not support EFA", "use persistent_2")
        for i, pool in enumerate(spec.pools):
            machine = machines.get(pool.machine)
            if machine and machine.gpu and machine.hypervisor in ("nitro-v3", "nitro-v2"):
                what = f"is true, but {machine.name} of pools[{i}] uses {machine.hypervisor.replace('-', ' ')}, and EFA to FSx requires nitro v4"
                yield error(f"{path}.fabric", what, "remove fabric, so that these nodes use TCP")
                break


def lustre_is_in_pool_zone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The file system is in the same zone as the pools."""
    for path, entry, _ in _lustre(spec):
        zone = entry.zone or spec.where.zone
        for i, pool in enumerate(spec.pools):
            other = pool.zone or spec.where.zone
            if zone and other and zone != other:
                level = error if entry.fabric else warn
                why = "EFA does not cross zones" if entry.fabric else "traffic between zones is slower and billed"
                yield level(
                    f"{path}.zone",
                    f"is {zone}, but pools[{i}] is in {other}: {why}",
                    f"use {other}",
                )


def lustre_metadata_iops_are_offered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`metadata_iops` is a value that FSx supports, and requires persistent_2."""
    for path, entry, kind in _lustre(spec):
        iops = entry.metadata_iops
        if iops is None:
            continue
        if kind != "persistent_2":
            what = f"is {iops}, but {kind} does not support a metadata configuration"
            yield error(f"{path}.metadata_iops", what, "remove it")
        elif iops not in METADATA_IOPS:
            near = nearest_value(METADATA_IOPS, iops)
            what = f"is {iops}; allowed: 1500, 3000, 6000, 12000 and multiples of 12000 up to 192000"
            yield error(f"{path}.metadata_iops", what, f"use {near}")


def lustre_backup_is_supported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Backups require a persistent file system without a link to a bucket."""
    for path, entry, kind in _lustre(spec):
        if not entry.backup_days:
            continue
        if not kind.startswith("persistent"):
            what = f"is {entry.backup_days}, but {kind} does not support backups"
            yield error(f"{path}.backup_days", what, "use persistent_2")
        elif entry.bucket:
            what = f"is {entry.backup_days}, but a file system that is linked to a bucket does not support backups"
            yield error(f"{path}.backup_days", what, "remove it; the bucket holds the data")


def lustre_restore_is_supported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A file system that is created from a backup is persistent, is not linked to a bucket, and does not use EFA."""
    for path, entry, kind in _lustre(spec):
        if not entry.restore_from:
            continue
        if not kind.startswith("persistent"):
            what = f"is set, but backups are backups of persistent file systems, and deployment is {kind}"
            yield error(f"{path}.restore_from", what, "use the deployment type of the backup")
        elif entry.bucket:
            what = "is set, but the entry also has a bucket, and FSx backs up only file systems without a linked bucket"
            yield error(f"{path}.restore_from", what, "remove bucket, or remove restore_from")
        elif entry.fabric:
            what = "is set, but the provider does not send fabric to FSx when it restores a backup"
            yield error(f"{path}.restore_from", what, "remove fabric, so that nodes use TCP, or remove restore_from")


def lustre_bucket_link_is_supported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A link to a bucket requires Lustre 2.12 or later, is not supported on scratch_1, and lists each event once."""
    for path, entry, kind in _lustre(spec):
        if not entry.bucket:
            continue
        if kind == "scratch_1":
            yield error(
                f"{path}.bucket", "is set, but scratch_1 does not support data repository associations", "use scratch_2"
            )
        if entry.version == "2.10":
            yield error(f"{path}.version", "is 2.10; a link to a bucket requires 2.12 or later", "use 2.15")
        for name, events in (("import_events", entry.import_events), ("export_events", entry.export_events)):
            if len(set(events)) != len(events):
                yield error(f"{path}.{name}", "lists an event twice", "list each event once")


def lustre_data_is_exported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A scratch file system has no replicas, so data that it does not export to its bucket is lost when it fails or is deleted.
    A persistent file system that does not export all data is retained."""
    for path, entry, kind in _lustre(spec):
        if not entry.bucket or exports_everything(entry):
            continue
        field = "bucket_path" if entry.bucket_path != "/" else "export_events"
        hint = "export NEW, CHANGED and DELETED at / to keep all data in the bucket"
        if kind.startswith("persistent"):
            what = "does not export everything to the bucket, so destroy retains the file system, which is billed until you delete it"
            yield info(f"{path}.{field}", what, hint)
        else:
            what = f"does not export everything to the bucket, and {kind} is deleted with the stack, so files that are not exported are lost"
            yield warn(f"{path}.{field}", what, hint)


def lustre_version_is_supported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """persistent_2 requires Lustre 2.12 or later."""
    for path, entry, kind in _lustre(spec):
        if entry.version == "2.10" and kind == "persistent_2":
            yield error(f"{path}.version", "is 2.10, which persistent_2 does not support", "use 2.15")


def bucket_name_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Bucket names follow the naming rules for general purpose buckets. Directory buckets and access points require other permissions."""
    names = [(f"storage[{i}].bucket", entry.bucket) for i, entry in enumerate(spec.storage) if entry.kind != "home"]
    for path, name in [*names, ("audit.bucket", spec.audit.bucket)]:
        if not name or name == "auto":
            continue
        if name.endswith(_OTHER_BUCKETS):
            what = f"is {shown(name)}, which is a directory bucket or an access point"
            yield error(path, what, "use the name of a general purpose bucket")
        elif not _BUCKET.fullmatch(name):
            what = "is not a bucket name; allowed: 3 to 63 lower-case letters, digits, dots and hyphens"
            yield error(path, what, "use the name without s3:// and without a folder")


RULES = rules_in(vars())
