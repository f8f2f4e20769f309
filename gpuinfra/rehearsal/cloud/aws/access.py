"""Buckets and who may use them: the caller's IAM policies, the bucket's own policy, and its object lock."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gpuinfra.rehearsal.cloud.aws import operator, policy
from gpuinfra.rehearsal.cloud.core import wire
from gpuinfra.rehearsal.cloud.core.rights import statement_right

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.aws.credentials import Principal
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource, StoredObject

BUCKETS = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2")
_POLICY = "aws:s3/bucketPolicy:BucketPolicy"
_LOCKS = (
    "aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration",
    "aws:s3/bucketObjectLockConfigurationV2:BucketObjectLockConfigurationV2",
)

_ENCRYPTIONS = (
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
)

_EVERYTHING = '{"Statement": [{"Sid": "Everything", "Effect": "Allow", "Action": "*", "Resource": "*"}]}'
_MANAGED = {
    "AdministratorAccess": _EVERYTHING,
    "AmazonS3FullAccess": '{"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}',
    "AmazonS3ReadOnlyAccess": '{"Statement": [{"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}]}',
}
"""AWS's own policies that say something about buckets; any other one allows nothing here."""


def buckets(cloud: Cloud) -> list[str]:
    return sorted(one.id for kind in BUCKETS for one in cloud.store.list(kind))


def bucket(cloud: Cloud, name: str) -> Resource | None:
    return next((found for kind in BUCKETS if (found := cloud.store.find(kind, name))), None)


def bucket_exists(cloud: Cloud, name: str) -> bool:
    return bucket(cloud, name) is not None


def bucket_region(cloud: Cloud, name: str) -> str:
    found = bucket(cloud, name)
    return found.region if found else ""


def allowed(
    cloud: Cloud, who: Principal, action: str, resource: str, bucket_name: str, context: Mapping[str, str]
) -> tuple[bool, str]:
    """(allowed, why): the logic of IAM over what this cloud holds. Raises CloudError where the operator's own policies forbid it."""
    known = {
        "aws:userid": who.user_id,
        "aws:PrincipalArn": who.arn,
        "aws:PrincipalType": "AssumedRole" if who.role else "User",
        "aws:PrincipalAccount": who.arn.split(":")[4],
        "aws:SecureTransport": "true",
        "s3:TlsVersion": "1.3",
        **context,
    }
    if not who.role:
        region = bucket_region(cloud, bucket_name)
        cloud.operator.calls(operator, operator.http(action, resource, region))
        known["aws:username"] = who.arn.rsplit("/", 1)[-1]
    ask = policy.Ask(who.arn, action, resource, known)
    identity = list(role_policies(cloud, who.role)) if who.role else [_EVERYTHING]
    own = [str(wire.plain(one.inputs).get("policy")) for one in cloud.store.list(_POLICY) if one.id == bucket_name]
    found = policy.decide(ask, identity, own)
    if not who.role:
        return found
    return _judged(cloud, who, ask, found) if not found[0] else _with_key(cloud, who, ask, found, identity, bucket_name)


def _judged(cloud: Cloud, who: Principal, ask: policy.Ask, found: tuple[bool, str]) -> tuple[bool, str]:
    """Remember which right a node used, or what it was refused."""
    if found[0]:
        cloud.rights.used(statement_right(who.role, found[1], ask.action))
    else:
        cloud.rights.refused(who.role, ask.action, ask.resource)
    return found


def _with_key(
    cloud: Cloud, who: Principal, ask: policy.Ask, found: tuple[bool, str], identity: list[str], bucket_name: str
) -> tuple[bool, str]:
    """Objects of a bucket that has a key need the key as well, through S3."""
    use = {"s3:GetObject": "kms:Decrypt", "s3:PutObject": "kms:GenerateDataKey"}.get(ask.action)
    key = key_of(cloud, bucket_name) if use else None
    if use and key:
        via = {**ask.context, "kms:ViaService": f"s3.{bucket_region(cloud, bucket_name)}.amazonaws.com"}
        with_key = policy.Ask(ask.principal_arn, use, key, via)
        answer = _judged(cloud, who, with_key, policy.decide(with_key, identity))
        if not answer[0]:
            return answer
    return _judged(cloud, who, ask, found)


def key_of(cloud: Cloud, bucket_name: str) -> str | None:
    """ARN of the key that a bucket's objects are encrypted with, where it is the account's own."""
    for kind in _ENCRYPTIONS:
        for one in cloud.store.list(kind):
            plain = wire.plain(one.inputs)
            if plain.get("bucket") == bucket_name:
                for rule in plain.get("rules") or []:
                    default = rule.get("applyServerSideEncryptionByDefault") or {}
                    if str(default.get("kmsMasterKeyId") or "").startswith("arn:"):
                        return str(default["kmsMasterKeyId"])
    return None


def role_policies(cloud: Cloud, role: str) -> Iterator[str]:
    """The documents of every policy of a role."""
    found = cloud.store.find("aws:iam/role:Role", role)
    if found is None:
        return
    for inline in wire.plain(found.inputs).get("inlinePolicies") or []:
        yield str(inline.get("policy") or "{}")
    for one in cloud.store.list("aws:iam/rolePolicy:RolePolicy"):
        if wire.plain(one.inputs).get("role") == role:
            yield str(wire.plain(one.inputs)["policy"])
    arns = list(wire.plain(found.inputs).get("managedPolicyArns") or [])
    for one in cloud.store.list("aws:iam/rolePolicyAttachment:RolePolicyAttachment"):
        if wire.plain(one.inputs).get("role") == role:
            arns.append(str(wire.plain(one.inputs)["policyArn"]))
    for arn in arns:
        if made := cloud.store.find("aws:iam/policy:Policy", arn):
            yield str(wire.plain(made.inputs)["policy"])
        elif arn.startswith("arn:aws:iam::aws:") and (text := _MANAGED.get(arn.rsplit("/", 1)[-1])):
            yield text


def put_context(headers: Mapping[str, str]) -> dict[str, str]:
    """What bucket policies ask about an upload."""
    names = {
        "x-amz-server-side-encryption": "s3:x-amz-server-side-encryption",
        "x-amz-server-side-encryption-aws-kms-key-id": "s3:x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-acl": "s3:x-amz-acl",
        "if-none-match": "s3:if-none-match",
    }
    return {name: headers[header] for header, name in names.items() if header in headers}


def lock_of(cloud: Cloud, bucket_name: str) -> tuple[str, float] | None:
    """(mode, seconds) of a bucket's default retention."""
    for kind in _LOCKS:
        for one in cloud.store.list(kind):
            if one.id.split(",")[0] == bucket_name:
                rule = (wire.plain(one.inputs).get("rule") or {}).get("defaultRetention") or {}
                days = int(rule.get("days") or 0) + 365 * int(rule.get("years") or 0)
                return (str(rule.get("mode") or ""), days * 86400.0) if days else None
    return None


def locked(cloud: Cloud, bucket_name: str, found: StoredObject | None) -> bool:
    """Whether an object may not be deleted yet."""
    lock = lock_of(cloud, bucket_name)
    return bool(found and lock and time.time() < found.modified + lock[1])
