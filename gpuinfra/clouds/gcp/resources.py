"""The Google Cloud resource table. For each resource kind, it defines the behavior on `destroy`, the price and the required permissions.

The module is pure, so that `gpuinfra plan` and `gpuinfra permissions` work without an engine or an SDK. `instances.py` lists the instances of each row for a plan.

Actions are permissions by operation, from Google's IAM permissions reference and the pages of the methods, retrieved 2026-11-21. A test compares their
collections with Google's discovery documents.
"""

from __future__ import annotations

from gpuinfra.clouds.gcp import instances
from gpuinfra.clouds.gcp.instances import Lookup, find
from gpuinfra.clouds.instances import AUDIT, budgets, data_disks
from gpuinfra.plan import planned
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import (
    FREE,
    LOGS,
    OBJECTS,
    REMOVED,
    Actions,
    PlannedResource,
    PriceRule,
    ResourceKind,
    priced,
    priced_each,
    retained,
)

KEY_REASON = "data that a key encrypts is lost without the key"
GRANT_REASON = "services can read encrypted data only while they have access to its key"
AUDIT_CONFIG_REASON = "without it, the project no longer records who reads and writes data"
CONTAINS = "a retained file system is in it"

_UPDATE_POLICY = "compute.networks.updatePolicy"
_ZONE, _REGION, _GLOBAL = "compute.zoneOperations.get", "compute.regionOperations.get", "compute.globalOperations.get"
_PROJECT_POLICY = "resourcemanager.projects.getIamPolicy resourcemanager.projects.setIamPolicy"


def _crud(collection: str, more: str = "", update: str = "update", wait: str = "") -> Actions:
    """Return the actions of a collection with the usual verbs. Each change also requires `more`, and requires `wait` while its operation runs."""
    return Actions(
        f"{collection}.create {more} {wait}",
        f"{collection}.get",
        f"{collection}.{update} {more} {wait}" if update else "",
        f"{collection}.delete {more} {wait}",
    )


def _iam_policy(collection: str) -> Actions:
    """Return the actions for a grant. A grant is part of a policy, which is read and written as a whole."""
    read = f"{collection}.getIamPolicy"
    return Actions(f"{read} {collection}.setIamPolicy", read, "", f"{read} {collection}.setIamPolicy")


_NETWORK_ACTIONS = Actions(
    f"compute.networks.create {_GLOBAL} compute.routes.list?deleteDefaultRoutesOnCreate compute.routes.delete?deleteDefaultRoutesOnCreate",
    "compute.networks.get",
    "",
    f"compute.networks.delete {_GLOBAL}",
)
_SUBNET_ACTIONS = _crud("compute.subnetworks", _UPDATE_POLICY, wait=_REGION)
_FIREWALL_ACTIONS = _crud("compute.firewalls", _UPDATE_POLICY, wait=_GLOBAL)
_KEY_GRANT_ACTIONS = _iam_policy("cloudkms.cryptoKeys")
_BUCKET_GRANT_ACTIONS = _iam_policy("storage.buckets")
# A log bucket has no lookup: a create operation acquires an existing bucket. An import sets `project` to `projects/P`, so the next `up` would replace and
# delete the bucket (docs/internals/decisions/gcp-log-buckets.md).
_LOG_BUCKET_ACTIONS = Actions(
    "logging.buckets.create logging.buckets.update logging.operations.get",
    "logging.buckets.get",
    "logging.buckets.update",
    "logging.buckets.delete",
)
_SINK_ACTIONS = _crud("logging.sinks")
_CUSTOM_ROLE_ACTIONS = Actions(
    # A deleted role keeps its ID for some time, so the provider looks for the deleted role and restores it.
    "iam.roles.create iam.roles.get iam.roles.undelete iam.roles.update",
    "iam.roles.get",
    "iam.roles.update",
    "iam.roles.delete",
)

