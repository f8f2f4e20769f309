"""The supervisor of a job on one node: starts its processes, and terminates all of them if one fails or the connection closes.

The supervisor is a single file for Python 3.9 and later that imports only the standard library. Its source is sent over standard input, before
the order, and is not written to disk. Standard input then stays open: end of file is the request to stop.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NOTICES_S = 0.5
"""Seconds between two looks at the file with the notices."""
MANAGER_FAILED = 125
"""Exit code if the receive manager does not start."""
DRAINED = 75
"""Exit code if the control node took this node out of use (EX_TEMPFAIL in sysexits.h)."""
_STDIN = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - it stays open
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Read one order, run its processes, and return the first exit code that is not 0.
    For a process that a signal terminates, the exit code is 128 plus the signal number."""
    order = json.loads(_STDIN.readline())
    # Processes whose parent exits become children of this process, so it can find and terminate all of them.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    manager = next((path for path in order["managers"] if Path(path).exists()), None)
    if manager and subprocess.call(["sudo", "-n", "--", manager, "start"], stdin=subprocess.DEVNULL) != 0:
        print(f"{manager} start failed, so NCCL cannot use the fabric", file=sys.stderr)
        return MANAGER_FAILED
    try:
        return _run(order)
    finally:
        try:
            _end(order["grace_s"])
            if order["container"]:
                # A container is not a descendant of this process. It continues to run if its client is killed.
                _quietly(["docker", "rm", "--force", order["container"]["name"]])
        finally:
            if manager:
                subprocess.call(["sudo", "-n", "--", manager, "stop"], stdin=subprocess.DEVNULL)


def _run(order: dict[str, Any]) -> int:
    """Run the processes until all succeed, one fails, or standard input closes."""
    notices = _Notices(order)
    if notices.drained:
        print(f"gpuinfra: this node accepts no jobs: {notices.drained}", file=sys.stderr, flush=True)
        return DRAINED
    started = [_start(order, local) for local in range(order["processes"])]
    handles = {os.pidfd_open(process.pid): process for process in started}
    while handles:
        ready, _, _ = select.select([0, *handles], [], [], NOTICES_S)
        notices.look()
        if 0 in ready and not os.read(0, 4096):
            return 128 + signal.SIGTERM
        for handle in ready:
            if handle:
                code = handles.pop(handle).wait()
                os.close(handle)
                if code:
                    return code if code > 0 else 128 - code
    return 0


