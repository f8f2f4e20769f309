"""The checkpoints of a drill: files with checksums, written to a replicated bucket and read from its replica through the API of the cloud."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence

from gpuinfra_rehearsal.object_stores import ObjectStore

PREFIX = "gpuinfra-drill"
FILES = 4
FILE_BYTES = 64 * 1024
MANIFEST = "manifest.json"
"""Object with the checksums of a checkpoint. It is written last."""


def write(objects: ObjectStore, bucket: str, number: int) -> None:
    """Write the files of a checkpoint and then its manifest."""
    sums = {}
    for index in range(FILES):
        content = random.Random(f"{number} {index}").randbytes(FILE_BYTES)
        sums[f"shard-{index}"] = hashlib.sha256(content).hexdigest()
        objects.put(bucket, _key(number, f"shard-{index}"), content)
    objects.put(bucket, _key(number, MANIFEST), json.dumps(sums).encode())


def complete(objects: ObjectStore, replica: str, numbers: Sequence[int]) -> tuple[list[int], list[str]]:
    """Return the checkpoints whose files are all in the replica with the checksums of their manifest, and the keys of the other files."""
    there = objects.keys(replica, f"{PREFIX}/")
    found, wrong = [], []
    for number in numbers:
        if _key(number, MANIFEST) not in there:
            continue
        sums = json.loads(objects.get(replica, _key(number, MANIFEST)))
        bad = [
            key
            for name, checksum in sums.items()
            if (key := _key(number, name)) not in there
            or hashlib.sha256(objects.get(replica, key)).hexdigest() != checksum
        ]
        wrong += bad
        if not bad:
            found.append(number)
    return found, wrong


def _key(number: int, name: str) -> str:
    return f"{PREFIX}/checkpoint-{number}/{name}"
