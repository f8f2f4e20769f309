"""Rules about the second region: it supports the cluster, all data is replicated to it, and the recovery targets are met."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.checkpoints import pattern_problem
from gpuinfra.plan.machines import pools_of, zoning_of
from gpuinfra.plan.model import FileSystemPlan, Lifetime
from gpuinfra.plan.profile import profile_of
from gpuinfra.plan.recovery import (
    Replication,
    exported,
    names_plan,
    recovery_point,
    recovery_time,
    throughput_mb_s,
    with_replication,
)
from gpuinfra.plan.recovery_model import RecoveryTarget
from gpuinfra.plan.storage import created, existing_of
from gpuinfra.spec.homes import SERVICE_SETTINGS
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.recovery import Recovery
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown

LABEL = 63
"""Maximum length of a label of a domain name (RFC 1035, section 2.3.4)."""


def _declared(spec: ClusterSpec) -> tuple[Recovery, Replication] | None:
    """Return the recovery targets and the cloud's replication, or None if a different rule rejects the declaration."""
    cloud = profile_of(spec.cloud)
    if spec.recovery is None or cloud.replication is None or not cloud.is_region(spec.where.region):
        return None
    return spec.recovery, cloud.replication


def _file_systems(spec: ClusterSpec) -> tuple[FileSystemPlan, ...]:
    cloud, zone = profile_of(spec.cloud), zoning_of(spec).default
    return tuple(
        with_replication(spec, cloud.file_system(entry, name, zone, spec.where.region))
        for name, entry in created(spec.storage)
    )


def recovery_is_supported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The cloud has components for a second region."""
    cloud = profile_of(spec.cloud)
    if spec.recovery is not None and cloud.replication is None:
        what = f"is set, but gpuinfra does not create resources in a second region on {cloud.title} yet"
        yield error("recovery", what, "remove it")


def recovery_layers_are_created(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The stack creates the foundation and the site, because both contain buckets that are replicated."""
    missing = [layer for layer in ("foundation", "site") if layer not in spec.made_layers]
    if _declared(spec) and missing:
        what = f"is set, but this stack does not create the {' and the '.join(missing)}, which contain the buckets to replicate"
        yield error("recovery", what, "set it in a stack that creates both layers, or use RegionClone in a program")


def recovery_region_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The second region exists, differs from the first region, and can receive replicated data."""
    if not (declared := _declared(spec)):
        return
    recovery, replication = declared
    cloud, first = profile_of(spec.cloud), spec.where.region
    same = [one for one in cloud.regions if one != first and replication.geography(one) == replication.geography(first)]
    if recovery.region == first:
        yield error("recovery.region", f"is {first}, which is where.region", "use a different region")
    elif cloud.is_region(recovery.region) and replication.geography(recovery.region) != replication.geography(first):
        what = (
            f"is {recovery.region} in {replication.geography(recovery.region)}, but where.region {first} is in "
            f"{replication.geography(first)}, and data cannot be replicated between them"
        )
        yield error("recovery.region", what, f"allowed: {listed(same, 40)}")
    else:
        yield from cloud.region_findings("recovery.region", recovery.region)


def recovery_region_offers_machines(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The catalog lists the machine types of all pools in the second region."""
    if not (declared := _declared(spec)) or declared[0].region not in profile_of(spec.cloud).regions:
        return
    region = declared[0].region
    for path, _, machine in pools_of(spec):
        if machine.zones and region not in machine.zones and region != spec.where.region:
            what = f"is {region}, where the catalog does not list {machine.name} ({path}); listed regions: {listed(sorted(machine.zones))}"
            yield warn(
                "recovery.region", what, "check that the region offers the machine type, or use a different region"
            )


