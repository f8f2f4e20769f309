"""What Azure cannot change once a thing is there: by type, the inputs whose change is another thing.

Azure's API says so in prose only, so the provider takes most of them for updates; a preview would promise what `up` cannot do.
Constants of ours are left out: nobody changes them. Names, places and resource groups are the provider's own business.

| type | where it is said |
| --- | --- |
| scale set | https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-upgrade-scale-set; the SDK's words on `imageReference`; sheet of Azure facts 2.1 and 3.6 |
| file system | https://learn.microsoft.com/azure/azure-managed-lustre/create-file-system-portal: "can't be changed"; `AmlFilesystemUpdate` of azure-mgmt-storagecache has no other members than tags, maintenance, key and squash |
| address, gateway | https://learn.microsoft.com/azure/reliability/reliability-nat-gateway: a zone is chosen at creation |

Read 2026-11-21.
"""

from __future__ import annotations

SCALE_SET = (
    # A size of another family is another fabric, and hosts of it are elsewhere.
    "sku.name",
    "zones",
    "singlePlacementGroup",
    "platformFaultDomainCount",
    "virtualMachineProfile.priority",
    "virtualMachineProfile.evictionPolicy",
    "virtualMachineProfile.storageProfile.imageReference.publisher",
    "virtualMachineProfile.storageProfile.imageReference.offer",
)
FILE_SYSTEM = ("sku.name", "storageCapacityTiB", "zones", "filesystemSubnet", "hsm", "identity")
ZONAL = ("zones",)
"""Public addresses and NAT gateways; their zone is in their name, so that the new one stands beside the old one while subnets move."""
