"""The least role definition for an operator of one plan on Azure. Pure.

An action on Azure is a resource type and a verb, so most rows follow from the type; what is added are the linked actions: who joins a subnet to a security group
or gives a machine an identity is asked for both. A role definition is assigned at a scope; the resource groups of a stack are made by it, so that scope is the subscription.
"""

from __future__ import annotations

from typing import Any

from gpuinfra.clouds.azure.resources import resources
from gpuinfra.clouds.permissions import Permissions, collect, uses_of
from gpuinfra.clouds.planned import Actions
from gpuinfra.plan.model import Plan

SOURCE = "Azure's resource provider operations, read 2026-11-21; types held against the azure-mgmt models' own paths"
_JOIN_SUBNET = "Microsoft.Network/virtualNetworks/subnets/join/action"
_JOIN_GROUP = "Microsoft.Network/networkSecurityGroups/join/action"
_ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
_KEY = "Microsoft.KeyVault/vaults/keys/read"
_ACCOUNTS = "Microsoft.Storage/storageAccounts"
_CONTAINERS = f"{_ACCOUNTS}/blobServices/containers"


def _all(kind: str, write: str = "", delete: bool = True) -> Actions:
    """A type with the usual verbs; `write` are linked actions."""
    return Actions(f"{kind}/write {write}", f"{kind}/read", f"{kind}/write {write}", f"{kind}/delete" if delete else "")


ACTIONS: dict[str, Actions] = {
    "azure-native:resources:ResourceGroup": _all("Microsoft.Resources/subscriptions/resourceGroups"),
    "azure-native:network:VirtualNetwork": _all("Microsoft.Network/virtualNetworks"),
    "azure-native:network:Subnet": _all(
        "Microsoft.Network/virtualNetworks/subnets",
        f"{_JOIN_GROUP}?networkSecurityGroup Microsoft.Network/natGateways/join/action?natGateway",
    ),
    "azure-native:network:NetworkSecurityGroup": _all("Microsoft.Network/networkSecurityGroups"),
    "azure-native:network:PublicIPAddress": _all("Microsoft.Network/publicIPAddresses"),
    "azure-native:network:NatGateway": _all(
        "Microsoft.Network/natGateways", "Microsoft.Network/publicIPAddresses/join/action?publicIpAddresses"
    ),
    "azure-native:network:BastionHost": _all(
        "Microsoft.Network/bastionHosts", f"{_JOIN_SUBNET} Microsoft.Network/publicIPAddresses/join/action"
    ),
    "azure-native:network:PrivateEndpoint": _all(
        "Microsoft.Network/privateEndpoints",
        f"{_JOIN_SUBNET} {_ACCOUNTS}/privateEndpointConnectionsApproval/action Microsoft.KeyVault/vaults/privateEndpointConnectionsApproval/action",
    ),
    "azure-native:network:PrivateDnsZoneGroup": _all(
        "Microsoft.Network/privateEndpoints/privateDnsZoneGroups", "Microsoft.Network/privateDnsZones/join/action"
    ),
    "azure-native:privatedns:PrivateZone": _all("Microsoft.Network/privateDnsZones"),
    "azure-native:privatedns:VirtualNetworkLink": _all(
        "Microsoft.Network/privateDnsZones/virtualNetworkLinks", "Microsoft.Network/virtualNetworks/join/action"
    ),
    "azure-native:network:FlowLog": _all(
        "Microsoft.Network/networkWatchers/flowLogs",
        "Microsoft.Network/virtualNetworks/read Microsoft.OperationalInsights/workspaces/sharedKeys/action?flowAnalyticsConfiguration"
        f" {_ACCOUNTS}/read Microsoft.Network/networkWatchers/read",
    ),
    "azure-native:managedidentity:UserAssignedIdentity": _all("Microsoft.ManagedIdentity/userAssignedIdentities"),
    "azure-native:authorization:RoleAssignment": _all("Microsoft.Authorization/roleAssignments"),
    "azure-native:keyvault:Vault": _all("Microsoft.KeyVault/vaults"),
    "azure-native:keyvault:Key": Actions(
        "Microsoft.KeyVault/vaults/keys/write", _KEY, "Microsoft.KeyVault/vaults/keys/write"
    ),
    "azure-native:compute:DiskEncryptionSet": _all(
        "Microsoft.Compute/diskEncryptionSets", f"{_ASSIGN}?identity {_KEY}"
    ),
    "azure-native:compute:VirtualMachineScaleSet": _all(
        "Microsoft.Compute/virtualMachineScaleSets",
        f"{_JOIN_SUBNET} {_JOIN_GROUP} {_ASSIGN}?identity Microsoft.Compute/diskEncryptionSets/read",
    ),
    "azure-native:storage:StorageAccount": _all(_ACCOUNTS, f"{_ASSIGN}?identity"),
    "azure-native:storage:BlobServiceProperties": _all(f"{_ACCOUNTS}/blobServices", delete=False),
    "azure-native:storage:BlobContainer": _all(_CONTAINERS),
    "azure-native:storage:BlobContainerImmutabilityPolicy": _all(f"{_CONTAINERS}/immutabilityPolicies"),
    "azure-native:storage:ManagementPolicy": _all(f"{_ACCOUNTS}/managementPolicies"),
    "azure-native:storage:FileShare": _all(f"{_ACCOUNTS}/fileServices/shares"),
    "azure-native:storage:FileServiceProperties": _all(f"{_ACCOUNTS}/fileServices", delete=False),
    "azure-native:storagecache:AmlFilesystem": _all(
        "Microsoft.StorageCache/amlFilesystems", f"{_JOIN_SUBNET} {_ASSIGN}?identity {_KEY} {_CONTAINERS}/read?hsm"
    ),
    "azure-native:operationalinsights:Workspace": _all("Microsoft.OperationalInsights/workspaces"),
    "azure-native:monitor:DiagnosticSetting": _all(
        "Microsoft.Insights/diagnosticSettings",
        "Microsoft.OperationalInsights/workspaces/sharedKeys/action?workspaceId",
    ),
    "azure-native:monitor:SubscriptionDiagnosticSetting": _all(
        "Microsoft.Insights/diagnosticSettings",
        f"Microsoft.OperationalInsights/workspaces/sharedKeys/action?workspaceId {_ACCOUNTS}/listKeys/action?storageAccountId",
    ),
    "azure-native:consumption:Budget": _all("Microsoft.Consumption/budgets"),
}