class _Notices:
    """The cloud's notices about this node, which the unit `gpuinfra-notices` keeps in a file."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._path = Path(order["notices"]["path"])
        self._number = int(order["notices"]["signal"])
        self._container = order["container"]
        self._version: object = None
        self._told: set[str] = set()
        self.drained = ""
        """Why the control node took this node out of use before the job started."""
        self.look(signals=False)

    def look(self, *, signals: bool = True) -> None:
        """Print each notice that is imminent, and signal the processes of the job once. A job that starts after the notice gets no signal."""
        try:
            facts = self._path.stat()
            version = facts.st_mtime_ns, facts.st_ino
            if version == self._version:
                return
            every = json.loads(self._path.read_text(encoding="utf-8"))["notices"]
            drains = [str(one["what"]) for one in every if one["kind"] == "drain"]
            notices = [
                (str(one["id"]), str(one["what"]), str(one["deadline"] or "now"))
                for one in every
                if one["stage"] == "imminent" and str(one["id"]) not in self._told
            ]
        except (OSError, ValueError, KeyError, TypeError):
            return
        self._version, self.drained = version, drains[0] if drains else ""
        for name, what, deadline in notices:
            self._told.add(name)
            text = f"gpuinfra: notice: {what}, not before {deadline}"
            if signals and self._number:
                count = self._signal()
                text += f"; sent {signal.Signals(self._number).name} to {count} processes, which handle it"
            print(text, file=sys.stderr, flush=True)

    def _signal(self) -> int:
        """Send the signal to each process that handles it. The others would end, because that is the default action of most signals."""
        count = 0
        for pid in [*_descendants(), *self._in_container()]:
            with contextlib.suppress(OSError):
                if _handles(pid, self._number):
                    os.kill(pid, self._number)
                    count += 1
        return count

    def _in_container(self) -> list[int]:
        """Return the processes of the job's container, which are not descendants of this process."""
        if not self._container:
            return []
        words = ["sudo", "-n", "--", "docker", "top", self._container["name"], "-o", "pid"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return [int(word) for word in done.stdout.split() if word.isdigit()]


def _handles(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal (`SigCgt`, proc(5))."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _start(order: dict[str, Any], local: int) -> subprocess.Popen[bytes]:
    """Start one process in a login shell, which sets the environment variables of CUDA and NCCL."""
    environ = {**os.environ, **order["environment"]}
    if order["per_gpu"]:
        each, node = order["processes"], int(order["environment"]["NODE_RANK"])
        sizes = {"RANK": node * each + local, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": each}
        sizes["WORLD_SIZE"] = int(order["environment"]["NNODES"]) * each
        environ.update({name: str(value) for name, value in sizes.items()})
    words = ["bash", "-l", "-c", order["command"]]
    if order["container"]:
        words = _docker(order["container"], order["environment"], order["command"])
    return subprocess.Popen(words, env=environ, stdin=subprocess.DEVNULL, start_new_session=True)


def _docker(container: dict[str, Any], environment: dict[str, str], command: str) -> list[str]:
    """Return the words that run the command in a container, as the same user as on the node.

    The login user is not a member of the `docker` group, so the client runs as root. The command runs without the image's entrypoint.
    """
    user = pwd.getpwuid(os.getuid())
    # Python and PyTorch read USER if the image does not contain the user. With TINI_KILL_PROCESS_GROUP, all processes receive SIGTERM.
    shown = {**environment, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    words = ["docker", "run", "--rm", "--init", "--name", container["name"], "--network", "host", "--ipc", "host"]
    words += ["--ulimit", "memlock=-1", "--ulimit", "stack=67108864", "--env", "TINI_KILL_PROCESS_GROUP=1"]
    words += ["--user", f"{user.pw_uid}:{user.pw_gid}", "--workdir", user.pw_dir]
    words += ["--gpus", "all"] if container["gpus"] else []
    for group in sorted({*os.getgroups()} - {user.pw_gid}):
        words += ["--group-add", str(group)]
    for name, value in shown.items():
        words += ["--env", f"{name}={value}"]
    for path in container["devices"]:
        words += ["--device", path] if Path(path).exists() else []
    for path in dict.fromkeys([user.pw_dir, *container["mounts"]]):
        words += ["--mount", f"type=bind,source={path},target={path}"]
    for path in container["paths"]:
        words += ["--mount", f"type=bind,source={path},target={path},readonly"] if Path(path).exists() else []
    # Not a login shell, because /etc/profile would replace the image's PATH.
    script = "".join(f"[ ! -r {path} ] || . {path}\n" for path in container["profiles"]) + command
    words += ["--entrypoint", "bash", container["image"], "-c", script]
    return ["sudo", "-n", "--", *words]


def _quietly(words: list[str]) -> None:
    """Run a command as root, without its output."""
    out = subprocess.DEVNULL
    subprocess.call(["sudo", "-n", "--", *words], stdin=out, stdout=out, stderr=out)


def _end(grace_s: float) -> None:
    """Terminate all descendants: with SIGTERM, and then with SIGKILL if they still run after `grace_s` seconds."""
    until = time.monotonic() + grace_s
    number = signal.SIGTERM
    asked: set[int] = set()
    while left := _descendants():
        if time.monotonic() >= until:
            number = signal.SIGKILL
        roots: list[int] = []
        for pid in left:
            # One SIGTERM is enough, but a process can start others until it exits.
            if number == signal.SIGKILL or pid not in asked:
                asked.add(pid)
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
                except PermissionError:  # a process of root, such as sudo
                    roots.append(pid)
        if roots:
            _quietly(["kill", f"-{int(number)}", *map(str, roots)])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)
        if time.monotonic() >= until + 10:
            with contextlib.suppress(OSError):  # the connection may be lost
                print(f"processes {', '.join(map(str, left))} do not terminate", file=sys.stderr)
            return


def _descendants() -> list[int]:
    """Return the running descendants of this process."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name of the program is in parentheses and can contain any character.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] != b"Z":
                parents[int(folder.name)] = int(fields[1])
    children: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - children
        children |= new
    return sorted(children)


if __name__ == "__main__":
    # Ctrl-C is the client's request, which arrives as the end of standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
