"""Allowed characters and lengths of text fields on Azure. Names are from "Naming rules and restrictions for Azure resources", retrieved 2026-11-22."""

from __future__ import annotations

from gpuinfra_rehearsal.cloud.core.texts import Text

_NAMES = "https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules"
_TAGS = "https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources"
_NETWORK = r"[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9_])?"
"""Letters, digits, underscores, periods and hyphens. The first is a letter or digit, the last a letter, digit or underscore."""
_PLAIN = r"[^\x00-\x1f]*"


def _name(types: str, path: str, form: str, least: int, most: int) -> Text:
    return Text(types=f"azure-native:{types}", path=path, form=form, least=least, most=most, page=_NAMES, code="InvalidResourceName")  # fmt: skip


TEXTS = (
    _name("resources:ResourceGroup", "resourceGroupName", r"[\w().-]*[\w()-]", 1, 90),
    _name("authorization:RoleAssignment", "roleAssignmentName", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", 36, 36),
    _name("compute:Disk", "diskName", r"[a-zA-Z0-9_.-]+", 1, 80),
    _name("compute:DiskEncryptionSet", "diskEncryptionSetName", r"[a-zA-Z0-9_-]+", 1, 80),
    _name("compute:VirtualMachineScaleSet", "vmScaleSetName", r"[^_\W]([a-zA-Z0-9.-]*[a-zA-Z0-9])?", 1, 64),
    _name("consumption:Budget", "budgetName", r"[a-zA-Z0-9_-]+", 1, 63),
    _name("keyvault:Vault", "vaultName", r"[a-zA-Z][a-zA-Z0-9]*(-[a-zA-Z0-9]+)*", 3, 24),
    _name("keyvault:Key", "keyName", r"[a-zA-Z0-9-]+", 1, 127),
    _name("managedidentity:UserAssignedIdentity", "resourceName", r"[a-zA-Z0-9][a-zA-Z0-9_-]*", 3, 128),
    _name("monitor:ActionGroup", "actionGroupName", r"[^:<>+/&%\\?\x00-\x1f]*[^:<>+/&%\\?\x00-\x1f .]", 1, 260),
    _name("monitor:MetricAlert", "ruleName", r"[^*#&+:<>?@%{}\\/\x00-\x1f]*[^*#&+:<>?@%{}\\/\x00-\x1f .]", 1, 260),
    _name("monitor:ActivityLogAlert", "activityLogAlertName", r"[^<>*%{}&:\\?+/#|\x00-\x1f]*[^<>*%{}&:\\?+/#|\x00-\x1f .]", 1, 260),
    Text(types="azure-native:monitor:ActionGroup", path="groupShortName", form=_PLAIN, least=1, most=12,
         page="https://learn.microsoft.com/azure/azure-monitor/alerts/action-groups"),
    # The reference of both types has no limits.
    Text(types="azure-native:monitor:ActionGroup", path="emailReceivers[].name", form=_PLAIN, least=1, most=128, page="https://learn.microsoft.com/rest/api/monitor/action-groups/create-or-update"),
    Text(types="azure-native:monitor:ActivityLogAlert", path="description", form=_PLAIN, most=1024, page="https://learn.microsoft.com/rest/api/monitor/activity-log-alerts/create-or-update"),
    Text(types="azure-native:monitor:MetricAlert", path="description", form=_PLAIN, most=1024, page="https://learn.microsoft.com/rest/api/monitor/metric-alerts/create-or-update"),
    Text(types="azure-native:monitor:MetricAlert", path="criteria.allOf[].name", form=_PLAIN, least=1, most=128, page="https://learn.microsoft.com/rest/api/monitor/metric-alerts/create-or-update"),
    Text(types="azure-native:monitor:MetricAlert", path="criteria.allOf[].dimensions[].name", form=_PLAIN, least=1, most=128, page="https://learn.microsoft.com/rest/api/monitor/metric-alerts/create-or-update"),
    _name("monitor:*DiagnosticSetting", "name", r"[^*<>%&:\\?+/#]*[^*<>%&:\\?+/# .]", 1, 260),
    _name("network:VirtualNetwork", "virtualNetworkName", _NETWORK, 2, 64),
    _name("network:Subnet", "subnetName", _NETWORK, 1, 80),
    _name("network:ApplicationSecurityGroup", "applicationSecurityGroupName", _NETWORK, 1, 80),
    _name("network:NetworkSecurityGroup", "networkSecurityGroupName", _NETWORK, 1, 80),
    _name("network:NetworkSecurityGroup", "securityRules[].name", _NETWORK, 1, 80),
    _name("network:NatGateway", "natGatewayName", _NETWORK, 1, 80),
    _name("network:PublicIPAddress", "publicIpAddressName", _NETWORK, 1, 80),
    _name("network:PrivateEndpoint", "privateEndpointName", _NETWORK, 2, 64),
    _name("network:PrivateEndpoint", "privateLinkServiceConnections[].name", _NETWORK, 1, 80),
    _name("network:PrivateDnsZoneGroup", "privateDnsZoneGroupName", _NETWORK, 1, 80),
    _name("network:PrivateDnsZoneGroup", "privateDnsZoneConfigs[].name", _NETWORK, 1, 80),
    _name("network:BastionHost", "bastionHostName", _NETWORK, 1, 80),
    _name("network:*", "ipConfigurations[].name", _NETWORK, 1, 80),
    _name("network:FlowLog", "flowLogName", _NETWORK, 1, 80),
    _name("network:VirtualNetwork", "subnets[].name", _NETWORK, 1, 80),
    _name("privatedns:PrivateZone", "privateZoneName", r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?){1,33}", 3, 253),
    _name("privatedns:VirtualNetworkLink", "virtualNetworkLinkName", _NETWORK, 1, 80),
    _name("operationalinsights:Workspace", "workspaceName", r"[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]", 4, 63),
    _name("storage:StorageAccount", "accountName", r"[a-z0-9]+", 3, 24),
    _name("storage:BlobContainer", "containerName", r"[a-z0-9]+(-[a-z0-9]+)*", 3, 63),
    _name("storage:BlobContainerImmutabilityPolicy", "immutabilityPolicyName", "default", 7, 7),
    _name("storage:BlobServiceProperties", "blobServicesName", "default", 7, 7),
    _name("storage:FileServiceProperties", "fileServicesName", "default", 7, 7),
    _name("storage:FileShare", "shareName", r"[a-z0-9]+(-[a-z0-9]+)*", 3, 63),
    _name("storage:ManagementPolicy", "managementPolicyName", "default", 7, 7),
    _name("storage:ManagementPolicy", "policy.rules[].name", r"[a-zA-Z0-9-]+", 1, 255),
    _name("storagecache:AmlFilesystem", "amlFilesystemName", r"[0-9a-zA-Z][-0-9a-zA-Z_]*[0-9a-zA-Z]", 2, 80),
    _name("logic:Workflow", "workflowName", r"[a-zA-Z0-9_.()-]+", 1, 43),
    _name("netapp:Account", "accountName", r"[a-zA-Z0-9][a-zA-Z0-9_-]*", 1, 128),
    _name("netapp:SnapshotPolicy", "snapshotPolicyName", r"[a-zA-Z0-9][a-zA-Z0-9_-]*", 1, 64),
    _name("netapp:CapacityPool", "poolName", r"[a-zA-Z0-9][a-zA-Z0-9_-]*", 1, 64),
    _name("netapp:CapacityPoolVolume", "volumeName", r"[a-zA-Z][a-zA-Z0-9_-]*", 1, 64),
    # A host name consists of the prefix and six characters. Linux allows up to 64 characters.
    Text(types="azure-native:compute:VirtualMachineScaleSet", path="virtualMachineProfile.osProfile.computerNamePrefix", form=r"[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?", least=1, most=58, page=_NAMES),
    Text(types="azure-native:compute:VirtualMachineScaleSet", path="virtualMachineProfile.extensionProfile.extensions[].name", form=r"[a-zA-Z0-9._-]+", least=1, most=80, page=_NAMES),
    Text(types="azure-native:compute:VirtualMachineScaleSet", path="**.networkInterfaceConfigurations[].name", form=_NETWORK, least=1, most=80, page=_NAMES),
    Text(types="azure-native:compute:VirtualMachineScaleSet", path="**.ipConfigurations[].name", form=_NETWORK, least=1, most=80, page=_NAMES),
    Text(types="azure-native:network:NetworkSecurityGroup", path="securityRules[].description", form=_PLAIN, most=140,
         page="https://learn.microsoft.com/rest/api/virtualnetwork/network-security-groups/create-or-update"),
    Text(types="azure-native:authorization:RoleAssignment", path="description", form=_PLAIN, most=1024,
         page="https://learn.microsoft.com/azure/role-based-access-control/role-assignments"),
    Text(types="azure-native:authorization:RoleDefinition", path="description", form=_PLAIN, most=2048, page="https://learn.microsoft.com/azure/role-based-access-control/custom-roles"),
    Text(types="azure-native:authorization:RoleDefinition", path="roleName", form=_PLAIN, least=1, most=512, page="https://learn.microsoft.com/azure/role-based-access-control/custom-roles"),
    _name("authorization:RoleDefinition", "roleDefinitionId", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", 36, 36),
    # Tags of storage accounts have the shortest names.
    Text(types="azure-native:storage:StorageAccount", path="tags.#", form=r"(?!(?i:azure|microsoft|windows))[^<>%&\\?/]+", least=1, most=128, page=_TAGS, code="InvalidTagNameCharacters"),
    Text(types="azure-native:*", path="**.tags.#", form=r"(?!(?i:azure|microsoft|windows))[^<>%&\\?/]+", least=1, most=512, page=_TAGS, code="InvalidTagNameCharacters"),
    Text(types="azure-native:*", path="**.tags.*", form=r"(?s:.*)", most=256, page=_TAGS, code="InvalidTagValueLength"),
    Text(types="azure-native:consumption:Budget", path="**.tags.*[]", form=r"(?s:.*)", most=256, page=_TAGS),
    # The name of a service tier is an enumeration.
    Text(types="azure-native:*", path="**.sku.name", form=r"[A-Za-z0-9_-]+", least=1, most=80, page=_NAMES),
)  # fmt: skip
"""The limits of each text field. The first row that matches an input applies."""
