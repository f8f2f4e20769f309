"""`node.pyz metrics`: writes what this node knows about itself for node exporter, until terminated (the `gpuinfra-metrics` unit).

Node exporter serves the file `FILE` (its textfile collector). Only root can write the folder, and the file is replaced atomically. A fact that is not known
has no line. The node does not know its price and the replicas in other regions. node exporter's `infiniband` collector reads the `counters` of InfiniBand
devices and not their `hw_counters` (its version 1.5.0 contains none of their names), which this module therefore reads.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, List, Mapping, Tuple

from . import evidence, health
from .console import BUNDLE, NODE, OK, MissingPrerequisite, optional, print_message
from .energy import LONGEST_S, use_of
from .energy import STATE as READINGS
from .journal import write_whole
from .judge import verdict
from .notices import notices_in
from .outcome import Unreadable
from .probes import NOTICES

FILE = Path("/var/lib/gpuinfra-metrics/gpuinfra.prom")
FIRST = Path("/var/lib/gpuinfra/first-verified")
"""The time at which this node was first verified. It is kept when the node reboots."""
INFINIBAND = Path("/sys/class/infiniband")
PAUSE_S = 30.0
"""The scrape interval of the control node."""
SLOW_S, HANGS_S = 300.0, 120.0
"""Pause between two questions to a file system, and the time after which its last answer is no longer written."""
COUNTERS = (
    "tx_bytes", "rx_bytes", "rx_drops", "retrans_pkts", "retrans_timeout_events", "impaired_remote_conn_events",
    "unresponsive_remote_events", "rdma_read_wr_err", "rdma_write_wr_err", "out_of_sequence", "packet_seq_err",
    "local_ack_timeout_err", "rnr_nak_retry_err", "out_of_buffer", "np_cnp_sent", "rp_cnp_handled", "roce_adp_retrans",
)  # fmt: skip
"""The counters to write: those of EFA (amzn/amzn-drivers: kernel/linux/efa/src/efa_verbs.c) and of mlx5 (prometheus/procfs: sysfs/class_infiniband.go),
retrieved 2026-11-29. A device has only its own."""
OST = re.compile(r"^(\S+-OST[0-9a-f]{4})_UUID\s+\d+\s+(\d+)\s+(\d+)\s+\d+%\s")
"""A line of `lfs df` with the used and the available KiB (Lustre manual, 40.2.3). An inactive OST has no figures."""
NEWEST = """
import glob, os, sys
times = [os.stat(path).st_mtime for path in glob.iglob(os.path.join(glob.escape(sys.argv[1]), sys.argv[2]), recursive=True)]
print(max(times) if times else "")
"""

Samples = List[Tuple[Dict[str, str], float]]
Families = Iterable[Tuple[str, str, Samples]]
"""Name, help and samples of each metric."""


def metrics_service(args: argparse.Namespace) -> int:
    """Run until terminated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))
    facts, problem = NodeFacts(), ""
    while True:
        try:
            write(facts.text(), FILE)
            problem = ""
        except OSError as error:
            if str(error) != problem:
                print_message("the metrics cannot be written: %s" % error)
            problem = str(error)
        time.sleep(PAUSE_S)


def write(text: str, file: Path) -> None:
    """Replace the file. Each user can read it, because node exporter runs as an ordinary user."""
    write_whole(file, text)
    file.chmod(0o644)


