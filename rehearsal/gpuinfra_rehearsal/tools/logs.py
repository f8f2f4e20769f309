"""What the stand-ins of log agents read on a stand-in node: journal entries with the fields of systemd, kernel lines, and log files."""

from __future__ import annotations

import os
import time

from .machine import JOURNAL
from .state import dumps, loads, make_folder, read_state, read_text, write_atomically
from .universe import matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

Entry = dict
"""The fields of a journal entry, with the time in seconds in `__REALTIME_TIMESTAMP`."""


class LogReader:
    """Reads each line once, also after a reboot: the positions are in a file, as those of the real agents."""

    def __init__(self, positions: str) -> None:
        self._path = positions
        self.first = not os.path.exists(positions)
        """Whether the agent runs for the first time."""
        held: dict = loads(read_text(positions, "{}"))  # type: ignore[assignment]
        self._journal: int = held.get("journal", 0)
        self._kernel: list = held.get("kernel", [])
        self._files: dict = held.get("files", {})

    def save(self) -> None:
        """Write the positions after the lines are sent."""
        make_folder(os.path.dirname(self._path))
        write_atomically(self._path, dumps({"journal": self._journal, "kernel": self._kernel, "files": self._files}))
        self.first = False

    def entries(self) -> list[Entry]:
        """Return the new entries of the journal and of the kernel log, in the order of their times."""
        lines = self._of_units() + self._of_kernel()
        return sorted(lines, key=lambda entry: entry["__REALTIME_TIMESTAMP"])

    def lines(self, patterns: Iterable[str]) -> list[tuple[str, str]]:
        """Return (path, line) of each new complete line of the files that match."""
        lines = []
        for pattern in patterns:
            folder, _, name = pattern.rpartition("/")
            for file in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                path = f"{folder}/{file}"
                if matches(file, name) and os.path.isfile(path):
                    lines += [(path, line) for line in self._of_file(path)]
        return lines

    def _of_file(self, path: str) -> list[str]:
        with open(path, "rb") as file:
            start = self._files.get(path, 0)
            file.seek(0 if os.fstat(file.fileno()).st_size < start else start)
            complete, end, _ = file.read().rpartition(b"\n")
            self._files[path] = file.tell() - len(_) if end else start
        return complete.decode(errors="replace").splitlines()

    def _of_units(self) -> list[Entry]:
        lines = []
        try:
            with open(JOURNAL, encoding="utf-8", errors="replace") as file:
                file.seek(self._journal)
                text = file.read()
                complete = text.rpartition("\n")[0]
                self._journal += len(complete.encode()) + 1 if complete else 0
        except FileNotFoundError:
            return []
        for line in complete.splitlines():
            moment, boot, unit, ident, message = (line.split("\t", 4) + [""] * 5)[:5]
            entry = {"MESSAGE": message, "SYSLOG_IDENTIFIER": ident, "_BOOT_ID": boot, "_TRANSPORT": "stdout"}
            if unit == "systemd":
                about = message.partition(" ")[0].rstrip(":,")
                entry |= {"_PID": "1", "_SYSTEMD_UNIT": "init.scope", "_TRANSPORT": "journal"}
                entry |= {"UNIT": about} if about.endswith(".service") else {}
            elif unit != "-":
                entry["_SYSTEMD_UNIT"] = unit
            lines.append(_complete(entry, float(moment or 0)))
        return lines

    def _of_kernel(self) -> list[Entry]:
        from ..devices import kernel_log

        state = read_state()
        boot = state["boot_id"]
        began = float(read_text("/run/standin/booted", "0") or 0)
        lines = []
        for after, text in kernel_log.lines(state):  # type: ignore[arg-type]
            if f"{boot} {text}" not in self._kernel:
                self._kernel.append(f"{boot} {text}")
                entry = {"MESSAGE": text, "SYSLOG_IDENTIFIER": "kernel", "_BOOT_ID": boot, "_TRANSPORT": "kernel"}
                # A line that appears now, such as that of a fault, has not been there since the boot.
                lines.append(_complete(entry, began + after if self.first else max(began + after, time.time())))
        return lines


def _complete(entry: Entry, moment: float) -> Entry:
    return {**entry, "PRIORITY": "6", "_HOSTNAME": os.uname().nodename, "__REALTIME_TIMESTAMP": moment}
