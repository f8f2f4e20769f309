"""The checkpoints of a drill: files with checksums, written to a replicated bucket and read from its replica with the SDK of the cloud."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from typing import Any

PREFIX = "gpuinfra-drill"
FILES = 4
FILE_BYTES = 64 * 1024
MANIFEST = "manifest.json"
"""Object with the checksums of a checkpoint. It is written last."""


def write(client: Any, bucket: str, number: int) -> None:
    """Write the files of a checkpoint and then its manifest."""
    sums = {}
    for index in range(FILES):
        content = random.Random(f"{number} {index}").randbytes(FILE_BYTES)
        sums[f"shard-{index}"] = hashlib.sha256(content).hexdigest()
        client.put_object(Bucket=bucket, Key=_key(number, f"shard-{index}"), Body=content)
    client.put_object(Bucket=bucket, Key=_key(number, MANIFEST), Body=json.dumps(sums).encode())


def complete(client: Any, replica: str, numbers: Sequence[int]) -> tuple[list[int], list[str]]:
    """Return the checkpoints whose files are all in the replica with the checksums of their manifest, and the keys of the other files."""
    listed = client.list_objects_v2(Bucket=replica, Prefix=f"{PREFIX}/").get("Contents", [])
    there = {str(one["Key"]) for one in listed}
    found, wrong = [], []
    for number in numbers:
        if _key(number, MANIFEST) not in there:
            continue
        sums = json.loads(_read(client, replica, _key(number, MANIFEST)))
        bad = [
            key
            for name, checksum in sums.items()
            if (key := _key(number, name)) not in there
            or hashlib.sha256(_read(client, replica, key)).hexdigest() != checksum
        ]
        wrong += bad
        if not bad:
            found.append(number)
    return found, wrong


def _key(number: int, name: str) -> str:
    return f"{PREFIX}/checkpoint-{number}/{name}"


def _read(client: Any, bucket: str, key: str) -> bytes:
    content: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    return content
