"""The table of resources on Azure: what the components create, what `destroy` does with it, what it costs, and who may create it.

Pure, so that `gpuinfra plan` and `gpuinfra permissions` work without an engine or an SDK. `instances.py` lists for each row where a plan has it.

An action on Azure is a resource type and a verb, so most actions follow from the type. The others are linked actions: Azure also checks the permission
to use a resource that a request refers to, for example to join a subnet or to assign an identity (resource provider operations, read 2026-11-21).
A test compares the types with the paths in the azure-mgmt models.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuinfra.clouds import planned
from gpuinfra.clouds.azure import instances
from gpuinfra.clouds.azure.instances import AUDIT, Kind, Lookup
from gpuinfra.clouds.planned import (
    BY_USAGE,
    FREE,
    REMOVED,
    Actions,
    Instance,
    PlannedResource,
    Price,
    ResourceKind,
    priced,
    retained,
)
from gpuinfra.plan.model import Plan

KEY_REASON = "data that a key encrypts is lost without it"
SETTINGS = "an account without its settings is not protected"
HOLDS = "deleting a resource group deletes the retained resources in it"
CONTAINS = "a retained file system is in it"
BASTION_PRICE = Price(item=None, reason="billed by the hour and by use; no price is in the catalog")

_JOIN_SUBNET = "Microsoft.Network/virtualNetworks/subnets/join/action"
_JOIN_GROUP = "Microsoft.Network/networkSecurityGroups/join/action"
_JOIN_ADDRESS = "Microsoft.Network/publicIPAddresses/join/action"
_ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
_READ_KEY = "Microsoft.KeyVault/vaults/keys/read"
_ACCOUNTS = "Microsoft.Storage/storageAccounts"
_CONTAINERS = f"{_ACCOUNTS}/blobServices/containers"
_SEND_LOGS = "Microsoft.OperationalInsights/workspaces/sharedKeys/action"


def _actions(kind: str, linked: str = "", delete: bool = True) -> Actions:
    """The actions of a type, and the linked actions of its creation and update."""
    write = f"{kind}/write {linked}"
    return Actions(write, f"{kind}/read", write, f"{kind}/delete" if delete else "")


def find(kind: Kind) -> Callable[[Instance], Lookup]:
    """Finds the resource by layer, purpose and part of its instance."""
    return lambda one: Lookup(
        kind=kind, layer=one.values["layer"], purpose=one.values.get("purpose", ""), part=one.values.get("part", "")
    )


_GROUP_ACTIONS = _actions("Microsoft.Resources/subscriptions/resourceGroups")
_GRANT_ACTIONS = _actions("Microsoft.Authorization/roleAssignments")
_IDENTITY_ACTIONS = _actions("Microsoft.ManagedIdentity/userAssignedIdentities")
_DIAGNOSTIC_ACTIONS = _actions("Microsoft.Insights/diagnosticSettings", f"{_SEND_LOGS}?workspaceId")
_CONTAINER_ACTIONS = _actions(_CONTAINERS)
_ADDRESS_ACTIONS = _actions("Microsoft.Network/publicIPAddresses")
_SECURITY_GROUP_ACTIONS = _actions("Microsoft.Network/networkSecurityGroups")

# Resource groups, one for each layer.
FOUNDATION_GROUP = ResourceKind(
    type="azure-native:resources:ResourceGroup",
    name="{component}-group",
    each=instances.foundations,
    lifetime=retained(HOLDS),
    price=FREE,
    actions=_GROUP_ACTIONS,
    lookup=find("group"),
)
SITE_GROUP = ResourceKind(
    type="azure-native:resources:ResourceGroup",
    name="{component}-site",
    each=instances.sites,
    lifetime=retained(HOLDS),
    price=FREE,
    actions=_GROUP_ACTIONS,
    lookup=find("group"),
)
CLUSTER_GROUP = ResourceKind(
    type="azure-native:resources:ResourceGroup",
    name="{component}-nodes",
    each=instances.clusters,
    lifetime=REMOVED,
    price=FREE,
    actions=_GROUP_ACTIONS,
)
# Keys.
VAULT = ResourceKind(
    type="azure-native:keyvault:Vault",
    name="{component}-vault",
    each=instances.vaults,
    lifetime=retained(KEY_REASON),
    price=BY_USAGE,
    actions=_actions("Microsoft.KeyVault/vaults"),
    lookup=find("vault"),
)
VAULT_LOG = ResourceKind(
    type="azure-native:monitor:DiagnosticSetting",
    name="{component}-requests",
    each=instances.audited_vaults,
    lifetime=REMOVED,
    price=BY_USAGE,
    actions=_DIAGNOSTIC_ACTIONS,
)
KEY = ResourceKind(
    type="azure-native:keyvault:Key",
    name="{component}-key",
    each=instances.keys,
    lifetime=retained(KEY_REASON),
    price=BY_USAGE,
    actions=Actions("Microsoft.KeyVault/vaults/keys/write", _READ_KEY, "Microsoft.KeyVault/vaults/keys/write"),
    lookup=find("key"),
)
KEY_IDENTITY = ResourceKind(
    type="azure-native:managedidentity:UserAssignedIdentity",
    name="{component}-user",
    each=instances.keys,
    lifetime=retained(KEY_REASON),
    price=FREE,
    actions=_IDENTITY_ACTIONS,
    lookup=find("identity"),
)
KEY_GRANT = ResourceKind(
    type="azure-native:authorization:RoleAssignment",
    name="{component}-use",
    each=instances.keys,
    lifetime=retained(KEY_REASON),
    price=FREE,
    actions=_GRANT_ACTIONS,
    lookup=find("grant"),
)
DISK_ENCRYPTION_SET = ResourceKind(
    type="azure-native:compute:DiskEncryptionSet",
    name="{component}-disks",
    each=instances.foundations,
    lifetime=REMOVED,
    price=FREE,
    actions=_actions("Microsoft.Compute/diskEncryptionSets", f"{_ASSIGN}?identity {_READ_KEY}"),
)
# Audit.
WORKSPACE = ResourceKind(
    type="azure-native:operationalinsights:Workspace",
    name="{component}-logs",
    each=instances.trails,
    lifetime=retained(AUDIT),
    price=BY_USAGE,
    actions=_actions("Microsoft.OperationalInsights/workspaces"),
    lookup=find("workspace"),
)
ACTIVITY_LOG = ResourceKind(
    type="azure-native:monitor:SubscriptionDiagnosticSetting",
    name="{component}-activity",
    each=instances.trails,
    lifetime=REMOVED,
    price=BY_USAGE,
    actions=_actions(
        "Microsoft.Insights/diagnosticSettings",
        f"{_SEND_LOGS}?workspaceId {_ACCOUNTS}/listKeys/action?storageAccountId",
    ),
)
OPERATOR_GRANT = ResourceKind(
    type="azure-native:authorization:RoleAssignment",
    name="{component}-operator-{index}",
    each=instances.operators,
    lifetime=REMOVED,
    price=FREE,
    actions=_GRANT_ACTIONS,
)
BUDGET = ResourceKind(
    type="azure-native:consumption:Budget",
    name="{component}-month",
    each=instances.budgets,
    lifetime=REMOVED,
    price=FREE,
    actions=_actions("Microsoft.Consumption/budgets"),
)
# Storage accounts with their settings.
ACCOUNT = ResourceKind(
    type="azure-native:storage:StorageAccount",
    name="{component}-account",
    each=instances.stores,
    lifetime=retained("{why}"),
    price=BY_USAGE,
    actions=_actions(_ACCOUNTS, f"{_ASSIGN}?identity"),
    lookup=find("account"),
)
BLOB_SERVICE = ResourceKind(
    type="azure-native:storage:BlobServiceProperties",
    name="{component}-blobs",
    each=instances.stores,
    lifetime=retained(SETTINGS),
    price=FREE,
    actions=_actions(f"{_ACCOUNTS}/blobServices", delete=False),
    lookup=find("blobs"),
)
LIFECYCLE = ResourceKind(
    type="azure-native:storage:ManagementPolicy",
    name="{component}-lifecycle",
    each=instances.stores,
    lifetime=retained(SETTINGS),
    price=FREE,
    actions=_actions(f"{_ACCOUNTS}/managementPolicies"),
    lookup=find("lifecycle"),
)
CONTAINER = ResourceKind(
    type="azure-native:storage:BlobContainer",
    name="{component}-{part}",
    each=instances.containers,
    lifetime=retained("{why}"),
    price=FREE,
    actions=_CONTAINER_ACTIONS,
    lookup=find("container"),
)
CONTAINER_LOCK = ResourceKind(
    type="azure-native:storage:BlobContainerImmutabilityPolicy",
    name="{component}-{part}-lock",
    each=instances.locked_containers,
    lifetime=retained(SETTINGS),
    price=FREE,
    actions=_actions(f"{_CONTAINERS}/immutabilityPolicies"),
    lookup=find("lock"),
)
ACCOUNT_LOG = ResourceKind(
    type="azure-native:monitor:DiagnosticSetting",
    name="{component}-requests",
    each=instances.logged_stores,
    lifetime=REMOVED,
    price=BY_USAGE,
    actions=_DIAGNOSTIC_ACTIONS,
)
# Network.
NETWORK = ResourceKind(
    type="azure-native:network:VirtualNetwork",
    name="{component}-network",
    each=instances.networks,
    lifetime=retained(CONTAINS, with_data=True),
    price=FREE,
    actions=_actions("Microsoft.Network/virtualNetworks"),
    lookup=find("network"),
)
SUBNET = ResourceKind(
    type="azure-native:network:Subnet",
    name="{component}-{part}",
    each=instances.subnets,
    lifetime=retained(CONTAINS, with_data=True),
    price=FREE,
    actions=_actions(
        "Microsoft.Network/virtualNetworks/subnets",
        f"{_JOIN_GROUP}?networkSecurityGroup Microsoft.Network/natGateways/join/action?natGateway",
    ),
    lookup=find("subnet"),
)
NAT_GATEWAY = ResourceKind(
    type="azure-native:network:NatGateway",
    name="{component}-nat-gateway",
    each=instances.nat_gateways,
    lifetime=retained("the subnet of a retained file system uses it", with_data=True),
    price=priced("nat_hour"),
    actions=_actions("Microsoft.Network/natGateways", f"{_JOIN_ADDRESS}?publicIpAddresses"),
    lookup=find("gateway"),
)
NAT_ADDRESS = ResourceKind(
    type="azure-native:network:PublicIPAddress",
    name="{component}-nat-address",
    each=instances.nat_addresses,
    lifetime=retained("the subnet of a retained file system uses it", with_data=True),
    price=priced("address_hour"),
    actions=_ADDRESS_ACTIONS,
    lookup=find("address"),
)
FLOW_LOG = ResourceKind(
    type="azure-native:network:FlowLog",
    name="{component}-flow",
    each=instances.networks,
    lifetime=REMOVED,
    price=BY_USAGE,
    actions=_actions(
        "Microsoft.Network/networkWatchers/flowLogs",
        f"Microsoft.Network/virtualNetworks/read {_SEND_LOGS}?flowAnalyticsConfiguration"
        f" {_ACCOUNTS}/read Microsoft.Network/networkWatchers/read",
    ),
)
FLOW_IDENTITY = ResourceKind(
    type="azure-native:managedidentity:UserAssignedIdentity",
    name="{component}-flow",
    each=instances.networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_IDENTITY_ACTIONS,
)
FLOW_GRANT = ResourceKind(
    type="azure-native:authorization:RoleAssignment",
    name="{component}-flow",
    each=instances.networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_GRANT_ACTIONS,
)
BASTION = ResourceKind(
    type="azure-native:network:BastionHost",
    name="{component}-bastion",
    each=instances.bastions,
    lifetime=REMOVED,
    price=BASTION_PRICE,
    actions=_actions("Microsoft.Network/bastionHosts", f"{_JOIN_SUBNET} {_JOIN_ADDRESS}"),
)
BASTION_ADDRESS = ResourceKind(
    type="azure-native:network:PublicIPAddress",
    name="{component}-bastion-address",
    each=instances.bastions,
    lifetime=REMOVED,
    price=BASTION_PRICE,
    actions=_ADDRESS_ACTIONS,
)
SECURITY_GROUP = ResourceKind(
    type="azure-native:network:NetworkSecurityGroup",
    name="{component}-{purpose}",
    each=instances.security_groups,
    lifetime=REMOVED,
    price=FREE,
    actions=_SECURITY_GROUP_ACTIONS,
)
STORAGE_GROUP = ResourceKind(
    type="azure-native:network:NetworkSecurityGroup",
    name="{component}-storage",
    each=instances.storage_security_groups,
    lifetime=retained(CONTAINS, with_data=True),
    price=FREE,
    actions=_SECURITY_GROUP_ACTIONS,
    lookup=find("security-group"),
)
# Private endpoints.
DNS_ZONE = ResourceKind(
    type="azure-native:privatedns:PrivateZone",
    name="{component}-{purpose}-zone",
    each=instances.dns_zones,
    lifetime=REMOVED,
    price=BY_USAGE,
    actions=_actions("Microsoft.Network/privateDnsZones"),
)
DNS_LINK = ResourceKind(
    type="azure-native:privatedns:VirtualNetworkLink",
    name="{component}-{purpose}-link",
    each=instances.dns_zones,
    lifetime=REMOVED,
    price=FREE,
    actions=_actions(
        "Microsoft.Network/privateDnsZones/virtualNetworkLinks", "Microsoft.Network/virtualNetworks/join/action"
    ),
)
PRIVATE_ENDPOINT = ResourceKind(
    type="azure-native:network:PrivateEndpoint",
    name="{component}-endpoint",
    each=instances.private_endpoints,
    lifetime=REMOVED,
    price=priced("endpoint_hour"),
    actions=_actions(
        "Microsoft.Network/privateEndpoints",
        f"{_JOIN_SUBNET} {_ACCOUNTS}/privateEndpointConnectionsApproval/action"
        " Microsoft.KeyVault/vaults/privateEndpointConnectionsApproval/action",
    ),
)
ENDPOINT_NAMES = ResourceKind(
    type="azure-native:network:PrivateDnsZoneGroup",
    name="{component}-names",
    each=instances.private_endpoints,
    lifetime=REMOVED,
    price=FREE,
    actions=_actions(
        "Microsoft.Network/privateEndpoints/privateDnsZoneGroups", "Microsoft.Network/privateDnsZones/join/action"
    ),
)
# File systems.
LUSTRE = ResourceKind(
    type="azure-native:storagecache:AmlFilesystem",
    name="{component}-lustre",
    each=instances.file_systems,
    lifetime=retained("{why}", with_data=True),
    price=priced("lustre_gib_month"),
    actions=_actions(
        "Microsoft.StorageCache/amlFilesystems",
        f"{_JOIN_SUBNET} {_ASSIGN}?identity {_READ_KEY} {_CONTAINERS}/read?hsm",
    ),
    lookup=find("file-system"),
)
IMPORT_LOG = ResourceKind(
    type="azure-native:storage:BlobContainer",
    name="{component}-import-log",
    each=instances.existing_data,
    lifetime=REMOVED,
    price=BY_USAGE,
    actions=_CONTAINER_ACTIONS,
)
IMPORTER_GRANT = ResourceKind(
    type="azure-native:authorization:RoleAssignment",
    name="{component}-importer-{at}",
    each=instances.importers,
    lifetime=REMOVED,
    price=FREE,
    actions=_GRANT_ACTIONS,
)
# Nodes.
NODE_IDENTITY = ResourceKind(
    type="azure-native:managedidentity:UserAssignedIdentity",
    name="{component}-identity",
    each=instances.node_roles,
    lifetime=REMOVED,
    price=FREE,
    actions=_IDENTITY_ACTIONS,
)
NODE_GRANT = ResourceKind(
    type="azure-native:authorization:RoleAssignment",
    name="{component}-own",
    each=instances.node_roles,
    lifetime=REMOVED,
    price=FREE,
    actions=_GRANT_ACTIONS,
)
BUNDLE = ResourceKind(
    type="gpuinfra:index:Upload",
    name="{component}-bundle",
    each=planned.pools,
    lifetime=REMOVED,
    price=BY_USAGE,
    # A request for data, which the role of `OPERATOR_GRANT` allows.
    actions=Actions("", ""),
)
SCALE_SET = ResourceKind(
    type="azure-native:compute:VirtualMachineScaleSet",
    name="{component}",
    each=planned.groups,
    lifetime=REMOVED,
    price=priced("node"),
    actions=_actions(
        "Microsoft.Compute/virtualMachineScaleSets",
        f"{_JOIN_SUBNET} {_JOIN_GROUP} {_ASSIGN}?identity Microsoft.Compute/diskEncryptionSets/read",
    ),
)

NODES_READY = ResourceKind[Lookup](
    type="gpuinfra:index:NodesReady",
    name="{component}-ready",
    each=planned.nodes_ready,
    lifetime=REMOVED,
    price=Price(item=None, reason="it waits, and creates nothing in the account"),
    actions=Actions("", ""),
)

RESOURCES = planned.rows(globals())
"""The table."""


def resources(plan: Plan) -> tuple[PlannedResource[Lookup], ...]:
    """Every resource that a plan creates."""
    return tuple(planned.planned(RESOURCES, plan))
