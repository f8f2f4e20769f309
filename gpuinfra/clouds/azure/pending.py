"""Finds the Azure resources that a killed run created, for `gpuinfra.search.interrupted`. This module makes no requests, unless the subscription is unknown.

IDs are paths of names below a resource group, whose name contains the token of the stack. The forms are those in the "Import" section of each page of
the Azure provider (pulumi_azure_native 3.29), retrieved 2026-11-28.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.clouds.pending import StackIdentity, from_inputs
from gpuinfra.engine.pending import PendingCreate

_GROUP = "/subscriptions/{subscription}/resourceGroups/{resourceGroupName}"
_STORAGE = f"{_GROUP}/providers/Microsoft.Storage/storageAccounts/{{accountName}}"
_NETWORK = f"{_GROUP}/providers/Microsoft.Network"
_NETAPP = f"{_GROUP}/providers/Microsoft.NetApp/netAppAccounts/{{accountName}}"
_VAULT = f"{_GROUP}/providers/Microsoft.KeyVault/vaults/{{vaultName}}"

_CONTAINER = f"{_STORAGE}/blobServices/default/containers/{{containerName}}"

SHAPES = {
    "azure-native:authorization:RoleAssignment": "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
    "azure-native:authorization:RoleDefinition": "{scope}/providers/Microsoft.Authorization/roleDefinitions/{roleDefinitionId}",
    "azure-native:compute:Disk": f"{_GROUP}/providers/Microsoft.Compute/disks/{{diskName}}",
    "azure-native:compute:DiskEncryptionSet": f"{_GROUP}/providers/Microsoft.Compute/diskEncryptionSets/{{diskEncryptionSetName}}",
    "azure-native:compute:VirtualMachineScaleSet": f"{_GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/{{vmScaleSetName}}",
    "azure-native:consumption:Budget": "{scope}/providers/Microsoft.Consumption/budgets/{budgetName}",
    "azure-native:keyvault:Key": f"{_VAULT}/keys/{{keyName}}",
    "azure-native:keyvault:Vault": _VAULT,
    "azure-native:logic:Workflow": f"{_GROUP}/providers/Microsoft.Logic/workflows/{{workflowName}}",
    "azure-native:managedidentity:UserAssignedIdentity": f"{_GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{{resourceName}}",
    "azure-native:monitor:ActionGroup": f"{_GROUP}/providers/Microsoft.Insights/actionGroups/{{actionGroupName}}",
    "azure-native:monitor:ActivityLogAlert": f"{_GROUP}/providers/Microsoft.Insights/activityLogAlerts/{{activityLogAlertName}}",
    "azure-native:monitor:DiagnosticSetting": "{resourceUri}/providers/Microsoft.Insights/diagnosticSettings/{name}",
    "azure-native:monitor:MetricAlert": f"{_GROUP}/providers/Microsoft.Insights/metricAlerts/{{ruleName}}",
    "azure-native:monitor:SubscriptionDiagnosticSetting": "/subscriptions/{subscription}/providers/Microsoft.Insights/diagnosticSettings/{name}",
    "azure-native:netapp:Account": _NETAPP,
    "azure-native:netapp:CapacityPool": f"{_NETAPP}/capacityPools/{{poolName}}",
    "azure-native:netapp:CapacityPoolVolume": f"{_NETAPP}/capacityPools/{{poolName}}/volumes/{{volumeName}}",
    "azure-native:netapp:SnapshotPolicy": f"{_NETAPP}/snapshotPolicies/{{snapshotPolicyName}}",
    "azure-native:network:ApplicationSecurityGroup": f"{_NETWORK}/applicationSecurityGroups/{{applicationSecurityGroupName}}",
    "azure-native:network:BastionHost": f"{_NETWORK}/bastionHosts/{{bastionHostName}}",
    "azure-native:network:FlowLog": f"{_NETWORK}/networkWatchers/{{networkWatcherName}}/flowLogs/{{flowLogName}}",
    "azure-native:network:NatGateway": f"{_NETWORK}/natGateways/{{natGatewayName}}",
    "azure-native:network:NetworkSecurityGroup": f"{_NETWORK}/networkSecurityGroups/{{networkSecurityGroupName}}",
    "azure-native:network:PrivateDnsZoneGroup": f"{_NETWORK}/privateEndpoints/{{privateEndpointName}}/privateDnsZoneGroups/{{privateDnsZoneGroupName}}",
    "azure-native:network:PrivateEndpoint": f"{_NETWORK}/privateEndpoints/{{privateEndpointName}}",
    "azure-native:network:PublicIPAddress": f"{_NETWORK}/publicIPAddresses/{{publicIpAddressName}}",
    "azure-native:network:Subnet": f"{_NETWORK}/virtualNetworks/{{virtualNetworkName}}/subnets/{{subnetName}}",
    "azure-native:network:VirtualNetwork": f"{_NETWORK}/virtualNetworks/{{virtualNetworkName}}",
    "azure-native:operationalinsights:Workspace": f"{_GROUP}/providers/Microsoft.OperationalInsights/workspaces/{{workspaceName}}",
    "azure-native:privatedns:PrivateZone": f"{_NETWORK}/privateDnsZones/{{privateZoneName}}",
    "azure-native:privatedns:VirtualNetworkLink": f"{_NETWORK}/privateDnsZones/{{privateZoneName}}/virtualNetworkLinks/{{virtualNetworkLinkName}}",
    "azure-native:resources:ResourceGroup": _GROUP,
    "azure-native:storage:BlobContainer": _CONTAINER,
    "azure-native:storage:BlobContainerImmutabilityPolicy": f"{_CONTAINER}/immutabilityPolicies/{{immutabilityPolicyName}}",
    "azure-native:storage:BlobServiceProperties": f"{_STORAGE}/blobServices/{{blobServicesName}}",
    "azure-native:storage:FileServiceProperties": f"{_STORAGE}/fileServices/{{fileServicesName}}",
    "azure-native:storage:FileShare": f"{_STORAGE}/fileServices/default/shares/{{shareName}}",
    "azure-native:storage:ManagementPolicy": f"{_STORAGE}/managementPolicies/{{managementPolicyName}}",
    "azure-native:storage:ObjectReplicationPolicy": f"{_STORAGE}/objectReplicationPolicies/{{objectReplicationPolicyId}}",
    "azure-native:storage:StorageAccount": _STORAGE,
    "azure-native:storagecache:AmlFilesystem": f"{_GROUP}/providers/Microsoft.StorageCache/amlFilesystems/{{amlFilesystemName}}",
}
"""IDs that consist of inputs."""

DERIVED = frozenset({"azure-native:authorization:RoleAssignment", "azure-native:authorization:RoleDefinition"})
"""Types whose name is a GUID that gpuinfra computes from the scope, the principal and the role, or from the stack's token (`names`)."""