# fmt: off
# APIs.
SERVICE = ResourceKind("gcp:projects/service:Service", "{component}-{api}", instances.services, REMOVED, FREE, Actions(
    "serviceusage.services.enable serviceusage.operations.get",
    "serviceusage.services.get serviceusage.services.list",
))
# Audit and budget.
AUDIT_CONFIG = ResourceKind("gcp:projects/iAMAuditConfig:IAMAuditConfig", "{component}-config", instances.audit_trails, retained(AUDIT_CONFIG_REASON), FREE,
    Actions(_PROJECT_POLICY, "resourcemanager.projects.getIamPolicy", _PROJECT_POLICY, _PROJECT_POLICY))
AUDIT_LOG_BUCKET = ResourceKind("gcp:logging/projectBucketConfig:ProjectBucketConfig", "{component}-log-bucket", instances.audit_trails, retained(AUDIT), LOGS,
    _LOG_BUCKET_ACTIONS)
ALL_LOGS_SINK = ResourceKind("gcp:logging/projectSink:ProjectSink", "{component}-all-logs", instances.audit_trails, REMOVED, FREE, _SINK_ACTIONS)
RECORDS_SINK = ResourceKind("gcp:logging/projectSink:ProjectSink", "{component}-records", instances.audit_trails, REMOVED, FREE, _SINK_ACTIONS)
RECORDS_WRITER = ResourceKind("gcp:storage/bucketIAMMember:BucketIAMMember", "{component}-writer", instances.audit_trails, REMOVED, FREE,
    _BUCKET_GRANT_ACTIONS)
BUDGET = ResourceKind("gcp:billing/budget:Budget", "{component}-month", budgets, REMOVED, FREE, _crud("billing.budgets"))
BUDGET_EMAIL = ResourceKind("gcp:monitoring/notificationChannel:NotificationChannel", "{component}-email-{index}", instances.recipients, REMOVED, FREE,
    _crud("monitoring.notificationChannels"))
# Keys.
KEY_RING = ResourceKind("gcp:kms/keyRing:KeyRing", "{component}-ring", instances.keys, retained(KEY_REASON), FREE,
    Actions("cloudkms.keyRings.create", "cloudkms.keyRings.get"), find("ring"))
KEY = ResourceKind("gcp:kms/cryptoKey:CryptoKey", "{component}-key", instances.keys, retained(KEY_REASON), priced_each("key_month", "current version of an encryption key"), Actions(
    "cloudkms.cryptoKeys.create",
    "cloudkms.cryptoKeys.get",
    "cloudkms.cryptoKeys.update",
    "cloudkms.cryptoKeyVersions.destroy cloudkms.cryptoKeyVersions.list",
), find("key"))
KEY_GRANT = ResourceKind("gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember", "{component}-{user}", instances.key_users, retained(GRANT_REASON), FREE,
    _KEY_GRANT_ACTIONS)
# Buckets.
BUCKET = ResourceKind("gcp:storage/bucket:Bucket", "{component}-bucket", instances.buckets, retained("{why}"), OBJECTS,
    _crud("storage.buckets"), find("bucket"))
EVIDENCE_READER = ResourceKind("gcp:storage/bucketIAMMember:BucketIAMMember", "{component}-reader-{index}", instances.evidence_readers, REMOVED, FREE,
    _BUCKET_GRANT_ACTIONS)
# The second region.
REPLICATION_ROLE = ResourceKind("gcp:projects/iAMCustomRole:IAMCustomRole", "{component}-{access}-role", instances.replication_roles, REMOVED, FREE,
    _CUSTOM_ROLE_ACTIONS)
REPLICATION_GRANT = ResourceKind("gcp:projects/iAMMember:IAMMember", "{component}-{access}-grant", instances.replication_grants, REMOVED, FREE,
    Actions(_PROJECT_POLICY, "resourcemanager.projects.getIamPolicy", "", _PROJECT_POLICY))
REPLICA_GRANT = ResourceKind("gcp:storage/bucketIAMMember:BucketIAMMember", "{component}-{purpose}-{access}", instances.replica_grants, REMOVED, FREE,
    _BUCKET_GRANT_ACTIONS)
