"""The Azure resource table. For each resource kind, it defines the behavior on `destroy`, the price and the required permissions.

The module is pure, so that `gpuinfra plan` and `gpuinfra permissions` work without an engine or an SDK. `instances.py` lists the instances of each row for a plan.

An action on Azure is a resource type and a verb, so most actions follow from the type. The others are linked actions: Azure also checks the permission
to use a resource that a request refers to, for example to join a subnet or to assign an identity (resource provider operations, retrieved 2026-11-21).
A test compares the types with the paths in the azure-mgmt models.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuinfra.clouds.azure import instances
from gpuinfra.clouds.azure.instances import Kind, Lookup
from gpuinfra.clouds.instances import AUDIT, budgets, data_disks
from gpuinfra.plan import planned
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import (
    BY_REQUEST,
    FREE,
    LOGS,
    OBJECTS,
    REMOVED,
    Actions,
    PlannedInstance,
    PlannedResource,
    PriceRule,
    ResourceKind,
    priced,
    priced_each,
    retained,
)

KEY_REASON = "data that a key encrypts is lost without the key"
SETTINGS = "an account without its settings is not protected"
HOLDS = "deleting a resource group deletes the retained resources in it"
CONTAINS = "a retained file system is in it"
SNAPSHOTS = "a retained file system uses it"

CRYPTO_USER = "e147488a-f6f5-4113-8e2d-b22465e65bf6"
"""Key Vault Crypto Service Encryption User: reads key metadata, and wraps and unwraps keys."""
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
"""Storage Blob Data Contributor: reads, writes and deletes blobs and containers. For services only."""
ACCOUNT_CONTRIBUTOR = "17d1049b-9a84-46fb-8f53-869881c3d3ab"
"""Storage Account Contributor: manages an account, without data access through roles."""
SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
"""Key Vault Secrets User: reads the values of secrets."""
WATCHER_GROUP = "NetworkWatcherRG"
"""The resource group in which Azure creates the Network Watcher for each region of a subscription."""

_JOIN_SUBNET = "Microsoft.Network/virtualNetworks/subnets/join/action"
_JOIN_GROUP = "Microsoft.Network/networkSecurityGroups/join/action"
_JOIN_ADDRESS = "Microsoft.Network/publicIPAddresses/join/action"
_ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
_READ_KEY = "Microsoft.KeyVault/vaults/keys/read"
_ACCOUNTS = "Microsoft.Storage/storageAccounts"
_NETAPP = "Microsoft.NetApp/netAppAccounts"
_CONTAINERS = f"{_ACCOUNTS}/blobServices/containers"
_SEND_LOGS = "Microsoft.OperationalInsights/workspaces/sharedKeys/action"


_FLOW_STORAGE = (
    "Microsoft.Network/networkWatchers/configureFlowLog/action Microsoft.Network/networkWatchers/queryFlowLogStatus/action"
    f" {_ACCOUNTS}/listServiceSas/action {_ACCOUNTS}/listAccountSas/action {_ACCOUNTS}/listKeys/action"
)
_TRAFFIC_ANALYTICS = " ".join(
    f"{action}?flowAnalyticsConfiguration"
    for action in (
        *(
            f"Microsoft.Network/{kind}/read"
            for kind in (
                "applicationGateways", "connections", "expressRouteCircuits", "loadBalancers", "localNetworkGateways",
                "networkInterfaces", "networkSecurityGroups", "publicIPAddresses", "routeTables", "virtualNetworkGateways",
                "virtualNetworks",
            )
        ),
        "Microsoft.OperationalInsights/workspaces/read",
        _SEND_LOGS,
        *(
            f"Microsoft.Insights/{kind}/{verb}"
            for kind in ("dataCollectionRules", "dataCollectionEndpoints")
            for verb in ("read", "write", "delete")
        ),
    )
)  # fmt: skip
"""Permissions of flow logs and of traffic analytics. https://learn.microsoft.com/azure/network-watcher/required-rbac-permissions, retrieved 2026-11-22."""


def _actions(kind: str, linked: str = "", delete: bool = True) -> Actions:
    """Return the actions of a type, and the linked actions for creating and updating it."""
    write = f"{kind}/write {linked}"
    return Actions(write, f"{kind}/read", write, f"{kind}/delete" if delete else "")


