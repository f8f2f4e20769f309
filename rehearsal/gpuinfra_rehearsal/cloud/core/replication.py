"""Bucket replication.

The clouds replicate an object within minutes after it is written. The stand-in copies objects when a request reads a bucket, without
delay or after the lag that the control interface sets. Deletions, and objects that are older than the replication, are not replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpuinfra_rehearsal.cloud.core.store import Store, StoredObject

_LAG = "replication-lag"
_COPIED = "replicated"


def set_lag(store: Store, seconds: float) -> None:
    """Set the age at which objects are copied."""
    store.put(_LAG, _LAG, {"seconds": seconds})


def lag(store: Store) -> float:
    """Return the age at which objects are copied, in seconds."""
    return float((store.get(_LAG, _LAG) or {}).get("seconds") or 0)


def waiting(store: Store, source: str, replica: str, since: float) -> list[tuple[str, float]]:
    """Return the key and the age in seconds of each object that was written after the replication was created, that the replica lacks, and
    that was not replicated before. An object is replicated once, even if the replica changes later.
    """
    copies = {(key, etag) for key, _, etag, _ in store.objects(replica)}
    copied = store.get(_COPIED, f"{source} {replica}") or {}
    now = store.now()
    return [
        (key, now - modified)
        for key, _, etag, modified in store.objects(source)
        if modified >= since and (key, etag) not in copies and copied.get(key) != [etag, modified]
    ]


def copy(
    store: Store, source: str, replica: str, since: float, write: Callable[..., StoredObject] | None = None
) -> None:
    """Copy the objects that were written after the replication was created and that the replica lacks. `write` writes an object of this cloud."""
    for stored in _due(store, source, replica, since):
        (write or Store.put_object)(store, replica, stored.key, stored.body, stored.meta)
        _end(store, f"{source} {replica}", stored)


def fail(store: Store, source: str, replica: str, since: float) -> None:
    """End the replication of the objects that `copy` would copy, without an effect."""
    for stored in _due(store, source, replica, since):
        _end(store, f"{source} {replica}", stored)


def _due(store: Store, source: str, replica: str, since: float) -> Iterator[StoredObject]:
    least = lag(store)
    for key, age in waiting(store, source, replica, since):
        stored = store.object(source, key) if age >= least else None
        if stored is not None:
            yield stored


def _end(store: Store, pair: str, stored_object: StoredObject) -> None:
    ended = store.get(_COPIED, pair) or {}
    store.put(_COPIED, pair, {**ended, stored_object.key: [stored_object.etag, stored_object.modified]})
