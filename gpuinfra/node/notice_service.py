"""`node.pyz notices`: reads the cloud's notices about this machine until terminated (the `gpuinfra-notices` unit).

A new notice, or a notice that becomes imminent, is written to `FILE` first. Jobs of `gpuinfra run -N` read this file, and signal their processes.
Then the programs in `HOOKS` run, and the recheck uploads evidence that contains the file. A source that cannot be read keeps its last notices.
"""

from __future__ import annotations

import argparse
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Callable, Mapping

from . import cloud, evidence
from .console import BUNDLE, NODE, OK, load, optional, print_message
from .journal import write_whole
from .notices import PLANNED, Notice, dumped, iso, notices_in, planned, stage_of
from .orders import OrderReader
from .outcome import Unreadable
from .probes import NOTICES

FILE = Path(NOTICES)
"""The folder is empty after a boot, so a notice never belongs to an earlier boot."""
HOOKS = Path("/etc/gpuinfra-notice.d")
"""Not below /etc/gpuinfra, so that `software.files` can write it."""
HOOK_S = 600.0
"""Time limit of one hook."""
RECHECK = ("systemctl", "start", "--no-block", "gpuinfra-recheck.service")
REPORT_S, LONGEST_REPORT_S = 15.0, 600.0
"""Pause until the node checks whether its newest evidence contains the notices. The pause doubles with each attempt."""


def notice_service(args: argparse.Namespace) -> int:
    """Run until terminated."""
    connected = cloud.of(load(NODE, "the node's configuration", "user data writes it"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))
    sources = {**connected.notice_sources(), "the operator": lambda: planned(Path(PLANNED), time.time())}
    if (reader := _orders(connected)) is not None:
        sources["the control node"] = reader.notices
        reader.start()
    service = NoticeService(sources)
    while True:
        service.once()
        time.sleep(connected.notice_poll_s)


def _orders(connected: cloud.NodeCloud) -> OrderReader | None:
    """Return the reader of the orders of the control node, or None if the stack declares no repair."""
    key = (optional(BUNDLE / "expectation.json") or {}).get("orders")
    bucket = (load(NODE, "the node's configuration", "user data writes it").get("bundle") or {}).get("bucket")
    return OrderReader(connected, str(bucket), str(key), evidence.boot_id()) if key and bucket else None


class NoticeService:
    """The notices of one node."""

    def __init__(
        self,
        sources: Mapping[str, Callable[[], list[Notice]]],
        *,
        file: Path = FILE,
        hooks: Path = HOOKS,
        report: Callable[[], None] | None = None,
        reported: Callable[[], str | None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sources, self._file, self._hooks, self._clock = sources, file, hooks, clock
        self._report, self._reported = report or _recheck, reported or _in_evidence
        self._last: dict[str, list[Notice]] = {}
        self._problems: dict[str, str] = {}
        self._written = ""
        self._held: dict[str, Notice] = {}
        self._pause_s, self._report_at = REPORT_S, 0.0
        self._is_reported = False
        try:  # this service was restarted in this boot
            self._held = {one.id: one for one in notices_in(file.read_text(encoding="utf-8"))}
        except (OSError, Unreadable):
            pass

    def once(self) -> None:
        """Read all sources, and act on what changed."""
        now = self._clock()
        current = [self._staged(one, now) for name in self._sources for one in self._read(name)]
        changed = [one for one in current if one.id not in self._held or one.stage is not self._held[one.id].stage]
        text = dumped(current)
        if text != self._written:
            write_whole(self._file, text)
            self._file.chmod(0o644)  # jobs run as ordinary users
            self._pause_s, self._report_at, self._is_reported = REPORT_S, now + REPORT_S, False
            if self._written or changed:
                self._report()
            self._written, self._held = text, {one.id: one for one in current}
        for notice in changed:
            self._announce(notice, now)
        self._report_again(now)

    def _read(self, name: str) -> list[Notice]:
        try:
            self._last[name] = self._sources[name]()
            self._problems.pop(name, None)
        except (cloud.CloudError, Unreadable) as error:
            if self._problems.get(name) != str(error):
                self._problems[name] = str(error)
                print_message("notices of %s: %s" % (name, error))
        return self._last.get(name, [])

    def _staged(self, notice: Notice, now: float) -> Notice:
        """Return a notice with its stage. An estimated deadline, and a deadline that the cloud no longer states, stay as they were first read."""
        before = self._held.get(notice.id)
        if before is not None and (notice.estimated or notice.deadline is None):
            notice = replace(notice, deadline=before.deadline, estimated=before.estimated)
        return replace(notice, stage=stage_of(notice, now))

    def _announce(self, notice: Notice, now: float) -> None:
        """Print a notice, and run the hooks in a thread, because further notices can arrive while a hook runs."""
        until = "" if notice.deadline is None else ", not before %s" % iso(notice.deadline)
        print_message("notice (%s): %s%s" % (notice.stage.value, notice.what, until), console=True)
        hooks = hooks_in(self._hooks)
        if hooks:
            left = "" if notice.deadline is None else str(max(0, int(notice.deadline - now)))
            variables = {
                "GPUINFRA_NOTICE_ID": notice.id, "GPUINFRA_NOTICE_KIND": notice.kind.value, "GPUINFRA_NOTICE_STAGE": notice.stage.value,
                "GPUINFRA_NOTICE_WHAT": notice.what, "GPUINFRA_NOTICE_DEADLINE": iso(notice.deadline) or "",
                "GPUINFRA_NOTICE_SECONDS": left, "GPUINFRA_NOTICES": str(self._file),
            }  # fmt: skip
            threading.Thread(target=_run, args=(hooks, {**os.environ, **variables}), daemon=True).start()

    def _report_again(self, now: float) -> None:
        """Upload evidence if the newest evidence has other notices: a notice that arrives while the checks run is not in their evidence."""
        if self._is_reported or now < self._report_at:
            return
        held = self._reported()
        self._is_reported = held == self._written
        if held is not None and not self._is_reported:
            self._report()
        self._pause_s = min(2 * self._pause_s, LONGEST_REPORT_S)
        self._report_at = now + self._pause_s


def hooks_in(folder: Path) -> list[Path]:
    """Return the hooks in name order: executable files that only root can change."""
    hooks = []
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []
    for path in paths:
        facts = path.stat() if path.is_file() else None
        if facts is None or not facts.st_mode & stat.S_IXUSR:
            continue
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            print_message("%s does not run, because other users than root can change it" % path)
            continue
        hooks.append(path)
    return hooks


def _run(hooks: list[Path], environ: Mapping[str, str]) -> None:
    for hook in hooks:
        try:
            code = subprocess.run([str(hook)], env=environ, stdin=subprocess.DEVNULL, timeout=HOOK_S).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            print_message("%s: %s" % (hook, error))
            continue
        if code:
            print_message("%s: exit code %d" % (hook, code))


def _in_evidence() -> str | None:
    """Return the notices in the newest evidence, or None without evidence of this boot."""
    newest = evidence.EvidenceFolder().newest()
    document = newest[1] if newest else {}
    if document.get("boot_id") != evidence.boot_id():
        return None
    return str(((document.get("probes") or {}).get("notices") or {}).get("stdout"))


def _recheck() -> None:
    """Upload evidence with the notices. The unit runs once at a time, so the documents keep their order."""
    try:
        done = subprocess.run(RECHECK, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError as error:
        print_message("%s: %s" % (" ".join(RECHECK), error))
        return
    if done.returncode != 0:
        print_message("%s: %s" % (" ".join(RECHECK), done.stderr.decode("utf-8", "replace").strip()[-200:]))
