"""Rules about the shape of a declaration: names, mounts, layers, floors and tags."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpuinfra.clouds import profile_of
from gpuinfra.clouds.profile import Rule
from gpuinfra.findings import Finding, error, info
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown

OWN_TAGS = 10
"""Tags that gpuinfra and the clouds' services put on a node."""
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


_INSTEAD = {
    "home": "export a shared file system of your own and mount it by a step of your own",
    "object": "mount the bucket by a step of your own",
}
"""What a person does until gpuinfra makes it."""


def storage_is_made(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Storage is of a kind that gpuinfra makes on this cloud and mounts on the nodes."""
    cloud = profile_of(spec.cloud)
    for i, entry in enumerate(spec.storage):
        if entry.kind in cloud.storage_kinds:
            continue
        what = f"is {entry.kind}, which gpuinfra does not make on {cloud.title} yet"
        instead = _INSTEAD.get(entry.kind, "take the entry out")
        allowed = listed(sorted(cloud.storage_kinds))
        yield error(storage_is_made, f"storage[{i}].kind", what, f"allowed is {allowed}; {instead}, it comes later")


def site_storage_is_repeated(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A cluster on another stack's site says which of its file systems nodes mount, because a plan looks nothing up."""
    if spec.use.site and spec.pools and not spec.storage:
        what = "is empty, so nodes mount none of the file systems of use.site"
        yield info(site_storage_is_repeated, "storage", what, "repeat what the site declares, if nodes need it")


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
    limit = profile_of(spec.cloud).tag_limit - OWN_TAGS
    for i, pool in enumerate(spec.pools):
        together = {**spec.tags, **pool.tags}
        if len(together) > limit:
            what = f"make {len(together)} tags with those of the cluster; a node takes {limit} beside gpuinfra's own"
            yield error(tags_fit, f"pools[{i}].tags", what, "keep the most useful ones")
    for path, tags in (("tags", spec.tags), *((f"pools[{i}].tags", pool.tags) for i, pool in enumerate(spec.pools))):
        for key in tags:
            if key.lower().startswith(("aws:", "gpuinfra:")):
                yield error(tags_fit, path, f"has {shown(key)}, which is reserved", "choose another name")


RULES: tuple[Rule, ...] = (
    names_are_unique,
    mount_is_free,
    pools_are_there,
    layer_is_made_or_used,
    storage_needs_site,
    storage_is_made,
    site_storage_is_repeated,
    floor_is_reachable,
    tags_fit,
)
