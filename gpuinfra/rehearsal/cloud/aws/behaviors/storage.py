"""Buckets, objects and file systems."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuinfra.rehearsal.cloud.aws import access
from gpuinfra.rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra.rehearsal.cloud.core import wire
from gpuinfra.rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra.rehearsal.cloud.core.check import Failure
from gpuinfra.rehearsal.cloud.core.errors import CloudError

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource

LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
_S3_PARTS = (
    "BucketPolicy", "BucketVersioning", "BucketServerSideEncryptionConfiguration", "BucketPublicAccessBlock", "BucketLogging",
    "BucketLifecycleConfiguration", "BucketObjectLockConfiguration", "BucketReplicationConfig", "BucketOwnershipControls",
    "BucketNotification", "BucketCorsConfiguration", "BucketAccelerateConfiguration", "BucketRequestPaymentConfiguration",
)  # fmt: skip


@behaves
class Bucket(Behavior):
    types = access.BUCKETS
    shapes = {
        "bucket": (
            r"^(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z",
            "must be 3 to 63 lower case letters, digits, dots and hyphens, got '{value}'",
        )
    }
    taken = CloudError(
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
            raise CloudError("BucketNotEmpty", text, "S3: DeleteBucket", status=409)
        lock = access.lock_of(cloud.store, resource.id)
        for key, *_ in held:
            if (
                lock
                and lock[0] == "COMPLIANCE"
                and access.locked(cloud.store, resource.id, cloud.store.object(resource.id, key))
            ):
                text = "Access Denied because object protected by object lock."
                raise CloudError("AccessDenied", text, "S3: DeleteObjects", status=403)
        for key, *_ in held:
            cloud.store.remove_object(resource.id, key)


@behaves
class BucketPart(Behavior):
    """Settings of a bucket. A bucket has one of each kind."""

    types = tuple(f"aws:s3/{name[0].lower()}{name[1:]}:{name}" for name in _S3_PARTS)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        name = str(call.plain.get("bucket"))
        if access.bucket(cloud.store, name) is None and cloud.external(name) is None:
            text = "The specified bucket does not exist"
            raise CloudError("NoSuchBucket", text, f"S3: PutBucket{call.token[-6:]}", status=404)
        if "ObjectLock" in call.token:
            versions = [one for one in cloud.store.list("aws:s3/bucketVersioning:BucketVersioning") if one.id == name]
            on = any((one.plain.get("versioningConfiguration") or {}).get("status") == "Enabled" for one in versions)
            found = access.bucket(cloud.store, name)
            if found and not on and not found.plain.get("objectLockEnabled"):
                text = "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration"
                raise CloudError("InvalidBucketState", text, "S3: PutObjectLockConfiguration", status=409)


@behaves
class BucketObject(Behavior):
    """An object with content from an asset or a string. Nodes can download it."""

    types = ("aws:s3/bucketObject:BucketObject", "aws:s3/bucketObjectv2:BucketObjectv2")
    volatile = ("etag", "versionId")
    taken = CloudError("PreconditionFailed", "the object {id} is managed by another resource", status=412)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        if access.bucket(cloud.store, str(call.plain.get("bucket"))) is None:
            raise CloudError("NoSuchBucket", "The specified bucket does not exist", "S3: PutObject", status=404)

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
        raise CloudError("InvalidRequest", str(error), "S3: PutObject") from error
    return str(plain.get("content") or "").encode()


@behaves
class LustreFileSystem(Behavior):
    """A file system. FSx does not return its security groups (documentation of the type in pulumi-aws 7.51, "Import")."""

    types = (LUSTRE,)
    not_returned = ("securityGroupIds",)

    def check(self, cloud: Cloud, call: Call) -> Iterator[Failure]:
        size, kind = call.plain.get("storageCapacity"), call.plain.get("deploymentType", "SCRATCH_1")
        if isinstance(size, int) and call.plain.get("storageType", "SSD") == "SSD":
            fits = size == 1200 or (size % (3600 if kind == "SCRATCH_1" else 2400) == 0 and size > 0)
            if not fits:
                yield Failure(
                    "storageCapacity",
                    f"must be 1200 or a multiple of {3600 if kind == 'SCRATCH_1' else 2400} GiB for {kind}, got {size}",
                )

    def created(self, cloud: Cloud, call: Call) -> None:
        number = cloud.store.next("lustre mount")
        mount = "fsx" if call.plain.get("deploymentType", "SCRATCH_1") == "SCRATCH_1" else f"standin{number}"
        subnet = cloud.store.find("aws:ec2/subnet:Subnet", str(call.plain.get("subnetIds") or ""))
        call.outputs |= {"dnsName": f"{call.id}.fsx.{call.region}.amazonaws.com", "mountName": mount}
        if subnet:
            call.outputs["vpcId"] = subnet.plain["vpcId"]

    def before_update(self, cloud: Cloud, call: Call) -> None:
        assert call.old is not None
        before, now = call.old.plain.get("storageCapacity"), call.plain.get("storageCapacity")
        if before and now and int(now) < int(before):
            text = f"The storage capacity can only grow; it is {before} GiB and {now} GiB was asked for."
            raise CloudError("BadRequest", text, "FSx: UpdateFileSystem")

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        for one in cloud.store.where(
            "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", fileSystemId=resource.id
        ):
            cloud.store.remove(one)


@behaves
class DataRepositoryAssociation(Behavior):
    types = ("aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",)
    unique = (("fileSystemPath", "fileSystemId"),)
    taken = CloudError(
        "BadRequest", "The file system path {name} is already associated with a data repository.", status=409
    )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        file_system = cloud.store.find(LUSTRE, str(plain.get("fileSystemId")))
        if file_system is None and cloud.external(str(plain.get("fileSystemId"))) is None:
            raise CloudError(
                "FileSystemNotFound",
                f"File system '{plain.get('fileSystemId')}' does not exist.",
                "FSx: CreateDataRepositoryAssociation",
            )
        if file_system and file_system.plain.get("deploymentType") == "SCRATCH_1":
            text = "Data repository associations are not supported on SCRATCH_1 file systems."
            raise CloudError("UnsupportedOperation", text, "FSx: CreateDataRepositoryAssociation")
        name = str(plain.get("dataRepositoryPath", "")).removeprefix("s3://").split("/")[0]
        if access.bucket(cloud.store, name) is None and cloud.external(name) is None and ACCOUNT in name:
            text = f"The bucket {name} does not exist or cannot be accessed."
            raise CloudError("BadRequest", text, "FSx: CreateDataRepositoryAssociation")


@behaves
class LogGroup(Behavior):
    types = ("aws:cloudwatch/logGroup:LogGroup",)
    taken = CloudError(
        "ResourceAlreadyExistsException", "The specified log group already exists", "CloudWatch Logs: CreateLogGroup"
    )
