"""Bucket replication rules (`core/replication.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from gpuinfra.rehearsal.cloud.core import replication
from gpuinfra.rehearsal.cloud.core.errors import CloudError

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.store import Store

CONFIGURATION = "aws:s3/bucketReplicationConfig:BucketReplicationConfig"


def run(store: Store) -> None:
    """Copy the objects that enabled rules cover and that the replicas lack."""
    for one in store.list(CONFIGURATION):
        for rule in one.plain.get("rules") or []:
            if rule.get("status") == "Enabled":
                replication.copy(store, str(one.plain.get("bucket")), _replica(rule), one.created)


def _replica(rule: dict[str, Any]) -> str:
    return str((rule.get("destination") or {}).get("bucket") or "").rpartition(":")[2]


def document(store: Store, bucket: str) -> str:
    """Return the response of `GetBucketReplication`. Raises `ReplicationConfigurationNotFoundError` if the bucket has no rules."""
    found = next((one for one in store.list(CONFIGURATION) if one.plain.get("bucket") == bucket), None)
    if found is None:
        text = "The replication configuration was not found"
        raise CloudError("ReplicationConfigurationNotFoundError", text, status=404)
    rules = "".join(
        f"<Rule><ID>{escape(str(rule.get('id')))}</ID><Priority>{int(rule.get('priority') or 0)}</Priority><Filter><Prefix></Prefix></Filter>"
        f"<Status>{rule.get('status')}</Status><Destination><Bucket>{escape(str(rule['destination']['bucket']))}</Bucket></Destination></Rule>"
        for rule in found.plain.get("rules") or []
    )
    return (
        '<ReplicationConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Role>{escape(str(found.plain.get('role')))}</Role>{rules}</ReplicationConfiguration>"
    )