def find(kind: Kind) -> Callable[[PlannedInstance], Lookup]:
    """Return a lookup by the layer, purpose and part of the instance."""
    return lambda one: Lookup(
        kind=kind,
        layer=one.values["layer"],
        purpose=one.values.get("purpose", ""),
        part=one.values.get("part", ""),
        region=one.values.get("region", ""),
    )


_GROUP_ACTIONS = _actions("Microsoft.Resources/subscriptions/resourceGroups")
_GRANT_ACTIONS = _actions("Microsoft.Authorization/roleAssignments")
_ROLE_ACTIONS = _actions("Microsoft.Authorization/roleDefinitions")
_IDENTITY_ACTIONS = _actions("Microsoft.ManagedIdentity/userAssignedIdentities")
_DIAGNOSTIC_ACTIONS = _actions("Microsoft.Insights/diagnosticSettings", f"{_SEND_LOGS}?workspaceId")
_ACCOUNT_ACTIONS = _actions(_ACCOUNTS, f"{_ASSIGN}?identity")
_CONTAINER_ACTIONS = _actions(_CONTAINERS)
_ADDRESS_ACTIONS = _actions("Microsoft.Network/publicIPAddresses")
_SECURITY_GROUP_ACTIONS = _actions(
    "Microsoft.Network/networkSecurityGroups",
    "Microsoft.Network/applicationSecurityGroups/joinNetworkSecurityRule/action",
)

# fmt: off
# Resource groups, one for each layer.
FOUNDATION_GROUP = ResourceKind("azure-native:resources:ResourceGroup", "{component}-group", instances.foundations, retained(HOLDS), FREE,
    _GROUP_ACTIONS, find("group"))
SITE_GROUP = ResourceKind("azure-native:resources:ResourceGroup", "{component}-site", instances.sites, retained(HOLDS), FREE,
    _GROUP_ACTIONS, find("group"))
RECOVERY_GROUP = ResourceKind("azure-native:resources:ResourceGroup", "{component}-group", instances.second_regions, retained(HOLDS), FREE,
    _GROUP_ACTIONS, find("group"))
CLUSTER_GROUP = ResourceKind("azure-native:resources:ResourceGroup", "{component}-nodes", instances.clusters, REMOVED, FREE, _GROUP_ACTIONS)
# Keys.
VAULT = ResourceKind("azure-native:keyvault:Vault", "{component}-vault", instances.vaults, retained(KEY_REASON), BY_REQUEST,
    _actions("Microsoft.KeyVault/vaults"), find("vault"))
VAULT_LOG = ResourceKind("azure-native:monitor:DiagnosticSetting", "{component}-requests", instances.audited_vaults, REMOVED, LOGS,
    _DIAGNOSTIC_ACTIONS)
KEY = ResourceKind("azure-native:keyvault:Key", "{component}-key", instances.keys, retained(KEY_REASON), BY_REQUEST,
    Actions("Microsoft.KeyVault/vaults/keys/write", _READ_KEY, "Microsoft.KeyVault/vaults/keys/write"), find("key"))
KEY_IDENTITY = ResourceKind("azure-native:managedidentity:UserAssignedIdentity", "{component}-user", instances.keys, retained(KEY_REASON), FREE,
    _IDENTITY_ACTIONS, find("identity"))
KEY_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-use", instances.keys, retained(KEY_REASON), FREE,
    _GRANT_ACTIONS, find("grant"))
DISK_ENCRYPTION_SET = ResourceKind("azure-native:compute:DiskEncryptionSet", "{component}-disks", instances.foundations, REMOVED, FREE,
    _actions("Microsoft.Compute/diskEncryptionSets", f"{_ASSIGN}?identity {_READ_KEY}"))
# Audit.
WORKSPACE = ResourceKind("azure-native:operationalinsights:Workspace", "{component}-logs", instances.trails, retained(AUDIT), LOGS,
    _actions("Microsoft.OperationalInsights/workspaces"), find("workspace"))