# A deletion is an update of the status: discovery document of Storage Transfer Service, `UpdateTransferJobRequest`.
REPLICATION = ResourceKind("gcp:storage/transferJob:TransferJob", "{component}-{purpose}-replication", instances.replicas, REMOVED, priced("replication_gb"), Actions(
    "storagetransfer.jobs.create storagetransfer.jobs.get",
    "storagetransfer.jobs.get",
    "storagetransfer.jobs.update",
    "storagetransfer.jobs.update storagetransfer.jobs.delete",
))
ALERT_EMAIL = ResourceKind("gcp:monitoring/notificationChannel:NotificationChannel", "{component}-email-{index}", instances.alert_recipients, REMOVED, FREE,
    _crud("monitoring.notificationChannels"))
_ALERT_PRICE = priced_each("alert_month", "condition of an alerting policy")
# A policy on log entries also creates, changes and deletes a notification rule of Cloud Logging
# (https://docs.cloud.google.com/logging/docs/alerting/monitoring-logs, retrieved 2026-11-29).
_ALERT_ACTIONS = Actions(
    "monitoring.alertPolicies.create logging.notificationRules.create",
    "monitoring.alertPolicies.get",
    "monitoring.alertPolicies.update logging.notificationRules.update",
    "monitoring.alertPolicies.delete logging.notificationRules.delete",
)
LAG_ALERT = ResourceKind("gcp:monitoring/alertPolicy:AlertPolicy", "{component}-{purpose}-late", instances.replicas, REMOVED, _ALERT_PRICE, _ALERT_ACTIONS)
FAILURE_ALERT = ResourceKind("gcp:monitoring/alertPolicy:AlertPolicy", "{component}-{purpose}-failed", instances.replicas, REMOVED, _ALERT_PRICE, _ALERT_ACTIONS)
CHANGE_ALERT = ResourceKind("gcp:monitoring/alertPolicy:AlertPolicy", "{component}-changed", instances.second_regions, REMOVED, _ALERT_PRICE, _ALERT_ACTIONS)
RESULT_ALERT = ResourceKind("gcp:monitoring/alertPolicy:AlertPolicy", "{component}-unready", instances.second_regions, REMOVED, _ALERT_PRICE, _ALERT_ACTIONS)
# Network.
MAIN_NETWORK = ResourceKind("gcp:compute/network:Network", "{component}-main", instances.main_networks, retained(CONTAINS, with_data=True), FREE,
    _NETWORK_ACTIONS, find("network", "main"))
DATA_NETWORK = ResourceKind("gcp:compute/network:Network", "{component}-{network}", instances.data_networks, REMOVED, FREE, _NETWORK_ACTIONS)
SUBNET = ResourceKind("gcp:compute/subnetwork:Subnetwork", "{component}-{subnet}", instances.subnets, REMOVED, FREE, _SUBNET_ACTIONS)
FIREWALL_RULE = ResourceKind("gcp:compute/firewall:Firewall", "{component}-{rule}", instances.firewall_rules, REMOVED, FREE, _FIREWALL_ACTIONS)
SERVICES_RANGE = ResourceKind("gcp:compute/globalAddress:GlobalAddress", "{component}-services", instances.peered_networks, retained(CONTAINS, with_data=True), FREE, Actions(
    f"compute.globalAddresses.createInternal compute.globalAddresses.setLabels?labels compute.networks.use {_GLOBAL}",
    "compute.globalAddresses.get",
    f"compute.globalAddresses.setLabels?labels {_GLOBAL}",
    f"compute.globalAddresses.deleteInternal compute.networks.use {_GLOBAL}",
), find("address", "services"))
SERVICES_PEERING = ResourceKind("gcp:servicenetworking/connection:Connection", "{component}-services", instances.peered_networks, retained(CONTAINS, with_data=True), FREE, Actions(
    "servicenetworking.services.addPeering compute.networks.addPeering compute.globalAddresses.list servicenetworking.operations.get",
    "servicenetworking.services.get compute.networks.get",
    "servicenetworking.services.addPeering servicenetworking.operations.get",
    "compute.networks.removePeering servicenetworking.services.deleteConnection servicenetworking.operations.get",
), find("connection", "services"))
ROUTER = ResourceKind("gcp:compute/router:Router", "{component}-router", instances.nat_networks, REMOVED, FREE,
    _crud("compute.routers", _UPDATE_POLICY, wait=_REGION))
