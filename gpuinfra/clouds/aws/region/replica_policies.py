"""The statements that make a replica refuse what the first Region replicates, and how they are added to and removed from a policy. Pure.

Two policies of the second Region deny the replication, because each of them has a gap:

- The policy of the replica denies the actions of S3 Replication, for objects, tags and delete markers. In the `aws` partition, S3 requires us-east-1 to
  change a bucket policy (https://docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/global-services.html, retrieved 2026-11-29).
- The policy of the key denies the replication role the use of the key, without which S3 cannot write a replica
  (https://docs.aws.amazon.com/AmazonS3/latest/userguide/replication-config-for-kms-objects.html, retrieved 2026-11-22). KMS is a regional service.
  A delete marker contains no data to encrypt.

S3 does not repeat a replication that is denied (https://docs.aws.amazon.com/AmazonS3/latest/userguide/replication-failure-codes.html and
https://repost.aws/knowledge-center/s3-troubleshoot-replication, retrieved 2026-11-29).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.json_text import parsed

SID = "GpuinfraFailover"
"""Identifies the statements of a failover in a policy."""
REPLICATION_ACTIONS = ("s3:ObjectOwnerOverrideToBucketOwner", "s3:ReplicateDelete", "s3:ReplicateObject", "s3:ReplicateTags")  # fmt: skip
"""All actions of S3 Replication on the destination. No other request requires them (service authorization reference of S3, retrieved 2026-11-29)."""
VERSION = "2012-10-17"

Statement = Mapping[str, Any]


def of_replica(bucket: str, partition: str) -> Statement:
    """Return the statement for the policy of a replica. It applies to all roles, so a new replication role is also denied."""
    where = f"arn:{partition}:s3:::{bucket}/*"
    return {"Sid": SID, "Effect": "Deny", "Principal": "*", "Action": list(REPLICATION_ACTIONS), "Resource": where}


def of_key(role: str) -> Statement:
    """Return the statement for the policy of a replica's key. Its condition also applies if the role is deleted and created again with its name."""
    who = {"ArnEquals": {"aws:PrincipalArn": role}}
    return {"Sid": SID, "Effect": "Deny", "Principal": "*", "Action": "kms:*", "Resource": "*", "Condition": who}


def denying(policy: str | None, statement: Statement) -> str:
    """Return a policy with a statement of a failover. None is a bucket without a policy. Raises `DeploymentError` if the policy is not a policy."""
    others = _others(policy)
    return json.dumps({**_document(policy), "Statement": [*others, dict(statement)]})


def denies(policy: str | None) -> bool:
    """Return whether a policy contains the statement of a failover."""
    return len(_others(policy)) < len(_statements(policy))


def same(policy: str | None, other: str) -> bool:
    """Return whether two policies have the same content."""
    return policy is not None and _document(policy) == _document(other)


def restored(policy: str | None) -> str | None:
    """Return a policy without the statement of a failover, or None if it contains no other statement."""
    others = _others(policy)
    return json.dumps({**_document(policy), "Statement": others}) if others else None


def _others(policy: str | None) -> list[Any]:
    return [one for one in _statements(policy) if not (isinstance(one, Mapping) and one.get("Sid") == SID)]


def _statements(policy: str | None) -> list[Any]:
    statements = _document(policy).get("Statement", [])
    return list(statements) if isinstance(statements, list) else [statements]


def _document(policy: str | None) -> Mapping[str, Any]:
    if policy is None:
        return {"Version": VERSION}
    try:
        document = parsed(policy)
    except ValueError:
        document = None
    if not isinstance(document, Mapping):
        raise DeploymentError("AWS returned a policy that is not a JSON object; run the command again")
    return document
