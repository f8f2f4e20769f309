"""Sets the file systems, and lists the data that a stack file does not contain."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinfra.base.findings import error, warn
from gpuinfra.clouds.region.second_region import Manual
from gpuinfra.plan.machines import nearest_value
from gpuinfra.plan.storage import existing_of
from gpuinfra.region.clone.draft import Draft
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.spec.homes import SERVICE_SETTINGS, settings_of_services
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown
from gpuinfra.spec.storage import Home, Lustre, ObjectMount


def with_bucket(spec: ClusterSpec) -> Iterator[tuple[int, Lustre | ObjectMount]]:
    """Yield the index and the entry of each file system with a bucket and of each mounted bucket."""
    for index, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre | ObjectMount) and entry.bucket is not None:
            yield index, entry


def set_storage(pair: RegionPair, draft: Draft) -> None:
    """Set the file systems and their buckets."""
    for index, entry in enumerate(pair.spec.storage):
        path = f"storage[{index}]"
        if pair.across and isinstance(entry, Home):
            _set_service(pair, draft, index, entry)
        if existing := existing_of(entry):
            if not pair.is_given(("storage", index, "existing")):
                what = f"is {shown(existing.id)}, a file system in {pair.source}, which the clone's nodes cannot mount"
                hint = (
                    f"specify a file system in {pair.target} with --set '{path}.existing={{id: ID, ...}}', "
                    "or set other file systems with --set storage=[...]"
                )
                draft.findings.append(error(f"{path}.existing", what, hint))
            continue
        if isinstance(entry, Home):
            _start_empty(pair, draft, index, entry)
            if entry.replica and not pair.is_given(("storage", index, "replica")):
                draft.set(("storage", index, "replica"), None, "a replica can be mounted only in its region")
            if _is_replicated(pair, entry):
                _list_home(pair, draft, index, entry)
            elif "site" in pair.spec.made_layers:
                what = f"is not replicated, so the clone starts with an empty {entry.mount}"
                draft.findings.append(warn(path, what, "copy the files to the clone's file system before you use it"))
            continue
        if pair.across:
            for name in pair.unused("storage"):
                draft.set(("storage", index, name), None, f"{pair.there.title} does not support this setting")
        if pair.across and isinstance(entry, Lustre):
            tier = entry.throughput_mb_s_per_tib
            if tier and tier not in pair.facts.tiers:
                near = nearest_value(pair.facts.tiers, tier)
                why = f"{pair.there.title} offers {listed([str(one) for one in pair.facts.tiers])} MB/s per TiB"
                draft.set(("storage", index, "throughput_mb_s_per_tib"), near, why)
        if isinstance(entry, Lustre):
            _start_empty(pair, draft, index, entry)
            if entry.export_minutes is not None and not pair.across:
                _pause_exports(pair, draft, index, entry)
        if entry.bucket is None:
            if "site" in pair.spec.made_layers:
                what = f"has no bucket, so its data has no replica, and the clone starts with an empty {entry.mount}"
                draft.findings.append(warn(path, what, "link a bucket to the stack's file system (bucket: auto)"))
            continue
        if "site" not in pair.spec.made_layers and not pair.spec.use.site:
            continue
        if entry.bucket != "auto" and not pair.is_given(("storage", index, "bucket")):
            if isinstance(entry, ObjectMount):
                _keep_mounted(pair, draft, f"{path}.bucket", entry)
                continue
            why = f"the stack's bucket is in {pair.source}; the clone creates its own, which is empty until the data is replicated or copied"
            draft.set(("storage", index, "bucket"), "auto", why)
            if entry.private_endpoint:
                draft.set(("storage", index, "private_endpoint"), None, "the new bucket has its own endpoint")
            if isinstance(entry, Lustre) and entry.bucket_prefix:
                draft.set(("storage", index, "bucket_prefix"), None, "the new bucket has no folders")
        _list_data(pair, draft, index, entry)


def _is_replicated(pair: RegionPair, entry: Home) -> bool:
    """Return whether `recovery` of the stack replicates these home directories to the clone's region."""
    recovery, replication = pair.spec.recovery, pair.here.replication
    if pair.across or recovery is None or replication is None or not recovery.homes or recovery.region != pair.target:
        return False
    return (entry.service or pair.here.home_services[0]) in replication.home_services


def _list_home(pair: RegionPair, draft: Draft, index: int, entry: Home) -> None:
    """List the replica of home directories, and warn if the clone creates an empty file system instead."""
    path = f"storage[{index}]"
    command = f"pulumi stack output recovery --stack {pair.stack.name}"
    if pair.final(draft, ("storage", index, "replica")) is None and "site" in pair.spec.made_layers:
        what = f"has no replica, so the clone starts with an empty {entry.mount}"
        draft.findings.append(warn(path, what, f"specify the replica in `{command}` with --set {path}.replica=ID"))
    why = f"`recovery` of the stack replicates the files; specify the replica in this stack output with --set {path}.replica=ID"
    draft.manual.append(Manual(path=path, what=f"files of {entry.mount}", why=why, command=command))