NAT = ResourceKind("gcp:compute/routerNat:RouterNat", "{component}-nat", instances.nat_networks, REMOVED, priced("nat_vm_hour"), Actions(
    f"compute.routers.get compute.routers.update compute.subnetworks.use {_REGION}",
    "compute.routers.get",
    f"compute.routers.update {_REGION}",
    f"compute.routers.update {_REGION}",
))
DNS_POLICY = ResourceKind("gcp:dns/policy:Policy", "{component}-dns-policy", instances.main_networks, REMOVED, FREE,
    _crud("dns.policies", "dns.networks.bindPrivateDNSPolicy"))
DNS_ZONE = ResourceKind("gcp:dns/managedZone:ManagedZone", "{component}-apis-{domain}", instances.private_domains, REMOVED, priced_each("dns_zone_month", "private DNS zone"),
    _crud("dns.managedZones", "dns.networks.bindPrivateDNSZone"))
DNS_RECORD = ResourceKind("gcp:dns/recordSet:RecordSet", "{component}-apis-{domain}-{record}", instances.private_records, REMOVED, FREE, Actions(
    "dns.resourceRecordSets.create dns.changes.create dns.changes.get",
    "dns.resourceRecordSets.list",
    "dns.resourceRecordSets.update dns.changes.create dns.changes.get",
    "dns.resourceRecordSets.delete dns.changes.create dns.changes.get",
))
FLOW_LOG_BUCKET = ResourceKind("gcp:logging/projectBucketConfig:ProjectBucketConfig", "{component}-flow-logs", instances.main_networks, retained(AUDIT), LOGS,
    _LOG_BUCKET_ACTIONS)
FLOW_LOG_SINK = ResourceKind("gcp:logging/projectSink:ProjectSink", "{component}-flow-logs", instances.main_networks, REMOVED, FREE, _SINK_ACTIONS)
NODE_FIREWALL_RULE = ResourceKind("gcp:compute/firewall:Firewall", "{component}-allow-nodes", instances.existing_networks, REMOVED, FREE,
    _FIREWALL_ACTIONS)
LUSTRE_FIREWALL_RULE = ResourceKind("gcp:compute/firewall:Firewall", "{component}-allow-lustre", instances.existing_lustre_networks, REMOVED, FREE,
    _FIREWALL_ACTIONS)
RDMA_NETWORK = ResourceKind("gcp:compute/network:Network", "{component}", instances.rdma_networks, REMOVED, FREE, _NETWORK_ACTIONS)
RDMA_SUBNET = ResourceKind("gcp:compute/subnetwork:Subnetwork", "{component}-{index}", instances.rdma_subnets, REMOVED, FREE, _SUBNET_ACTIONS)
# File systems.
SERVICE_AGENT = ResourceKind("gcp:projects/serviceIdentity:ServiceIdentity", "{component}-agent", instances.file_systems, REMOVED, FREE,
    Actions("serviceusage.services.enable", "serviceusage.services.get"))
FILE_SYSTEM_KEY_GRANT = ResourceKind("gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember", "{component}-key", instances.file_systems, retained(GRANT_REASON), FREE,
    _KEY_GRANT_ACTIONS)
LUSTRE = ResourceKind("gcp:lustre/instance:Instance", "{component}-lustre", instances.lustre, retained("{why}", with_data=True), priced("lustre_gib_month"),
    _crud("lustre.instances", wait="lustre.operations.get"), find("lustre"))
FILESTORE = ResourceKind("gcp:filestore/instance:Instance", "{component}-home", instances.filestores, retained("{why}", with_data=True), priced("home_gib_month"),
    _crud("file.instances", wait="file.operations.get"), find("filestore"))
