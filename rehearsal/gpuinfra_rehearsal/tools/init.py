"""Process 1 of a stand-in node. It does the work of the kernel, udev and systemd at boot, and serves the socket that `systemctl` uses.

`init boot` starts the enabled units of a new boot; `init resume` continues after a suspension. Exit codes: 40 reboot,
41 power-off (`nodes/host.py`), 70 error in this program. For the node host, it prints `settled` on stdout when all jobs
are done, and `ending CODE` when a reboot or power-off begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid

from . import factory, kernel, mounts
from .manager import Manager
from .process import OF_COMMAND, Reaper, end_all
from .state import RUN, link, make_folder, read_state, write_file
from .unitfile import wanted_by

REBOOT, POWEROFF, ERROR = 40, 41, 70
SOCKET = RUN + "/init.sock"
JOURNAL = "/var/log/journal/stand-in.log"
DEFAULT_TARGET = "multi-user.target"


class Init:
    """The node's first process."""

    def __init__(self) -> None:
        self.reaper = Reaper()
        self._journal_lock = threading.Lock()
        self.began = time.monotonic()
        self.boot_id = read_state()["boot_id"]
        self.manager = Manager(self.reaper, self.log, dict(os.environ), mounts.after_unit)
        self.ending: int | None = None
        self.settled = False

    def run(self, resume: bool) -> int:
        """Run until a reboot or power-off is requested."""
        signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        threading.Thread(target=self._console, daemon=True).start()
        threading.Thread(target=self._work, args=(resume,), daemon=True).start()
        next_tick = 0.0
        while self.ending is None:
            signal.sigtimedwait(signals, 0.1)
            self.reaper.reap()
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + 0.5
                self.manager.tick()
                self._say_settled()
        self._shut_down()
        return self.ending

    def log(self, source: str, text: str, console: bool) -> None:
        """Write a line to the journal, and to the console if `console` is set."""
        unit, _, ident = source.partition("\t")
        with self._journal_lock:
            with open(JOURNAL, "a", encoding="utf-8") as file:
                file.write(f"{time.time():.6f}\t{self.boot_id}\t{unit}\t{ident or unit}\t{text}\n")
            if console:
                os.write(2, f"[{time.monotonic() - self.began:12.6f}] {ident or unit}: {text}\n".encode())

    def _work(self, resume: bool) -> None:
        """Boot or resume in a separate thread, because the main thread reaps child processes."""
        make_folder(os.path.dirname(JOURNAL))
        make_folder("/run/lock")
        make_folder("/run/systemd/system")  # programs use it to detect systemd: sd_booted(3)
        if not resume:
            write_file("/run/standin/booted", f"{time.time():.3f}")
        threading.Thread(target=self._serve, daemon=True).start()
        try:
            if resume:
                mounts.restore()
                self.manager.resume()
            else:
                state = read_state()
                os.write(
                    2,
                    f"[    0.000000] Linux version {state['kernel']} (stand-in node, boot {state['boots']})\n".encode(),
                )
                if not state["image"].get("complete"):
                    factory.build()
                kernel.boot()
                mounts.boot()
                self.manager.start([DEFAULT_TARGET], wait=False)
        except Exception as error:
            os.write(2, f"stand-in init: {error!r}\n".encode())
            self.ending = ERROR
            raise

    def _say_settled(self) -> None:
        quiet = not self.manager.busy() and time.monotonic() - self.manager.last_job > 0.3
        if quiet and not self.settled and self.manager.states.get(DEFAULT_TARGET, {}).get("active") == "active":
            self.settled = True
            with contextlib.suppress(BrokenPipeError):
                os.write(1, b"settled\n")

    def _console(self) -> None:
        """Copy /dev/console to the machine's console log."""
        descriptor = os.open("/dev/console", os.O_RDWR)
        while True:
            os.write(2, os.read(descriptor, 65536))

    def _serve(self) -> None:
        """Serve `systemctl`."""
        if os.path.lexists(SOCKET):
            os.unlink(SOCKET)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(SOCKET)
        server.listen(64)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as stream:
            asked = json.loads(stream.readline())
            try:
                answer = self._do(asked)
            except Exception as error:
                answer = {"error": repr(error)}
            try:
                stream.write(json.dumps(answer).encode() + b"\n")
                stream.flush()
            except OSError:
                pass  # the request terminated the process that sent it

    def _do(self, asked: dict) -> dict:
        do, names = asked["do"], asked.get("units", [])
        if do == "start":
            return {"results": self.manager.start(names, asked.get("wait", True))}
        if do == "stop":
            for name in names:
                self.manager.stop(name)
            return {}
        if do == "restart":
            for name in names:
                self.manager.stop(name)
            return {"results": self.manager.start(names, asked.get("wait", True))}
        if do == "state":
            return {"states": {name: self.manager.state(name) for name in names}}
        if do == "all":
            return {"states": self.manager.states, "jobs": list(self.manager.jobs), "wanted": wanted_by(DEFAULT_TARGET)}
        if do == "reset-failed":
            for name in names or list(self.manager.states):
                if self.manager.state(name)["active"] == "failed":
                    self.manager._set(name, active="inactive", sub="dead", result="success")
            return {}
        if do == "run":
            return self._run_command(asked["argv"], float(asked.get("limit", 60)))
        if do in ("reboot", "poweroff"):
            os.write(2, f"systemd[1]: {'Rebooting' if do == 'reboot' else 'Powering off'}.\n".encode())
            code = REBOOT if do == "reboot" else POWEROFF
            with contextlib.suppress(BrokenPipeError):
                # Sent first, because services that stop now are recorded as failed, and a suspension must not resume that state.
                os.write(1, f"ending {code}\n".encode())
            self.ending = code
            return {}
        return {"error": f"unknown: {do}"}

    def _run_command(self, argv: list[str], limit: float) -> dict:
        """Run a command as in a login shell. Used by the rehearsal and tests."""
        invocation = uuid.uuid4().hex
        with tempfile.TemporaryFile(dir="/tmp") as output:
            try:
                pid = self.reaper.spawn(argv, {**os.environ, OF_COMMAND: invocation}, output.fileno(), "/root")
            except OSError as error:
                return {"code": 127, "output": str(error)}
            code = self.reaper.wait(pid, limit)
            if code is None:
                end_all(invocation, 1.0)
            output.seek(0)
            return {"code": 124 if code is None else code, "output": output.read(1 << 20).decode(errors="replace")}

    def _shut_down(self) -> None:
        """Send SIGTERM to all processes and wait briefly. The kernel kills the rest with process 1."""
        try:
            os.kill(-1, signal.SIGTERM)
        except ProcessLookupError:
            return
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            self.reaper.reap()
            if not any(name.isdigit() and int(name) > 1 for name in os.listdir("/proc")):
                return
            time.sleep(0.02)


def main(argv: list[str]) -> int:
    """`init boot` or `init resume`."""
    link("state/standin.json", RUN + "/standin.json")
    return Init().run(resume=argv[1:] == ["resume"])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
