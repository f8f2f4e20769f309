"""Calculates how old the newest checkpoint in the second region can be, and how long a failover takes.

The calculation adds the times of all steps, including steps that can overlap. The sum is not an upper limit: the rates are maximum rates,
the service replicates only a share of the objects in time, and the duration of some steps is unknown. The plan lists these steps.
`Replication` contains the figures that differ between clouds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpuinfra.plan.model import FileSystemPlan, Image, PoolPlan
from gpuinfra.plan.recovery_model import (
    HomeReplica,
    MountName,
    NamesPlan,
    RecoveryCommand,
    RecoveryImage,
    RecoveryPart,
    RecoveryPlan,
    RecoveryTarget,
    Replica,
)
from gpuinfra.plan.storage import created
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.recovery import Recovery

MB_PER_GIB = 2**30 / 1e6
MINUTES_PER_MONTH = 730 * 60
FAILOVER = ("the decision to fail over", "stopping the replication before the second region writes")
"""Steps of a failover that have an unknown duration on every cloud."""
CAPACITY_MINUTES = 10.0
"""Assumed time until a cloud provides instances that it has. A shortage lasts minutes to days (`gpuinfra failover --keep-trying`)."""
GRACE_MINUTES = 5
"""Default of `gpuinfra failover --grace`."""
FENCE_MINUTES = 5.0
"""Assumed time until the terminated nodes of a group are gone."""
LOGIN = "login"
"""First label of the name of the nodes."""
FOUNDATION = "creating the foundation in the second region, if recovery.site_minutes does not include it"


@dataclass(frozen=True, kw_only=True)
class Commitment:
    """The time in which a service replicates objects."""

    lag_minutes: int
    """Maximum time that the service needs to replicate an object."""
    share: str
    """Share of the objects to which `lag_minutes` applies. A checkpoint with many files is complete only when its last file is replicated."""
    rate_gbps: float
    """Replication rate in Gbit/s up to which `lag_minutes` applies, as the default quota. Above this rate, the service does not guarantee a lag."""


@dataclass(frozen=True, kw_only=True)
class Replication:
    """How a cloud replicates buckets between regions."""

    service: str
    commitment: Commitment | None
    """None if the service does not commit to a time. `recovery.replication_minutes` is then required."""
    has_fee: bool
    """Whether the service has a price in addition to the transfer between the regions."""
    replicates_deletions: bool
    """If false, the second region keeps each object that is deleted in the first region."""
    manual_exports: bool
    """Whether a file system exports files to its bucket only on request. Its replica then contains only exported data."""
    retained_days: int
    """Time for which both buckets retain a replaced object, and a deleted object if deletions are replicated."""
    control_regions: Mapping[str, str]
    """Maps the region of each control plane that serves all regions to the resources that cannot be created or changed in any region without it."""
    not_in_rto: tuple[str, ...]
    """Steps of a failover that have an unknown duration on this cloud."""
    not_in_rpo: tuple[str, ...]
    """Steps with an unknown duration before a checkpoint is in the second region."""
    source: str
    geography: Callable[[str], str]
    """Function that returns the cloud partition of a region. Data cannot be replicated between partitions."""
    commands: Callable[[str, str, tuple[PoolPlan, ...]], tuple[RecoveryCommand, ...]]
    """Function that returns the commands that you run yourself, given the region, the second region, and the pools."""
    image: Callable[[Image, str, str], RecoveryImage]
    """Function that returns how the second region gets an image, given the image, the region, and the second region."""
    needs_key: bool = False
    """Whether the replication of an existing bucket requires the name of its key."""
    home_services: tuple[str, ...] = ()
    """Services whose home directories `RegionClone` replicates with the service itself."""
    no_image_copies: str = ""
    """Why `RegionClone` copies no images on this cloud. Empty if it does."""


def with_replication(spec: ClusterSpec, file_system: FileSystemPlan) -> FileSystemPlan:
    """Return a file system or mount with the information whether `recovery` replicates its existing bucket."""
    existing = file_system.bucket not in (None, "auto") and not (file_system.kind == "object" and file_system.read_only)
    if not existing or spec.recovery is None or not spec.recovery.existing_buckets:
        return file_system
    return replace(file_system, replicated=True)


def replicated(file_systems: Iterable[FileSystemPlan]) -> tuple[FileSystemPlan, ...]:
    """Return the file systems and mounts whose bucket this stack creates, or which `recovery.existing_buckets` covers."""
    return tuple(one for one in file_systems if one.bucket == "auto" or one.replicated)


def exported(file_systems: Iterable[FileSystemPlan]) -> tuple[FileSystemPlan, ...]:
    """Return the file systems that export checkpoints to a replicated bucket. The throughput of a mounted bucket is unknown."""
    return tuple(one for one in replicated(file_systems) if one.kind != "object")


def throughput_mb_s(file_systems: Iterable[FileSystemPlan]) -> float | None:
    """Return the throughput of the slowest file system that exports checkpoints, or None if a throughput is unknown."""
    rates = [
        one.capacity_gib / 1024 * one.throughput_mb_s_per_tib if one.throughput_mb_s_per_tib else None
        for one in exported(file_systems)
    ]
    rates_known = [rate for rate in rates if rate is not None]
    return min(rates_known) if rates_known and len(rates_known) == len(rates) else None


def recovery_point(
    recovery: Recovery, replication: Replication, file_systems: Iterable[FileSystemPlan]
) -> RecoveryTarget:
    """Return the maximum age of the newest checkpoint in the second region: its age just before the next checkpoint arrives."""
    file_systems = tuple(file_systems)
    rate = throughput_mb_s(file_systems)
    size = recovery.checkpoint_gib * MB_PER_GIB
    export = recovery.export_mb_s or rate
    parts = [
        RecoveryPart(
            what="work since the last checkpoint",
            minutes=recovery.checkpoint_minutes,
            how="recovery.checkpoint_minutes",
        )
    ]
    if rate:
        parts.append(_copy("write the checkpoint to the file system", size, rate, "throughput of the file system"))
    intervals = [one.export_minutes for one in exported(file_systems)]
    scheduled = [one for one in intervals if one is not None]
    is_scheduled = bool(scheduled) and len(scheduled) == len(intervals)
    if is_scheduled:
        how = "export_minutes of the file system"
        parts.append(RecoveryPart(what="wait for the next scheduled export", minutes=float(max(scheduled)), how=how))
    if export:
        why = "recovery.export_mb_s" if recovery.export_mb_s else "throughput of the file system, the upper limit"
        parts.append(_copy("export it to the bucket", size, export, why))
    part, busy = _replicate(recovery, replication, size, export or 0)
    parts.append(part)
    keeps_up = busy <= recovery.checkpoint_minutes
    if not keeps_up:
        parts.append(
            RecoveryPart(
                what="backlog",
                minutes=0.0,
                how=f"a checkpoint takes longer to replicate than the {recovery.checkpoint_minutes} minutes until the next one, "
                "so the lag can grow without limit",
            )
        )
    possible = keeps_up and bool(rate) and bool(export)
    return _target(
        recovery.rpo_minutes, parts, possible=possible, excluded=() if is_scheduled else replication.not_in_rpo
    )


def _replicate(
    recovery: Recovery, replication: Replication, size_mb: float, export_mb_s: float
) -> tuple[RecoveryPart, float]:
    """Return the step that replicates a checkpoint, and the minutes for which it occupies the service."""
    what, commitment = "replicate it to the second region", replication.commitment
    if commitment is None:
        minutes = float(recovery.replication_minutes or 0)
        how = f"recovery.replication_minutes, as measured, because {replication.service} does not commit to a time"
        return RecoveryPart(what=what, minutes=minutes, how=how), minutes
    gbps = recovery.replication_gbps or commitment.rate_gbps
    transfer = size_mb * 8 / 1000 / gbps / 60
    export_gbps = export_mb_s * 8 / 1000
    quota = "recovery.replication_gbps" if recovery.replication_gbps else "the default quota"
    how = f"{replication.service}: {commitment.share} of objects, each individually, within {commitment.lag_minutes} minutes up to {gbps:g} Gbit/s ({quota})"
    if export_gbps <= gbps:
        return RecoveryPart(what=what, minutes=float(commitment.lag_minutes), how=how), transfer
    at = (
        f"the export at {export_gbps:,.1f} Gbit/s exceeds this rate, so the cloud does not guarantee a time; "
        f"{size_mb / 1000:,.1f} GB at {gbps:g} Gbit/s takes {transfer:,.1f} minutes"
    )
    return RecoveryPart(what=what, minutes=commitment.lag_minutes + transfer, how=f"{how}; {at}"), transfer


@dataclass(frozen=True, kw_only=True)
class MeasuredTimes:
    """What a live drill measured. None if a part did not run. Its nodes are cheaper than those of the cluster, so the times are lower bounds."""

    day: str
    site_minutes: float | None = None
    nodes_minutes: float | None = None
    read_mb_s: float | None = None


def _longer(part: RecoveryPart, minutes: float | None, measured: MeasuredTimes | None) -> RecoveryPart:
    """Return the part with the measured time if it is longer than the planned time."""
    if measured is None or minutes is None or minutes <= part.minutes:
        return part
    return replace(part, minutes=minutes, how=f"measured by the drill of {measured.day}", assumed=False)


def recovery_time(
    recovery: Recovery,
    replication: Replication,
    file_systems: Iterable[FileSystemPlan],
    deadline_minutes: int,
    measured: MeasuredTimes | None = None,
) -> RecoveryTarget:
    """Return the time from the start of the failover until the checkpoint is read on verified nodes.

    A measured time replaces a planned time that is shorter, and the measured rate applies if that of the file systems is unknown.
    """
    excluded = (*FAILOVER, *([FOUNDATION] if recovery.mode == "cold" else []), *replication.not_in_rto)
    rate = throughput_mb_s(file_systems)
    parts = []
    if recovery.mode == "cold":
        site = RecoveryPart(
            what="create the network and file systems",
            minutes=float(recovery.site_minutes or 0),
            how="recovery.site_minutes",
        )
        parts.append(_longer(site, measured and measured.site_minutes, measured))
    if recovery.mode != "hot":
        parts.append(
            RecoveryPart(
                what="obtain the capacity",
                minutes=CAPACITY_MINUTES,
                how="capacity is available in the second region; reserve it, because a shortage can last days",
                assumed=True,
            )
        )
        nodes = RecoveryPart(
            what="start and verify the nodes",
            minutes=float(deadline_minutes),
            how="handover.deadline_minutes, the maximum that `up` waits",
        )
        parts.append(_longer(nodes, measured and measured.nodes_minutes, measured))
    parts += _stopping(recovery, replication, rate)
    read = rate or (measured and measured.read_mb_s)
    if read:
        why = "throughput of an identical file system, the upper limit" if rate else "measured by a node of the drill"
        parts.append(_copy("read the checkpoint from the replica", recovery.checkpoint_gib * MB_PER_GIB, read, why))
    return _target(recovery.rto_minutes, parts, possible=bool(read), excluded=excluded)


def _stopping(recovery: Recovery, replication: Replication, rate: float | None) -> list[RecoveryPart]:
    """Return the steps that stop the first region and move the newest data. A region that does not respond is not waited for."""
    size = recovery.checkpoint_gib * MB_PER_GIB
    grace = f"the default of `gpuinfra failover --grace`, {GRACE_MINUTES} minutes"
    parts = [
        RecoveryPart(what="stop the jobs", minutes=float(GRACE_MINUTES), how=grace, assumed=True),
        RecoveryPart(what="fence: end the nodes of the first region", minutes=FENCE_MINUTES, how="time until terminated nodes are gone", assumed=True),
    ]  # fmt: skip
    if export := recovery.export_mb_s or rate:
        why = "recovery.export_mb_s" if recovery.export_mb_s else "throughput of the file system, the upper limit"
        parts.append(_copy("export the last checkpoint", size, export, why))
    drain, _ = _replicate(recovery, replication, size, export or 0)
    parts.append(replace(drain, what="drain: replicate the last checkpoint"))
    return parts


def recovery_plan(
    spec: ClusterSpec, replication: Replication, file_systems: tuple[FileSystemPlan, ...], pools: tuple[PoolPlan, ...]
) -> RecoveryPlan | None:
    """Return the plan of the second region, or None if the declaration has none."""
    recovery = spec.recovery
    if recovery is None:
        return None
    size = recovery.checkpoint_gib * MB_PER_GIB
    commitment = replication.commitment
    lag_minutes = commitment.lag_minutes if commitment else recovery.replication_minutes or 0
    images = tuple(_images(recovery, replication, spec.where.region, pools))
    copies = (RecoveryCommand(why=one.why, command=one.command) for one in images if one.command and not one.copied)
    return RecoveryPlan(
        region=recovery.region,
        mode=recovery.mode,
        replicas=(
            Replica(name="evidence"),
            *(Replica(name=one.name) for one in replicated(file_systems)),
        ),
        alert_after_s=lag_minutes * 60,
        recipients=tuple(sorted(spec.budget.recipients)),
        rpo=recovery_point(recovery, replication, file_systems),
        rto=recovery_time(recovery, replication, file_systems, spec.handover.deadline_minutes),
        checkpoint_gb_per_month=round(size / 1000 * MINUTES_PER_MONTH / recovery.checkpoint_minutes, 1),
        commands=(*replication.commands(spec.where.region, recovery.region, pools), *copies),
        images=images,
        homes=tuple(
            HomeReplica(name=one.name, mount=one.mount)
            for one in (file_systems if recovery.homes else ())
            if one.service in replication.home_services and not one.replica
        ),
        checkpoints=recovery.checkpoints,
        names=names_plan(spec),
        existing_key_arn=recovery.existing_key_arn,
    )


def image_by_id(image: Image, *, why: str, command: str, otherwise: str) -> RecoveryImage:
    """Return how the second region gets an image on a cloud where an image that is selected by its ID exists in one region only.

    `why` and `command` are about such an image, and `otherwise` is the reason why no other image needs a copy.
    """
    if image.source != "id":
        return RecoveryImage(ref=image.ref, regional=False, why=otherwise)
    return RecoveryImage(ref=image.ref, regional=True, why=why, command=command)


def _images(
    recovery: Recovery, replication: Replication, region: str, pools: Iterable[PoolPlan]
) -> Iterator[RecoveryImage]:
    """Yield each image of the nodes once, in the order of the pools."""
    for image in {pool.image.ref: pool.image for pool in pools}.values():
        image_plan = replication.image(image, region, recovery.region)
        copied = image_plan.regional and recovery.copy_images and not replication.no_image_copies
        yield replace(image_plan, copied=copied)


def names_plan(spec: ClusterSpec) -> NamesPlan | None:
    """Return the DNS names of the nodes and the file systems, or None if the declaration has none.

    A mounted bucket has no name, because its nodes read it through the endpoint of its service.
    """
    names = spec.recovery.names if spec.recovery else None
    if names is None:
        return None
    return NamesPlan(
        zone=names.zone,
        domain=names.domain,
        login=f"{LOGIN}.{names.domain}",
        mounts=tuple(
            MountName(mount=entry.mount, host=f"{name.removesuffix('-0')}.{names.domain}")
            for name, entry in created(spec.storage)
            if entry.kind != "object"
        ),
    )


def _copy(what: str, size_mb: float, rate_mb_s: float, why: str) -> RecoveryPart:
    minutes = size_mb / rate_mb_s / 60
    return RecoveryPart(
        what=what, minutes=round(minutes, 2), how=f"{size_mb / 1000:,.1f} GB at {rate_mb_s:,.0f} MB/s ({why})"
    )


def _target(
    declared: int, parts: list[RecoveryPart], *, possible: bool, excluded: tuple[str, ...] = ()
) -> RecoveryTarget:
    parts = [replace(one, minutes=round(one.minutes, 2)) for one in parts]
    total = round(sum(one.minutes for one in parts), 2)
    return RecoveryTarget(
        declared_minutes=declared,
        minutes=total,
        holds=possible and total <= declared,
        parts=tuple(parts),
        excluded=excluded,
    )
