"""Lists the inputs that force replacement of an Azure resource, in addition to the SDK's documentation."""

from __future__ import annotations

from collections.abc import Mapping

from gpuinfra_rehearsal.cloud.azure.ids import path_inputs
from gpuinfra_rehearsal.cloud.core.sdk import Property

# Azure documents "cannot be changed" in prose only. ARM reference, retrieved 2026-11-21.
_FORCED: dict[str, tuple[str, ...]] = {
    "azure-native:compute:VirtualMachineScaleSet": (
        "orchestrationMode",
        "platformFaultDomainCount",
        "proximityPlacementGroup",
    ),
    "azure-native:compute:Disk": ("zones", "creationData"),
    "azure-native:storage:StorageAccount": ("kind", "isHnsEnabled", "isNfsV3Enabled"),
    "azure-native:storage:FileShare": ("enabledProtocols",),
    "azure-native:storagecache:AmlFilesystem": (
        "sku",
        "storageCapacityTiB",
        "zones",
        "filesystemSubnet",
        "hsm",
        "identity",
    ),
    "azure-native:netapp:CapacityPool": ("serviceLevel", "encryptionType"),
    "azure-native:netapp:CapacityPoolVolume": ("creationToken", "subnetId"),
    "azure-native:network:PublicIPAddress": ("sku", "zones", "publicIPAddressVersion"),
    "azure-native:network:NatGateway": ("zones",),
}


def forced(token: str, inputs: Mapping[str, Property]) -> set[str]:
    """Return the inputs of a type whose change replaces the resource."""
    parents, own = path_inputs(token)
    return {*_FORCED.get(token, ()), *({*parents, own} & set(inputs))}
