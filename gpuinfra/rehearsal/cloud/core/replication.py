"""Bucket replication without delay.

The clouds replicate an object within minutes after it is written. The stand-in copies objects when a request reads a bucket, so each read
sees the replicated objects. Deletions, and objects that are older than the replication, are not replicated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.store import Store


def copy(store: Store, source: str, replica: str, since: float) -> None:
    """Copy the objects that were written after the replication was created and that the replica lacks."""
    known = {(key, etag) for key, _, etag, _ in store.objects(replica)}
    for key, _, etag, modified in store.objects(source):
        found = store.object(source, key) if modified >= since and (key, etag) not in known else None
        if found is not None:
            store.put_object(replica, key, found.body, found.meta)
