"""Logs in to a running stand-in node. Standard library only; run as a file by the node's sshd.

`python -I -S login.py FOLDER` joins the namespaces of the node's init and runs the command of the SSH client, or a
login shell, as the user that sshd accepted. A stand-in node has one user ID, so this user owns every file. Commands that
require root still need sudo, because the node's sudo reads `/etc/sudoers.d`.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
NAMESPACES = ("user", "mnt", "pid", "uts", "ipc")
"""The user namespace comes first, because it permits joining the others."""
BOOTED = "/run/standin/init.sock"
"""Socket in the node's root. It exists as soon as the node's init responds."""
GONE = 255
"""The exit code of ssh if the connection fails."""

_libc = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> int:
    """Log in."""
    folder, session = argv[0], _session()
    try:
        with open(os.path.join(folder, "init.pid"), encoding="ascii") as file:
            init = int(file.read())
        with open(os.path.join(folder, "enter.json"), encoding="utf-8") as file:
            environ = json.load(file)["environ"]
        spaces = [os.open(f"/proc/{init}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES]
        power = os.pidfd_open(init)
    except (OSError, ValueError) as error:
        return _switched_off(session, error)
    parent = os.getppid()
    for name, space in zip(NAMESPACES, spaces, strict=True):
        if _libc.setns(space, 0) != 0:
            number = ctypes.get_errno()
            return _switched_off(
                session, OSError(number, f"cannot join the node's {name} namespace: {os.strerror(number)}")
            )
    if not os.path.exists(BOOTED):
        # Between the creation of the namespaces and the root change, "/" is still the host's.
        return _switched_off(session, OSError("it is booting"))
    child = os.fork()  # only children enter a PID namespace
    if child == 0:
        _become(environ)
    _die_with(parent)  # set again, because setns clears it; the child is killed with this process
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and select.select([power], [], [], 2.0)[0]:
        return _switched_off(session, OSError("it was switched off"))
    return code if code >= 0 else 128 - code


def _become(environ: dict[str, str]) -> None:
    """In the child: execute the command of the SSH client with the environment of a login."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    command = os.environ.get("SSH_ORIGINAL_COMMAND")
    passed_on = {
        name: os.environ[name] for name in ("TERM", "LC_ALL", "SSH_CLIENT", "SSH_CONNECTION") if name in os.environ
    }
    user = os.environ["LOGNAME"]
    home = "/root" if user == "root" else f"/home/{user}"
    environ = {**environ, **passed_on, "USER": user, "LOGNAME": user, "HOME": home, "SHELL": "/bin/bash"}
    words = ["/bin/bash", "-c", command] if command else ["-bash"]
    try:
        os.chdir(home)
        os.execve("/bin/bash", words, environ)
    except OSError as error:
        os.write(2, f"login failed: {error}\n".encode())
        os._exit(GONE)


def _session() -> int:
    """Return the process ID of this login's sshd, or 0 if there is none. Call it before the node's /proc is mounted."""
    parent = os.getppid()
    try:
        with open(f"/proc/{parent}/comm", encoding="ascii", errors="replace") as file:
            return parent if file.read().startswith("sshd") else 0
    except OSError:
        return 0


def _switched_off(session: int, error: Exception) -> int:
    """The node is off: close the connection, as a powered-off machine does."""
    sys.stderr.write(f"the stand-in node is off: {error}\n")
    if session:
        os.kill(session, signal.SIGKILL)
    return GONE


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent exits."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(137)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
