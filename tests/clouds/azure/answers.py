"""Responses of Azure under the mocks: ids, and the outputs that other resources read."""

from __future__ import annotations

import uuid
from typing import Any

SUBSCRIPTION = "00000000-0000-4000-8000-000000000001"
TENANT = "00000000-0000-4000-8000-000000000002"
OPERATOR = "00000000-0000-4000-8000-000000000003"

_KINDS = {
    "network:VirtualNetwork": ("Microsoft.Network/virtualNetworks", "virtualNetworkName"),
    "network:NetworkSecurityGroup": ("Microsoft.Network/networkSecurityGroups", "networkSecurityGroupName"),
    "network:ApplicationSecurityGroup": ("Microsoft.Network/applicationSecurityGroups", "applicationSecurityGroupName"),
    "network:NatGateway": ("Microsoft.Network/natGateways", "natGatewayName"),
    "network:PublicIPAddress": ("Microsoft.Network/publicIPAddresses", "publicIpAddressName"),
    "network:PrivateEndpoint": ("Microsoft.Network/privateEndpoints", "privateEndpointName"),
    "network:BastionHost": ("Microsoft.Network/bastionHosts", "bastionHostName"),
    "monitor:ActionGroup": ("Microsoft.Insights/actionGroups", "actionGroupName"),
    "monitor:ActivityLogAlert": ("Microsoft.Insights/activityLogAlerts", "activityLogAlertName"),
    "monitor:MetricAlert": ("Microsoft.Insights/metricAlerts", "ruleName"),
    "privatedns:PrivateZone": ("Microsoft.Network/privateDnsZones", "privateZoneName"),
    "storage:StorageAccount": ("Microsoft.Storage/storageAccounts", "accountName"),
    "keyvault:Vault": ("Microsoft.KeyVault/vaults", "vaultName"),
    "managedidentity:UserAssignedIdentity": ("Microsoft.ManagedIdentity/userAssignedIdentities", "resourceName"),
    "compute:Disk": ("Microsoft.Compute/disks", "diskName"),
    "compute:DiskEncryptionSet": ("Microsoft.Compute/diskEncryptionSets", "diskEncryptionSetName"),
    "compute:VirtualMachineScaleSet": ("Microsoft.Compute/virtualMachineScaleSets", "vmScaleSetName"),
    "operationalinsights:Workspace": ("Microsoft.OperationalInsights/workspaces", "workspaceName"),
    "storagecache:AmlFilesystem": ("Microsoft.StorageCache/amlFilesystems", "amlFilesystemName"),
    "netapp:Account": ("Microsoft.NetApp/netAppAccounts", "accountName"),
}
"""Type -> type in ids, and the input with the name."""


