"""Bucket replication rules (`core/replication.py`).

S3 writes a replica as the role of the rule, so the policies of the role, of the replica and of its key must allow it. A replication that is denied fails,
and is not repeated (https://docs.aws.amazon.com/AmazonS3/latest/userguide/replication-failure-codes.html and
https://repost.aws/knowledge-center/s3-troubleshoot-replication, retrieved 2026-11-29). A rule that is enabled again does not replicate what was written
while it was disabled (https://docs.aws.amazon.com/AmazonS3/latest/userguide/disable-replication.html, retrieved 2026-11-29).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from gpuinfra_rehearsal.cloud.aws import access, policy, versions
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.core import outage, replication
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

CONFIGURATION = "aws:s3/bucketReplicationConfig:BucketReplicationConfig"
_ENABLED = "aws-replicates-since"


def run(store: Store) -> None:
    """Copy the objects that enabled rules cover and that the replicas lack. A region with an outage copies nothing."""
    for rule in enabled(store):
        if allows(store, rule, "s3:ReplicateObject"):
            replication.copy(store, rule.source, rule.replica, rule.since, versions.write)
        else:
            replication.fail(store, rule.source, rule.replica, rule.since)


def allows(store: Store, rule: Rule, action: str) -> bool:
    """Return whether S3 can perform an action of replication on the objects of a replica. Without an object to encrypt, the key is not used."""
    who = f"arn:aws:sts::{ACCOUNT}:assumed-role/{rule.role.rpartition('/')[2]}/s3-replication"
    context = {"aws:PrincipalArn": rule.role, "aws:PrincipalAccount": ACCOUNT, "aws:SecureTransport": "true"}
    identity = list(access.role_policies(store, rule.role.rpartition("/")[2]))
    asks = [(action, f"arn:aws:s3:::{rule.replica}/key", context, access.bucket_policies(store, rule.replica))]
    if action == "s3:ReplicateObject" and rule.key:
        key = next((one for one in store.list("aws:kms/key:Key") if one.outputs.get("arn") == rule.key), None)
        via = {**context, "kms:ViaService": f"s3.{access.bucket_region(store, rule.replica)}.amazonaws.com"}
        asks.append(("kms:Encrypt", rule.key, via, [str(key.plain.get("policy"))] if key else []))
    return all(policy.decide(AccessRequest(who, one, on, more), identity, own)[0] for one, on, more, own in asks)


def latency(store: Store, source: str, replica: str) -> float | None:
    """Return the age in seconds of the oldest object that is waiting for replication, or None if no object is waiting."""
    ages = [
        age
        for rule in enabled(store)
        if (rule.source, rule.replica) == (source, replica)
        for _, age in replication.waiting(store, source, replica, rule.since)
    ]
    return max(ages, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An enabled rule."""

    source: str
    replica: str
    since: float
    """Time at which the rule was created or enabled again."""
    role: str
    """ARN of the role."""
    key: str
    """ARN of the key of the replica, or an empty string."""


def enabled(store: Store) -> Iterator[Rule]:
    """Yield the enabled rules in regions without an outage."""
    for resource in store.list(CONFIGURATION):
        for rule in resource.plain.get("rules") or []:
            if rule.get("status") == "Enabled" and not outage.affects(store, resource.region):
                encryption = (rule.get("destination") or {}).get("encryptionConfiguration") or {}
                yield Rule(
                    source=str(resource.plain.get("bucket")),
                    replica=_replica(rule),
                    since=max(resource.created, float(store.get(_ENABLED, f"{resource.id} {rule.get('id')}") or 0)),
                    role=str(resource.plain.get("role")),
                    key=str(encryption.get("replicaKmsKeyId") or ""),
                )


def change_rules(store: Store, configuration: Resource, rules: Sequence[Mapping[str, Any]]) -> None:
    """Record which rules are enabled again. `rules` are the new ones."""
    before = {rule.get("id"): rule.get("status") for rule in configuration.plain.get("rules") or []}
    for rule in rules:
        if rule.get("status") == "Enabled" != before.get(rule.get("id"), "Enabled"):
            store.put(_ENABLED, f"{configuration.id} {rule.get('id')}", store.now())


def _replica(rule: dict[str, Any]) -> str:
    return str((rule.get("destination") or {}).get("bucket") or "").rpartition(":")[2]


def document(store: Store, bucket: str) -> str:
    """Return the response of `GetBucketReplication`. Raises `ReplicationConfigurationNotFoundError` if the bucket has no rules."""
    configuration = next((one for one in store.list(CONFIGURATION) if one.plain.get("bucket") == bucket), None)
    if configuration is None:
        text = "The replication configuration was not found"
        raise ApiRejected("ReplicationConfigurationNotFoundError", text, status=404)
    rules = "".join(
        f"<Rule><ID>{escape(str(rule.get('id')))}</ID><Priority>{int(rule.get('priority') or 0)}</Priority><Filter><Prefix></Prefix></Filter>"
        f"<Status>{rule.get('status')}</Status>{_criteria(rule)}"
        f"<Destination><Bucket>{escape(str(rule['destination']['bucket']))}</Bucket>{_encryption(rule)}</Destination></Rule>"
        for rule in configuration.plain.get("rules") or []
    )
    return (
        '<ReplicationConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Role>{escape(str(configuration.plain.get('role')))}</Role>{rules}</ReplicationConfiguration>"
    )


def _criteria(rule: dict[str, Any]) -> str:
    status = ((rule.get("sourceSelectionCriteria") or {}).get("sseKmsEncryptedObjects") or {}).get("status")
    if not status:
        return ""
    return f"<SourceSelectionCriteria><SseKmsEncryptedObjects><Status>{status}</Status></SseKmsEncryptedObjects></SourceSelectionCriteria>"


def _encryption(rule: dict[str, Any]) -> str:
    key = (rule["destination"].get("encryptionConfiguration") or {}).get("replicaKmsKeyId")
    return (
        f"<EncryptionConfiguration><ReplicaKmsKeyID>{escape(str(key))}</ReplicaKmsKeyID></EncryptionConfiguration>"
        if key
        else ""
    )
