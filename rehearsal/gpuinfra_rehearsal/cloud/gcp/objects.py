"""Objects of Cloud Storage, with generations and checksums. A bucket with versioning keeps its noncurrent versions.

https://cloud.google.com/storage/docs/json_api/v1/objects and https://cloud.google.com/storage/docs/object-versioning, retrieved 2026-11-26.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.gcp.access import BUCKET

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Store, StoredObject

_OLD = "gcp-noncurrent"
_POLYNOMIAL = 0x82F63B78
_CHECKSUMS = ("crc32c", "md5Hash")


def write(store: Store, bucket: str, name: str, body: bytes, meta: Mapping[str, Any]) -> StoredObject:
    """Write an object with a new generation. `meta` contains its content type and its custom metadata."""
    with store.change():
        _retire(store, bucket, name)
        number = 1_000_000_000_000_000 + store.next("generation")
        return store.put_object(bucket, name, body, {**meta, "generation": number})


def remove(store: Store, bucket: str, name: str) -> None:
    """Remove the live version of an object."""
    with store.change():
        _retire(store, bucket, name)
        store.remove_object(bucket, name)


def version(store: Store, bucket: str, name: str, number: str) -> tuple[dict[str, Any], bytes, dict[str, Any]] | None:
    """Return the description of a generation, its content, and its content type and custom metadata."""
    stored = store.object(bucket, name)
    if stored is not None and number == str(generation(stored)):
        return described(store, stored), stored.body, about(stored)
    old = store.get(_OLD, f"{bucket}/{name}/{number}")
    return (old["described"], base64.b64decode(old["body"]), old["about"]) if old else None


def versions(store: Store, bucket: str, prefix: str = "") -> list[dict[str, Any]]:
    """Return the descriptions of all versions in a bucket, sorted by name and generation."""
    old = [one["described"] for one in store.all(_OLD).values() if one["described"]["bucket"] == bucket]
    live = [stored for key, *_ in store.objects(bucket, prefix) if (stored := store.object(bucket, key)) is not None]
    every = [*(one for one in old if one["name"].startswith(prefix)), *(described(store, found) for found in live)]
    return sorted(every, key=lambda one: (one["name"].encode(), int(one["generation"])))


def generation(stored_object: StoredObject) -> int:
    """Return the generation of an object."""
    return int(stored_object.meta.get("generation") or 1)


def described(store: Store, stored_object: StoredObject) -> dict[str, Any]:
    """Return the description of an object."""
    at, number, key = (
        moment(stored_object.modified),
        generation(stored_object),
        _key_of(store, stored_object.bucket),
    )
    return {
        "kind": "storage#object", "id": f"{stored_object.bucket}/{stored_object.key}/{number}", "name": stored_object.key, "bucket": stored_object.bucket,
        "generation": str(number), "metageneration": "1", "size": str(len(stored_object.body)), "md5Hash": md5(stored_object),
        "crc32c": _crc32c(stored_object.body), "etag": stored_object.etag, "contentType": stored_object.meta.get("content-type"), "timeCreated": at,
        "updated": at, "storageClass": "STANDARD", **({"metadata": stored_object.meta["metadata"]} if stored_object.meta.get("metadata") else {}),
        **({"kmsKeyName": f"{key}/cryptoKeyVersions/1"} if key else {}),
        **({"customTime": stored_object.meta["customTime"]} if stored_object.meta.get("customTime") else {}),
    }  # fmt: skip


def listed(full: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of an object as in a list, which does not contain the checksums of objects that are encrypted with a customer-managed key
    (https://cloud.google.com/storage/docs/encryption/customer-managed-keys#restrictions, as quoted in apache/airflow issue 34980, retrieved 2026-11-26)."""
    return {name: value for name, value in full.items() if "kmsKeyName" not in full or name not in _CHECKSUMS}


def md5(stored_object: StoredObject) -> str:
    """Return the MD5 of an object, as Google encodes it."""
    return base64.b64encode(bytes.fromhex(stored_object.etag)).decode()


def _retire(store: Store, bucket: str, name: str) -> None:
    made = store.find(BUCKET, bucket)
    there = store.object(bucket, name)
    if there is not None and made is not None and (made.plain.get("versioning") or {}).get("enabled"):
        old = {**described(store, there), "timeDeleted": moment(store.now())}
        store.put(_OLD, old["id"], {"described": old, "body": base64.b64encode(there.body).decode(), "about": about(there)})  # fmt: skip


def about(stored_object: StoredObject) -> dict[str, Any]:
    """Return the content type and the custom metadata of an object."""
    return {name: value for name, value in stored_object.meta.items() if name != "generation"}


def _key_of(store: Store, bucket: str) -> str:
    made = store.find(BUCKET, bucket)
    return str(((made.plain.get("encryption") or {}).get("defaultKmsKeyName") if made else None) or "")


def moment(at: float) -> str:
    """Return a time as Cloud Storage writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}Z"


@lru_cache(maxsize=256)
def _crc32c(body: bytes) -> str:
    """Return the CRC32C (RFC 4960, Appendix B) of a content, in base64 and big-endian byte order."""
    value, table = 0xFFFFFFFF, _table()
    for byte in body:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return base64.b64encode((value ^ 0xFFFFFFFF).to_bytes(4, "big")).decode()


@cache
def _table() -> tuple[int, ...]:
    values = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        values.append(value)
    return tuple(values)
