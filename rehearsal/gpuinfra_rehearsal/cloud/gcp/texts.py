"""Allowed characters and lengths of text fields on Google Cloud. Retrieved 2026-11-22."""

from __future__ import annotations

from gpuinfra_rehearsal.cloud.core.texts import Text

_COMPUTE = "https://cloud.google.com/compute/docs/naming-resources"
_LABELS = "https://cloud.google.com/resource-manager/docs/labels-overview"
_RFC1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_LABEL_KEY = r"[\w-]*"
"""Lowercase letters (including international letters), digits, underscores and hyphens."""

TEXTS = (
    Text(types="gcp:compute/routerNat:RouterNat", path="name", form=_RFC1035, least=1, most=63, page=_COMPUTE, code="invalid"),
    Text(types="gcp:compute/routerNat:RouterNat", path="subnetworks[].name", form=r".*", least=1, most=2048, page="https://cloud.google.com/compute/docs/reference/rest/v1/routers", code="invalid"),
    # Instance names consist of the base name, a hyphen and four characters.
    Text(types="gcp:compute/instanceGroupManager:InstanceGroupManager", path="baseInstanceName", form=_RFC1035, least=1, most=58, page="https://cloud.google.com/compute/docs/reference/rest/v1/instanceGroupManagers", code="invalid"),
    Text(types="gcp:compute/instanceGroupManager:InstanceGroupManager", path="versions[].name", form=_RFC1035, least=1, most=63, page=_COMPUTE, code="invalid"),
    Text(types="gcp:compute/*", path="name", form=_RFC1035, least=1, most=63, page=_COMPUTE, code="invalid"),
    Text(types="gcp:compute/*", path="description", form=r"(?s:.*)", most=2048, page="https://cloud.google.com/compute/docs/reference/rest/v1/instanceTemplates", code="invalid"),
    Text(types="gcp:dns/policy:Policy", path="name", form=_RFC1035, least=1, most=63, page="https://cloud.google.com/dns/docs/reference/rest/v1/policies", code="invalid"),
    Text(types="gcp:dns/policy:Policy", path="description", form=r"(?s:.*)", most=1024, page="https://cloud.google.com/dns/docs/reference/rest/v1/policies", code="invalid"),
    Text(types="gcp:dns/managedZone:ManagedZone", path="name", form=r"[a-z]([-a-z0-9]*[a-z0-9])?", least=1, most=63, page="https://cloud.google.com/dns/docs/reference/rest/v1/managedZones", code="invalid"),
    Text(types="gcp:dns/policy:Policy", path="name", form=r"[a-z]([-a-z0-9]*[a-z0-9])?", least=1, most=63, page="https://cloud.google.com/dns/docs/reference/rest/v1/managedZones", code="invalid"),
    Text(types="gcp:dns/*", path="description", form=r"(?s:.*)", most=1024, page="https://cloud.google.com/dns/docs/reference/rest/v1/managedZones", code="invalid"),
    Text(types="gcp:kms/*", path="name", form=r"[a-zA-Z0-9_-]+", least=1, most=63, page="https://cloud.google.com/kms/docs/reference/rest/v1/projects.locations.keyRings/create", code="INVALID_ARGUMENT"),
    Text(types="gcp:logging/projectSink:ProjectSink", path="name", form=r"[a-zA-Z0-9][a-zA-Z0-9_.-]*", least=1, most=100, page="https://cloud.google.com/logging/docs/reference/v2/rest/v2/projects.sinks", code="INVALID_ARGUMENT"),
    Text(types="gcp:logging/projectSink:ProjectSink", path="exclusions[].name", form=r"[a-zA-Z0-9][a-zA-Z0-9_.-]*", least=1, most=100, page="https://cloud.google.com/logging/docs/reference/v2/rest/v2/projects.sinks", code="INVALID_ARGUMENT"),
    Text(types="gcp:logging/*", path="**.description", form=r"(?s:.*)", most=8000, page="https://cloud.google.com/logging/docs/reference/v2/rest/v2/projects.sinks", code="INVALID_ARGUMENT"),
    Text(types="gcp:billing/budget:Budget", path="displayName", form=r"(?s:.*)", most=60, page="https://cloud.google.com/billing/docs/reference/budget/rest/v1/billingAccounts.budgets", code="INVALID_ARGUMENT"),
    Text(types="gcp:monitoring/notificationChannel:NotificationChannel", path="displayName", form=r"(?s:.*)", most=512, page="https://cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.notificationChannels", code="INVALID_ARGUMENT"),
    Text(types="gcp:monitoring/notificationChannel:NotificationChannel", path="description", form=r"(?s:.*)", most=1024, page="https://cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.notificationChannels", code="INVALID_ARGUMENT"),
    Text(types="gcp:monitoring/alertPolicy:AlertPolicy", path="displayName", form=r"(?s:.*)", most=512, page="https://cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.alertPolicies", code="INVALID_ARGUMENT"),
    Text(types="gcp:monitoring/alertPolicy:AlertPolicy", path="conditions[].displayName", form=r"(?s:.*)", most=512, page="https://cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.alertPolicies", code="INVALID_ARGUMENT"),
    # The name of a replication job is empty (`behaviors/replication.py`).
    Text(types="gcp:storage/transferJob:TransferJob", path="name", form=r".*", most=128, page="https://cloud.google.com/storage-transfer/docs/reference/rest/v1/transferJobs", code="INVALID_ARGUMENT"),
    Text(types="gcp:storage/transferJob:TransferJob", path="description", form=r"(?s:.*)", most=1024, page="https://cloud.google.com/storage-transfer/docs/reference/rest/v1/transferJobs", code="INVALID_ARGUMENT"),
    # These are channel settings, not labels of the resource.
    Text(types="gcp:monitoring/notificationChannel:NotificationChannel", path="labels.#", form=r"[a-z_]+", least=1, most=128, page="https://cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.notificationChannels", code="INVALID_ARGUMENT"),
    Text(types="gcp:monitoring/notificationChannel:NotificationChannel", path="labels.*", form=r"(?s:.*)", most=2048, page="https://cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.notificationChannels", code="INVALID_ARGUMENT"),
    Text(types="gcp:serviceaccount/account:Account", path="displayName", form=r"(?s:.*)", most=100, page="https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts", code="INVALID_ARGUMENT"),
    Text(types="gcp:serviceaccount/account:Account", path="accountId", form=r"[a-z]([-a-z0-9]*[a-z0-9])", least=6, most=30, page="https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts/create", code="INVALID_ARGUMENT"),
    Text(types="gcp:serviceaccount/account:Account", path="description", form=r"(?s:.*)", most=256, page="https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts", code="INVALID_ARGUMENT"),
    Text(types="gcp:projects/iAMCustomRole:IAMCustomRole", path="title", form=r"(?s:.*)", least=1, most=100, page="https://cloud.google.com/iam/docs/reference/rest/v1/projects.roles", code="INVALID_ARGUMENT"),
    Text(types="gcp:projects/iAMCustomRole:IAMCustomRole", path="description", form=r"(?s:.*)", most=300, page="https://cloud.google.com/iam/docs/creating-custom-roles", code="INVALID_ARGUMENT"),
    Text(types="gcp:*", path="condition.title", form=r"(?s:.*)", least=1, most=100, page="https://cloud.google.com/iam/docs/conditions-overview", code="INVALID_ARGUMENT"),
    Text(types="gcp:*", path="condition.description", form=r"(?s:.*)", most=256, page="https://cloud.google.com/iam/docs/conditions-overview", code="INVALID_ARGUMENT"),
    Text(types="gcp:storage/bucket:Bucket", path="name", form=r"(?!goog)(?!.*google)(?!.*g00gle)[a-z0-9][a-z0-9_-]*[a-z0-9]", least=3, most=63, page="https://cloud.google.com/storage/docs/buckets", code="invalid"),
    Text(types="gcp:storage/bucketObject:BucketObject", path="name", form=r"[^\r\n]+", least=1, most=1024, page="https://cloud.google.com/storage/docs/objects", code="invalid"),
    Text(types="gcp:cloudscheduler/job:Job", path="name", form=r"[a-zA-Z0-9_-]+", least=1, most=500, page="https://cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs", code="INVALID_ARGUMENT"),
    Text(types="gcp:cloudscheduler/job:Job", path="description", form=r"(?s:.*)", most=500, page="https://cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs", code="INVALID_ARGUMENT"),
    Text(types="gcp:lustre/instance:Instance", path="description", form=r"(?s:.*)", most=2048, page="https://cloud.google.com/managed-lustre/docs/reference/rest/v1/projects.locations.instances", code="INVALID_ARGUMENT"),
    Text(types="gcp:filestore/instance:Instance", path="name", form=_RFC1035, least=1, most=63, page="https://cloud.google.com/filestore/docs/reference/rest/v1/projects.locations.instances/create", code="INVALID_ARGUMENT"),
    Text(types="gcp:filestore/instance:Instance", path="fileShares.name", form=r"[a-z][a-z0-9_]*", least=1, most=63, page="https://cloud.google.com/filestore/docs/reference/rest/v1/projects.locations.instances", code="INVALID_ARGUMENT"),
    Text(types="gcp:filestore/instance:Instance", path="description", form=r"(?s:.*)", most=2048, page="https://cloud.google.com/filestore/docs/reference/rest/v1/projects.locations.instances", code="INVALID_ARGUMENT"),
    Text(types="gcp:billing/budget:Budget", path="budgetFilter.labels.#", form=_LABEL_KEY, least=1, most=63, page=_LABELS, code="INVALID_ARGUMENT"),
    Text(types="gcp:*", path="**.labels.#", form=rf"(?![0-9_-])(?!.*[A-Z]){_LABEL_KEY}", least=1, most=63, page=_LABELS, code="INVALID_ARGUMENT"),
    Text(types="gcp:*", path="**.labels.*", form=rf"(?!.*[A-Z]){_LABEL_KEY}", most=63, page=_LABELS, code="INVALID_ARGUMENT"),
    Text(types="gcp:*", path="**.userLabels.#", form=rf"(?![0-9_-])(?!.*[A-Z]){_LABEL_KEY}", least=1, most=63, page=_LABELS, code="INVALID_ARGUMENT"),
    Text(types="gcp:*", path="**.userLabels.*", form=rf"(?!.*[A-Z]){_LABEL_KEY}", most=63, page=_LABELS, code="INVALID_ARGUMENT"),
)  # fmt: skip
"""The limits of each text field. The first row that matches an input applies."""