def recovery_covers_all_data(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each file system exports all its data to a replicated bucket. Scratch data and mounted buckets that the stack does not create are not replicated."""
    if not (declared := _declared(spec)):
        return
    plans = {one.name: one for one in _file_systems(spec)}
    # `created` yields the entries in the order of their mounts.
    names = {id(entry): name for name, entry in created(spec.storage)}
    for index, entry in enumerate(spec.storage):
        path = f"storage[{index}]"
        if existing_of(entry):
            what = "is not replicated, because this stack does not manage the file system"
            yield warn(f"{path}.existing", what, "replicate its files yourself, and do not write checkpoints to it")
            continue
        plan = plans[names[id(entry)]]
        if entry.kind == "home":
            can = plan.service in declared[1].home_services and not plan.replica
            if not can or not declared[0].homes:
                hint = "set recovery.homes: true" if can else "back up the files"
                yield warn(path, "is not replicated, so its files do not reach the second region", hint)
        elif entry.kind == "object":
            if plan.bucket != "auto" and not plan.replicated:
                what = f"is {shown(entry.bucket)}, which this stack does not create and does not replicate"
                yield warn(f"{path}.bucket", what, "replicate the bucket yourself, or use bucket: auto")
        elif plan.bucket is None and plan.lifetime is Lifetime.ENDS:
            yield info(path, f"is not replicated: {plan.lifetime_reason}", "add bucket: auto to replicate it")
        elif plan.bucket is None:
            what = "has no bucket, so its data does not reach the second region"
            yield error(path, what, "add bucket: auto")
        elif plan.bucket != "auto" and not plan.replicated:
            what = (
                f"is {shown(plan.bucket)}, which this stack does not create, so its replication can have another owner"
            )
            hint = "set recovery.existing_buckets if nothing else replicates the bucket, use bucket: auto, or replicate the bucket yourself and remove recovery"
            yield error(f"{path}.bucket", what, hint)
        elif declared[1].manual_exports and plan.export_minutes is None:
            what = "exports data only on request, so a checkpoint reaches the second region only after an export"
            yield warn(
                path,
                what,
                "set export_minutes, or start an export after each checkpoint with the command in the stack output export_commands",
            )
        elif plan.lifetime is Lifetime.KEPT and not declared[1].manual_exports:
            what = f"is only partly replicated: {plan.lifetime_reason}"
            yield error(path, what, "export all files and events, which is the default")
    # An error about a file system without a bucket is reported above.
    if not any(
        entry.kind == "lustre" and (plans[name].lifetime is Lifetime.KEPT or plans[name].bucket)
        for name, entry in created(spec.storage)
    ):
        yield error(
            "recovery",
            "is set, but no file system exports to a bucket",
            "add a file system of kind lustre with bucket: auto",
        )


def recovery_existing_buckets_are_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`existing_buckets` is set only if there is such a bucket, and its key is declared if and only if the cloud needs it."""
    if not (declared := _declared(spec)):
        return
    recovery, replication = declared
    path = "recovery.existing_key_arn"
    if recovery.existing_buckets and not any(one.replicated for one in _file_systems(spec)):
        yield error("recovery.existing_buckets", "is true, but no file system uses an existing bucket", "remove it")
    elif recovery.existing_buckets and replication.needs_key and recovery.existing_key_arn is None:
        yield error(
            path, "is missing, but the replication must decrypt the existing buckets", "set the ARN of their KMS key"
        )
    elif recovery.existing_key_arn is not None and not (recovery.existing_buckets and replication.needs_key):
        yield error(path, "is set, but the replication needs no key of an existing bucket", "remove it")


def recovery_rate_is_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The throughput of the file systems is known, so that the recovery targets can be calculated."""
    if _declared(spec) and exported(plans := _file_systems(spec)) and throughput_mb_s(plans) is None:
        what = "has targets that cannot be calculated, because the throughput of a file system depends on its use"
        yield error("recovery", what, "set throughput_mb_s_per_tib for each file system that has bucket: auto")


def recovery_site_time_is_declared(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`site_minutes` is set if and only if the site is created during a failover."""
    if not (declared := _declared(spec)):
        return
    recovery, path = declared[0], "recovery.site_minutes"
    if recovery.mode == "cold" and recovery.site_minutes is None:
        yield error(path, "is missing, but recovery.mode is cold", "set the measured time to create the site")
    elif recovery.mode != "cold" and recovery.site_minutes is not None:
        what = f"is {recovery.site_minutes}, but with mode {recovery.mode} the site exists before the failover"
        yield error(path, what, "remove it")


def recovery_site_time_covers_file_systems(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`site_minutes` is not shorter than the published time to create a file system."""
    if not (declared := _declared(spec)) or declared[0].site_minutes is None:
        return
    if not any(entry.kind == "lustre" for _, entry in created(spec.storage)):
        return
    timing = cloud_of(spec.cloud).timing
    duration = timing.durations.get(timing.lustre.type) if timing else None
    if duration and duration.seconds and declared[0].site_minutes * 60 < duration.seconds:
        what = f"is {declared[0].site_minutes}, but a file system alone takes {duration.seconds / 60:g} minutes: {duration.source}"
        yield warn("recovery.site_minutes", what, "set the measured time to create the site")


def recovery_replication_time_is_declared(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`replication_minutes` is set if and only if the service does not commit to a time. Otherwise `replication_gbps` can be set."""
    if not (declared := _declared(spec)):
        return
    recovery, replication = declared
    path, commitment = "recovery.replication_minutes", replication.commitment
    if commitment is None and recovery.replication_minutes is None:
        what = f"is missing, but {replication.service} does not commit to a replication time"
        yield error(path, what, "set the measured time until all objects of a checkpoint are in the second region")
    if commitment is None and recovery.replication_gbps is not None:
        what = f"is {recovery.replication_gbps:g}, but {replication.service} does not guarantee a rate"
        yield error("recovery.replication_gbps", what, "remove it, and set replication_minutes")
    if commitment is not None and recovery.replication_minutes is not None:
        what = (
            f"is {recovery.replication_minutes}, but {replication.service} commits to {commitment.lag_minutes} minutes"
        )
        yield error(path, what, "remove it; if your account has a higher rate, set replication_gbps")


def recovery_targets_hold(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The calculated times are within the recovery targets. The finding shows the calculation."""
    if not (declared := _declared(spec)):
        return
    recovery, replication = declared
    plans = _file_systems(spec)
    if throughput_mb_s(plans) is None or (recovery.mode == "cold" and recovery.site_minutes is None):
        return
    if replication.commitment is None and recovery.replication_minutes is None:
        return
    targets = {
        "recovery.rpo_minutes": (recovery_point(recovery, replication, plans), "the newest checkpoint in the second region can be", "minutes old"),
        "recovery.rto_minutes": (recovery_time(recovery, replication, plans, spec.handover.deadline_minutes), "a failover can take", "minutes"),
    }  # fmt: skip
    for path, (target, words, unit) in targets.items():
        if not target.holds:
            what = f"is {target.declared_minutes}, but {words} {target.minutes:g} {unit}: {_sum(target)}"
            yield warn(path, what, "increase the target, or shorten the longest step")


def recovery_needs_no_failed_control_plane(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A failover does not create resources that require a control plane in the failed region.
    In mode `pilot-light`, the base stack of a clone contains these resources."""
    if not (declared := _declared(spec)) or declared[0].mode != "cold":
        return
    recovery, replication = declared
    region = spec.where.region
    if lost := replication.control_regions.get(region):
        what = f"is {recovery.mode}, so a failover creates {lost}, but if {region} fails, you cannot create or change them in any region"
        yield warn("recovery.mode", what, "use a different where.region, or mode: pilot-light or hot")


def recovery_image_copies_are_needed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`copy_images` is set only if a pool of the stack selects an image that exists in one region, and the cloud's component copies images."""
    if not (declared := _declared(spec)) or not declared[0].copy_images:
        return
    recovery, replication = declared
    cloud, path = profile_of(spec.cloud), "recovery.copy_images"
    pools = list(pools_of(spec))
    images = (cloud.image(spec, pool, machine)[0] for _, pool, machine in pools)
    if replication.no_image_copies:
        yield error(
            path, f"is true, but gpuinfra copies images on AWS only: {replication.no_image_copies}", "remove it"
        )
    elif len(pools) == len(spec.pools) and not any(
        replication.image(one, spec.where.region, recovery.region).regional for one in images
    ):
        what = f"is true, but no pool of this stack selects an image that exists in {spec.where.region} only"
        yield error(path, what, "remove it, or select an image by its ID with image.ref")


def recovery_homes_are_replicated_by_their_service(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`homes` is set only if a service replicates home directories that the stack creates."""
    if not (declared := _declared(spec)) or not declared[0].homes:
        return
    path, services = "recovery.homes", declared[1].home_services
    if not services:
        what = f"is true, but gpuinfra replicates no home directories on {profile_of(spec.cloud).title}"
        yield error(path, what, "remove it, and back up the files")
    elif not any(one.service in services and not one.replica for one in _file_systems(spec)):
        what = f"is true, but this stack creates no home directories on {listed([SERVICE_SETTINGS[one].title for one in services])}"
        yield error(path, what, "remove it, or add a file system of kind home")


def recovery_checkpoints_are_objects(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The pattern of the checkpoints names objects."""
    pattern = spec.recovery.checkpoints if spec.recovery else None
    if pattern is not None and (problem := pattern_problem(pattern)):
        yield error(
            "recovery.checkpoints",
            f"is {shown(pattern)}, which {problem}",
            "set the name of the object that completes a checkpoint, such as runs/*/step-*/COMPLETE",
        )


def recovery_names_are_supported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The zone of the names that move to the second region is a zone of the cloud."""
    names = spec.recovery.names if spec.recovery else None
    if names is None:
        return
    dns = cloud_of(spec.cloud).dns
    if dns is None:
        what = f"is set, but gpuinfra does not move DNS names on {profile_of(spec.cloud).title}"
        yield error("recovery.names", what, "remove it, and change your DNS records yourself after a failover")
    elif not re.fullmatch(dns.ZONE.pattern, names.zone):
        yield error(
            "recovery.names.zone",
            f"is {shown(names.zone)}; expected: {dns.ZONE.what}",
            "set the ID of an existing zone",
        )


def recovery_names_are_unique(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The nodes and each file system have a valid name of their own."""
    names = names_plan(spec)
    if names is None or not _declared(spec):
        return
    seen = {names.login: "the nodes"}
    for index, entry in enumerate(spec.storage):
        for mount in names.mounts:
            if mount.mount != entry.mount:
                continue
            if other := seen.get(mount.host):
                what = f"is {shown(entry.mount)}, whose DNS name {mount.host} is the name of {other}"
                yield error(f"storage[{index}].mount", what, "use a different mount, or remove recovery.names")
            elif len(mount.host.partition(".")[0]) > LABEL:
                what = f"is {shown(entry.mount)}, whose DNS name {mount.host} has a label with more than {LABEL} characters"
                yield error(f"storage[{index}].mount", what, "use a shorter mount, or remove recovery.names")
            seen[mount.host] = entry.mount


def recovery_names_can_move(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The control plane of the DNS records is not in the region that fails."""
    if not (declared := _declared(spec)) or declared[0].names is None:
        return
    region = spec.where.region
    dns = cloud_of(spec.cloud).dns
    if dns and dns.control_plane(region) == region:
        what = (
            f"is set, but where.region is {region}, and DNS records cannot be changed while {region} does not respond; "
            "`gpuinfra failover --resume` moves the names later"
        )
        yield warn("recovery.names", what, "use a different where.region")


def recovery_audit_covers_region(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The audit trail records the second region. A trail that gpuinfra creates records all regions."""
    if _declared(spec) and spec.audit.trail == "existing":
        what = "is existing, so gpuinfra does not know whether it records recovery.region"
        yield info("audit.trail", what, "check that the trail records all regions")


def _sum(target: RecoveryTarget) -> str:
    return " + ".join(f"{one.minutes:g} ({one.what})" for one in target.parts if one.minutes) + "".join(
        f"; {one.how}" for one in target.parts if not one.minutes
    )


RULES = rules_in(vars())
