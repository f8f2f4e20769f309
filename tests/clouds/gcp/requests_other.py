"""Calls of the other services: keys, buckets, logs, accounts, file systems, budgets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.clouds.gcp.answers import NUMBER
from tests.clouds.gcp.requests import Call, Inputs, mapper, policy


def _of(inputs: Inputs) -> str:
    return f"projects/{inputs.take('project')}"


@mapper("projects/service:Service")
def _service(inputs: Inputs) -> Iterator[Call]:
    yield Call("serviceusage.v1", "services.enable", {"name": f"{_of(inputs)}/services/{inputs.take('service')}"}, {})


@mapper("projects/serviceIdentity:ServiceIdentity")
def _identity(inputs: Inputs) -> Iterator[Call]:
    parent = f"{_of(inputs)}/services/{inputs.take('service')}"
    yield Call("serviceusage.v1beta1", "services.generateServiceIdentity", {"parent": parent})


@mapper("projects/iAMAuditConfig:IAMAuditConfig")
def _audit(inputs: Inputs) -> Iterator[Call]:
    config = inputs.some("service", "auditLogConfigs")
    body = {"policy": {"auditConfigs": [config]}, "updateMask": "auditConfigs,etag"}
    yield Call("cloudresourcemanager.v1", "projects.setIamPolicy", {"resource": inputs.take("project")}, body)


@mapper("serviceaccount/account:Account")
def _account(inputs: Inputs) -> Iterator[Call]:
    body = {**inputs.some("accountId"), "serviceAccount": inputs.some("displayName")}
    yield Call("iam.v1", "projects.serviceAccounts.create", {"name": _of(inputs)}, body)


@mapper("kms/keyRing:KeyRing")
def _ring(inputs: Inputs) -> Iterator[Call]:
    parent = f"{_of(inputs)}/locations/{inputs.take('location')}"
    yield Call(
        "cloudkms.v1",
        "projects.locations.keyRings.create",
        {"parent": parent, "keyRingId": inputs.take("name")},
        {},
    )


@mapper("kms/cryptoKey:CryptoKey")
def _key(inputs: Inputs) -> Iterator[Call]:
    where = {"parent": inputs.take("keyRing"), "cryptoKeyId": inputs.take("name")}
    body = inputs.some("purpose", "rotationPeriod", "destroyScheduledDuration", "labels")
    yield Call("cloudkms.v1", "projects.locations.keyRings.cryptoKeys.create", where, body)


@mapper("kms/cryptoKeyIAMMember:CryptoKeyIAMMember")
def _key_grant(inputs: Inputs) -> Iterator[Call]:
    body = {"policy": policy(inputs.take("role"), inputs.take("member"))}
    where = {"resource": inputs.take("cryptoKeyId")}
    yield Call("cloudkms.v1", "projects.locations.keyRings.cryptoKeys.setIamPolicy", where, body)


@mapper("artifactregistry/repositoryIamMember:RepositoryIamMember")
def _images(inputs: Inputs) -> Iterator[Call]:
    body = {"policy": policy(inputs.take("role"), inputs.take("member"))}
    resource = f"{_of(inputs)}/locations/{inputs.take('location')}/repositories/{inputs.take('repository')}"
    yield Call("artifactregistry.v1", "projects.locations.repositories.setIamPolicy", {"resource": resource}, body)


@mapper("storage/bucket:Bucket")
def _bucket(inputs: Inputs) -> Iterator[Call]:
    where = inputs.some("project")
    body = inputs.some("name", "location", "storageClass", "labels", "versioning", "encryption")
    body["iamConfiguration"] = {
        "uniformBucketLevelAccess": {"enabled": inputs.take("uniformBucketLevelAccess")},
        "publicAccessPrevention": inputs.take("publicAccessPrevention"),
    }
    soft = inputs.take("softDeletePolicy")
    body["softDeletePolicy"] = {"retentionDurationSeconds": str(soft["retentionDurationSeconds"])}
    if rules := inputs.take("lifecycleRules"):
        body["lifecycle"] = {"rule": [_lifecycle(rule) for rule in rules]}
    retention = inputs.take("retentionPolicy")
    if retention:
        body["retentionPolicy"] = {"retentionPeriod": retention["retentionPeriod"]}
    yield Call("storage.v1", "buckets.insert", where, body)
    if retention and retention.get("isLocked"):
        where = {"bucket": body["name"], "ifMetagenerationMatch": "1"}
        yield Call("storage.v1", "buckets.lockRetentionPolicy", where)


def _lifecycle(rule: dict[str, Any]) -> dict[str, Any]:
    condition = dict(rule["condition"])
    state = condition.pop("withState", None)
    if state is not None:
        condition["isLive"] = {"LIVE": True, "ARCHIVED": False}[state]
    return {"action": rule["action"], "condition": condition}


@mapper("storage/bucketIAMMember:BucketIAMMember")
def _bucket_grant(inputs: Inputs) -> Iterator[Call]:
    where = {"bucket": inputs.take("bucket")}
    body = policy(inputs.take("role"), inputs.take("member"), inputs.take("condition"))
    yield Call("storage.v1", "buckets.setIamPolicy", where, body)


@mapper("storage/bucketObject:BucketObject")
def _object(inputs: Inputs) -> Iterator[Call]:
    inputs.take("source")
    where = {**inputs.some("bucket"), "name": inputs.left["name"], "uploadType": "media"}
    where.pop("uploadType")
    yield Call("storage.v1", "objects.insert", where, inputs.some("name", "contentType"))


@mapper("logging/projectBucketConfig:ProjectBucketConfig")
def _logs(inputs: Inputs) -> Iterator[Call]:
    parent = f"{_of(inputs)}/locations/{inputs.take('location')}"
    where = {"parent": parent, "bucketId": inputs.take("bucketId")}
    body = inputs.some("description", "retentionDays", "locked", "cmekSettings")
    yield Call("logging.v2", "projects.locations.buckets.create", where, body)


@mapper("logging/projectSink:ProjectSink")
def _sink(inputs: Inputs) -> Iterator[Call]:
    where = {"parent": _of(inputs), **inputs.some("uniqueWriterIdentity")}
    yield Call("logging.v2", "projects.sinks.create", where, inputs.some("name", "destination", "filter", "exclusions"))


@mapper("dns/policy:Policy")
def _names(inputs: Inputs) -> Iterator[Call]:
    where = inputs.some("project")
    body = inputs.some("name", "enableLogging", "enableInboundForwarding", "networks")
    yield Call("dns.v1", "policies.create", where, body)


@mapper("dns/managedZone:ManagedZone")
def _zone(inputs: Inputs) -> Iterator[Call]:
    where = inputs.some("project")
    body = inputs.some("name", "dnsName", "description", "visibility", "labels", "privateVisibilityConfig")
    yield Call("dns.v1", "managedZones.create", where, body)


@mapper("dns/recordSet:RecordSet")
def _record(inputs: Inputs) -> Iterator[Call]:
    where = inputs.some("project", "managedZone")
    yield Call("dns.v1", "resourceRecordSets.create", where, inputs.some("name", "type", "ttl", "rrdatas"))


@mapper("servicenetworking/connection:Connection")
def _connection(inputs: Inputs) -> Iterator[Call]:
    where = {"parent": f"services/{inputs.take('service')}"}
    # The service requires the project number in the path of the network; the provider looks it up.
    network = inputs.take("network").rpartition("/")[2]
    body = {"network": f"projects/{NUMBER}/global/networks/{network}", **inputs.some("reservedPeeringRanges")}
    yield Call("servicenetworking.v1", "services.connections.create", where, body)


@mapper("filestore/instance:Instance")
def _filestore(inputs: Inputs) -> Iterator[Call]:
    where = {"parent": f"{_of(inputs)}/locations/{inputs.take('location')}", "instanceId": inputs.take("name")}
    body = inputs.some("tier", "protocol", "labels", "networks", "kmsKeyName", "deletionProtectionEnabled")
    share = inputs.take("fileShares")
    body["fileShares"] = [{"name": share["name"], "capacityGb": str(share["capacityGb"])}]
    yield Call("file.v1", "projects.locations.instances.create", where, body)


@mapper("monitoring/notificationChannel:NotificationChannel")
def _channel(inputs: Inputs) -> Iterator[Call]:
    body = inputs.some("type", "displayName", "labels", "userLabels")
    yield Call("monitoring.v3", "projects.notificationChannels.create", {"name": _of(inputs)}, body)


@mapper("monitoring/alertPolicy:AlertPolicy")
def _alert(inputs: Inputs) -> Iterator[Call]:
    body = inputs.some(
        "displayName", "combiner", "conditions", "alertStrategy", "documentation", "notificationChannels", "userLabels"
    )
    yield Call("monitoring.v3", "projects.alertPolicies.create", {"name": _of(inputs)}, body)


@mapper("projects/iAMCustomRole:IAMCustomRole")
def _role(inputs: Inputs) -> Iterator[Call]:
    body = {**inputs.some("roleId"), "role": inputs.some("title", "stage", includedPermissions="permissions")}
    yield Call("iam.v1", "projects.roles.create", {"parent": _of(inputs)}, body)


@mapper("projects/iAMMember:IAMMember")
def _project_grant(inputs: Inputs) -> Iterator[Call]:
    body = {"policy": policy(inputs.take("role"), inputs.take("member"), inputs.take("condition"))}
    yield Call("cloudresourcemanager.v1", "projects.setIamPolicy", {"resource": inputs.take("project")}, body)


@mapper("secretmanager/secretIamMember:SecretIamMember")
def _secret_grant(inputs: Inputs) -> Iterator[Call]:
    resource = f"projects/{inputs.take('project')}/secrets/{inputs.take('secretId')}"
    body = {"policy": policy(inputs.take("role"), inputs.take("member"))}
    yield Call("secretmanager.v1", "projects.secrets.setIamPolicy", {"resource": resource}, body)


@mapper("storage/transferJob:TransferJob")
def _replication(inputs: Inputs) -> Iterator[Call]:
    assert inputs.take("name") == "", "the service rejects a name, and the provider generates one if there is none"
    body = inputs.some("description", "status", "replicationSpec", "loggingConfig", projectId="project")
    yield Call("storagetransfer.v1", "transferJobs.create", {}, body)


@mapper("cloudscheduler/job:Job")
def _schedule(inputs: Inputs) -> Iterator[Call]:
    where = {"parent": f"{_of(inputs)}/locations/{inputs.take('region')}"}
    body = {
        "name": f"{where['parent']}/jobs/{inputs.take('name')}",
        **inputs.some("description", "schedule", "timeZone"),
    }
    yield Call("cloudscheduler.v1", "projects.locations.jobs.create", where, {**body, **inputs.some("httpTarget")})


@mapper("billing/budget:Budget")
def _budget(inputs: Inputs) -> Iterator[Call]:
    where = {"parent": f"billingAccounts/{inputs.take('billingAccount')}"}
    body = inputs.some("displayName", "amount", "thresholdRules", notificationsRule="allUpdatesRule")
    only = dict(inputs.take("budgetFilter"))
    only["labels"] = {key: [value] for key, value in only["labels"].items()}
    yield Call("billingbudgets.v1", "billingAccounts.budgets.create", where, {**body, "budgetFilter": only})
