"""The commands of a unit: environment, output and time limit."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable

from .process import OF_UNIT, Reaper, end_all
from .unitfile import UnitFile, seconds

DEFAULT_TIMEOUT = 90.0
TIMED_OUT = 124


class UnitCommands:
    """Runs the commands of `ExecStart=` and related settings."""

    def __init__(self, reaper: Reaper, log: Callable[[str, str, bool], None], environ: dict[str, str]) -> None:
        self.reaper, self.log, self.environ = reaper, log, environ

    def execute(self, unit: UnitFile, command: str, invocation: str, limit: float) -> int:
        """Run one command to completion. Returns 0 for a command with the prefix `-` and for codes that count as
        success."""
        try:
            pid = self.spawn(unit, command, invocation)
        except OSError as error:
            self.log("systemd", f"{unit.name}: {error}", True)
            return 0 if command.startswith("-") else 203
        code = self.reaper.wait(pid, min(limit, 1e8))
        if code is None:
            self.log("systemd", f"{unit.name}: start operation timed out. Terminating.", True)
            end_all(invocation, 2.0)
            self.reaper.wait(pid, 5)
            return TIMED_OUT
        if str(code) in unit.words("Service", "SuccessExitStatus") or command.lstrip("@+!:").startswith("-"):
            return 0
        return code

    def spawn(self, unit: UnitFile, command: str, invocation: str) -> int:
        """Start one command. Its output goes to the journal, and to the console if the unit is configured that way."""
        environ = {name: value for name, value in self.environ.items() if name != "HOME"}  # system units have no HOME
        environ |= _environment(unit)
        environ[OF_UNIT] = invocation
        argv = [_expand(word, environ) for word in shlex.split(command.lstrip("@-+!:"))]
        for key, folder in (("RuntimeDirectory", "/run"), ("StateDirectory", "/var/lib")):
            for name in unit.words("Service", key):
                os.makedirs(f"{folder}/{name}", mode=0o700, exist_ok=True)
        read, write = os.pipe()
        console = "console" in unit.one("Service", "StandardOutput", "journal")
        try:
            pid = self.reaper.spawn(argv, environ, write, unit.one("Service", "WorkingDirectory", "/"))
        except OSError:
            os.close(read)
            raise
        finally:
            os.close(write)
        ident = unit.one("Service", "SyslogIdentifier") or os.path.basename(argv[0])
        threading.Thread(target=self._listen, args=(read, unit.name, ident, console), daemon=True).start()
        return pid

    def _listen(self, descriptor: int, unit: str, ident: str, console: bool) -> None:
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                self.log(f"{unit}\t{ident}", line.rstrip("\n"), console)


def start_limit(unit: UnitFile) -> float:
    """Return the time limit of a start in seconds. 0 means no limit. A oneshot unit has no default limit."""
    default = "infinity" if unit.type == "oneshot" else str(DEFAULT_TIMEOUT)
    return seconds(unit.one("Service", "TimeoutStartSec") or unit.one("Service", "TimeoutSec") or default) or 1e9


def _environment(unit: UnitFile) -> dict[str, str]:
    environ: dict[str, str] = {}
    for line in unit.all("Service", "Environment"):
        environ |= {word.partition("=")[0]: word.partition("=")[2] for word in shlex.split(line)}
    for path in unit.all("Service", "EnvironmentFile"):
        try:
            with open(path.lstrip("-"), encoding="utf-8") as file:
                for line in file:
                    if "=" in line and not line.startswith(("#", ";")):
                        name, _, value = line.strip().partition("=")
                        environ[name] = "".join(shlex.split(value)) if value else ""
        except OSError:
            if not path.startswith("-"):
                raise
    return environ


def _expand(word: str, environ: dict[str, str]) -> str:
    if "$" not in word:
        return word
    if word.startswith("$") and not word.startswith("${") and word[1:].isidentifier():
        return environ.get(word[1:], "")
    for name, value in environ.items():
        word = word.replace("${" + name + "}", value)
    return word.replace("$$", "$")
