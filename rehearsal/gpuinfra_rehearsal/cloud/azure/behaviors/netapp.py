"""Azure NetApp Files: accounts, snapshot policies, capacity pools and volumes.

Limits: https://learn.microsoft.com/azure/azure-netapp-files/azure-netapp-files-resource-limits, page dated 2025-06-10. The codes and the wording of the errors
are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.azure.behaviors.compute import need
from gpuinfra_rehearsal.cloud.azure.behaviors.network import SUBNET
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

ACCOUNT, SNAPSHOTS, POOL, VOLUME = (
    f"azure-native:netapp:{kind}" for kind in ("Account", "SnapshotPolicy", "CapacityPool", "CapacityPoolVolume")
)
_GIB, _TIB = 2**30, 2**40
_INSIDE = {ACCOUNT: (POOL, SNAPSHOTS), POOL: (VOLUME,)}
"""Maps a type to the types of the resources in it, which must be deleted first."""


def _children(store: Store, parent: Resource) -> Iterator[Resource]:
    for token in _INSIDE[parent.type]:
        yield from (one for one in store.list(token) if one.id.lower().startswith(f"{parent.id.lower()}/"))


@behaves
class Container(Behavior):
    """An account or a capacity pool, which cannot be deleted while it contains other resources."""

    types = (ACCOUNT, POOL)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        size = call.plain.get("size")
        if call.token == POOL and isinstance(size, int | float) and (size % _TIB or not _TIB <= size <= 2048 * _TIB):
            yield RejectedInput("size", f"must be a multiple of {_TIB} up to {2048 * _TIB}, got {size:g}")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        if call.token == POOL:
            _in_account(cloud, call)

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        for child in _children(cloud.store, resource):
            text = f"{resource.id.rsplit('/', 1)[-1]} contains {child.id.rsplit('/', 1)[-1]} and cannot be deleted."
            raise AzureError("CannotDeleteResource", text, status=409)


@behaves
class SnapshotPolicy(Behavior):
    types = (SNAPSHOTS,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _in_account(cloud, call)

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        for volume in cloud.store.list(VOLUME):
            if any(text.lower() == resource.id.lower() for text in wire.strings(volume.inputs)):
                raise AzureError("SnapshotPolicyInUse", f"The snapshot policy is used by {volume.id}.", status=409)


@behaves
class Volume(Behavior):
    """A volume in a capacity pool, in a subnet that is delegated to the service."""

    types = (VOLUME,)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        size = call.plain.get("usageThreshold")
        if isinstance(size, int | float) and not 50 * _GIB <= size <= 100 * _TIB:
            yield RejectedInput("usageThreshold", f"must be {50 * _GIB} to {100 * _TIB}, got {size:g}")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _in_account(cloud, call)
        plain = call.plain
        pool = _pool(cloud.store, call.id)
        if pool is None:
            raise AzureError(
                "ResourceNotFound", f"The capacity pool {plain.get('poolName')} was not found.", status=404
            )
        used = sum(
            int(one.plain.get("usageThreshold") or 0) for one in _children(cloud.store, pool) if one.id != call.id
        )
        if used + int(plain.get("usageThreshold") or 0) > int(pool.plain.get("size") or 0):
            raise AzureError("PoolSizeTooSmall", "The capacity pool is too small for its volumes.", status=400)
        subnet = str(plain.get("subnetId") or "")
        need(cloud, SUBNET, subnet, "Microsoft.Network/virtualNetworks/subnets")
        subnet_record = next((one for one in cloud.store.list(SUBNET) if one.id.lower() == subnet.lower()), None)
        services = (
            {str(one.get("serviceName")).lower() for one in (subnet_record.plain.get("delegations") or [])}
            if subnet_record
            else set()
        )
        if subnet_record and "microsoft.netapp/volumes" not in services:
            text = f"The subnet {subnet} is not delegated to Microsoft.Netapp/volumes."
            raise AzureError("SubnetNotDelegated", text, status=400)
        for other in cloud.store.list(VOLUME):
            same = str(other.plain.get("subnetId")).lower() == subnet.lower() and other.id != call.id
            if same and other.plain.get("creationToken") == plain.get("creationToken"):
                raise AzureError("CreationTokenInUse", f"The path {plain.get('creationToken')} is in use.", status=409)

    def created(self, cloud: Cloud, call: Call) -> None:
        number = cloud.store.next("netapp")
        call.outputs["mountTargets"] = [
            {
                "fileSystemId": f"00000000-0000-4000-8000-{number:012x}",
                "ipAddress": f"10.126.{number // 250}.{4 + number % 250}",
                "mountTargetId": f"00000000-0000-4000-9000-{number:012x}",
            }
        ]

    def updated(self, cloud: Cloud, call: Call) -> None:
        assert call.old is not None
        call.outputs["mountTargets"] = call.old.outputs.get("mountTargets")


def _in_account(cloud: Cloud, call: Call) -> None:
    account = call.id.lower().partition("/netappaccounts/")
    wanted = f"{account[0]}/netappaccounts/{account[2].partition('/')[0]}"
    if not any(one.id.lower() == wanted for one in cloud.store.list(ACCOUNT)):
        raise AzureError("ParentResourceNotFound", f"The NetApp account {call.plain.get('accountName')} was not found.", status=404)  # fmt: skip


def _pool(store: Store, volume_id: str) -> Resource | None:
    wanted = volume_id.lower().partition("/volumes/")[0]
    return next((one for one in store.list(POOL) if one.id.lower() == wanted), None)