class NodeFacts:
    """The facts about this node. The sources are paths, so that tests can use others."""

    def __init__(
        self,
        *,
        node: Path = NODE,
        bundle: Path = BUNDLE,
        folder: Path = evidence.FOLDER,
        first: Path = FIRST,
        notices: Path = Path(NOTICES),
        readings: Path = READINGS,
        infiniband: Path = INFINIBAND,
        lfs: str = "lfs",
    ) -> None:
        self._node, self._bundle, self._first, self._lfs = node, bundle, first, lfs
        self._notices, self._readings, self._infiniband = notices, readings, infiniband
        self._evidence = evidence.EvidenceFolder(folder)
        self._slow: dict[str, _SlowAnswer] = {}
        self._read: tuple[tuple[int, str], dict[str, Any] | None] = ((0, ""), None)

    def text(self) -> str:
        """Return the content of the file, in Prometheus' text format."""
        expectation = _read(self._bundle / "expectation.json") or {}
        families: list[tuple[str, str, Samples]] = [
            *self._checks(expectation),
            *self._notice(),
            *self._idle(),
            *self._counters(),
        ]
        for mount in expectation.get("file_systems") or []:
            families += self._lustre(str(mount))
            if expectation.get("checkpoints"):
                families += self._checkpoint(str(mount), str(expectation["checkpoints"]))
        return rendered(families)

    def _checks(self, expectation: Mapping[str, Any]) -> Families:
        document = self._newest()
        state = health.state(_read(self._node) or {}, expectation or None, document, evidence.boot_id())
        if document is None or state == health.UNKNOWN:
            return
        verified = state == health.HEALTHY
        labels = {"instance_id": str(document.get("instance_id")), "boot_id": evidence.boot_id()}
        yield "gpuinfra_node_info", "This instance and its boot.", [(labels, 1.0)]
        yield (
            "gpuinfra_node_verified",
            "Whether the newest checks of this boot passed, as the node judges them.",
            [({}, float(verified))],
        )
        since = self._verified_since(verified)
        if since is not None:
            yield "gpuinfra_node_first_verified_timestamp_seconds", "When this node was first verified.", [({}, since)]
        try:
            failed = self._failed(document["checks"], expectation)
        except (ValueError, TypeError, KeyError, AttributeError):  # damaged evidence, which is not verified
            return
        yield "gpuinfra_check_failed", "A check that did not pass, with its cause.", failed

    def _failed(self, checks: list[Any], expectation: Mapping[str, Any]) -> Samples:
        blockers = {one["id"] for one in verdict(checks, expectation).blockers}
        return [
            ({"check": one["id"], "cause": one.get("cause") or "", "outcome": one["outcome"], "blocks": str(one["id"] in blockers).lower()}, 1.0)
            for one in checks
            if one["outcome"] not in ("pass", "skip")
        ]  # fmt: skip

    def _newest(self) -> dict[str, Any] | None:
        """Return the newest evidence, which is read again only if the folder has changed."""
        try:
            folder = self._evidence.folder
            key = (folder.stat().st_mtime_ns, max(path.name for path in folder.glob("*.json")))
        except (OSError, ValueError):
            return None
        if self._read[0] != key:
            newest = self._evidence.newest()
            self._read = (key, newest[1] if newest else None)
        return self._read[1]

    def _verified_since(self, verified: bool) -> float | None:
        try:
            return float(self._first.read_text(encoding="ascii"))
        except (OSError, ValueError):
            if not verified:
                return None
        now = float(int(time.time()))
        write_whole(self._first, "%d\n" % now)
        return now

    def _notice(self) -> Families:
        try:
            notices = notices_in(self._notices.read_text(encoding="utf-8"))
        except (OSError, Unreadable):
            return
        counts: dict[tuple[str, str], float] = {}
        deadlines: dict[str, float] = {}
        for notice in notices:
            key = (notice.kind.value, notice.stage.value)
            counts[key] = counts.get(key, 0.0) + 1
            if notice.deadline is not None:
                deadlines[notice.kind.value] = min(notice.deadline, deadlines.get(notice.kind.value, notice.deadline))
        numbers: Samples = [({"kind": kind, "stage": stage}, count) for (kind, stage), count in counts.items()]
        yield "gpuinfra_notices", "Number of notices about this machine.", numbers
        about = "Earliest time at which the announced event starts."
        yield (
            "gpuinfra_notice_deadline_timestamp_seconds",
            about,
            [({"kind": kind}, at) for kind, at in deadlines.items()],
        )

    def _idle(self) -> Families:
        """The readings of the hourly checks. Only nodes whose pool has `idle_stop` record them."""
        try:
            text = self._readings.read_text(encoding="utf-8")
            use, document = use_of(text), json.loads(text)
        except (OSError, Unreadable, ValueError):
            return
        age = use.age_s + time.clock_gettime(time.CLOCK_BOOTTIME) - float(document["uptime_s"])
        if document.get("boot_id") == evidence.boot_id() and use.idle_s > 0 and age <= LONGEST_S:
            since = time.time() - age - use.idle_s
            yield "gpuinfra_gpus_idle_since_timestamp_seconds", "Since when the hourly readings show all GPUs idle.", [({}, round(since))]  # fmt: skip

    def _counters(self) -> Families:
        samples = []
        for path in sorted(self._infiniband.glob("*/ports/*/hw_counters")):
            device, port = path.parts[-4], path.parts[-2]
            for name in COUNTERS:
                try:
                    value = float(int((path / name).read_text(encoding="ascii")))
                except (OSError, ValueError):
                    continue
                samples.append(({"device": device, "port": port, "counter": name}, value))
        if samples:
            yield "gpuinfra_rdma_hw_counter_total", "A counter of an RDMA device (hw_counters).", samples

    def _lustre(self, mount: str) -> Families:
        text = self._answer("df " + mount, [self._lfs, "df", mount])
        used = [
            (match.group(1), int(match.group(2)), int(match.group(3)))
            for match in map(OST.match, text.splitlines())
            if match
        ]
        samples = [
            ({"mount": mount, "ost": ost}, round(full / (full + free), 4)) for ost, full, free in used if full + free
        ]
        yield (
            "gpuinfra_lustre_ost_used_ratio",
            "Share of the space of an object storage target that is in use.",
            samples,
        )

    def _checkpoint(self, mount: str, pattern: str) -> Families:
        text = self._answer("checkpoint " + mount, [sys.executable, "-I", "-S", "-c", NEWEST, mount, pattern]).strip()
        if text:
            yield "gpuinfra_checkpoint_timestamp_seconds", "When the newest complete checkpoint was written.", [({"mount": mount}, float(text))]  # fmt: skip

    def _answer(self, name: str, command: list[str]) -> str:
        return self._slow.setdefault(name, _SlowAnswer(command)).text()


