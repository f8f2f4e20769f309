"""The table of resources on Google Cloud: what the components create, what `destroy` does with it, what it costs, and who may create it.

Pure, so that `gpuinfra plan` and `gpuinfra permissions` work without an engine or an SDK. `instances.py` lists for each row where a plan has it.

Actions are permissions by operation, from Google's IAM permissions reference and the pages of the methods, read 2026-11-21. A test compares their
collections with Google's discovery documents.
"""

from __future__ import annotations

from gpuinfra.clouds import planned
from gpuinfra.clouds.gcp import instances
from gpuinfra.clouds.gcp.instances import AUDIT, Lookup, find
from gpuinfra.clouds.planned import (
    BY_USAGE,
    FREE,
    REMOVED,
    Actions,
    PlannedResource,
    Price,
    ResourceKind,
    priced,
    retained,
)
from gpuinfra.plan.model import Plan

KEY_REASON = "data that a key encrypts is lost without it"
GRANT_REASON = "services read encrypted data only while they may use its key"
CONTAINS = "a retained file system is in it"

_UPDATE_POLICY = "compute.networks.updatePolicy"
_ZONE, _REGION, _GLOBAL = "compute.zoneOperations.get", "compute.regionOperations.get", "compute.globalOperations.get"
_PROJECT_POLICY = "resourcemanager.projects.getIamPolicy resourcemanager.projects.setIamPolicy"


def _crud(collection: str, more: str = "", update: str = "update", wait: str = "") -> Actions:
    """A collection with the usual verbs; each change also needs `more`, and `wait` while its operation runs."""
    return Actions(
        f"{collection}.create {more} {wait}",
        f"{collection}.get",
        f"{collection}.{update} {more} {wait}" if update else "",
        f"{collection}.delete {more} {wait}",
    )


def _iam_policy(collection: str) -> Actions:
    """A grant is a part of a policy, which is read and written as a whole."""
    read = f"{collection}.getIamPolicy"
    return Actions(f"{read} {collection}.setIamPolicy", read, "", f"{read} {collection}.setIamPolicy")


_NETWORK_ACTIONS = _crud("compute.networks", update="", wait=_GLOBAL)
_SUBNET_ACTIONS = _crud("compute.subnetworks", _UPDATE_POLICY, wait=_REGION)
_FIREWALL_ACTIONS = _crud("compute.firewalls", _UPDATE_POLICY, wait=_GLOBAL)
_KEY_GRANT_ACTIONS = _iam_policy("cloudkms.cryptoKeys")
_BUCKET_GRANT_ACTIONS = _iam_policy("storage.buckets")
_LOG_BUCKET_ACTIONS = _crud("logging.buckets")
_SINK_ACTIONS = _crud("logging.sinks")

