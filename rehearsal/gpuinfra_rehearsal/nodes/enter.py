"""Starts a stand-in node: creates namespaces, mounts its root, and executes its init. Standard library only; run as a file.

`python -I -S enter.py CONFIG.json` creates user, mount, PID, UTS and IPC namespaces, which most systems allow without
root. It builds the root with bind mounts, executes the node's init as process 1, and exits with the status of init.

Both processes are killed with their parent, so a killed rehearsal leaves no process.
The node shares the host's network, because the stand-in cloud listens on its loopback interface.
A node's user namespace is nested in another user namespace, where the user of this process is `LOGIN_UID`. The node's sshd
runs there (`serve.py`), because sshd refuses a user name whose ID is not its own.
`--probe` only tests whether the system allows this, and prints the reason if it does not.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
LOGIN_UID = 1000
"""The first ordinary user of Ubuntu's images."""

_libc = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> int:
    """Start a node, or probe."""
    if argv == ["--probe"]:
        return _probe()
    with open(argv[0], encoding="utf-8") as file:
        config = json.load(file)
    parent = int(config["parent"])
    unshare()
    die_with(parent)
    ended, alive = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(alive)
        _become_init(config, ended)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.write(f"init {child}\n")
    sys.stdout.flush()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) & 0xFF


def unshare() -> None:
    """Create namespaces where this user is root and the only user, nested in a namespace where it is `LOGIN_UID`."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(CLONE_NEWUSER), "make a user namespace")
    _map(f"{LOGIN_UID} {uid} 1", f"{LOGIN_UID} {gid} 1")
    _check(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC), "make namespaces")
    _map(f"0 {LOGIN_UID} 1", f"0 {LOGIN_UID} 1")


def _map(users: str, groups: str) -> None:
    for name, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent exits. Call it after `unshare`, which clears the setting."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "tie this process to its parent")
    if os.getppid() != parent and os.getpid() != 1:
        os._exit(137)  # the parent exited before prctl took effect


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """Call mount(2). Errors name the source and the target."""
    code = _libc.mount(
        source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), data and data.encode()
    )
    _check(code, f"mount {source} on {target}")


def bind(source: str, target: str, read_only: bool = False) -> None:
    """Bind `source` to `target`. Recursive, because a user namespace must include the mounts below."""
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        locked = os.statvfs(target).f_flag & (
            MS_NOSUID | MS_NODEV | MS_NOEXEC
        )  # flags that a user namespace cannot clear
        mount(source, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | locked)


def _become_init(config: dict, ended: int) -> None:
    """In the child: mount the root, change to it, and execute the node's init. `ended` becomes readable when the parent
    exits, because the parent's ID is not visible in a new PID namespace."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "tie init to its parent")
    if select.select([ended], [], [], 0)[0]:
        os._exit(137)  # the parent exited before prctl took effect
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
        os.write(2, f"the node cannot start: {error}\n".encode())
        os._exit(70)


def _proc(root: str, files: list[dict]) -> None:
    """Mount the node's /proc. If a container forbids the mount, bind the host's /proc, where only process IDs differ."""
    try:
        mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except OSError:
        bind("/proc", root + "/proc")
    try:
        mount("devpts", root + "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    except OSError as error:
        sys.stderr.write(f"no pseudo-terminals, so interactive logins do not work: {error}\n")
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
    """Test the requirements of a node. Returns 0 if they are met, otherwise prints the reason on stdout."""
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
