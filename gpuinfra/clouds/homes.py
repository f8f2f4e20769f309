"""The services of home file systems, which a site passes to the clusters of other stacks.

A cluster can mount homes that its declaration does not list. The site's entry of each home contains its service,
so nodes mount each one as its service requires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from gpuinfra.plan.model import FileSystemPlan, PoolPlan
from gpuinfra.plan.profile import profile_of

REPLICA = "x-gpuinfra.replica"
"""Mount option of home directories that nodes can only read until a failover. `mount` ignores options that begin with `x-` (mount(8))."""
FileSystems = pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]]
"""File systems that nodes mount: `kind`, `mount`, `dns_name`, `mount_name`, and `service` for home directories."""


def mounted(plan: FileSystemPlan, dns_name: pulumi.Input[str], mount_name: pulumi.Input[str]) -> dict[str, Any]:
    """Return the entry of a created file system in the list of file systems that nodes mount."""
    service = {"service": plan.service} if plan.kind == "home" and plan.service else {}
    if plan.replica:
        service["replica"] = plan.replica
    return {"kind": plan.kind, "mount": plan.mount, "dns_name": dns_name, "mount_name": mount_name, **service}


def for_nodes(cloud: str, pool: PoolPlan, file_systems: FileSystems) -> FileSystems:
    """Return the file systems for `node.json` of a pool."""
    if isinstance(file_systems, pulumi.Output):
        return file_systems.apply(lambda known: _for_nodes(cloud, pool, known))
    return _for_nodes(cloud, pool, file_systems)


def _for_nodes(cloud: str, pool: PoolPlan, homes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Replace the service of each home by how to mount it. The bundle contains this for the homes that the cluster declares, and nodes mount a home without
    it in the same way as the first declared home, so only other homes have the entry: user data does not change without need."""
    return [
        {
            **{key: value for key, value in one.items() if key not in ("service", "replica")},
            **_setting(cloud, pool, one),
        }
        for one in homes or ()
    ]


def _setting(cloud: str, pool: PoolPlan, mount_record: Mapping[str, Any]) -> dict[str, str]:
    if mount_record.get("replica"):
        return {"setting": f"{profile_of(cloud).software.homes[mount_record['service']].setting},{REPLICA}"}
    declared = [home.partition(" ") for home in pool.versions.get("HOMES", "").split("; ") if home]
    if (
        not declared
        or not mount_record.get("service")
        or any(mount_record["mount"] == mount for mount, _, _ in declared)
    ):
        return {}
    home_service = profile_of(cloud).software.homes.get(mount_record["service"])
    if home_service is None:
        raise pulumi.RunError(
            f"the site's home directories at {mount_record['mount']} are on {mount_record['service']}, which this version does not know; "
            "install the version of gpuinfra that created the site"
        )
    return {} if home_service.setting == declared[0][2] else {"setting": home_service.setting}
