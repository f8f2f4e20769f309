"""Buckets, objects and file systems."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import access, home_replication
from gpuinfra_rehearsal.cloud.aws.behaviors.network import MOUNT_TARGET, SECURITY, SUBNET
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT, arn_of, hexa
from gpuinfra_rehearsal.cloud.aws.replication import change_rules
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
HOME = "aws:efs/fileSystem:FileSystem"
HOME_POLICY = "aws:efs/fileSystemPolicy:FileSystemPolicy"
_S3_PARTS = (
    "BucketPolicy", "BucketVersioning", "BucketServerSideEncryptionConfiguration", "BucketPublicAccessBlock", "BucketLogging",
    "BucketLifecycleConfiguration", "BucketObjectLockConfiguration", "BucketReplicationConfig", "BucketOwnershipControls",
)  # fmt: skip


@behaves
class Bucket(Behavior):
    types = (access.BUCKET,)
    shapes = {
        "bucket": (
            r"^(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z",
            "must be 3 to 63 lower case letters, digits, dots and hyphens, got '{value}'",
        )
    }
    taken = ApiRejected(
        "BucketAlreadyOwnedByYou",
        "Your previous request to create the named bucket succeeded and you already own it.",
        "S3: CreateBucket",
        status=409,
    )

    def names(self, cloud: Cloud, call: Call) -> Iterator[tuple[str, str]]:
        yield "bucket", call.id

    def created(self, cloud: Cloud, call: Call) -> None:
        host = f"{call.id}.s3"
        call.outputs |= {
            "bucketDomainName": f"{host}.amazonaws.com",
            "bucketRegionalDomainName": f"{host}.{call.region}.amazonaws.com",
            "bucketRegion": call.region,
            "hostedZoneId": "Z0000000STANDIN",
            "bucketPrefix": call.outputs.get("bucketPrefix") if call.inputs.get("bucketPrefix") else "",
        }

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        held = cloud.store.objects(resource.id)
        if not held:
            return
        if not resource.plain.get("forceDestroy"):
            text = "The bucket you tried to delete is not empty. You must delete all versions in the bucket."
            raise ApiRejected("BucketNotEmpty", text, "S3: DeleteBucket", status=409)
        lock = access.lock_of(cloud.store, resource.id)
        for key, *_ in held:
            if (
                lock
                and lock[0] == "COMPLIANCE"
                and access.locked(cloud.store, resource.id, cloud.store.object(resource.id, key))
            ):
                text = "Access Denied because object protected by object lock."
                raise ApiRejected("AccessDenied", text, "S3: DeleteObjects", status=403)
        for key, *_ in held:
            cloud.store.remove_object(resource.id, key)


@behaves
class BucketPart(Behavior):
    """A setting of a bucket. A bucket has one setting of each kind."""

    types = tuple(f"aws:s3/{name[0].lower()}{name[1:]}:{name}" for name in _S3_PARTS)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        name = str(call.plain.get("bucket"))
        if access.bucket(cloud.store, name) is None and cloud.external(name) is None:
            text = "The specified bucket does not exist"
            raise ApiRejected("NoSuchBucket", text, f"S3: PutBucket{call.token[-6:]}", status=404)
        if "Replication" in call.token:
            _check_replication(cloud, call, name)
        if "ObjectLock" in call.token:
            bucket_record = access.bucket(cloud.store, name)
            if bucket_record and not _versioned(cloud, name) and not bucket_record.plain.get("objectLockEnabled"):
                text = "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration"
                raise ApiRejected("InvalidBucketState", text, "S3: PutObjectLockConfiguration", status=409)

    def before_update(self, cloud: Cloud, call: Call) -> None:
        if "Replication" in call.token and call.old is not None:
            change_rules(cloud.store, call.old, call.plain.get("rules") or [])


def _versioned(cloud: Cloud, name: str) -> bool:
    return any(
        (one.plain.get("versioningConfiguration") or {}).get("status") == "Enabled"
        for one in cloud.store.list("aws:s3/bucketVersioning:BucketVersioning")
        if one.id == name
    )


def _check_replication(cloud: Cloud, call: Call, name: str) -> None:
    """Reject a configuration that S3 rejects. The provider retries the first message
    (`bucket_replication_configuration.go`). The wording of the other messages is not verified. S3 does not check
    whether the key of the replicas is valid
    (https://docs.aws.amazon.com/AmazonS3/latest/dev/crr-replication-config-for-kms-objects.html, retrieved 2026-11-22).
    """

    def refuse(text: str) -> None:
        raise ApiRejected("InvalidRequest", text, "S3: PutBucketReplication", status=400)

    if cloud.external(name) is None and not _versioned(cloud, name):
        refuse("Versioning must be 'Enabled' on the bucket to apply a replication configuration")
    for rule in call.plain.get("rules") or []:
        destination = rule.get("destination") or {}
        replica = str(destination.get("bucket") or "").rpartition(":::")[2]
        if cloud.external(replica) is None:
            if access.bucket(cloud.store, replica) is None:
                refuse("Destination bucket must exist.")
            if not _versioned(cloud, replica):
                refuse("Destination bucket must have versioning enabled.")
        encrypted = (rule.get("sourceSelectionCriteria") or {}).get("sseKmsEncryptedObjects") or {}
        key = (destination.get("encryptionConfiguration") or {}).get("replicaKmsKeyId")
        if encrypted.get("status") == "Enabled" and not key:
            refuse("ReplicaKmsKeyID must be specified if SseKmsEncryptedObjects tag is present.")
        timed = (destination.get("replicationTime") or {}).get("status") == "Enabled"
        if timed and (destination.get("metrics") or {}).get("status") != "Enabled":
            refuse("Metrics must be enabled if ReplicationTime is enabled.")


@behaves
class BucketObject(Behavior):
    """An object with content from an asset or a string. Nodes can download it. A second upload replaces the first."""

    types = ("aws:s3/bucketObjectv2:BucketObjectv2",)
    volatile = ("etag", "versionId")
    joins = True

    def before_create(self, cloud: Cloud, call: Call) -> None:
        if access.bucket(cloud.store, str(call.plain.get("bucket"))) is None:
            raise ApiRejected("NoSuchBucket", "The specified bucket does not exist", "S3: PutObject", status=404)

    def created(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        headers = {"content-type": str(plain.get("contentType") or "binary/octet-stream")}
        stored = cloud.store.put_object(plain["bucket"], plain["key"], _content(plain), headers)
        call.outputs |= {"etag": stored.etag, "contentType": headers["content-type"]}

    updated = created

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        plain = resource.plain
        cloud.store.remove_object(plain["bucket"], plain["key"])

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        plain = resource.plain
        return resource if cloud.store.object(plain["bucket"], plain["key"]) else None

    def by_import_id(self, cloud: Cloud, token: str, id: str, region: str) -> Resource | None:
        return cloud.store.find(token, id.removeprefix("s3://"), region)


def _content(plain: dict) -> bytes:
    try:
        if plain.get("source") is not None:
            return wire.asset_bytes(plain["source"])
        if plain.get("contentBase64") is not None:
            return base64.b64decode(plain["contentBase64"])
    except ValueError as error:
        raise ApiRejected("InvalidRequest", str(error), "S3: PutObject") from error
    return str(plain.get("content") or "").encode()


@behaves
class LustreFileSystem(Behavior):
    """A file system. FSx does not return its security groups (documentation of the type in pulumi-aws 7.51, "Import")."""

    types = (LUSTRE,)
    not_returned = ("securityGroupIds",)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        size, kind = call.plain.get("storageCapacity"), call.plain.get("deploymentType", "SCRATCH_1")
        if isinstance(size, int) and call.plain.get("storageType", "SSD") == "SSD":
            fits = size == 1200 or (size % (3600 if kind == "SCRATCH_1" else 2400) == 0 and size > 0)
            if not fits:
                yield RejectedInput(
                    "storageCapacity",
                    f"must be 1200 or a multiple of {3600 if kind == 'SCRATCH_1' else 2400} GiB for {kind}, got {size}",
                )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        if call.plain.get("backupId"):
            _check_backup(cloud, call, str(call.plain["backupId"]))

    def created(self, cloud: Cloud, call: Call) -> None:
        backup = (cloud.external(str(call.plain["backupId"])) if call.plain.get("backupId") else None) or {}
        if size := backup.get("StorageCapacity"):
            # The provider does not send the capacity with a backup, and FSx uses the capacity of the backup.
            call.outputs["storageCapacity"] = size
        days = (backup.get("LustreConfiguration") or {}).get("AutomaticBackupRetentionDays")
        if days and not call.plain.get("automaticBackupRetentionDays"):
            # The provider does not send 0 (`GetOk` in `lustre_file_system.go`), and FSx uses the setting of the original.
            call.outputs["automaticBackupRetentionDays"] = days
        number = cloud.store.next("lustre mount")
        mount = "fsx" if call.plain.get("deploymentType", "SCRATCH_1") == "SCRATCH_1" else f"standin{number}"
        subnet = cloud.store.find("aws:ec2/subnet:Subnet", str(call.plain.get("subnetIds") or ""))
        # "For an Amazon FSx for Lustre file system, you can have more than one" (API reference, FileSystem, NetworkInterfaceIds).
        interfaces = [f"eni-{hexa(cloud.store.next('eni'), 17)}" for _ in range(2)]
        call.outputs |= {
            "dnsName": f"{call.id}.fsx.{call.region}.amazonaws.com",
            "mountName": mount,
            "networkInterfaceIds": interfaces,
        }
        if subnet:
            call.outputs["vpcId"] = subnet.plain["vpcId"]

    def before_update(self, cloud: Cloud, call: Call) -> None:
        refuse_smaller(call)

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        for setting in cloud.store.where(
            "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", fileSystemId=resource.id
        ):
            cloud.store.remove(setting)


def _check_backup(cloud: Cloud, call: Call, id: str) -> None:
    """Reject a backup that does not exist or that FSx cannot restore with the settings of the call.

    The values that must be equal are in "Restoring backups" of the FSx for Lustre user guide, and the rule for versions and the codes are in
    API_CreateFileSystemFromBackup.html, retrieved 2026-11-27. The wording, and the code for different values, are not verified.
    """
    backup, plain, action = backup_of(cloud, id), call.plain, "FSx: CreateFileSystemFromBackup"
    lustre = backup.get("LustreConfiguration") or {}
    for name, original, given in (
        ("StorageType", backup.get("StorageType"), plain.get("storageType") or "SSD"),
        ("DeploymentType", lustre.get("DeploymentType"), plain.get("deploymentType") or "SCRATCH_1"),
        ("PerUnitStorageThroughput", lustre.get("PerUnitStorageThroughput"), plain.get("perUnitStorageThroughput")),
        ("DataCompressionType", lustre.get("DataCompressionType"), plain.get("dataCompressionType") or "NONE"),
    ):
        if original not in (None, given):
            text = f"The backup has the {name} {original}, but {given} was requested."
            raise ApiRejected("BadRequest", text, action, status=400)
    original, given = (
        str(one or "") for one in (backup.get("FileSystemTypeVersion"), plain.get("fileSystemTypeVersion"))
    )
    if original and given and [int(part) for part in given.split(".")] < [int(part) for part in original.split(".")]:
        text = f"The FileSystemTypeVersion {given} is older than {original}, the version of the backup."
        raise ApiRejected("BadRequest", text, action, status=400)


def refuse_smaller(call: Call) -> None:
    """Refuse an update to a smaller capacity. FSx can only increase it."""
    assert call.old is not None
    before, now = call.old.plain.get("storageCapacity"), call.plain.get("storageCapacity")
    if before and now and int(now) < int(before):
        text = f"The storage capacity can only grow; it is {before} GiB and {now} GiB was requested."
        raise ApiRejected("BadRequest", text, "FSx: UpdateFileSystem")


def backup_of(cloud: Cloud, id: str) -> dict[str, Any]:
    """Return an FSx backup. Raises the error of FSx if it does not exist."""
    backup = cloud.external(id)
    if backup is None:
        raise ApiRejected(
            "BackupNotFound", f"Backup '{id}' does not exist.", "FSx: CreateFileSystemFromBackup", status=400
        )
    return backup


@behaves
class DataRepositoryAssociation(Behavior):
    types = ("aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",)
    unique = (("fileSystemPath", "fileSystemId"),)
    taken = ApiRejected(
        "BadRequest", "The file system path {name} is already associated with a data repository.", status=409
    )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        file_system = cloud.store.find(LUSTRE, str(plain.get("fileSystemId")))
        if file_system is None and cloud.external(str(plain.get("fileSystemId"))) is None:
            raise ApiRejected(
                "FileSystemNotFound",
                f"File system '{plain.get('fileSystemId')}' does not exist.",
                "FSx: CreateDataRepositoryAssociation",
            )
        if file_system and file_system.plain.get("deploymentType") == "SCRATCH_1":
            text = "Data repository associations are not supported on SCRATCH_1 file systems."
            raise ApiRejected("UnsupportedOperation", text, "FSx: CreateDataRepositoryAssociation")
        name = str(plain.get("dataRepositoryPath", "")).removeprefix("s3://").split("/")[0]
        if access.bucket(cloud.store, name) is None and cloud.external(name) is None and ACCOUNT in name:
            text = f"The bucket {name} does not exist or cannot be accessed."
            raise ApiRejected("BadRequest", text, "FSx: CreateDataRepositoryAssociation")


@behaves
class Home(Behavior):
    """An EFS file system. API_CreateFileSystem.html, retrieved 2026-11-22."""

    types = (HOME,)
    unique = (("creationToken", "region"),)
    taken = ApiRejected(
        "FileSystemAlreadyExists",
        "File system '{id}' already exists with creation token '{name}'",
        "EFS: CreateFileSystem",
        status=409,
    )
    volatile = ("numberOfMountTargets", "sizeInBytes")

    def created(self, cloud: Cloud, call: Call) -> None:
        size = {"value": 6144, "valueInIa": 0, "valueInStandard": 6144}
        call.outputs |= {
            "dnsName": f"{call.id}.efs.{call.region}.amazonaws.com",
            "ownerId": ACCOUNT,
            "numberOfMountTargets": 0,
            "sizeInBytes": [size],
            "lifecyclePolicies": [],
            "protection": {"replicationOverwrite": "ENABLED"},
        }

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        if home_replication.is_part(cloud.store, resource.id):
            text = f"File system {resource.id} is part of a replication"
            raise ApiRejected("FileSystemInUse", text, "EFS: DeleteFileSystem", status=409)
        if cloud.store.where(MOUNT_TARGET, fileSystemId=resource.id):
            text = f"File system {resource.id} has mount targets created in it"
            raise ApiRejected("FileSystemInUse", text, "EFS: DeleteFileSystem", status=409)

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        count = len(cloud.store.where(MOUNT_TARGET, fileSystemId=resource.id))
        protected = {"replicationOverwrite": home_replication.protection(cloud.store, resource.id)}
        return replace(resource, outputs={**resource.outputs, "numberOfMountTargets": count, "protection": protected})


@behaves
class HomeReplication(Behavior):
    """The replication of a file system to an existing one (`home_replication.py`). The provider deletes it in both Regions."""

    types = (home_replication.CONFIGURATION,)
    shapes = {"sourceFileSystemId": (r"^fs-[0-9a-f]{8,40}\Z", "must be the ID of a file system, got '{value}'")}

    def before_create(self, cloud: Cloud, call: Call) -> None:
        target = call.plain["destination"]
        source, second = str(call.plain["sourceFileSystemId"]), str(target["region"])
        home_replication.create(cloud, source, str(target["fileSystemId"]), call.region, second)

    def created(self, cloud: Cloud, call: Call) -> None:
        source = str(call.plain["sourceFileSystemId"])
        arn = arn_of(HOME, source, {}, call.region)
        call.outputs |= {
            "destination": {**call.plain["destination"], "status": "ENABLED"},
            "sourceFileSystemArn": arn,
            "originalSourceFileSystemArn": arn,
            "sourceFileSystemRegion": call.region,
        }

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        return resource if home_replication.exists(cloud.store, resource.id, resource.region) else None

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        if home_replication.exists(cloud.store, resource.id, resource.region):
            home_replication.delete(cloud.store, resource.id, resource.region)


@behaves
class HomePolicy(Behavior):
    """The policy of a file system. A second policy replaces the first. Clients without credentials require a statement in it."""

    types = (HOME_POLICY,)
    joins = True

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        text = call.plain.get("policy")
        if isinstance(text, str) and not wire.is_unknown(text):
            try:
                json.loads(text)
            except ValueError:
                yield RejectedInput("policy", "contains an invalid JSON policy")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _home_exists(cloud, call, "EFS: PutFileSystemPolicy")

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        """Return the policy as EFS does: a statement without a resource gets the ARN of the file system (https://github.com/aws/aws-cdk/issues/30753)."""
        document = json.loads(str(resource.plain["policy"]))
        if all("Resource" in one for one in document["Statement"]):
            return resource
        home = cloud.store.find(HOME, resource.id)
        arn = arn_of(HOME, resource.id, home.plain if home else {}, resource.region)
        document["Statement"] = [{"Resource": arn, **one} for one in document["Statement"]]
        policy = {"policy": json.dumps(document)}
        return resource.changed(**policy)


@behaves
class MountTarget(Behavior):
    """A mount target. A file system has at most one in each zone, and all in one VPC. API_CreateMountTarget.html, retrieved 2026-11-22."""

    types = (MOUNT_TARGET,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _home_exists(cloud, call, "EFS: CreateMountTarget")
        subnet = cloud.store.find(SUBNET, str(call.plain.get("subnetId")))
        if subnet is None:
            if cloud.external(str(call.plain.get("subnetId"))) is None:
                text = f"The subnet ID '{call.plain.get('subnetId')}' does not exist"
                raise ApiRejected("SubnetNotFound", text, "EFS: CreateMountTarget")
            return
        for other in cloud.store.where(MOUNT_TARGET, fileSystemId=call.plain.get("fileSystemId")):
            there = cloud.store.find(SUBNET, str(other.plain.get("subnetId")))
            if there is None:
                continue
            if there.plain.get("vpcId") != subnet.plain.get("vpcId"):
                text = "requested subnet for new mount target is not in the same VPC as existing mount targets"
            elif there.outputs.get("availabilityZoneId") == subnet.outputs.get("availabilityZoneId"):
                text = "mount target already exists in this AZ"
            else:
                continue
            raise ApiRejected("MountTargetConflict", text, "EFS: CreateMountTarget", status=409)
        for group in call.plain.get("securityGroups") or []:
            if cloud.store.find(SECURITY, str(group)) is None and cloud.external(str(group)) is None:
                text = f"The security group ID '{group}' does not exist"
                raise ApiRejected("SecurityGroupNotFound", text, "EFS: CreateMountTarget")

    def created(self, cloud: Cloud, call: Call) -> None:
        plain, number = call.plain, cloud.store.next("mount target")
        id, subnet = str(plain["fileSystemId"]), cloud.store.find(SUBNET, str(plain.get("subnetId")))
        call.outputs |= {
            "dnsName": f"{id}.efs.{call.region}.amazonaws.com",
            "fileSystemArn": arn_of(HOME, id, {}, call.region),
            "ownerId": ACCOUNT,
            "networkInterfaceId": f"eni-{hexa(number, 17)}",
        }
        if subnet:
            zone = {key: subnet.outputs[key] for key in ("availabilityZoneId",)}
            name = subnet.outputs["availabilityZone"]
            named = {"availabilityZoneName": name, "mountTargetDnsName": f"{name}.{id}.efs.{call.region}.amazonaws.com"}
            call.outputs |= zone | named


def _home_exists(cloud: Cloud, call: Call, action: str) -> None:
    id = str(call.plain.get("fileSystemId"))
    if cloud.store.find(HOME, id) is None and cloud.external(id) is None:
        raise ApiRejected("FileSystemNotFound", f"File system '{id}' does not exist.", action, status=404)


@behaves
class LogGroup(Behavior):
    types = ("aws:cloudwatch/logGroup:LogGroup",)
    taken = ApiRejected(
        "ResourceAlreadyExistsException", "The specified log group already exists", "CloudWatch Logs: CreateLogGroup"
    )
