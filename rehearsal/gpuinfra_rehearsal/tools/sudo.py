"""sudo: runs a command for a user with a NOPASSWD rule in /etc/sudoers.d, and refuses other users."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def sudo(argv: list[str]) -> int:
    """Run `sudo [-n] [--] COMMAND...`."""
    words = list(argv)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        if word not in ("-n", "--non-interactive", "-E", "-H"):
            sys.stderr.write(f"sudo: the stand-in does not support {word}\n")
            return 1
    if not words:
        sys.stderr.write("usage: sudo -h | -K | -k | -V\n")
        return 1
    user = os.environ.get("LOGNAME", "root")
    if user != "root" and not _permitted(user):
        sys.stderr.write("sudo: a password is required\n")
        return 1
    environ = {**os.environ, "USER": "root", "LOGNAME": "root", "HOME": "/root", "SUDO_USER": user}
    try:
        os.execvpe(words[0], words, environ)
    except OSError as error:
        sys.stderr.write(f"sudo: {words[0]}: {error.strerror}\n")
        return 1


def _permitted(user: str) -> bool:
    rules = [
        line.split() for file in sorted(Path("/etc/sudoers.d").glob("*")) for line in file.read_text().splitlines()
    ]
    return any(rule[0] == user and "NOPASSWD:ALL" in rule[1:] for rule in rules if rule)
