"""A small cluster on Azure, created call by call."""

from __future__ import annotations

import base64
from typing import Any

from rehearsal.tests.cloud.conftest import Client, Made

WHERE = {"resourceGroupName": "rg", "location": "southcentralus"}
MACHINE = "Standard_ND96amsr_A100_v4"
SET = "azure-native:compute:VirtualMachineScaleSet"
CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
CUSTOM_DATA = "#!/bin/bash\necho hello\n"
URL = "https://evidence0a1b.blob.core.windows.net/evidence"


def group(azure: Client, name: str = "rg") -> Made:
    """A resource group."""
    inputs = {"resourceGroupName": name, "location": "southcentralus"}
    return azure.create("azure-native:resources:ResourceGroup", inputs, name)


def account(azure: Client, name: str = "evidence0a1b", **more: Any) -> Made:
    """A storage account that everybody reaches."""
    inputs = {**WHERE, "accountName": name, "kind": "StorageV2", "sku": {"name": "Standard_LRS"}, **more}
    return azure.create("azure-native:storage:StorageAccount", inputs, name)


def container(azure: Client, account: str = "evidence0a1b", name: str = "evidence") -> Made:
    """A private container."""
    inputs = {"resourceGroupName": "rg", "accountName": account, "containerName": name}
    return azure.create("azure-native:storage:BlobContainer", inputs, name)


def identity(azure: Client, name: str = "node") -> Made:
    """An identity for machines."""
    inputs = {**WHERE, "resourceName": name}
    return azure.create("azure-native:managedidentity:UserAssignedIdentity", inputs, name)


def grant(
    azure: Client, at: Made, principal: str, role: str = CONTRIBUTOR, condition: str = "", number: int = 1
) -> Made:
    """A role at a place, under a condition."""
    inputs: dict[str, Any] = {
        "roleAssignmentName": f"00000000-0000-4d00-8000-{number:012x}", "scope": at.id, "principalId": principal,
        "principalType": "ServicePrincipal", "roleDefinitionId": f"/subscriptions/x/providers/Microsoft.Authorization/roleDefinitions/{role}",
    }  # fmt: skip
    if condition:
        inputs |= {"condition": condition, "conditionVersion": "2.0"}
    return azure.create("azure-native:authorization:RoleAssignment", inputs, f"grant-{number}")


def data_role(azure: Client, at: Made, number: int = 1) -> Made:
    """A custom role that reads and creates blobs, and has no rights on containers."""
    blobs, group = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs", "/".join(at.id.split("/")[:5])
    inputs = {
        "roleDefinitionId": f"00000000-0000-4e00-8000-{number:012x}", "roleName": f"data {number}", "scope": group,
        "assignableScopes": [group], "permissions": [{"actions": [], "dataActions": [f"{blobs}/{verb}" for verb in ("read", "add/action")]}],
    }  # fmt: skip
    return azure.create("azure-native:authorization:RoleDefinition", inputs, f"role-{number}")


def subnet(azure: Client, name: str = "private-0", cidr: str = "10.0.0.0/20", make: bool = True) -> Made:
    """A subnet, and the network around it."""
    if make:
        network = {**WHERE, "virtualNetworkName": "net", "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}
        azure.create("azure-native:network:VirtualNetwork", network, "net")
    inputs = {"resourceGroupName": "rg", "virtualNetworkName": "net", "subnetName": name, "addressPrefix": cidr}
    return azure.create("azure-native:network:Subnet", inputs, name)


def profile(subnet: Made, custom_data: str = CUSTOM_DATA, script: str = "", **more: Any) -> dict[str, Any]:
    """A model with an InfiniBand image, boot diagnostics and the health extension."""
    extensions: list[dict[str, Any]] = [
        {
            "name": "health",
            "publisher": "Microsoft.ManagedServices",
            "type": "ApplicationHealthLinux",
            "typeHandlerVersion": "2.0",
        }
    ]
    if script:
        extensions.append(
            {
                "name": "renew",
                "publisher": "Microsoft.Azure.Extensions",
                "type": "CustomScript",
                "settings": {"script": encoded(script)},
            }
        )
    return {
        "osProfile": {"computerNamePrefix": "train", "customData": encoded(custom_data)},
        "storageProfile": {
            "imageReference": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204", "version": "22.04.2026010100"},
            "osDisk": {"createOption": "FromImage"},
        },
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        "extensionProfile": {"extensions": extensions},
        "networkProfile": {
            "networkInterfaceConfigurations": [
                {"name": "nic-0", "primary": True, "ipConfigurations": [{"name": "ip-0", "subnet": {"id": subnet.id}}]}
            ]
        },
        **more,
    }  # fmt: skip


def scale_set(azure: Client, model: dict[str, Any], count: int = 2, identity: Made | None = None, **more: Any) -> Made:
    """A scale set of the pool `gpu` that rolls by batches of half."""
    inputs: dict[str, Any] = {
        **WHERE, "vmScaleSetName": "gpu", "orchestrationMode": "Uniform", "singlePlacementGroup": True,
        "sku": {"name": MACHINE, "tier": "Standard", "capacity": count}, "virtualMachineProfile": model,
        "upgradePolicy": {"mode": "Rolling", "rollingUpgradePolicy": {"maxBatchInstancePercent": 50}},
        "tags": {"gpuinfra:cluster": "train", "gpuinfra:pool": "gpu", "gpuinfra:group": "gpu-on-demand-0", "gpuinfra:template": "t1"},
        **more,
    }  # fmt: skip
    if identity:
        inputs["identity"] = {"type": "UserAssigned", "userAssignedIdentities": [identity.id]}
    return azure.create(SET, inputs, "gpu")


def encoded(text: str) -> str:
    """Base64."""
    return base64.b64encode(text.encode()).decode()
