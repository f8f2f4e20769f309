"""Whether this system can have stand-in nodes at all, and if not, what a person may change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpuinfra.rehearsal.nodes import enter

ISOLATED = (sys.executable, "-I", "-S")
"""This interpreter, with nothing of the environment and no packages: what goes into a node is the standard library."""

_SWITCHES = {
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl kernel.unprivileged_userns_clone=1"),
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=10000"),
}
"""File -> the value that forbids, and what allows it: Ubuntu 24.04's AppArmor, Debian's own switch, the kernel's limit."""


def available() -> tuple[bool, str]:
    """Whether this system lets an ordinary user make the namespaces that a node needs, and if not, why."""
    if sys.platform != "linux":
        return False, f"stand-in nodes need Linux; this is {sys.platform}, so nodes are not rehearsed"
    try:
        done = subprocess.run(
            [*ISOLATED, enter.__file__, "--probe"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return False, f"stand-in nodes cannot be tried here: {error}"
    if done.returncode == 0:
        return True, ""
    reason = (done.stdout or done.stderr).strip() or "the kernel gave no reason"
    return False, f"this system forbids user namespaces, so nodes are not rehearsed: {reason}{_advice()}"


def _advice() -> str:
    for file, (value, remedy) in _SWITCHES.items():
        try:
            if Path(file).read_text(encoding="ascii").strip() == value:
                return f"; as root, `{remedy}` allows them"
        except OSError:
            continue
    return "; in a container, its seccomp profile must allow unshare and mount"
