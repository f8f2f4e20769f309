"""Decides access to a bucket: the caller's IAM policies, the bucket policy, and object lock."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.aws import operator, policy
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.aws.credentials import Principal
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud, Rights
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store, StoredObject

BUCKET = "aws:s3/bucket:Bucket"
_ROLE = "aws:iam/role:Role"
_POLICY = "aws:s3/bucketPolicy:BucketPolicy"
_LOCK = "aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration"
_ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
_EVERYTHING = '{"Statement": [{"Sid": "Everything", "Effect": "Allow", "Action": "*", "Resource": "*"}]}'
_MANAGED = {
    "AdministratorAccess": _EVERYTHING,
    "AmazonS3FullAccess": '{"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}',
    "AmazonSSMManagedInstanceCore": '{"Statement": [{"Effect": "Allow", "Action": ["ssm:UpdateInstanceInformation", "ssmmessages:*"], "Resource": "*"}]}',
    "AmazonS3ReadOnlyAccess": '{"Statement": [{"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}]}',
}
"""AWS managed policies for buckets and sessions. In a rehearsal, other managed policies do not allow anything."""


def buckets(store: Store) -> list[str]:
    return sorted(one.id for one in store.list(BUCKET))


def bucket(store: Store, name: str) -> Resource | None:
    return store.find(BUCKET, name)


def exists(store: Store, name: str) -> bool:
    """Return whether a bucket exists: it was created in the rehearsal, or a role's policy lists it, which means that it is your existing bucket."""
    arn = f"arn:aws:s3:::{name}"
    return bucket(store, name) is not None or any(
        arn in document.split('"') for role in store.list(_ROLE) for document in role_policies(store, role.id)
    )


def bucket_policy(store: Store, name: str) -> Resource | None:
    """Return the policy of a bucket, or None if it has none."""
    return next((one for one in store.list(_POLICY) if one.id == name), None)


def bucket_policies(store: Store, name: str) -> list[str]:
    """Return the document of the policy of a bucket, or nothing."""
    policy_record = bucket_policy(store, name)
    return [str(policy_record.plain.get("policy"))] if policy_record else []


def bucket_region(store: Store, name: str) -> str:
    owner = bucket(store, name)
    return owner.region if owner else ""


def allowed(
    cloud: Cloud,
    who: Principal,
    action: str,
    resource: str,
    bucket_name: str,
    context: Mapping[str, str],
    *,
    needed: bool = True,
) -> tuple[bool, str]:
    """Return (allowed, reason) from the policies of the caller and the bucket. Raises CloudError if the operator's own
    policies deny the call. Without `needed`, a denial only changes the answer, so it is not recorded for a node."""
    store = cloud.store
    context_of_request = {
        "aws:userid": who.user_id,
        "aws:PrincipalArn": who.arn,
        "aws:PrincipalType": "AssumedRole" if who.role else "User",
        "aws:PrincipalAccount": who.arn.split(":")[4],
        "aws:SecureTransport": "true",
        "s3:TlsVersion": "1.3",
        **context,
    }
    if not who.role:
        cloud.operator.check(operator, operator.http(action, resource, bucket_region(store, bucket_name)))
        context_of_request["aws:username"] = who.arn.rsplit("/", 1)[-1]
    elif role := store.find(_ROLE, who.role):
        context_of_request |= {
            f"aws:PrincipalTag/{key}": str(value) for key, value in (role.plain.get("tags") or {}).items()
        }
    request = AccessRequest(who.arn, action, resource, context_of_request)
    identity = list(role_policies(store, who.role)) if who.role else [_EVERYTHING]
    decision = policy.decide(request, identity, bucket_policies(store, bucket_name))
    if not who.role or not (needed or decision[0]):
        return decision
    if decision[0] and (key := _key_request(store, request, bucket_name)):
        with_key = _recorded(cloud.rights, who, key, policy.decide(key, identity))
        if not with_key[0]:
            return with_key
    return _recorded(cloud.rights, who, request, decision)


def _recorded(rights: Rights, who: Principal, request: AccessRequest, decision: tuple[bool, str]) -> tuple[bool, str]:
    """Record the right that a node used or was denied."""
    if decision[0]:
        rights.used(_right(who.role, decision[1], request.action))
    else:
        rights.denied(who.role, request.action, request.resource)
    return decision