class PendingSubscription:
    """Lookups in a subscription."""

    def __init__(self, subscription: Callable[[], str], stack: StackIdentity) -> None:
        self._subscription, self._stack = subscription, stack

    def ids(self, create: PendingCreate) -> Sequence[str] | None:
        """See `PendingLookup.ids`."""
        scope = create.text("scope") or create.text("resourceUri")
        more = {key: scope.rstrip("/") for key in ("scope", "resourceUri") if create.text(key)}
        if "{subscription}" in SHAPES.get(create.type, ""):
            more["subscription"] = create.text("subscriptionId") or self._subscription()
        return from_inputs(create, self._stack, SHAPES, repeatable=(), derived=DERIVED, more=more)


def lookup(stack: StackIdentity, settings: Mapping[str, object]) -> PendingSubscription:
    """Return the lookups in the subscription of the resources in the state, or of the provider's settings."""

    def subscription() -> str:
        from gpuinfra.clouds.azure.adopt import only_subscription
        from gpuinfra.clouds.azure.rest import Rest, subscription_of
        from gpuinfra.handover.ports import PortUnavailable

        subscriptions = {id.split("/")[2] for id in stack.ids if id.startswith("/subscriptions/")}
        if len(subscriptions) == 1:
            return subscriptions.pop()
        try:
            return subscription_of(settings) or only_subscription(Rest())
        except PortUnavailable as problem:
            raise EnvironmentMissing(
                f"Azure cannot be reached: {problem}; check the credentials with `az account show`"
            ) from None

    return PendingSubscription(subscription, stack)
