"""Inputs that Azure cannot change after creation, by resource type. A change replaces the resource.

Azure documents these inputs only in prose. For most of them, the provider plans an update that fails during `up`.
Inputs with constant values are not listed. The provider handles names, locations and resource groups.

| type | source |
| --- | --- |
| scale set | https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-upgrade-scale-set;
the description of `imageReference` in the SDK;
https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-placement-groups and
https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-orchestration-modes |
| disk | `zones` is not in `DiskUpdate` of azure-mgmt-compute, read 2026-11-30 |
| file system | https://learn.microsoft.com/azure/azure-managed-lustre/create-file-system-portal: "can't be changed";
`AmlFilesystemUpdate` of azure-mgmt-storagecache has only tags, maintenance, key and root squash |
| capacity pool, volume of Azure NetApp Files | `PoolPatchProperties` and `VolumePatchProperties` of azure-mgmt-netapp 18.0.0 have none of
these inputs, read 2026-11-27; a volume changes its level by a move to another pool |
| public address, NAT gateway | https://learn.microsoft.com/azure/reliability/reliability-nat-gateway: the zone is set at creation |

Retrieved 2026-11-21.
"""

from __future__ import annotations

SCALE_SET = (
    # A size of a different family uses a different fabric on different hosts.
    "sku.name",
    "zones",
    "singlePlacementGroup",
    "platformFaultDomainCount",
    "virtualMachineProfile.priority",
    "virtualMachineProfile.evictionPolicy",
    "virtualMachineProfile.storageProfile.imageReference.publisher",
    "virtualMachineProfile.storageProfile.imageReference.offer",
)
DATA_DISK = ("zones",)
FILE_SYSTEM = ("sku.name", "storageCapacityTiB", "zones", "filesystemSubnet", "hsm", "identity")
NETAPP_POOL = ("serviceLevel",)
NETAPP_VOLUME = ("creationToken", "subnetId", "networkFeatures")
REPLICATION_POLICY = ("sourceAccount", "destinationAccount", "rules", "metrics")
"""A policy in a replica's account. The provider sends an update to the ID `default`, which requests a new policy."""
