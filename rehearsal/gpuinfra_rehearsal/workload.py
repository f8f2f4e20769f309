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


def write(objects: ObjectStore, bucket: str, number: int, pattern: str | None = None) -> None:
    """Write the files of a checkpoint, its manifest, and then the object that completes it, if the stack declares `recovery.checkpoints`."""
    sums = {}
    for index in range(FILES):
        content = random.Random(f"{number} {index}").randbytes(FILE_BYTES)
        sums[f"shard-{index}"] = hashlib.sha256(content).hexdigest()
        objects.put(bucket, _key(number, f"shard-{index}", pattern), content)
    objects.put(bucket, _key(number, MANIFEST, pattern), json.dumps(sums).encode())
    if pattern is not None:
        objects.put(bucket, named(pattern, number), b"")


def complete(
    objects: ObjectStore, replica: str, numbers: Sequence[int], pattern: str | None = None
) -> tuple[list[int], list[str]]:
    """Return the checkpoints whose files are all in the replica with the checksums of their manifest, and the keys of the other files."""
    there = objects.keys(replica, f"{PREFIX}/" if pattern is None else "")
    done, wrong = [], []
    for number in numbers:
        manifest = _key(number, MANIFEST, pattern)
        if manifest not in there or (pattern is not None and named(pattern, number) not in there):
            continue
        sums = json.loads(objects.get(replica, manifest))
        bad = [
            key
            for name, checksum in sums.items()
            if (key := _key(number, name, pattern)) not in there
            or hashlib.sha256(objects.get(replica, key)).hexdigest() != checksum
        ]
        wrong += bad
        if not bad:
            done.append(number)
    return done, wrong


def named(pattern: str, number: int) -> str:
    """Return the object that completes a checkpoint: the pattern of the stack, with the number instead of each wildcard."""
    name = pattern.replace("**/", "").replace("*", f"{number:03d}")
    return name.replace("?", str(number))


def _key(number: int, name: str, pattern: str | None) -> str:
    if pattern is None:
        return f"{PREFIX}/checkpoint-{number}/{name}"
    folder = named(pattern, number).rpartition("/")[0]
    return f"{folder}/{name}" if folder else f"{PREFIX}/checkpoint-{number}/{name}"