def _key_request(store: Store, request: AccessRequest, bucket_name: str) -> AccessRequest | None:
    """Return the request, made through S3, to use the key of an encrypted bucket's object."""
    use = {"s3:GetObject": "kms:Decrypt", "s3:PutObject": "kms:GenerateDataKey"}.get(request.action)
    key = key_of(store, bucket_name) if use else None
    if not use or not key:
        return None
    via = {**request.context, "kms:ViaService": f"s3.{bucket_region(store, bucket_name)}.amazonaws.com"}
    return AccessRequest(request.principal, use, key, via)


def role_allows(
    cloud: Cloud,
    role: str,
    action: str,
    resource: str = "*",
    region: str = "",
    tags: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
) -> bool:
    """Return whether a node's own policies allow an action in a Region, on a resource with these tags, and record it. `more` are other context keys."""
    context = {"aws:RequestedRegion": region} if region else {}
    context |= {f"aws:ResourceTag/{key}": value for key, value in (tags or {}).items()} | dict(more or {})
    decision = policy.decide(AccessRequest("", action, resource, context), role_policies(cloud.store, role))
    if decision[0]:
        cloud.rights.used(_right(role, decision[1], action))
    else:
        cloud.rights.denied(role, action, resource)
    return decision[0]


def rights_of(store: Store, role: str) -> Iterator[str]:
    """Return a name for each action in each statement of a role's own policies."""
    for document in role_policies(store, role):
        statements = json.loads(document)["Statement"]
        for statement in statements if isinstance(statements, list) else [statements]:
            actions = statement["Action"]
            for action in actions if isinstance(actions, list) else [actions]:
                yield _right(role, str(statement.get("Sid") or "without a Sid"), action)


def _right(role: str, sid: str, action: str) -> str:
    return f"{role}: {sid}: {action}"


def key_of(store: Store, bucket_name: str) -> str | None:
    """Return the ARN of the customer managed key that encrypts a bucket's objects, or None."""
    for configuration in store.list(_ENCRYPTION):
        plain = configuration.plain
        if plain.get("bucket") == bucket_name:
            for rule in plain.get("rules") or []:
                default = rule.get("applyServerSideEncryptionByDefault") or {}
                if str(default.get("kmsMasterKeyId") or "").startswith("arn:"):
                    return str(default["kmsMasterKeyId"])
    return None


def role_policies(store: Store, role: str) -> Iterator[str]:
    """Return the documents of all policies of a role."""
    role_record = store.find(_ROLE, role)
    if role_record is None:
        return
    for inline in role_record.plain.get("inlinePolicies") or []:
        yield str(inline.get("policy") or "{}")
    for resource in store.where("aws:iam/rolePolicy:RolePolicy", role=role):
        yield str(resource.plain["policy"])
    arns = list(role_record.plain.get("managedPolicyArns") or [])
    attached = store.where("aws:iam/rolePolicyAttachment:RolePolicyAttachment", role=role)
    arns += [str(one.plain["policyArn"]) for one in attached]
    for arn in arns:
        if arn.startswith("arn:aws:iam::aws:") and (text := _MANAGED.get(arn.rsplit("/", 1)[-1])):
            yield text


def put_context(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the context keys of an upload that bucket policies test."""
    names = {
        "x-amz-server-side-encryption": "s3:x-amz-server-side-encryption",
        "x-amz-server-side-encryption-aws-kms-key-id": "s3:x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-acl": "s3:x-amz-acl",
        "if-none-match": "s3:if-none-match",
    }
    return {name: headers[header] for header, name in names.items() if header in headers}


def lock_of(store: Store, bucket_name: str) -> tuple[str, float] | None:
    """Return (mode, seconds) of a bucket's default retention."""
    for configuration in store.list(_LOCK):
        if configuration.id.split(",")[0] == bucket_name:
            rule = (configuration.plain.get("rule") or {}).get("defaultRetention") or {}
            days = int(rule.get("days") or 0) + 365 * int(rule.get("years") or 0)
            return (str(rule.get("mode") or ""), days * 86400.0) if days else None
    return None


def locked(store: Store, bucket_name: str, stored_object: StoredObject | None) -> bool:
    """Return whether an object cannot be deleted yet."""
    lock = lock_of(store, bucket_name)
    return bool(stored_object and lock and time.time() < stored_object.modified + lock[1])