def _set_service(pair: RegionPair, draft: Draft, index: int, entry: Home) -> None:
    """Use the default service for home directories if the other cloud does not offer the declared one, and remove the settings that it does not have."""
    services = pair.there.home_services
    name = entry.service if entry.service in services else services[0]
    if entry.service not in (None, name):
        draft.set(("storage", index, "service"), None, f"{pair.there.title} offers {listed(list(services))}")
    service = SERVICE_SETTINGS.get(name)
    for field in sorted(entry.model_fields_set & settings_of_services() - set(service.settings if service else ())):
        draft.set(
            ("storage", index, field), None, f"{service.title if service else name} does not support this setting"
        )


def _start_empty(pair: RegionPair, draft: Draft, index: int, entry: Lustre | Home) -> None:
    """Remove the backup from which the stack's file system was created, unless the request sets another one."""
    route = ("storage", index, "restore_from")
    if entry.restore_from and not pair.is_given(route):
        why = "a backup can be restored only in its region"
        if not pair.across:
            why = f"{why}; to start from a copy in {pair.target}, set storage[{index}].restore_from with --set"
        draft.set(route, None, why)


def _pause_exports(pair: RegionPair, draft: Draft, index: int, entry: Lustre) -> None:
    """Pause the schedule in a second region until a failover, and not in the first one."""
    route = ("storage", index, "export_paused")
    if pair.origin is not None and pair.origin.region == pair.target:
        if entry.export_paused and not pair.is_given(route):
            draft.set(route, None, f"{pair.target} is the first region")
    elif pair.spec.recovery and pair.spec.recovery.region == pair.target and not entry.export_paused:
        why = "files that are older than the replica would replace its objects; `gpuinfra failover` resumes the exports"
        draft.set(route, True, why)


def _keep_mounted(pair: RegionPair, draft: Draft, path: str, entry: ObjectMount) -> None:
    """Keep an existing bucket that nodes mount, because nodes in every region can read it. Its location is not in the declaration."""
    bucket = shown(entry.bucket)
    if pair.across:
        what = f"is {bucket} on {pair.here.title}, which nodes on {pair.there.title} cannot mount"
        hint = "copy the data, and set the file systems of the clone with --set storage=[...]"
        draft.findings.append(error(path, what, hint))
        return
    what = f"is {bucket}, which the clone also mounts; its location is unknown, and reads from a bucket in another region are slow and billed"
    hint = f"check that the bucket is available if {pair.source} fails, or specify a copy in {pair.target} with --set {path}=BUCKET"
    draft.findings.append(warn(path, what, hint))
    draft.manual.append(
        Manual(
            path=path.rpartition(".")[0],
            what=f"data of {entry.mount}",
            why=f"the bucket is not in the stack; if it is in {pair.source} only, replicate it: {pair.own_facts.replication.feature}",
            command=pair.own_facts.bucket(entry.bucket, pair.source, pair.target),
        )
    )


def _list_data(pair: RegionPair, draft: Draft, index: int, entry: Lustre | ObjectMount) -> None:
    """List the data of a file system, which a stack file does not contain, and warn if the clone starts without it."""
    path, bucket = f"storage[{index}]", "BUCKET" if entry.bucket == "auto" else entry.bucket or ""
    new = pair.final(draft, ("storage", index, "bucket")) == "auto"
    if new and "site" in pair.spec.made_layers:
        what = f"is auto, a bucket that the clone creates, so {entry.mount} starts without the stack's data"
        hint = f"use --set {path}.bucket=BUCKET to specify a bucket in {pair.target} that contains the data, or copy the data before you use the clone"
        draft.findings.append(warn(f"{path}.bucket", what, hint))
    early = (
        (
            "; in cold mode, the bucket of the clone does not exist before the failover: "
            f"create one in {pair.target} now and set it with --set {path}.bucket=BUCKET"
        )
        if new and pair.request.mode == "cold"
        else ""
    )
    recovery, feature = pair.spec.recovery, pair.own_facts.replication.feature
    command = read = pair.own_facts.bucket(bucket, pair.source, pair.target)
    why = f"a stack file creates the bucket but copies no data; replicate the stack's bucket: {feature}"
    if pair.across:
        why = f"object storage is not replicated between clouds; copy the data with your own tool{early}"
        command = f"rclone sync SOURCE:{bucket} TARGET:BUCKET"
    elif recovery is not None and recovery.region == pair.target:
        named = f"; specify the replica in this stack output with --set {path}.bucket=BUCKET to start from its data"
        why = f"`recovery` of the stack replicates the bucket{named if new else ''}"
        command = f"pulumi stack output recovery --stack {pair.stack.name}"
    elif recovery is not None:
        why = f"`recovery` of the stack replicates the bucket to {recovery.region} only; copy the data to {pair.target}{early}"
    elif _can_recover(pair) and entry.bucket == "auto":
        why = f"{why}{early}; `recovery: {{region: {pair.target}, ...}}` in the declaration of the stack sets this up (docs/reference/recovery.md)"
    else:
        why = f"{why}{early}"
    if command == read and pair.own_facts.replication.caution:
        why = f"{why}; {pair.own_facts.replication.caution}"
    draft.manual.append(Manual(path=path, what=f"data of {entry.mount}", why=why, command=command))


def _can_recover(pair: RegionPair) -> bool:
    """Whether the rules accept a recovery section with the second region in the stack."""
    return pair.here.replication is not None and {"foundation", "site"} <= set(pair.spec.made_layers)
