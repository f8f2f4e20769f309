"""Outputs of Azure resources whose input is not set: the defaults of the services, and None for outputs that they omit.

The values are from recorded deployments and from the examples of Azure's REST API (`tests/providers/recordings/azure-native`),
which a test replays. The default idle timeout of a NAT gateway is from https://learn.microsoft.com/azure/nat-gateway/nat-gateway-resource,
retrieved 2026-11-22.
"""

from __future__ import annotations

from typing import Any


def _rule(name: str, text: str, source: str, target: str, access: str, priority: int, direction: str) -> dict[str, Any]:
    return {
        "name": name, "description": text, "protocol": "*", "sourcePortRange": "*", "destinationPortRange": "*",
        "sourceAddressPrefix": source, "destinationAddressPrefix": target, "access": access, "priority": priority,
        "direction": direction, "provisioningState": "Succeeded",
    }  # fmt: skip


DEFAULT_RULES = [
    _rule("AllowVnetInBound", "Allow inbound traffic from all VMs in VNET", "VirtualNetwork", "VirtualNetwork", "Allow", 65000, "Inbound"),
    _rule("AllowAzureLoadBalancerInBound", "Allow inbound traffic from azure load balancer", "AzureLoadBalancer", "*", "Allow", 65001, "Inbound"),
    _rule("DenyAllInBound", "Deny all inbound traffic", "*", "*", "Deny", 65500, "Inbound"),
    _rule("AllowVnetOutBound", "Allow outbound traffic from all VMs to all VMs in VNET", "VirtualNetwork", "VirtualNetwork", "Allow", 65000, "Outbound"),
    _rule("AllowInternetOutBound", "Allow outbound traffic from all VMs to Internet", "*", "Internet", "Allow", 65001, "Outbound"),
    _rule("DenyAllOutBound", "Deny all outbound traffic", "*", "*", "Deny", 65500, "Outbound"),
]  # fmt: skip
"""Rules that Azure adds to each network security group."""

