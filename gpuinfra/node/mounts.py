"""`node.pyz mounts`: tests the mounted network file systems and buckets.

systemd mounts an automount on first access, so the test first accesses each automount, which may be unmounted after a reboot.
A file system stays in the list of mounts when its server is gone, so the test accesses each mount. It uses a separate process for
each, because a process that waits for such a server cannot be killed. Opening a bucket's folder sends no request, so the test looks up a
name that does not exist. If the bucket accepts writes, it also writes, reads and deletes an object. It does not list the bucket: Cloud
Storage FUSE reads all pages before the first entry (gcsfuse v3.11.2, internal/fs/handle/dir_handle.go, retrieved 2026-11-22). This module
measures and does not judge.

Mountpoint for Amazon S3 and BlobFuse have the `fuse` type without a subtype, and the source is the program's own name instead of the bucket
name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import Any

from .console import MissingPrerequisite
from .probes import BUCKETS, FUSE

SCHEMA = "gpuinfra.mounts/1"
PROGRAMS = ("mountpoint-s3", "blobfuse2")
"""Sources of mounted buckets with the `fuse` type. User programs also have this type."""
KINDS = ("lustre", "nfs", "nfs4", *BUCKETS)
ANSWER_S = 45.0
_GRACE_S = 1.0
MAX_MOUNTS = 64
"""Maximum number of mounts to test."""

_ASK = "import os, sys; os.statvfs(sys.argv[1]); os.close(os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY))"

_ASK_BUCKET = """
import os, sys
folder = sys.argv[1]
os.stat(folder)
try:
    os.stat(os.path.join(folder, ".gpuinfra-absent-" + os.urandom(8).hex()))
except FileNotFoundError:
    pass
if sys.argv[2] == "rw":
    name = os.path.join(folder, ".gpuinfra-check-" + os.urandom(16).hex())
    text = os.urandom(16)
    with open(name, "xb") as file:
        file.write(text)
    with open(name, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        found = file.read()
    os.unlink(name)
    sys.exit(None if found == text else "returns data that differs from the written data")
"""


def mounts() -> dict[str, Any]:
    """Return one JSON object: every network mount with its source and its problem, which is null if the mount responds."""
    waiting = [target for target, kind, *_ in _listed() if kind == "autofs" and not target.startswith("/proc/")]
    _problems({target: (_ASK, target) for target in waiting})
    types = {
        target: (kind, source, options)
        for target, kind, source, options in _listed()
        if kind in KINDS and (kind != FUSE or source in PROGRAMS)
    }
    wrong = _problems(
        {
            target: (_ASK_BUCKET, target, "ro" if _read_only(options) else "rw") if kind in BUCKETS else (_ASK, target)
            for target, (kind, _, options) in types.items()
        }
    )
    listed = [
        {
            "mount": target,
            "kind": kind,
            "source": source,
            "read_only": _read_only(options),
            "problem": wrong.get(target, "not tested"),
        }
        for target, (kind, source, options) in types.items()
    ]
    return {"schema": SCHEMA, "mounts": listed}


def _read_only(options: str) -> bool:
    return "ro" in options.split(",")


def _listed() -> list[tuple[str, str, str, str]]:
    """Return target, type, source and options of every mount. A later mount hides an earlier one on the same target."""
    try:
        done = subprocess.run(
            ["findmnt", "-rn", "-o", "TARGET,FSTYPE,SOURCE,OPTIONS"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingPrerequisite("findmnt failed: %s" % error) from None
    rows = []
    for line in done.stdout.decode("utf-8", "backslashreplace").splitlines():
        words = [_plain(word) for word in line.split(" ")]
        if len(words) >= 3:
            rows.append((words[0], words[1], words[2], words[3] if len(words) > 3 else ""))
    return rows


def _plain(word: str) -> str:
    r"""Decode findmnt's escapes such as `\x20`."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match.group(1), 16)), word)


def _problems(tests: dict[str, tuple[str, ...]]) -> dict[str, str | None]:
    """Return the problem of each target, from its program and the arguments. Targets are tested in parallel, so hanging mounts share one time limit."""
    processes = {
        target: subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", *test],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for target, test in list(tests.items())[:MAX_MOUNTS]
    }
    deadline = time.monotonic() + float(os.environ.get("GPUINFRA_MOUNT_ANSWER_S") or ANSWER_S)
    return {target: _problem(process, deadline) for target, process in processes.items()}


def _problem(process: subprocess.Popen[bytes], deadline: float) -> str | None:
    try:
        _, errors = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        if process.stderr is not None:
            process.stderr.close()
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            pass  # it hangs in the kernel until the server returns
        return "does not respond"
    lines = errors.decode("utf-8", "backslashreplace").strip().splitlines()
    return None if process.returncode == 0 else (lines[-1] if lines else "exit code %d" % process.returncode)[:200]