ACTIVITY_LOG = ResourceKind("azure-native:monitor:SubscriptionDiagnosticSetting", "{component}-activity", instances.trails, REMOVED, LOGS, _actions(
    "Microsoft.Insights/diagnosticSettings",
    f"{_SEND_LOGS}?workspaceId {_ACCOUNTS}/listKeys/action?storageAccountId",
))
OPERATOR_ROLE = ResourceKind("azure-native:authorization:RoleDefinition", "{component}-operator-role", instances.evidence_stores, REMOVED, FREE,
    _ROLE_ACTIONS)
OPERATOR_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-operator-{index}", instances.operators, REMOVED, FREE,
    _GRANT_ACTIONS)
BUDGET = ResourceKind("azure-native:consumption:Budget", "{component}-month", budgets, REMOVED, FREE,
    _actions("Microsoft.Consumption/budgets"))
# Storage accounts with their settings.
ACCOUNT = ResourceKind("azure-native:storage:StorageAccount", "{component}-account", instances.stores, retained("{why}"), OBJECTS,
    _ACCOUNT_ACTIONS, find("account"))
BLOB_SERVICE = ResourceKind("azure-native:storage:BlobServiceProperties", "{component}-blobs", instances.stores, retained(SETTINGS), FREE,
    _actions(f"{_ACCOUNTS}/blobServices", delete=False), find("blobs"))
LIFECYCLE = ResourceKind("azure-native:storage:ManagementPolicy", "{component}-lifecycle", instances.stores, retained(SETTINGS), FREE,
    _actions(f"{_ACCOUNTS}/managementPolicies"), find("lifecycle"))
CONTAINER = ResourceKind("azure-native:storage:BlobContainer", "{component}-{part}", instances.containers, retained("{why}"), FREE,
    _CONTAINER_ACTIONS, find("container"))
CONTAINER_LOCK = ResourceKind("azure-native:storage:BlobContainerImmutabilityPolicy", "{component}-{part}-lock", instances.locked_containers, retained(SETTINGS), FREE,
    _actions(f"{_CONTAINERS}/immutabilityPolicies"), find("lock"))
ACCOUNT_LOG = ResourceKind("azure-native:monitor:DiagnosticSetting", "{component}-requests", instances.logged_stores, REMOVED, LOGS,
    _DIAGNOSTIC_ACTIONS)
# The second region.
RECORD_ROLE = ResourceKind("azure-native:authorization:RoleDefinition", "{component}-record-role", instances.second_regions, REMOVED, FREE,
    _ROLE_ACTIONS)
RECORD_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-record-{index}", instances.record_operators, REMOVED, FREE,
    _GRANT_ACTIONS)
REPLICA_POLICY = ResourceKind("azure-native:storage:ObjectReplicationPolicy", "{component}-{purpose}-replica", instances.replicas, REMOVED, FREE,
    _actions(f"{_ACCOUNTS}/objectReplicationPolicies"))
REPLICATION = ResourceKind("azure-native:storage:ObjectReplicationPolicy", "{component}-{purpose}-replication", instances.replicas, REMOVED, priced("replication_gb"),
    _actions(f"{_ACCOUNTS}/objectReplicationPolicies"))
ALERT_RECIPIENTS = ResourceKind("azure-native:monitor:ActionGroup", "{component}-recipients", instances.alerted, REMOVED, BY_REQUEST,
    _actions("Microsoft.Insights/actionGroups"))
LAG_ALERT = ResourceKind("azure-native:monitor:MetricAlert", "{component}-{purpose}-late", instances.replicas, REMOVED, priced_each("alert_month", "metric alert"), _actions(
    "Microsoft.Insights/metricAlerts",
    # Azure also checks that the alert can read its metric and its action group.
    f"{_ACCOUNTS}/objectReplicationPolicies/read Microsoft.Insights/actionGroups/read?actions",
))
CHANGE_ALERT = ResourceKind("azure-native:monitor:ActivityLogAlert", "{component}-changed", instances.second_regions, REMOVED, FREE,
    _actions("Microsoft.Insights/activityLogAlerts", "Microsoft.Insights/actionGroups/read?actions"))
