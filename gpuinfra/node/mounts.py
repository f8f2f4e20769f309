"""Which network file systems are mounted and answer: `node.pyz mounts`.

A mount that systemd makes on demand is not there until somebody asks for it, so after a reboot it is asked for.
One whose server is gone is listed as mounted all the same, so each is asked for an answer, in a process of its own, because a
process that waits for such a server cannot be ended.
Nothing is judged here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import Any

SCHEMA = "gpuinfra.mounts/1"
KINDS = ("lustre", "nfs", "nfs4")
ANSWER_S = 45.0
MOST = 64
"""Most mounts that are asked."""

_ASK = "import os, sys; os.statvfs(sys.argv[1]); os.close(os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY))"


class MountError(Exception):
    """The list of mounts cannot be read; the message says why."""


def mounts() -> dict[str, Any]:
    """One JSON object: every network mount with its source and what is wrong with it, null where it answers."""
    _answers([target for target, kind, _ in _listed() if kind == "autofs" and not target.startswith("/proc/")])
    found = {target: (kind, source) for target, kind, source in _listed() if kind in KINDS}
    wrong = _answers(list(found))
    listed = [
        {"mount": target, "kind": kind, "source": source, "problem": wrong.get(target, "was not asked")}
        for target, (kind, source) in found.items()
    ]
    return {"schema": SCHEMA, "mounts": listed}


def _listed() -> list[tuple[str, str, str]]:
    """Target, kind, source of every mount; a later one hides an earlier one of the same target."""
    try:
        said = subprocess.run(
            ["findmnt", "-rn", "-o", "TARGET,FSTYPE,SOURCE"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MountError("findmnt does not list the mounts: %s" % error) from None
    rows = []
    for line in said.stdout.decode("utf-8", "backslashreplace").splitlines():
        words = [_plain(word) for word in line.split(" ")]
        if len(words) >= 3:
            rows.append((words[0], words[1], words[2]))
    return rows


def _plain(word: str) -> str:
    r"""A word as it was before findmnt spelled its blanks out as `\x20`."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match.group(1), 16)), word)


def _answers(targets: list[str]) -> dict[str, str | None]:
    """What is wrong with each; all are asked at once, so one that hangs costs the time of one."""
    asked = {
        target: subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _ASK, target],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for target in targets[:MOST]
    }
    deadline = time.monotonic() + float(os.environ.get("GPUINFRA_MOUNT_ANSWER_S") or ANSWER_S)
    return {target: _problem(process, deadline) for target, process in asked.items()}


def _problem(process: subprocess.Popen[bytes], deadline: float) -> str | None:
    try:
        _, said = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        if process.stderr is not None:
            process.stderr.close()
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            pass  # it hangs in the kernel until its server comes back; nobody waits for it
        return "does not answer"
    lines = said.decode("utf-8", "backslashreplace").strip().splitlines()
    return None if process.returncode == 0 else (lines[-1] if lines else "exit code %d" % process.returncode)[:200]
