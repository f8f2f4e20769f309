"""AWS: what FSx for Lustre can be bought as."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpuinfra.clouds.aws.profile import EFA_STEP_GIB, PROFILE, TIERS
from gpuinfra.clouds.machines import machines_of
from gpuinfra.findings import Finding, error, info, warn
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.storage import Lustre

METADATA_IOPS = (1500, 3000, 6000, 12000, *range(24000, 192001, 12000))


def _lustre(spec: ClusterSpec) -> Iterator[tuple[str, Lustre, str]]:
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre):
            yield f"storage[{i}]", entry, entry.deployment or "persistent_2"


def _nearest(known: tuple[int, ...], wanted: int) -> int:
    return min(known, key=lambda one: abs(one - wanted))


def lustre_tier_is_sold(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Throughput is one of the tiers of the deployment type."""
    for path, entry, kind in _lustre(spec):
        tier = entry.throughput_mb_s_per_tib
        if tier is None or tier in TIERS[kind]:
            continue
        if not TIERS[kind]:
            what = f"is {tier}, but {kind} has a fixed throughput"
            yield error(lustre_tier_is_sold, f"{path}.throughput_mb_s_per_tib", what, "take it out")
        else:
            near = _nearest(TIERS[kind], tier)
            what = f"is {tier}; {kind} has {listed([str(t) for t in TIERS[kind]])}"
            yield error(lustre_tier_is_sold, f"{path}.throughput_mb_s_per_tib", what, f"take {near}")


def lustre_size_is_sold(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Capacity that is not sold is rounded up, and said so."""
    for path, entry, _ in _lustre(spec):
        if entry.fabric and (entry.throughput_mb_s_per_tib or 250) not in EFA_STEP_GIB:
            continue
        bought = PROFILE.lustre(entry)
        if bought.sold != bought.asked:
            what = f"is {bought.asked}, and {bought.sold} is bought: {bought.why}"
            yield info(lustre_size_is_sold, f"{path}.capacity_gib", what, f"write {bought.sold} to say it yourself")


def lustre_fabric_is_possible(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """EFA to the file system needs persistent_2, and clients on Nitro v4 or later."""
    machines = machines_of(spec)
    for path, entry, kind in _lustre(spec):
        if not entry.fabric:
            continue
        if kind != "persistent_2":
            yield error(
                lustre_fabric_is_possible, f"{path}.fabric", f"is true, but {kind} has no EFA", "take persistent_2"
            )
        for i, pool in enumerate(spec.pools):
            machine = machines.get(pool.machine)
            if machine and machine.gpu and machine.hypervisor in ("nitro-v3", "nitro-v2"):
                what = f"is true, but {machine.name} of pools[{i}] is {machine.hypervisor.replace('-', ' ')}, and EFA to FSx needs v4"
                yield error(lustre_fabric_is_possible, f"{path}.fabric", what, "take it out: those nodes use TCP")
                break


def lustre_is_near(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The file system is in its clients' zone."""
    for path, entry, _ in _lustre(spec):
        zone = entry.zone or spec.where.zone
        for i, pool in enumerate(spec.pools):
            other = pool.zone or spec.where.zone
            if zone and other and zone != other:
                say = error if entry.fabric else warn
                why = "EFA does not cross zones" if entry.fabric else "traffic between zones is slower and billed"
                yield say(
                    lustre_is_near,
                    f"{path}.zone",
                    f"is {zone}, but pools[{i}] is in {other}: {why}",
                    f"put it in {other}",
                )


def lustre_metadata_is_sold(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Metadata operations are one of the amounts that FSx sells, with persistent_2."""
    for path, entry, kind in _lustre(spec):
        iops = entry.metadata_iops
        if iops is None:
            continue
        if kind != "persistent_2":
            what = f"is {iops}, but {kind} has no metadata configuration"
            yield error(lustre_metadata_is_sold, f"{path}.metadata_iops", what, "take it out")
        elif iops not in METADATA_IOPS:
            near = _nearest(METADATA_IOPS, iops)
            what = f"is {iops}; allowed are 1500, 3000, 6000, 12000 and multiples of 12000 up to 192000"
            yield error(lustre_metadata_is_sold, f"{path}.metadata_iops", what, f"take {near}")


def lustre_backup_is_possible(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Backups need a persistent file system without a link to a bucket."""
    for path, entry, kind in _lustre(spec):
        if not entry.backup_days:
            continue
        if not kind.startswith("persistent"):
            what = f"is {entry.backup_days}, but {kind} has no backups"
            yield error(lustre_backup_is_possible, f"{path}.backup_days", what, "take persistent_2")
        elif entry.bucket:
            what = f"is {entry.backup_days}, but a file system that is linked to a bucket has no backups"
            yield error(
                lustre_backup_is_possible, f"{path}.backup_days", what, "the bucket keeps the data: take it out"
            )


def lustre_link_is_possible(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A link to a bucket needs Lustre 2.12 or newer, and not scratch_1; events are said once each."""
    for path, entry, kind in _lustre(spec):
        if not entry.bucket:
            if entry.bucket_prefix:
                what = "is given, but there is no bucket"
                yield error(lustre_link_is_possible, f"{path}.bucket_prefix", what, "add bucket, or take it out")
            continue
        if kind == "scratch_1":
            yield error(
                lustre_link_is_possible,
                f"{path}.bucket",
                "is given, but scratch_1 has no link of this kind",
                "take scratch_2",
            )
        if entry.version == "2.10":
            yield error(
                lustre_link_is_possible, f"{path}.version", "is 2.10; a link to a bucket needs 2.12", "take 2.15"
            )
        for name, events in (("import_events", entry.import_events), ("export_events", entry.export_events)):
            if len(set(events)) != len(events):
                yield error(lustre_link_is_possible, f"{path}.{name}", "names an event twice", "say each once")


def lustre_version_is_possible(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Lustre 2.10 does not go with persistent_2."""
    for path, entry, kind in _lustre(spec):
        if entry.version == "2.10" and kind == "persistent_2":
            yield error(
                lustre_version_is_possible, f"{path}.version", "is 2.10, which persistent_2 refuses", "take 2.15"
            )


def bucket_name_is_possible(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Buckets have names that S3 takes."""
    import re

    form = re.compile(r"(?!xn--)(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
    names = [(f"storage[{i}].bucket", entry.bucket) for i, entry in enumerate(spec.storage) if entry.kind != "home"]
    for path, name in [*names, ("audit.bucket", spec.audit.bucket)]:
        if name and name != "auto" and not form.fullmatch(name):
            what = "is no name of a bucket: 3 to 63 lower-case letters, digits, dots and dashes"
            yield error(bucket_name_is_possible, path, what, "write its name alone, without s3://")


RULES = (
    lustre_tier_is_sold,
    lustre_size_is_sold,
    lustre_fabric_is_possible,
    lustre_is_near,
    lustre_metadata_is_sold,
    lustre_backup_is_possible,
    lustre_link_is_possible,
    lustre_version_is_possible,
    bucket_name_is_possible,
)