DATA_BUCKET_GRANT = ResourceKind("gcp:storage/bucketIAMMember:BucketIAMMember", "{component}-data-{access}", instances.bucket_grants, REMOVED, FREE,
    _BUCKET_GRANT_ACTIONS)
# Scheduled exports. The provider resumes a created job with a second request (post_create of `cloud_scheduler` in GoogleCloudPlatform/magic-modules). It
# pauses one only during a failback, whose permissions contain that request. https://docs.cloud.google.com/iam/docs/roles-permissions/cloudscheduler
# (both retrieved 2026-11-29).
EXPORT_ACCOUNT = ResourceKind("gcp:serviceaccount/account:Account", "{component}-export-account", instances.scheduled, REMOVED, FREE,
    _crud("iam.serviceAccounts"))
EXPORT_ROLE = ResourceKind("gcp:projects/iAMCustomRole:IAMCustomRole", "{component}-export-role", instances.scheduled, REMOVED, FREE, _CUSTOM_ROLE_ACTIONS)
EXPORT_GRANT = ResourceKind("gcp:projects/iAMMember:IAMMember", "{component}-export-grant", instances.scheduled, REMOVED, FREE,
    Actions(_PROJECT_POLICY, "resourcemanager.projects.getIamPolicy", "", _PROJECT_POLICY))
EXPORT_SCHEDULE = ResourceKind("gcp:cloudscheduler/job:Job", "{component}-export-schedule", instances.scheduled, REMOVED, priced_each("schedule_month", "job of Cloud Scheduler"), Actions(
    "cloudscheduler.jobs.create cloudscheduler.jobs.enable iam.serviceAccounts.actAs",
    "cloudscheduler.jobs.get cloudscheduler.jobs.fullView",
    "cloudscheduler.jobs.update iam.serviceAccounts.actAs",
    "cloudscheduler.jobs.delete",
))
# Nodes.
NODE_ACCOUNT = ResourceKind("gcp:serviceaccount/account:Account", "{component}-account", instances.node_roles, REMOVED, FREE,
    _crud("iam.serviceAccounts"))
NODE_GRANT = ResourceKind("gcp:storage/bucketIAMMember:BucketIAMMember", "{component}-{grant}", instances.node_grants, REMOVED, FREE,
    _BUCKET_GRANT_ACTIONS)
MOUNT_GRANT = ResourceKind("gcp:storage/bucketIAMMember:BucketIAMMember", "{component}-mount-{mount}", instances.mounted_buckets, REMOVED, FREE,
    _BUCKET_GRANT_ACTIONS)
PROJECT_GRANT = ResourceKind("gcp:projects/iAMMember:IAMMember", "{component}-role-{role}", instances.declared_roles, REMOVED, FREE,
    Actions(_PROJECT_POLICY, "resourcemanager.projects.getIamPolicy", "", _PROJECT_POLICY))
DISCOVERY_ROLE = ResourceKind("gcp:projects/iAMCustomRole:IAMCustomRole", "{component}-discovery-role", instances.control_roles, REMOVED, FREE,
    _CUSTOM_ROLE_ACTIONS)
DISCOVERY_GRANT = ResourceKind("gcp:projects/iAMMember:IAMMember", "{component}-discovery", instances.control_roles, REMOVED, FREE,
    Actions(_PROJECT_POLICY, "resourcemanager.projects.getIamPolicy", "", _PROJECT_POLICY))
REPAIR_ROLE = ResourceKind("gcp:projects/iAMCustomRole:IAMCustomRole", "{component}-repair-role", instances.replacing_roles, REMOVED, FREE,
    _CUSTOM_ROLE_ACTIONS)
REPAIR_GRANT = ResourceKind("gcp:projects/iAMMember:IAMMember", "{component}-repair-{group}", instances.replaced_groups, REMOVED, FREE,
    Actions(_PROJECT_POLICY, "resourcemanager.projects.getIamPolicy", "", _PROJECT_POLICY))
ATTACH_ROLE = ResourceKind("gcp:projects/iAMCustomRole:IAMCustomRole", "{component}-attach-role", instances.control_roles, REMOVED, FREE,
    _CUSTOM_ROLE_ACTIONS)
