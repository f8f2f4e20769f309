"""Runs the sshd of one connection to a stand-in node. Standard library only; run as a file.

`python -I -S serve.py PARENT INIT PASSWD WORDS...` joins the user namespace around the node's (`enter.py`), gives it the
user names of PASSWD and its own pseudo-terminals, and executes WORDS, which is sshd. It is killed with PARENT.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys

CLONE_NEWNS = 0x20000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
NS_GET_PARENT = 0xB702
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> int:
    """Execute sshd. Returns 255 if the node is off, and 137 if the parent has exited."""
    parent, init, passwd, words = int(argv[0]), argv[1], argv[2], argv[3:]
    try:
        node = os.open(f"/proc/{init}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        outer = fcntl.ioctl(node, NS_GET_PARENT)
    except OSError as error:
        sys.stderr.write(f"the stand-in node is off: {error}\n")
        return 255
    _check(_libc.setns(outer, 0), "join the user namespace around the node")
    _check(_libc.unshare(CLONE_NEWNS), "make a mount namespace")
    _mount(b"none", b"/", None, MS_REC | MS_PRIVATE)
    _mount(passwd.encode(), b"/etc/passwd", None, MS_BIND)
    _mount(b"/dev/null", b"/etc/group", None, MS_BIND)  # without a group named tty, sshd keeps the terminal's owner
    try:
        _mount(b"devpts", b"/dev/pts", b"devpts", 0, b"newinstance,ptmxmode=0666,mode=0620")
        _mount(b"/dev/pts/ptmx", b"/dev/ptmx", None, MS_BIND)
    except OSError as error:
        sys.stderr.write(f"no pseudo-terminals, so interactive logins do not work: {error}\n")
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == parent:
        os.execv(words[0], words)
    return 137


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    code = _libc.mount(source, target, kind, ctypes.c_ulong(flags), data)
    _check(code, f"mount {source.decode()} on {target.decode()}")


def _check(code: int, doing: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {doing}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
