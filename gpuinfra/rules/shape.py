"""Rules about names, mounts, layers, the handover floor, and tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.base.words import counted
from gpuinfra.plan.machines import entries_of, pools_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.plan.storage import local_disk_gib, object_cache_gib
from gpuinfra.spec.base import SpecModel
from gpuinfra.spec.kinds import storage_not_supported
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown

OWN_TAGS = 10
"""Number of tags that gpuinfra and the cloud add to a node."""
_SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var",
)  # fmt: skip


def names_are_unique(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Pool names are unique, and mounts do not overlap."""
    seen: dict[str, int] = {}
    for i, pool in enumerate(spec.pools):
        if pool.name in seen:
            yield error(
                f"pools[{i}].name",
                f"is {pool.name}, which is also the name of pools[{seen[pool.name]}]",
                "use a unique name",
            )
        seen.setdefault(pool.name, i)
    mounts: list[str] = []
    for i, entry in enumerate(spec.storage):
        for other in mounts:
            if entry.mount == other or entry.mount.startswith(other + "/") or other.startswith(entry.mount + "/"):
                yield error(
                    f"storage[{i}].mount", f"is {entry.mount}, which overlaps {other}", "use a separate directory"
                )
        mounts.append(entry.mount)


def mount_is_not_a_system_path(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """No file system is mounted over a system directory."""
    for i, entry in enumerate(spec.storage):
        top = "/" + entry.mount.split("/")[1]
        if top in _SYSTEM:
            yield error(
                f"storage[{i}].mount",
                f"is {entry.mount}, which is a system directory",
                "use a directory such as /scratch",
            )


def cluster_layer_has_pools(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack with the cluster layer has pools. A stack without the cluster layer has no pools."""
    if "cluster" in spec.made_layers and not spec.pools:
        yield error(
            "pools", "is empty, but this stack creates the cluster layer", "add a pool, or remove cluster from layers"
        )
    if spec.layers is not None and "cluster" not in spec.layers and spec.pools:
        yield error(
            "layers",
            f"is {listed(list(spec.layers))}, but the declaration has pools",
            "add cluster, or remove the pools",
        )


def layer_is_created_or_used(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each layer below the cluster is either created by this stack or listed in `use`."""
    made = spec.made_layers
    for layer in ("foundation", "site"):
        used = getattr(spec.use, layer)
        if used and spec.layers is not None and layer in spec.layers:
            yield error(
                f"use.{layer}",
                f"refers to another stack, but layers includes {layer}",
                f"remove it, or remove {layer} from layers",
            )
        if not used and layer not in made and "cluster" in made:
            yield error(
                "layers",
                f"does not include {layer}, and use.{layer} is not set",
                f"set use.{layer}, or add {layer} to layers",
            )


def storage_needs_site(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack with storage has the site layer, which creates file systems, or the cluster layer, which mounts them."""
    # A cluster that uses the site of another stack repeats the site's storage, because the bootstrap steps and checks depend on it.
    if spec.storage and not {"site", "cluster"} & set(spec.made_layers):
        what = "is not empty, but this stack creates neither a site nor nodes"
        yield error("storage", what, "move it to the stack that creates the site")


def storage_kind_is_supported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """gpuinfra supports the kind of storage on this cloud."""
    cloud = profile_of(spec.cloud)
    for i, entry in enumerate(spec.storage):
        if entry.kind in cloud.storage_kinds:
            continue
        yield error(f"storage[{i}].kind", *storage_not_supported(entry.kind, cloud.title, cloud.storage_kinds))


def bucket_is_mounted_once(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each existing bucket is mounted once, because the nodes have one grant for each bucket."""
    seen: dict[str, int] = {}
    for i, entry in enumerate(spec.storage):
        if entry.kind == "object" and entry.bucket != "auto":
            if entry.bucket in seen:
                what = f"is {shown(entry.bucket)}, which storage[{seen[entry.bucket]}] also mounts"
                yield error(f"storage[{i}].bucket", what, "remove one of them")
            seen.setdefault(entry.bucket, i)


def bucket_cache_fits_local_disks(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The caches of all mounted buckets use at most 80 percent of the local disks of each machine type. A cache with a declared size requires local disks."""
    buckets = [(f"storage[{i}].cache_gib", entry) for i, entry in enumerate(spec.storage) if entry.kind == "object"]
    machines = [machine for _, _, machine in pools_of(spec)]
    for path, entry in buckets:
        if entry.cache_gib and machines and not any(machine.local_disk_gb for machine in machines):
            what = f"is {entry.cache_gib}, but no machine type of the pools has local disks"
            yield error(path, what, "remove it, or use a machine type with local disks")
            return
    for machine in {machine.name: machine for machine in machines}.values():
        total, most = sum(object_cache_gib(entry, machine) for _, entry in buckets), local_disk_gib(machine) * 8 // 10
        if machine.local_disk_gb and total > most:
            path, largest = max(buckets, key=lambda item: object_cache_gib(item[1], machine))
            own = object_cache_gib(largest, machine)
            others = f", and the caches of the other buckets use {total - own} GiB" if total > own else ""
            what = f"uses {own} GiB{others}; the limit for all caches on {machine.name} is {most} GiB, 80 percent of its local disks"
            yield error(path, what, "reduce cache_gib" + (" of the buckets" if others else ""))
            return


def site_storage_is_repeated(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A cluster that uses the site of another stack lists the file systems that its nodes mount, because a plan does not read other stacks."""
    if spec.use.site and spec.pools and not spec.storage:
        what = "is empty, so nodes do not mount any file systems from use.site"
        yield info("storage", what, "repeat the site's storage entries to mount the file systems")


def canary_fits_pool(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The canary is not larger than the pool. A larger canary replaces all nodes before one is verified."""
    for i, pool in enumerate(spec.pools):
        if pool.nodes and pool.renew.canary > pool.nodes:
            what = f"is {pool.renew.canary}, but the pool has {counted(pool.nodes, 'node')}"
            yield error(f"pools[{i}].renew.canary", what, f"set it to at most {pool.nodes}, for example 1")


def foundation_fields_have_an_effect(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack that uses the foundation of another stack does not set fields in `budget` or `audit`, because only the foundation uses them."""
    if not spec.use.foundation:
        return
    for section in ("budget", "audit"):
        for name in sorted(getattr(spec, section).model_fields_set):
            what = "has no effect, because the foundation is in another stack"
            yield warn(f"{section}.{name}", what, "remove it, or set it in the stack that creates the foundation")


def floor_is_reachable(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`floor` is required if and only if `wait` is `floor`, and is not greater than the number of nodes."""
    handover = spec.handover
    if handover.wait == "floor" and handover.floor is None:
        yield error(
            "handover.floor",
            "is required if handover.wait is floor",
            "set it to the number of verified nodes to wait for",
        )
    if handover.floor is not None and handover.wait != "floor":
        yield error(
            "handover.floor",
            f"is {handover.floor}, but handover.wait is {handover.wait}",
            "set handover.wait to floor, or remove the floor",
        )
    if handover.floor is not None and handover.floor > spec.nodes:
        yield error(
            "handover.floor", f"is {handover.floor}, but the cluster has {counted(spec.nodes, 'node')}", "reduce it"
        )


def tags_are_allowed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The number of tags is within the cloud's limit, the cloud accepts their characters and lengths, and no tag has a reserved prefix."""
    profile = profile_of(spec.cloud)
    limit = profile.tag_limit - OWN_TAGS
    for i, pool in enumerate(spec.pools):
        together = {**spec.tags, **pool.tags}
        if len(together) > limit:
            what = f"and the cluster's tags add up to {len(together)} tags; allowed: {limit}"
            yield error(f"pools[{i}].tags", what, "remove some tags")
    for path, tags in (("tags", spec.tags), *((f"pools[{i}].tags", pool.tags) for i, pool in enumerate(spec.pools))):
        for key, value in tags.items():
            if key.lower().startswith(("aws:", "gpuinfra:")):
                yield error(path, f"has the key {shown(key)}, which starts with a reserved prefix", "rename the key")
            elif (form := profile.tag_form) and not (re.fullmatch(form.key, key) and re.fullmatch(form.value, value)):
                what = f"has a tag with the key {shown(key)} and the value {shown(value)}; allowed on {profile.title}: {form.allowed}"
                yield error(path, what, "change the tag")


OF_SOME_CLOUDS = {
    "capacity": ("group_arn", "overflow", "placement_group", "strategy"),
    "storage": (
        "backup_days", "bucket_path", "deployment", "export_events", "export_minutes", "export_paused", "fabric", "import_events", "importer_id",
        "metadata_iops", "private_endpoint", "version",
    ),
    "network": ("machines",),
    "network.existing": ("dns_zones",),
    "software": ("registry",),
}  # fmt: skip
"""Fields that only some clouds use, by section. A profile lists those that its cloud uses (`own_fields`)."""


def fields_are_used_by_the_cloud(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A field that only other clouds use is an error, because it has no effect."""
    cloud = profile_of(spec.cloud)
    for path, kind, section in _sections(spec):
        for name in OF_SOME_CLOUDS[kind]:
            if f"{kind}.{name}" not in cloud.own_fields and _is_set(section, name):
                yield error(f"{path}.{name}", f"has no effect on {cloud.title}", "remove it")


def _sections(spec: ClusterSpec) -> Iterator[tuple[str, str, SpecModel]]:
    """Yield the path, the kind and the content of each section with fields that only some clouds use."""
    yield from ((path, "capacity", entry) for path, _, entry in entries_of(spec))
    yield from (
        (f"storage[{i}]", "storage", one) for i, one in enumerate(spec.storage) if one.kind in ("lustre", "object")
    )
    yield "network", "network", spec.network
    yield "software", "software", spec.software
    if spec.network.existing:
        yield "network.existing", "network.existing", spec.network.existing


def _is_set(section: SpecModel, name: str) -> bool:
    """Return whether a section has the field, with a value other than the default."""
    field = type(section).model_fields.get(name)
    return field is not None and getattr(section, name) != field.get_default(call_default_factory=True)


def link_fields_have_a_bucket(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The fields that describe the link of a file system to a bucket are set only together with the bucket."""
    for i, entry in enumerate(spec.storage):
        if entry.kind != "lustre" or entry.bucket or entry.existing:
            continue
        for name in ("bucket_prefix", "bucket_path", "import_events", "export_events", "export_minutes"):
            if _is_set(entry, name):
                yield error(f"storage[{i}].{name}", "is set, but bucket is not", "set bucket, or remove it")


def paused_exports_are_scheduled(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Exports are paused only if they are scheduled."""
    for i, entry in enumerate(spec.storage):
        if entry.kind == "lustre" and entry.export_paused and entry.export_minutes is None:
            yield error(
                f"storage[{i}].export_paused",
                "is true, but export_minutes is not set",
                "set it, or remove export_paused",
            )


EXPORT_MINUTES = (15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1440)
"""Intervals after which a schedule in the cron format repeats at the same times each day."""


def scheduled_exports_repeat_daily(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The time between two scheduled exports divides an hour or a day."""
    for i, entry in enumerate(spec.storage):
        minutes = entry.export_minutes if entry.kind == "lustre" else None
        if minutes is not None and minutes not in EXPORT_MINUTES:
            yield error(
                f"storage[{i}].export_minutes",
                f"is {minutes}; allowed: {listed(list(map(str, EXPORT_MINUTES)))}",
                "choose one of them",
            )


def scheduled_exports_are_offered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The service that requests scheduled exports is known to exist in the region."""
    cloud, region = profile_of(spec.cloud), spec.where.region
    if not cloud.export_scheduler or region in cloud.export_scheduler_regions or not cloud.is_region(region):
        return
    for i, entry in enumerate(spec.storage):
        if entry.kind == "lustre" and entry.export_minutes is not None:
            yield warn(
                f"storage[{i}].export_minutes",
                f"is {entry.export_minutes}, but whether {cloud.export_scheduler} exists in {region} is unknown",
                "check it with `gcloud scheduler locations list`; if it does not, remove export_minutes, and start the exports yourself",
            )


def failed_pools_can_be_empty(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """If nodes are removed after a failed deployment, each capacity entry can have the count 0."""
    if spec.handover.on_failure != "scale_to_zero":
        return
    for path, _, entry in entries_of(spec):
        if entry.kind in ("block", "flex"):
            what = f"is scale_to_zero, but {path} is of kind {entry.kind}, which requires at least one node"
            yield error("handover.on_failure", what, "set it to keep or destroy")


RULES = rules_in(vars())
