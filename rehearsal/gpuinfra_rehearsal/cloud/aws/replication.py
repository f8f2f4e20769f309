"""Bucket replication rules (`core/replication.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from gpuinfra_rehearsal.cloud.core import outage, replication
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Store

CONFIGURATION = "aws:s3/bucketReplicationConfig:BucketReplicationConfig"


def run(store: Store) -> None:
    """Copy the objects that enabled rules cover and that the replicas lack. A region with an outage copies nothing."""
    for source, replica, since in _enabled(store):
        replication.copy(store, source, replica, since)


def latency(store: Store, source: str, replica: str) -> float | None:
    """Return the age in seconds of the oldest object that is waiting for replication, or None if no object is waiting."""
    ages = [
        age
        for from_, to, since in _enabled(store)
        if (from_, to) == (source, replica)
        for _, age in replication.waiting(store, source, replica, since)
    ]
    return max(ages, default=None)


def _enabled(store: Store) -> Iterator[tuple[str, str, float]]:
    """Yield the source, the replica and the time of creation of each enabled rule in a region without an outage."""
    for resource in store.list(CONFIGURATION):
        for rule in resource.plain.get("rules") or []:
            if rule.get("status") == "Enabled" and not outage.affects(store, resource.region):
                yield str(resource.plain.get("bucket")), _replica(rule), resource.created


def _replica(rule: dict[str, Any]) -> str:
    return str((rule.get("destination") or {}).get("bucket") or "").rpartition(":")[2]


def document(store: Store, bucket: str) -> str:
    """Return the response of `GetBucketReplication`. Raises `ReplicationConfigurationNotFoundError` if the bucket has no rules."""
    found = next((one for one in store.list(CONFIGURATION) if one.plain.get("bucket") == bucket), None)
    if found is None:
        text = "The replication configuration was not found"
        raise ApiRejected("ReplicationConfigurationNotFoundError", text, status=404)
    rules = "".join(
        f"<Rule><ID>{escape(str(rule.get('id')))}</ID><Priority>{int(rule.get('priority') or 0)}</Priority><Filter><Prefix></Prefix></Filter>"
        f"<Status>{rule.get('status')}</Status>{_criteria(rule)}"
        f"<Destination><Bucket>{escape(str(rule['destination']['bucket']))}</Bucket>{_encryption(rule)}</Destination></Rule>"
        for rule in found.plain.get("rules") or []
    )
    return (
        '<ReplicationConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Role>{escape(str(found.plain.get('role')))}</Role>{rules}</ReplicationConfiguration>"
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
