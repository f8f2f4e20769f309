"""Enter a stand-in node: namespaces, its own root, then its init. Standard library only, run as a file.

`python -I -S enter.py CONFIG.json` makes user, mount, process, host-name and IPC namespaces, which an ordinary user may do on
most systems, assembles the root by bind mounts and executes the node's init as process 1. It exits with init's status.

Both processes ask the kernel to be killed with their parent, so that a killed rehearsal leaves nothing running.
The network is the host's on purpose: the stand-in cloud's services are on its loopback.
`--probe` only tries, and prints the reason where the system says no.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> int:
    """See the module's text."""
    if argv == ["--probe"]:
        return _probe()
    with open(argv[0], encoding="utf-8") as file:
        config = json.load(file)
    parent = int(config["parent"])
    unshare()
    die_with(parent)
    me = os.getpid()
    child = os.fork()
    if child == 0:
        _become_init(config, me)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.write(f"init {child}\n")
    sys.stdout.flush()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) & 0xFF


def unshare() -> None:
    """New namespaces, in which this user is root and nobody else exists."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC), "make namespaces")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process with its parent. Set after `unshare`, which clears it."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "tie this process to its parent")
    if os.getppid() != parent and os.getpid() != 1:
        os._exit(137)  # the parent went away before the kernel knew


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """The system call, with an error that names both sides."""
    code = _libc.mount(
        source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), data and data.encode()
    )
    _check(code, f"mount {source} on {target}")


def bind(source: str, target: str, read_only: bool = False) -> None:
    """Show `source` at `target`. Recursive, because a user namespace may not leave out what is mounted below."""
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        kept = os.statvfs(target).f_flag & (
            MS_NOSUID | MS_NODEV | MS_NOEXEC
        )  # flags that a user namespace may not clear
        mount(source, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def _become_init(config: dict, parent: int) -> None:
    """In the child: assemble the root, go there, and become the node's init."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "tie init to its parent")
    try:
        os.setsid()
        root = config["root"]
        mount("none", "/", None, MS_REC | MS_PRIVATE)
        bind(root, root)
        for item in config["binds"]:
            bind(item["source"], root + item["target"], item.get("read_only", False))
        _proc(root, config["proc"])
        name = config["hostname"].encode()
        _check(_libc.sethostname(name, len(name)), "set the host name")
        _pivot(root)
        os.execve(config["argv"][0], config["argv"], config["environ"])
    except BaseException as error:
        os.write(2, f"the node cannot be entered: {error}\n".encode())
        os._exit(70)


def _proc(root: str, files: list[dict]) -> None:
    """The node's own /proc. Where a container forbids a new one, the host's is shown: process numbers then differ, nothing else."""
    try:
        mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except OSError:
        bind("/proc", root + "/proc")
    try:
        mount("devpts", root + "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    except OSError as error:
        sys.stderr.write(f"no pseudo-terminals, which only an interactive login misses: {error}\n")
    for item in files:
        if os.path.exists(root + item["target"]):
            bind(item["source"], root + item["target"])


def _pivot(root: str) -> None:
    old = root + "/.old"
    os.makedirs(old, exist_ok=True)
    try:
        _check(_libc.pivot_root(root.encode(), old.encode()), "change to the node's root")
        os.chdir("/")
        _check(_libc.umount2(b"/.old", MNT_DETACH), "leave the host's root")
    except AttributeError:  # a C library without the wrapper
        os.chroot(root)
        os.chdir("/")


def _probe() -> int:
    """Try what a node needs; 0 if it works, else the reason on stdout."""
    try:
        unshare()
        child = os.fork()
        if child == 0:
            try:
                mount("none", "/", None, MS_REC | MS_PRIVATE)
                mount("tmpfs", "/mnt" if os.path.isdir("/mnt") else "/tmp", "tmpfs")
            except OSError as error:
                print(error, flush=True)
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except OSError as error:
        print(error, flush=True)
        return 1


def _check(code: int, doing: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {doing}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