# Network.
NETWORK = ResourceKind("azure-native:network:VirtualNetwork", "{component}-network", instances.networks, retained(CONTAINS, with_data=True), FREE,
    _actions("Microsoft.Network/virtualNetworks"), find("network"))
SUBNET = ResourceKind("azure-native:network:Subnet", "{component}-{part}", instances.subnets, retained(CONTAINS, with_data=True), FREE, _actions(
    "Microsoft.Network/virtualNetworks/subnets",
    f"{_JOIN_GROUP}?networkSecurityGroup Microsoft.Network/natGateways/join/action?natGateway",
), find("subnet"))
NAT_GATEWAY = ResourceKind("azure-native:network:NatGateway", "{component}-nat-gateway", instances.nat_gateways, retained("the subnet of a retained file system uses it", with_data=True), priced("nat_hour"),
    _actions("Microsoft.Network/natGateways", f"{_JOIN_ADDRESS}?publicIpAddresses"), find("gateway"))
NAT_ADDRESS = ResourceKind("azure-native:network:PublicIPAddress", "{component}-nat-address", instances.nat_addresses, retained("the subnet of a retained file system uses it", with_data=True), priced("address_hour"),
    _ADDRESS_ACTIONS, find("address"))
FLOW_LOG = ResourceKind("azure-native:network:FlowLog", "{component}-flow", instances.networks, REMOVED, LOGS, _actions(
    "Microsoft.Network/networkWatchers/flowLogs",
    f"Microsoft.Network/virtualNetworks/read {_ACCOUNTS}/read Microsoft.Network/networkWatchers/read"
    f" {_ASSIGN}?identity {_FLOW_STORAGE} {_TRAFFIC_ANALYTICS}",
))
FLOW_IDENTITY = ResourceKind("azure-native:managedidentity:UserAssignedIdentity", "{component}-flow", instances.networks, REMOVED, FREE,
    _IDENTITY_ACTIONS)
FLOW_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-flow", instances.networks, REMOVED, FREE, _GRANT_ACTIONS)
BASTION = ResourceKind("azure-native:network:BastionHost", "{component}-bastion", instances.bastions, REMOVED, priced_each("bastion_hour", "Bastion host"),
    _actions("Microsoft.Network/bastionHosts", f"{_JOIN_SUBNET} {_JOIN_ADDRESS}"))
BASTION_ADDRESS = ResourceKind("azure-native:network:PublicIPAddress", "{component}-bastion-address", instances.bastions, REMOVED,
    priced_each("address_hour", "public address of the Bastion host"),
    _ADDRESS_ACTIONS)
SECURITY_GROUP = ResourceKind("azure-native:network:NetworkSecurityGroup", "{component}-{purpose}", instances.security_groups, REMOVED, FREE,
    _SECURITY_GROUP_ACTIONS)
MEMBERS = ResourceKind("azure-native:network:ApplicationSecurityGroup", "{component}-members", instances.member_groups, REMOVED, FREE,
    _actions("Microsoft.Network/applicationSecurityGroups"))
STORAGE_GROUP = ResourceKind("azure-native:network:NetworkSecurityGroup", "{component}-storage", instances.storage_security_groups, retained(CONTAINS, with_data=True), FREE,
    _SECURITY_GROUP_ACTIONS, find("security-group"))
NETAPP_GROUP = ResourceKind("azure-native:network:NetworkSecurityGroup", "{component}-netapp", instances.netapp_groups, retained(CONTAINS, with_data=True), FREE,
    _SECURITY_GROUP_ACTIONS, find("security-group"))
# Private endpoints.
DNS_ZONE = ResourceKind("azure-native:privatedns:PrivateZone", "{component}-{purpose}-zone", instances.dns_zones, REMOVED, priced_each("dns_zone_month", "private DNS zone"),
    _actions("Microsoft.Network/privateDnsZones"))