def resource(type_: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Id and outputs of a new resource."""
    kind = type_.removeprefix("azure-native:")
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{inputs.get('resourceGroupName')}"
    if kind == "resources:ResourceGroup":
        own = inputs["resourceGroupName"]
        return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{own}", {**inputs, "name": own}
    provider, key = _KINDS.get(kind, ("Microsoft.Mock/" + kind.replace(":", "."), ""))
    own = inputs.get(key) or name
    id_ = f"{group}/providers/{provider}/{own}"
    account = f"{group}/providers/Microsoft.Storage/storageAccounts/{inputs.get('accountName')}"
    netapp = f"{group}/providers/Microsoft.NetApp/netAppAccounts/{inputs.get('accountName')}"
    container = f"{account}/blobServices/default/containers/{inputs.get('containerName')}"
    match kind:
        case "network:Subnet":
            own = inputs["subnetName"]
            id_ = f"{group}/providers/Microsoft.Network/virtualNetworks/{inputs['virtualNetworkName']}/subnets/{own}"
        case "storage:BlobContainer":
            own, id_ = inputs["containerName"], container
        case "storage:BlobContainerImmutabilityPolicy":
            own, id_ = "default", f"{container}/immutabilityPolicies/default"
        case "storage:BlobServiceProperties":
            own, id_ = "default", f"{account}/blobServices/default"
        case "storage:FileServiceProperties":
            own, id_ = "default", f"{account}/fileServices/default"
        case "storage:FileShare":
            own = inputs["shareName"]
            id_ = f"{account}/fileServices/default/shares/{own}"
        case "netapp:SnapshotPolicy":
            own = inputs["snapshotPolicyName"]
            id_ = f"{netapp}/snapshotPolicies/{own}"
        case "netapp:CapacityPool":
            own = inputs["poolName"]
            id_ = f"{netapp}/capacityPools/{own}"
        case "netapp:CapacityPoolVolume":
            own = inputs["volumeName"]
            id_ = f"{netapp}/capacityPools/{inputs['poolName']}/volumes/{own}"
        case "storage:ManagementPolicy":
            own, id_ = "default", f"{account}/managementPolicies/default"
        case "storage:ObjectReplicationPolicy":
            # Azure assigns the ID of a new policy.
            asked = inputs["objectReplicationPolicyId"]
            own = _uuid(name, "policy") if asked == "default" else asked
            id_ = f"{account}/objectReplicationPolicies/{own}"
        case "keyvault:Key":
            own = inputs["keyName"]
            id_ = f"{group}/providers/Microsoft.KeyVault/vaults/{inputs['vaultName']}/keys/{own}"
        case "authorization:RoleAssignment":
            own = inputs["roleAssignmentName"]
            id_ = f"{inputs['scope']}/providers/Microsoft.Authorization/roleAssignments/{own}"
        case _:
            pass
    given = dict(inputs)
    if identities := (inputs.get("identity") or {}).get("userAssignedIdentities"):
        # A list in the request, a map in the response.
        given["identity"] = {**inputs["identity"], "userAssignedIdentities": {one: {} for one in identities}}
    return id_, {**given, "name": own, **_outputs(kind, own, name, inputs)}


def call(token: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The response to a call."""
    if token == "azure-native:authorization:getClientConfig":
        return {"subscriptionId": SUBSCRIPTION, "tenantId": TENANT, "objectId": OPERATOR, "clientId": OPERATOR}
    if token == "gpuinfra:index:azureImageVersion":
        return {"version": "22.04.2026071701"}
    raise AssertionError(f"the program calls {token}, which no plan needs")


def _outputs(kind: str, own: str, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    if kind == "storage:ObjectReplicationPolicy":
        rules = [{"ruleId": _uuid(name, str(index)), **one} for index, one in enumerate(inputs["rules"])]
        return {"policyId": own, "rules": rules}
    if kind == "keyvault:Vault":
        return {"properties": {**inputs["properties"], "vaultUri": f"https://{own}.vault.azure.net/"}}
    if kind == "keyvault:Key":
        own = inputs["keyName"]
        uri = f"https://{inputs['vaultName']}.vault.azure.net/keys/{own}"
        return {"name": own, "keyUri": uri, "keyUriWithVersion": f"{uri}/00000000000000000000000000000001"}
    if kind == "managedidentity:UserAssignedIdentity":
        return {"principalId": _uuid(name, "principal"), "clientId": _uuid(name, "client"), "tenantId": TENANT}
    if kind == "logic:Workflow":
        return {"identity": {**inputs["identity"], "principalId": _uuid(name, "principal"), "tenantId": TENANT}}
    if kind == "storagecache:AmlFilesystem":
        return {"clientInfo": {"mgsAddress": "10.64.0.4", "lustreVersion": "2.15", "mountCommand": "mount"}}
    if kind == "netapp:CapacityPoolVolume":
        target = {
            "fileSystemId": _uuid(name, "volume"),
            "ipAddress": "10.64.26.4",
            "mountTargetId": _uuid(name, "target"),
        }
        return {"mountTargets": [target]}
    return {}


def _uuid(*parts: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(parts)))
