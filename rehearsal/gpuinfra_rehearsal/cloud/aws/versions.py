"""Versions of objects in S3. A bucket with versioning keeps the noncurrent versions, whose content the stand-in does not store.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/Versioning.html and https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectVersions.html,
retrieved 2026-11-29. A replica has the version ID of its source ("Why use replication" in doc_source/replication.md of awsdocs/amazon-s3-userguide, retrieved
2026-11-23).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Store, StoredObject

VERSION = "x-amz-version-id"
"""Header, and key of the metadata, with the ID of a version that is a copy."""
_VERSIONING = "aws:s3/bucketVersioning:BucketVersioning"
_OLD = "aws-noncurrent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedVersion:
    """One version in a list."""

    key: str
    version: str
    etag: str
    size: int
    modified: float
    latest: bool


def write(store: Store, bucket: str, key: str, body: bytes, meta: dict[str, Any] | None = None) -> StoredObject:
    """Write an object. A bucket with versioning keeps the version that it replaces."""
    with store.change():
        there = store.object(bucket, key)
        if there is not None and _enabled(store, bucket):
            fields = {"key": key, "version": version_of(there), "etag": there.etag, "size": len(there.body), "modified": there.modified}  # fmt: skip
            store.put(_OLD, f"{bucket}/{store.next(_OLD):010}", {"bucket": bucket, **fields})
        return store.put_object(bucket, key, body, meta)


def listed(store: Store, bucket: str, prefix: str) -> list[ListedVersion]:
    """Return all versions in a bucket, sorted by key, newest first."""
    old = [one for one in store.all(_OLD).values() if one["bucket"] == bucket and one["key"].startswith(prefix)]
    rows = [ListedVersion(**{name: one[name] for name in one if name != "bucket"}, latest=False) for one in reversed(old)]  # fmt: skip
    for key, size, etag, modified in store.objects(bucket, prefix):
        stored = store.object(bucket, key)
        if stored is not None:
            row = ListedVersion(key=key, version=version_of(stored), etag=etag, size=size, modified=modified, latest=True)  # fmt: skip
            rows.append(row)
    return sorted(rows, key=lambda one: (one.key.encode(), not one.latest))


def version_of(stored_object: StoredObject) -> str:
    """Return the ID of a version. A copy has its own ID. Otherwise, the ID depends on the content, so that a replica has the ID of its source."""
    given = stored_object.meta.get(VERSION)
    return str(given or hashlib.sha256(f"{stored_object.key} {stored_object.etag}".encode()).hexdigest()[:32])


def _enabled(store: Store, bucket: str) -> bool:
    settings = store.where(_VERSIONING, bucket=bucket)
    return any((one.plain.get("versioningConfiguration") or {}).get("status") == "Enabled" for one in settings)