ASKED: dict[str, tuple[str, ...]] = {
    "finding an image's version": ("Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read",),
    "the handover: who should be there": (
        "Microsoft.Compute/virtualMachineScaleSets/read",
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
        "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
    ),
    "the handover: why machines are missing": (
        "Microsoft.Compute/virtualMachineScaleSets/instanceView/read",
        "Microsoft.Insights/eventtypes/values/read",
    ),
    "the handover: why a node is silent": (
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/retrieveBootDiagnosticsData/action",
    ),
}
"""What the program itself asks, beside resources."""

FUNCTIONS: dict[str, str] = {}
"""Functions of the SDK -> action. Who one is needs none."""


def permissions(plan: Plan) -> Permissions:
    """The role definition of a plan's operator, with every action's reason."""
    uses = uses_of(resources(plan), ACTIONS, ASKED if plan.pools else {})
    document: dict[str, Any] = {
        "Name": f"gpuinfra {plan.name}",
        "IsCustom": True,
        "Description": f"The least that an operator of the cluster {plan.name} needs.",
        "Actions": sorted(uses),
        "NotActions": [],
        "DataActions": [],
        "NotDataActions": [],
        "AssignableScopes": ["/subscriptions/SUBSCRIPTION"],
    }
    notes = [
        "put your subscription's id in place of SUBSCRIPTION, then: az role definition create --role-definition FILE",
        "providers have to be registered once in a subscription, which an owner does",
        "bundles and evidence need no data action here: the stack that holds the evidence gives access.operators a role on that container alone",
    ]
    if any(one.retained for one in resources(plan)):
        notes.append("what a destroy keeps may not be deleted with it; whoever deletes it later needs more")
    if "Microsoft.Authorization/roleAssignments/write" in uses:
        notes.append(
            "who may assign roles can give himself more; a condition on the assignment names the roles that he may give (Azure ABAC)"
        )
    return Permissions(cloud="azure", needs=collect(uses), documents=(document,), notes=tuple(notes), source=SOURCE)
