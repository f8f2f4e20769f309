"""Child processes of a build. They exit when the build is killed."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def run(command: Sequence[str | Path], settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a short command with additional environment variables and capture its output. A missing program returns exit code 127."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(settings or {})},
            preexec_fn=_end_with_parent,
        )
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def version(
    command: Sequence[str | Path],
    pattern: str,
    *,
    timeout_s: float,
    settings: Mapping[str, str],
    folder: str | None = None,
) -> str:
    """Return the version that a program prints, which is the first group of `pattern`.
    The result is empty if the program fails or its output does not match."""
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **settings},
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    match = re.fullmatch(pattern, answer.stdout)
    return match[1] if match and answer.returncode == 0 else ""


def start(
    command: Sequence[str | Path], *, folder: Path, environment: Mapping[str, str], output: IO[str] | None = None
) -> subprocess.Popen[str]:
    """Start a command. The stderr of the command is a pipe. The stdout is written to `output` or discarded."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if output is None else output,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=_end_with_parent,
    )


def _end_with_parent() -> None:
    """Make the Linux kernel kill the child when its parent is killed, so that no build continues in the background."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
