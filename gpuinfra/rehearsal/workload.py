"""The checkpoints of a drill: files with checksums, written to a replicated bucket and read from its replica with the API of the cloud."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

PREFIX = "gpuinfra-drill"
FILES = 4
FILE_BYTES = 64 * 1024
MANIFEST = "manifest.json"
"""Object with the checksums of a checkpoint. It is written last."""


Ask = Callable[[str, Mapping[str, Any]], object]
"""Sends a request to the control interface of the stand-in cloud."""


class ObjectStore(Protocol):
    """The buckets in one region, with the credentials of the operator."""

    def admit(self, ask: Ask, buckets: Iterable[str]) -> None:
        """Allow the operator to read and write these buckets, if the stack does not allow it."""
        ...

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Write an object."""
        ...

    def keys(self, bucket: str, prefix: str) -> set[str]:
        """Return the keys that start with a prefix."""
        ...

    def get(self, bucket: str, key: str) -> bytes:
        """Read an object."""
        ...

    def is_replica(self, bucket: str, replica: str) -> bool:
        """Return whether a bucket in a stack file is this replica in the account of the user."""
        ...


def write(store: ObjectStore, bucket: str, number: int) -> None:
    """Write the files of a checkpoint and then its manifest."""
    sums = {}
    for index in range(FILES):
        content = random.Random(f"{number} {index}").randbytes(FILE_BYTES)
        sums[f"shard-{index}"] = hashlib.sha256(content).hexdigest()
        store.put(bucket, _key(number, f"shard-{index}"), content)
    store.put(bucket, _key(number, MANIFEST), json.dumps(sums).encode())


def complete(store: ObjectStore, replica: str, numbers: Sequence[int]) -> tuple[list[int], list[str]]:
    """Return the checkpoints whose files are all in the replica with the checksums of their manifest, and the keys of the other files."""
    there = store.keys(replica, f"{PREFIX}/")
    found, wrong = [], []
    for number in numbers:
        if _key(number, MANIFEST) not in there:
            continue
        sums = json.loads(store.get(replica, _key(number, MANIFEST)))
        bad = [
            key
            for name, checksum in sums.items()
            if (key := _key(number, name)) not in there
            or hashlib.sha256(store.get(replica, key)).hexdigest() != checksum
        ]
        wrong += bad
        if not bad:
            found.append(number)
    return found, wrong


def _key(number: int, name: str) -> str:
    return f"{PREFIX}/checkpoint-{number}/{name}"
