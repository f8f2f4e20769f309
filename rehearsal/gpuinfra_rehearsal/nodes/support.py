"""Checks whether this system supports stand-in nodes, and explains what to change if it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpuinfra_rehearsal.nodes import enter

ISOLATED = (sys.executable, "-I", "-S")
"""This interpreter without environment variables and packages, because nodes get only the standard library."""

_SETTINGS = {
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl kernel.unprivileged_userns_clone=1"),
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=10000"),
}
"""Maps a file to the value that forbids namespaces and the command that allows them: Ubuntu 24.04's AppArmor setting,
Debian's setting, the kernel's limit."""


def available() -> tuple[bool, str]:
    """Return whether this system allows a node's namespaces without root and, if it does not, the reason."""
    if sys.platform != "linux":
        return False, f"stand-in nodes need Linux; this is {sys.platform}"
    try:
        done = subprocess.run(
            [*ISOLATED, enter.__file__, "--probe"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return False, f"stand-in nodes cannot be tested here: {error}"
    if done.returncode == 0:
        return True, ""
    reason = (done.stdout or done.stderr).strip() or "no reason given"
    return False, f"this system forbids user namespaces: {reason}{_hint()}"


def _hint() -> str:
    for file, (value, remedy) in _SETTINGS.items():
        try:
            if Path(file).read_text(encoding="ascii").strip() == value:
                return f"; to allow them, run as root: {remedy}"
        except OSError:
            continue
    return "; in a container, the seccomp profile must allow unshare and mount"