# APIs.
SERVICE = ResourceKind(
    type="gcp:projects/service:Service",
    name="{component}-{api}",
    each=instances.services,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        "serviceusage.services.enable serviceusage.operations.get",
        "serviceusage.services.get serviceusage.services.list",
    ),
)
# Audit and budget.
AUDIT_CONFIG = ResourceKind(
    type="gcp:projects/iAMAuditConfig:IAMAuditConfig",
    name="{component}-config",
    each=instances.audit_trails,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(_PROJECT_POLICY, "resourcemanager.projects.getIamPolicy", _PROJECT_POLICY, _PROJECT_POLICY),
)
AUDIT_LOG_BUCKET = ResourceKind(
    type="gcp:logging/projectBucketConfig:ProjectBucketConfig",
    name="{component}-log-bucket",
    each=instances.audit_trails,
    lifetime=retained(AUDIT),
    price=BY_USAGE,
    actions=_LOG_BUCKET_ACTIONS,
    lookup=find("logs"),
)
ALL_LOGS_SINK = ResourceKind(
    type="gcp:logging/projectSink:ProjectSink",
    name="{component}-all-logs",
    each=instances.audit_trails,
    lifetime=REMOVED,
    price=FREE,
    actions=_SINK_ACTIONS,
)
RECORDS_SINK = ResourceKind(
    type="gcp:logging/projectSink:ProjectSink",
    name="{component}-records",
    each=instances.audit_trails,
    lifetime=REMOVED,
    price=FREE,
    actions=_SINK_ACTIONS,
)
RECORDS_WRITER = ResourceKind(
    type="gcp:storage/bucketIAMMember:BucketIAMMember",
    name="{component}-writer",
    each=instances.audit_trails,
    lifetime=REMOVED,
    price=FREE,
    actions=_BUCKET_GRANT_ACTIONS,
)
BUDGET = ResourceKind(
    type="gcp:billing/budget:Budget",
    name="{component}-month",
    each=instances.budgets,
    lifetime=REMOVED,
    price=FREE,
    actions=_crud("billing.budgets"),
)
BUDGET_EMAIL = ResourceKind(
    type="gcp:monitoring/notificationChannel:NotificationChannel",
    name="{component}-email-{index}",
    each=instances.recipients,
    lifetime=REMOVED,
    price=FREE,
    actions=_crud("monitoring.notificationChannels"),
)
# Keys.
KEY_RING = ResourceKind(
    type="gcp:kms/keyRing:KeyRing",
    name="{component}-ring",
    each=instances.keys,
    lifetime=retained(KEY_REASON),
    price=FREE,
    actions=Actions("cloudkms.keyRings.create", "cloudkms.keyRings.get"),
    lookup=find("ring"),
)
KEY = ResourceKind(
    type="gcp:kms/cryptoKey:CryptoKey",
    name="{component}-key",
    each=instances.keys,
    lifetime=retained(KEY_REASON),
    price=Price(item=None, reason="billed by the month and by use; no price is in the catalog"),
    actions=Actions(
        "cloudkms.cryptoKeys.create",
        "cloudkms.cryptoKeys.get",
        "cloudkms.cryptoKeys.update",
        "cloudkms.cryptoKeyVersions.destroy cloudkms.cryptoKeyVersions.list",
    ),
    lookup=find("key"),
)
KEY_GRANT = ResourceKind(
    type="gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember",
    name="{component}-{user}",
    each=instances.key_users,
    lifetime=retained(GRANT_REASON),
    price=FREE,
    actions=_KEY_GRANT_ACTIONS,
)
# Buckets.
BUCKET = ResourceKind(
    type="gcp:storage/bucket:Bucket",
    name="{component}-bucket",
    each=instances.buckets,
    lifetime=retained("{why}"),
    price=BY_USAGE,
    actions=_crud("storage.buckets"),
    lookup=find("bucket"),
)
EVIDENCE_READER = ResourceKind(
    type="gcp:storage/bucketIAMMember:BucketIAMMember",
    name="{component}-reader-{index}",
    each=instances.evidence_readers,
    lifetime=REMOVED,
    price=FREE,
    actions=_BUCKET_GRANT_ACTIONS,
)
# Network.
MAIN_NETWORK = ResourceKind(
    type="gcp:compute/network:Network",
    name="{component}-main",
    each=instances.main_networks,
    lifetime=retained(CONTAINS, with_data=True),
    price=FREE,
    actions=_NETWORK_ACTIONS,
    lookup=find("network", "main"),
)
DATA_NETWORK = ResourceKind(
    type="gcp:compute/network:Network",
    name="{component}-{network}",
    each=instances.data_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_NETWORK_ACTIONS,
)
SUBNET = ResourceKind(
    type="gcp:compute/subnetwork:Subnetwork",
    name="{component}-{subnet}",
    each=instances.subnets,
    lifetime=REMOVED,
    price=FREE,
    actions=_SUBNET_ACTIONS,
)
FIREWALL_RULE = ResourceKind(
    type="gcp:compute/firewall:Firewall",
    name="{component}-{rule}",
    each=instances.firewall_rules,
    lifetime=REMOVED,
    price=FREE,
    actions=_FIREWALL_ACTIONS,
)
SERVICES_RANGE = ResourceKind(
    type="gcp:compute/globalAddress:GlobalAddress",
    name="{component}-services",
    each=instances.peered_networks,
    lifetime=retained(CONTAINS, with_data=True),
    price=FREE,
    actions=Actions(
        f"compute.globalAddresses.createInternal compute.globalAddresses.setLabels?labels compute.networks.use {_GLOBAL}",
        "compute.globalAddresses.get",
        f"compute.globalAddresses.setLabels?labels {_GLOBAL}",
        f"compute.globalAddresses.deleteInternal compute.networks.use {_GLOBAL}",
    ),
    lookup=find("address", "services"),
)
SERVICES_PEERING = ResourceKind(
    type="gcp:servicenetworking/connection:Connection",
    name="{component}-services",
    each=instances.peered_networks,
    lifetime=retained(CONTAINS, with_data=True),
    price=FREE,
    actions=Actions(
        "servicenetworking.services.addPeering compute.networks.addPeering compute.globalAddresses.list servicenetworking.operations.get",
        "servicenetworking.services.get compute.networks.get",
        "servicenetworking.services.addPeering servicenetworking.operations.get",
        "compute.networks.removePeering servicenetworking.services.deleteConnection servicenetworking.operations.get",
    ),
    lookup=find("connection", "services"),
)
ROUTER = ResourceKind(
    type="gcp:compute/router:Router",
    name="{component}-router",
    each=instances.nat_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_crud("compute.routers", _UPDATE_POLICY, wait=_REGION),
)
NAT = ResourceKind(
    type="gcp:compute/routerNat:RouterNat",
    name="{component}-nat",
    each=instances.nat_networks,
    lifetime=REMOVED,
    price=priced("nat_vm_hour"),
    actions=Actions(
        f"compute.routers.get compute.routers.update compute.subnetworks.use {_REGION}",
        "compute.routers.get",
        f"compute.routers.update {_REGION}",
        f"compute.routers.update {_REGION}",
    ),
)
DNS_POLICY = ResourceKind(
    type="gcp:dns/policy:Policy",
    name="{component}-dns-policy",
    each=instances.main_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_crud("dns.policies", "dns.networks.bindPrivateDNSPolicy"),
)
DNS_ZONE = ResourceKind(
    type="gcp:dns/managedZone:ManagedZone",
    name="{component}-apis-{domain}",
    each=instances.private_domains,
    lifetime=REMOVED,
    price=Price(item=None, reason="billed by the month and by use; no price is in the catalog"),
    actions=_crud("dns.managedZones", "dns.networks.bindPrivateDNSZone"),
)
DNS_RECORD = ResourceKind(
    type="gcp:dns/recordSet:RecordSet",
    name="{component}-apis-{domain}-{record}",
    each=instances.private_records,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        "dns.resourceRecordSets.create dns.changes.create dns.changes.get",
        "dns.resourceRecordSets.list",
        "dns.resourceRecordSets.update dns.changes.create dns.changes.get",
        "dns.resourceRecordSets.delete dns.changes.create dns.changes.get",
    ),
)
FLOW_LOG_BUCKET = ResourceKind(
    type="gcp:logging/projectBucketConfig:ProjectBucketConfig",
    name="{component}-flow-logs",
    each=instances.main_networks,
    lifetime=retained(AUDIT),
    price=BY_USAGE,
    actions=_LOG_BUCKET_ACTIONS,
    lookup=find("logs"),
)
FLOW_LOG_SINK = ResourceKind(
    type="gcp:logging/projectSink:ProjectSink",
    name="{component}-flow-logs",
    each=instances.main_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_SINK_ACTIONS,
)
NODE_FIREWALL_RULE = ResourceKind(
    type="gcp:compute/firewall:Firewall",
    name="{component}-allow-nodes",
    each=instances.existing_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_FIREWALL_ACTIONS,
)
RDMA_NETWORK = ResourceKind(
    type="gcp:compute/network:Network",
    name="{component}",
    each=instances.rdma_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_NETWORK_ACTIONS,
)
RDMA_SUBNET = ResourceKind(
    type="gcp:compute/subnetwork:Subnetwork",
    name="{component}-{index}",
    each=instances.rdma_subnets,
    lifetime=REMOVED,
    price=FREE,
    actions=_SUBNET_ACTIONS,
)
# File systems.
SERVICE_AGENT = ResourceKind(
    type="gcp:projects/serviceIdentity:ServiceIdentity",
    name="{component}-agent",
    each=instances.file_systems,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions("serviceusage.services.enable", "serviceusage.services.get"),
)
FILE_SYSTEM_KEY_GRANT = ResourceKind(
    type="gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember",
    name="{component}-key",
    each=instances.file_systems,
    lifetime=retained(GRANT_REASON),
    price=FREE,
    actions=_KEY_GRANT_ACTIONS,
)
LUSTRE = ResourceKind(
    type="gcp:lustre/instance:Instance",
    name="{component}-lustre",
    each=instances.lustre,
    lifetime=retained("{why}", with_data=True),
    price=priced("lustre_gib_month"),
    actions=_crud("lustre.instances", wait="lustre.operations.get"),
    lookup=find("lustre"),
)
FILESTORE = ResourceKind(
    type="gcp:filestore/instance:Instance",
    name="{component}-home",
    each=instances.filestores,
    lifetime=retained("{why}", with_data=True),
    price=Price(item=None, reason="billed by capacity; no price is in the catalog"),
    actions=_crud("file.instances", wait="file.operations.get"),
    lookup=find("filestore"),
)
DATA_BUCKET_GRANT = ResourceKind(
    type="gcp:storage/bucketIAMMember:BucketIAMMember",
    name="{component}-data-{access}",
    each=instances.bucket_grants,
    lifetime=REMOVED,
    price=FREE,
    actions=_BUCKET_GRANT_ACTIONS,
)
# Nodes.
NODE_ACCOUNT = ResourceKind(
    type="gcp:serviceaccount/account:Account",
    name="{component}-account",
    each=instances.node_roles,
    lifetime=REMOVED,
    price=FREE,
    actions=_crud("iam.serviceAccounts"),
)
NODE_GRANT = ResourceKind(
    type="gcp:storage/bucketIAMMember:BucketIAMMember",
    name="{component}-{grant}",
    each=instances.node_grants,
    lifetime=REMOVED,
    price=FREE,
    actions=_BUCKET_GRANT_ACTIONS,
)
IMAGE_READER = ResourceKind(
    type="gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
    name="{component}-images",
    each=instances.image_readers,
    lifetime=REMOVED,
    price=FREE,
    actions=_iam_policy("artifactregistry.repositories"),
)
BUNDLE = ResourceKind(
    type="gcp:storage/bucketObject:BucketObject",
    name="{component}-bundle",
    each=instances.pools,
    lifetime=REMOVED,
    price=BY_USAGE,
    actions=_crud("storage.objects"),
)
PLACEMENT_POLICY = ResourceKind(
    type="gcp:compute/resourcePolicy:ResourcePolicy",
    name="{component}",
    each=instances.placement_policies,
    lifetime=REMOVED,
    price=FREE,
    actions=_crud("compute.resourcePolicies", update="", wait=_REGION),
)
TEMPLATE = ResourceKind(
    type="gcp:compute/instanceTemplate:InstanceTemplate",
    name="{component}-template",
    each=instances.groups,
    lifetime=REMOVED,
    price=priced("disk_gib_month"),
    actions=_crud(
        "compute.instanceTemplates", "compute.subnetworks.use iam.serviceAccounts.actAs", update="", wait=_GLOBAL
    ),
)
GROUP = ResourceKind(
    type="gcp:compute/instanceGroupManager:InstanceGroupManager",
    name="{component}",
    each=instances.groups,
    lifetime=REMOVED,
    price=priced("node"),
    actions=Actions(
        f"compute.instanceGroupManagers.create compute.instanceTemplates.useReadOnly compute.instances.create iam.serviceAccounts.actAs {_ZONE}",
        "compute.instanceGroupManagers.get compute.instanceGroups.list",
        f"compute.instanceGroupManagers.update compute.instanceTemplates.useReadOnly iam.serviceAccounts.actAs {_ZONE}",
        f"compute.instanceGroupManagers.delete compute.instanceGroups.delete compute.instances.delete {_ZONE}",
    ),
)
RESIZE_REQUEST = ResourceKind(
    type="gcp:compute/resizeRequest:ResizeRequest",
    name="{component}-resize-request",
    each=instances.queued_groups,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        f"compute.instanceGroupManagers.update {_ZONE}",
        "compute.instanceGroupManagers.get",
        "",
        f"compute.instanceGroupManagers.update {_ZONE}",
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