DNS_LINK = ResourceKind("azure-native:privatedns:VirtualNetworkLink", "{component}-{purpose}-link", instances.dns_zones, REMOVED, FREE, _actions(
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks", "Microsoft.Network/virtualNetworks/join/action"
))
PRIVATE_ENDPOINT = ResourceKind("azure-native:network:PrivateEndpoint", "{component}-endpoint", instances.private_endpoints, REMOVED, priced_each("endpoint_hour", "private endpoint"), _actions(
    "Microsoft.Network/privateEndpoints",
    f"{_JOIN_SUBNET} {_ACCOUNTS}/privateEndpointConnectionsApproval/action"
    " Microsoft.KeyVault/vaults/privateEndpointConnectionsApproval/action",
))
ENDPOINT_NAMES = ResourceKind("azure-native:network:PrivateDnsZoneGroup", "{component}-names", instances.private_endpoints, REMOVED, FREE, _actions(
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups", "Microsoft.Network/privateDnsZones/join/action"
))
# File systems.
LUSTRE = ResourceKind("azure-native:storagecache:AmlFilesystem", "{component}-lustre", instances.file_systems, retained("{why}", with_data=True), priced("lustre_gib_month"), _actions(
    "Microsoft.StorageCache/amlFilesystems",
    f"{_JOIN_SUBNET} {_ASSIGN}?identity {_READ_KEY} {_CONTAINERS}/read?hsm",
), find("file-system"))
IMPORT_LOG = ResourceKind("azure-native:storage:BlobContainer", "{component}-import-log", instances.existing_data, REMOVED, OBJECTS,
    _CONTAINER_ACTIONS)
IMPORTER_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-importer-{at}", instances.importers, REMOVED, FREE,
    _GRANT_ACTIONS)
# Scheduled exports. The identity of the workflow is assigned by Azure and deleted with it.
EXPORT_SCHEDULE = ResourceKind("azure-native:logic:Workflow", "{component}-export-schedule", instances.scheduled, REMOVED, BY_REQUEST,
    _actions("Microsoft.Logic/workflows"))
EXPORT_ROLE = ResourceKind("azure-native:authorization:RoleDefinition", "{component}-export-role", instances.scheduled, REMOVED, FREE, _ROLE_ACTIONS)
EXPORT_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-export", instances.scheduled, REMOVED, FREE, _GRANT_ACTIONS)
# Home directories.
HOME_ACCOUNT = ResourceKind("azure-native:storage:StorageAccount", "{component}-account", instances.homes, retained("{why}"), FREE,
    _ACCOUNT_ACTIONS, find("account"))
HOME_SERVICE = ResourceKind("azure-native:storage:FileServiceProperties", "{component}-files", instances.homes, retained(SETTINGS), FREE,
    _actions(f"{_ACCOUNTS}/fileServices", delete=False), find("files"))
HOME_SHARE = ResourceKind("azure-native:storage:FileShare", "{component}-{part}", instances.home_shares, retained("{why}"), priced("home_gib_month"),
    _actions(f"{_ACCOUNTS}/fileServices/shares"), find("share"))
NETAPP_ACCOUNT = ResourceKind("azure-native:netapp:Account", "{component}-account", instances.netapp, retained("{why}"), FREE,
    _actions(_NETAPP), find("netapp-account"))
NETAPP_SNAPSHOTS = ResourceKind("azure-native:netapp:SnapshotPolicy", "{component}-{part}-snapshots", instances.netapp_snapshots, retained(SNAPSHOTS), FREE,
    _actions(f"{_NETAPP}/snapshotPolicies"), find("netapp-snapshots"))
NETAPP_POOL = ResourceKind("azure-native:netapp:CapacityPool", "{component}-{part}-pool", instances.netapp_volumes, retained("{why}"), priced("home_gib_month"),
    _actions(f"{_NETAPP}/capacityPools"), find("netapp-pool"))
# The capacity pool is billed, and the volume uses all of its capacity.
NETAPP_VOLUME = ResourceKind("azure-native:netapp:CapacityPoolVolume", "{component}-{part}-volume", instances.netapp_volumes, retained("{why}"), FREE,
    _actions(f"{_NETAPP}/capacityPools/volumes", _JOIN_SUBNET), find("netapp-volume"))
# Nodes.
NODE_IDENTITY = ResourceKind("azure-native:managedidentity:UserAssignedIdentity", "{component}-identity", instances.node_roles, REMOVED, FREE,
    _IDENTITY_ACTIONS)
