"""Faults that pass: each begins with the first command that meets it, and ends after the time in `passing_s`."""

from __future__ import annotations

import os
import sys
import time

from .passthrough import become_real
from .state import FOLDER, fail, read_state, read_text, write_file

CLOCK_OFF_S = 600
HOLDER = "held by process 812 (unattended-upgr)"


def remaining(fault: str) -> float:
    """Return how many seconds a fault lasts from now on. The first call begins it; the record survives a reboot."""
    state = read_state()
    if fault not in state["faults"]:
        return 0.0
    path = f"{FOLDER}/began-{fault}"
    if not (began := read_text(path, "")):
        began = repr(time.time())
        write_file(path, began)
    return max(0.0, float(began) + state["passing_s"] - time.time())


def date(argv: list[str]) -> int:
    """`date`, which shows another time during the fault `clock-off`. Only nodes with this fault have this command."""
    shows_now = not any(word.startswith(("-d", "--date", "-r", "-s")) for word in argv)
    if shows_now and remaining("clock-off"):
        argv = ["-d", f"now + {CLOCK_OFF_S} seconds", *argv]
    return become_real("date", argv)


def package_lock(command: str, patience_s: float = 0.0) -> int:
    """Wait for the lock of another process, as apt 2.6.1 and dpkg 1.21.22 do. Returns an exit code if it stays locked, or 0."""
    left = remaining("package-lock")
    if not left:
        return 0
    if command == "dpkg":
        return fail(
            "dpkg: error: dpkg frontend lock was locked by another process with pid 812\n"
            "Note: removing the lock file is always wrong, can damage the locked area\n"
            "and the entire system. See <https://wiki.debian.org/Teams/Dpkg/FAQ#db-lock>.",
            2,
        )
    if command == "apt-mark":
        package_lock("dpkg")
        sys.stderr.write("E: Sub-process dpkg --set-selections returned an error code (2)\n")
        return fail("E: Executing dpkg failed. Are you root?", 100)
    if command == "update":
        sys.stderr.write(f"E: Could not get lock /var/lib/apt/lists/lock. It is {HOLDER}\n")
        return fail("E: Unable to lock directory /var/lib/apt/lists/", 100)
    if patience_s:
        os.write(
            1, f"Waiting for cache lock: Could not get lock /var/lib/dpkg/lock-frontend. It is {HOLDER}...\n".encode()
        )
        time.sleep(min(left, patience_s))
    if left <= patience_s:
        return 0
    return fail(
        "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?", 100
    )