ATTACH_GRANT = ResourceKind("gcp:projects/iAMMember:IAMMember", "{component}-attach", instances.control_roles, REMOVED, FREE,
    Actions(_PROJECT_POLICY, "resourcemanager.projects.getIamPolicy", "", _PROJECT_POLICY))
SECRET_GRANT = ResourceKind("gcp:secretmanager/secretIamMember:SecretIamMember", "{component}-secret-{secret}", instances.secrets, REMOVED, FREE,
    _iam_policy("secretmanager.secrets"))
HEALTH_CHECK = ResourceKind("gcp:compute/healthCheck:HealthCheck", "{component}-check", instances.node_health, REMOVED, FREE,
    _crud("compute.healthChecks", wait=_GLOBAL))
PROBE_FIREWALL_RULE = ResourceKind("gcp:compute/firewall:Firewall", "{component}-allow-probes", instances.node_health, REMOVED, FREE, _FIREWALL_ACTIONS)
IMAGE_READER = ResourceKind("gcp:artifactregistry/repositoryIamMember:RepositoryIamMember", "{component}-images", instances.image_readers, REMOVED, FREE,
    _iam_policy("artifactregistry.repositories"))
BUNDLE = ResourceKind("gcp:storage/bucketObject:BucketObject", "{component}-bundle", planned.pools, REMOVED, OBJECTS, _crud("storage.objects"))
PLACEMENT_POLICY = ResourceKind("gcp:compute/resourcePolicy:ResourcePolicy", "{component}", instances.placement_policies, REMOVED, FREE,
    _crud("compute.resourcePolicies", update="", wait=_REGION))
DATA_DISK = ResourceKind("gcp:compute/disk:Disk", "{component}-data", data_disks, REMOVED, priced("disk_gib_month"), Actions(
    f"compute.disks.create compute.disks.setLabels {_ZONE}",
    "compute.disks.get",
    f"compute.disks.resize?size compute.disks.setLabels?labels {_ZONE}",
    f"compute.disks.delete {_ZONE}",
))
TEMPLATE = ResourceKind("gcp:compute/instanceTemplate:InstanceTemplate", "{component}-template", planned.groups, REMOVED, priced("disk_gib_month"),
    _crud("compute.instanceTemplates", "compute.subnetworks.use iam.serviceAccounts.actAs", update="", wait=_GLOBAL ))
GROUP = ResourceKind("gcp:compute/instanceGroupManager:InstanceGroupManager", "{component}", planned.groups, REMOVED, priced("node"), Actions(
    f"compute.instanceGroupManagers.create compute.instanceTemplates.useReadOnly compute.healthChecks.useReadOnly?autoHealingPolicies compute.instances.create iam.serviceAccounts.actAs {_ZONE}",
    "compute.instanceGroupManagers.get compute.instanceGroups.list",
    f"compute.instanceGroupManagers.update compute.instanceTemplates.useReadOnly compute.healthChecks.useReadOnly?autoHealingPolicies iam.serviceAccounts.actAs {_ZONE}",
    f"compute.instanceGroupManagers.delete compute.instanceGroups.delete compute.instances.delete {_ZONE}",
))
RESIZE_REQUEST = ResourceKind("gcp:compute/resizeRequest:ResizeRequest", "{component}-resize-request", instances.queued_groups, REMOVED, FREE, Actions(
    f"compute.instanceGroupManagers.update {_ZONE}",
    "compute.instanceGroupManagers.get",
    "",
    f"compute.instanceGroupManagers.update {_ZONE}",
))

NODES_READY = ResourceKind[Lookup]("gpuinfra:index:NodesReady", "{component}", planned.nodes_ready, REMOVED, PriceRule(item=None, reason="it only waits and does not create anything in the account"),
    Actions("", ""))

# fmt: on
RESOURCES = planned.rows(globals())
"""The table."""


def resources(plan: Plan) -> tuple[PlannedResource[Lookup], ...]:
    """All resources that a plan creates."""
    return tuple(planned.planned(RESOURCES, plan))