class _SlowAnswer:
    """The last output of a command that can hang with its file system. A process that hangs cannot be killed, so at most one runs."""

    def __init__(self, command: list[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._command, self._clock = command, clock
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._started = -SLOW_S
        self._text = ""

    def text(self) -> str:
        """Return the last output, or an empty text if the command fails or hangs."""
        now = self._clock()
        if self._process is not None and self._output is not None:
            code = self._process.poll()
            if code is not None:
                self._output.seek(0)
                self._text = self._output.read().decode("utf-8", "replace") if code == 0 else ""
                self._output.close()
                self._process = None
            elif now - self._started > HANGS_S:
                self._text = ""
        if self._process is None and now - self._started >= SLOW_S:
            self._started, self._output = now, tempfile.TemporaryFile()
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                self._text = ""
                self._output.close()
        return self._text


def rendered(families: Families) -> str:
    """Return families of gauges and counters in Prometheus' text format. Families with the same name are joined, because a name has one group of lines
    (https://prometheus.io/docs/instrumenting/exposition_formats/, retrieved 2026-11-29)."""
    groups: dict[str, list[str]] = {}
    for name, about, samples in families:
        kind = "counter" if name.endswith("_total") else "gauge"
        lines = groups.setdefault(name, ["# HELP %s %s" % (name, about), "# TYPE %s %s" % (name, kind)])
        for labels, value in samples:
            inner = ",".join('%s="%s"' % (key, _escaped(text)) for key, text in labels.items())
            lines.append("%s%s %s" % (name, "{%s}" % inner if inner else "", repr(float(value))))
    return "".join("\n".join(lines) + "\n" for lines in groups.values() if len(lines) > 2)


def _escaped(text: str) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return optional(path)
    except MissingPrerequisite:
        return None