_CARD = "virtualMachineProfile.networkProfile.networkInterfaceConfigurations"
_USER = {"identity.principalId": None, "identity.tenantId": None}
"""Only a system-assigned identity has these fields. gpuinfra creates user-assigned identities."""
_ENCRYPTED = {"enabled": True, "keyType": "Account", "lastEnabledTime": "2026-01-01T00:00:00Z"}
OUTPUTS: dict[str, dict[str, Any]] = {
    "azure-native:authorization:RoleDefinition": {"permissions.condition": None, "permissions.conditionVersion": None},
    "azure-native:compute:DiskEncryptionSet": _USER | dict.fromkeys(
        ("autoKeyRotationError", "lastKeyRotationTimestamp", "previousKeys")
    ),
    "azure-native:compute:VirtualMachineScaleSet": _USER | {
        "singlePlacementGroup": True, "virtualMachineProfile.osProfile.adminPassword": None, "virtualMachineProfile.timeCreated": None,
        f"{_CARD}.dnsSettings": {"dnsServers": []}, f"{_CARD}.enableAcceleratedNetworking": False,
        f"{_CARD}.ipConfigurations.privateIPAddressVersion": "IPv4",
    },
    "azure-native:consumption:Budget": {"forecastSpend": None},
    "azure-native:keyvault:Key": {
        "curveName": None, "keySize": 2048, "releasePolicy": None,
        "attributes": {
            "created": 1767225600, "enabled": True, "exportable": False, "recoveryLevel": "Recoverable+Purgeable",
            "updated": 1767225600,
        },
        "rotationPolicy": {
            "lifetimeActions": [{"action": {"type": "Notify"}, "trigger": {"timeBeforeExpiry": "P30D"}}],
        },
    },
    "azure-native:keyvault:Vault": {
        "properties.enableSoftDelete": True, "properties.enabledForDeployment": False,
        "properties.hsmPoolResourceId": None, "properties.publicNetworkAccess": "Enabled",
    },
    "azure-native:network:BastionHost": {
        "disableCopyPaste": False, "dnsName": "bst-00000000-0000-4000-8000-000000000000.bastion.azure.com",
        "enableIpConnect": False, "enableKerberos": False, "enablePrivateOnlyBastion": False,
        "enableSessionRecording": False, "enableShareableLink": False, "enableTunneling": False, "scaleUnits": 2,
        "ipConfigurations.privateIPAllocationMethod": "Dynamic",
    },
    "azure-native:network:FlowLog": _USER | {"retentionPolicy": {"days": 0, "enabled": False}},
    "azure-native:network:NatGateway": {"idleTimeoutInMinutes": 4},
    "azure-native:network:NetworkSecurityGroup": {
        "defaultSecurityRules": DEFAULT_RULES, "flowLogs": None, "networkInterfaces": None, "subnets": None,
    },
    "azure-native:network:PrivateEndpoint": {
        "manualPrivateLinkServiceConnections": [],
        "privateLinkServiceConnections.privateLinkServiceConnectionState": {
            "status": "Approved", "description": "Auto-approved", "actionsRequired": "None",
        },
        "subnet.etag": None, "subnet.provisioningState": None, "subnet.purpose": None,
    },
    "azure-native:network:PublicIPAddress": {
        "idleTimeoutInMinutes": 4, "ipConfiguration": None, "publicIPAddressVersion": "IPv4",
        "publicIPAllocationMethod": "Dynamic", "sku": {"name": "Basic", "tier": "Regional"}, "sku.tier": "Regional",
    },
    "azure-native:network:Subnet": {
        "ipConfigurationProfiles": None, "ipConfigurations": None, "privateEndpointNetworkPolicies": "Disabled",
        "privateEndpoints": None, "privateLinkServiceNetworkPolicies": "Enabled", "purpose": None,
        "resourceNavigationLinks": None, "serviceAssociationLinks": None, "type": "Microsoft.Network/virtualNetworks/subnets",
    },
    "azure-native:network:VirtualNetwork": {"enableDdosProtection": False, "flowLogs": None},
    "azure-native:operationalinsights:Workspace": {
        "privateLinkScopedResources": None, "publicNetworkAccessForIngestion": "Enabled",
        "publicNetworkAccessForQuery": "Enabled",
    },
    "azure-native:privatedns:PrivateZone": {
        "maxNumberOfRecordSets": 5000, "maxNumberOfVirtualNetworkLinks": 100,
        "maxNumberOfVirtualNetworkLinksWithRegistration": 50, "numberOfRecordSets": 1,
    },
    "azure-native:privatedns:VirtualNetworkLink": {"virtualNetworkLinkState": "Completed"},
    "azure-native:storage:BlobContainer": {
        "defaultEncryptionScope": "$account-encryption-key", "deletedTime": None, "denyEncryptionScopeOverride": False,
        "immutabilityPolicy": None, "legalHold": {"hasLegalHold": False, "tags": []}, "leaseDuration": None, "leaseState": "Available",
            "leaseStatus": "Unlocked", "version": None,
    },
    "azure-native:storage:StorageAccount": _USER | dict.fromkeys((
        "accountMigrationInProgress", "blobRestoreStatus", "customDomain", "failoverInProgress", "geoReplicationStats",
        "isSkuConversionBlocked", "keyPolicy", "lastGeoFailoverTime", "privateEndpointConnections", "sasPolicy",
        "secondaryEndpoints", "secondaryLocation", "statusOfSecondary", "storageAccountSkuConversionStatus",
    )) | {"allowCrossTenantReplication": False, "enableHttpsTrafficOnly": True, "minimumTlsVersion": "TLS1_0", "statusOfPrimary": "available",
        "encryption.keyVaultProperties.currentVersionedKeyExpirationTimestamp": None,
        "encryption": {
            "keySource": "Microsoft.Storage", "services": {name: _ENCRYPTED for name in ("blob", "file")},
        },
        "networkRuleSet": {"bypass": "AzureServices", "defaultAction": "Allow", "ipRules": [], "virtualNetworkRules": []},
        "primaryEndpoints.internetEndpoints": None, "primaryEndpoints.microsoftEndpoints": None,
    },
    "azure-native:storagecache:AmlFilesystem": _USER | {
        "health": {"state": "Available", "statusDescription": "amlFilesystem is ok."},
    },
}  # fmt: skip
"""Maps type and path to the value. A path with dots is a field of each object that the program sets."""