NODE_ROLE = ResourceKind("azure-native:authorization:RoleDefinition", "{component}-role", instances.node_roles, REMOVED, FREE, _ROLE_ACTIONS)
NODE_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-own", instances.node_roles, REMOVED, FREE, _GRANT_ACTIONS)
DECLARED_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-role-{role}", instances.declared_roles, REMOVED, FREE, _GRANT_ACTIONS)
DISCOVERY_ROLE = ResourceKind("azure-native:authorization:RoleDefinition", "{component}-discovery-role", instances.control_roles, REMOVED, FREE, _ROLE_ACTIONS)
DISCOVERY_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-discovery", instances.control_roles, REMOVED, FREE, _GRANT_ACTIONS)
REPAIR_ROLE = ResourceKind("azure-native:authorization:RoleDefinition", "{component}-repair-role", instances.replacing_roles, REMOVED, FREE, _ROLE_ACTIONS)
REPAIR_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-repair", instances.replacing_roles, REMOVED, FREE, _GRANT_ACTIONS)
ORDERS_ROLE = ResourceKind("azure-native:authorization:RoleDefinition", "{component}-orders-role", instances.ordering_roles, REMOVED, FREE, _ROLE_ACTIONS)
ORDERS_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-orders", instances.ordering_roles, REMOVED, FREE, _GRANT_ACTIONS)
ATTACH_ROLE = ResourceKind("azure-native:authorization:RoleDefinition", "{component}-attach-role", instances.control_roles, REMOVED, FREE, _ROLE_ACTIONS)
ATTACH_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-attach", instances.control_roles, REMOVED, FREE, _GRANT_ACTIONS)
DISK_ROLE = ResourceKind("azure-native:authorization:RoleDefinition", "{component}-disk-role", instances.control_roles, REMOVED, FREE, _ROLE_ACTIONS)
DISK_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-disk", instances.control_roles, REMOVED, FREE, _GRANT_ACTIONS)
SECRET_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-secret-{secret}", instances.secrets, REMOVED, FREE, _GRANT_ACTIONS)
MOUNT_ROLE = ResourceKind("azure-native:authorization:RoleDefinition", "{component}-mount-role", instances.mounts, REMOVED, FREE, _ROLE_ACTIONS)
MOUNT_GRANT = ResourceKind("azure-native:authorization:RoleAssignment", "{component}-mount", instances.mounts, REMOVED, FREE, _GRANT_ACTIONS)
BUNDLE = ResourceKind("gpuinfra:index:Upload", "{component}-bundle", planned.pools, REMOVED, OBJECTS, Actions("", ""))
DATA_DISK = ResourceKind("azure-native:compute:Disk", "{component}-data", data_disks, REMOVED, priced("disk_gib_month"),
    _actions("Microsoft.Compute/disks", "Microsoft.Compute/diskEncryptionSets/read"))
SCALE_SET = ResourceKind("azure-native:compute:VirtualMachineScaleSet", "{component}", planned.groups, REMOVED, priced("node"), _actions(
    "Microsoft.Compute/virtualMachineScaleSets",
    f"{_JOIN_SUBNET} {_JOIN_GROUP} {_ASSIGN}?identity Microsoft.Compute/diskEncryptionSets/read"
    " Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action",
))

NODES_READY = ResourceKind[Lookup]("gpuinfra:index:NodesReady", "{component}", planned.nodes_ready, REMOVED, PriceRule(item=None, reason="it only waits and does not create anything in the account"),
    Actions("", ""))

# fmt: on
ASSIGNED = {
    CRYPTO_USER: (KEY_GRANT,),
    BLOB_CONTRIBUTOR: (FLOW_GRANT, IMPORTER_GRANT),
    ACCOUNT_CONTRIBUTOR: (IMPORTER_GRANT,),
    SECRETS_USER: (SECRET_GRANT,),
}
"""Maps a built-in role to the assignments with this role."""
RESOURCES = planned.rows(globals())
"""The table."""


def resources(plan: Plan) -> tuple[PlannedResource[Lookup], ...]:
    """All resources that a plan creates."""
    return tuple(planned.planned(RESOURCES, plan))
