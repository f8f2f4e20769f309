"""Runs the host's real command of the same name for calls that a stand-in does not handle."""

from __future__ import annotations

import os

from .state import exists

FOLDERS = ("/.host/usr/bin", "/.host/usr/sbin", "/.host/bin", "/.host/sbin", "/.host/usr/local/bin")


def real(name: str) -> str | None:
    """Return the path of the host's command, or None."""
    return next((f"{folder}/{name}" for folder in FOLDERS if exists(f"{folder}/{name}")), None)


def run_real(name: str, argv: list[str]) -> int:
    """Run the host's command to completion."""
    path = real(name)
    if path is None:
        os.write(2, f"{name}: command not found\n".encode())
        return 127
    pid = os.posix_spawn(path, [name, *argv], os.environ)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def become_real(name: str, argv: list[str]) -> int:
    """Replace this process with the host's command."""
    path = real(name)
    if path is None:
        os.write(2, f"{name}: command not found\n".encode())
        return 127
    os.execv(path, [name, *argv])
    return 127
