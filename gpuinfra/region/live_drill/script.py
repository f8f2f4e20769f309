"""The script with which each node of a live drill reads the checkpoint: it compares the size and the checksum of each file with those of the copy."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.region.drill import CopiedObject
from gpuinfra.region.live_drill.stack import MOUNT
from gpuinfra.spec.steps import MAX_SCRIPT_BYTES

_SCRIPT = '''\
#!/usr/bin/python3
"""Reads every file of the checkpoint, and compares its size and its checksums."""

import hashlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = {root!r}
FILES = json.loads({files!r})
BLOCK = 4 * 2**20


def problem(entry):
    """Return what is wrong with a file, or None."""
    key, size, algorithm, part_bytes, wanted = entry
    sums, read = [], 0
    try:
        with open(os.path.join(ROOT, key), "rb", buffering=0) as stream:
            while True:
                digest, left = hashlib.new(algorithm), part_bytes
                while left and (block := stream.read(min(BLOCK, left))):
                    digest.update(block)
                    left -= len(block)
                read += part_bytes - left
                if left < part_bytes or not sums:
                    sums.append(digest.hexdigest())
                if left:
                    break
    except OSError as error:
        return f"{{key}} cannot be read: {{error.strerror}}"
    if read != size:
        return f"{{key}} has {{read}} bytes, expected {{size}}"
    return None if not wanted or sums == wanted else f"{{key}} has another checksum than the copy"


began = time.monotonic()
with ThreadPoolExecutor(8) as pool:
    problems = [one for one in pool.map(problem, FILES) if one]
seconds = time.monotonic() - began
size = sum(entry[1] for entry in FILES)
print(f"{{len(FILES)}} files, {{size}} bytes, {{seconds:.2f}} s")
for one in problems[:5]:
    print(one)
if problems:
    sys.exit(f"{{len(problems)}} of {{len(FILES)}} files of the checkpoint are wrong")
'''


def script(copies: Sequence[CopiedObject]) -> str:
    """Return the script for these objects. Raises `DeploymentError` if the list of the objects is too long for a script."""
    files = [
        [one.key, one.size, one.algorithm, one.part_bytes, list(one.checksums)]
        for one in copies
        if not one.key.endswith("/")  # An empty object that stands for a folder.
    ]
    text = _SCRIPT.format(root=MOUNT, files=json.dumps(files, separators=(",", ":")))
    if len(text.encode()) > MAX_SCRIPT_BYTES:
        raise DeploymentError(
            f"the checkpoint has {len(files):,} files, and the list of their checksums is longer than the {MAX_SCRIPT_BYTES:,} bytes of a script; "
            "write checkpoints with fewer files"
        )
    return text
