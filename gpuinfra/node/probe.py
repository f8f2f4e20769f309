"""Runs probes with time and size limits and without a shell, and escapes control characters in the record.

A record is part of the evidence: `argv`, `exit`, `stdout`, `stderr`, `truncated`, `seconds`,
`problem` (null, or why there is no result), `kept` (the filter, if only matching lines were kept) and `repeated` (the number of lines
that were omitted because enough lines of the same kind were kept).
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Iterable

from .outcome import escaped
from .probes import (
    GPU_FIELDS,
    HANGS,
    METRIC,
    METRICS_QUERY,
    NODE_PART,
    NOT_FOUND,
    NOT_STARTED,
    OLDER_NAMES,
    PROBES,
    TIMED_OUT,
    Probe,
)

_FIRST_LINES = 20
_ALIKE = 50
"""Maximum number of lines of the same kind to keep. A repeated error must neither hide other errors nor fill the evidence."""
_KINDS = 200
"""Maximum number of line kinds to count. Lines of any other kind are kept, up to the size limit."""
_GRACE_S = 5.0
_METRICS_TRIES = 12
"""Repetitions until an exporter that just started serves metrics: one minute. It collects every 30 s (dcgm-exporter: `--collect-interval`)."""
PROBE_LIMIT_S = "GPUINFRA_PROBE_LIMIT_S"
"""Environment variable that contains the probe's time limit, for a command that must clean up before it is killed."""
Run = Callable[[Iterable[str], Probe], "dict[str, Any]"]


def run(argv: Iterable[str], probe: Probe) -> dict[str, Any]:
    """Run one command. Always returns a record."""
    words = _command(list(argv))
    started = time.monotonic()
    environment = dict(os.environ, LC_ALL="C", LANG="C", SYSTEMD_COLORS="0", SYSTEMD_PAGER="", TERM="dumb")
    environment[PROBE_LIMIT_S] = str(probe.timeout_s)
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            cwd="/",
        )
    except FileNotFoundError:
        return _record(words, NOT_FOUND, b"", b"", False, started, "not found")
    except OSError as error:
        return _record(words, NOT_STARTED, b"", b"", False, started, "cannot be started: %s" % error.strerror)
    keeper = _Keeper(probe)
    in_time = _collect(process, keeper, started + probe.timeout_s)
    code, problem = process.returncode, None
    if not in_time:
        code, problem = TIMED_OUT, "timed out after %d s" % probe.timeout_s
    elif code is None:
        code, problem = HANGS, "hangs and cannot be killed"
    return _record(
        words, code, keeper.stdout(), keeper.stderr(), keeper.truncated, started, problem, probe.keep, keeper.repeated()
    )


_READ_EXPECTATION = ((NODE_PART, "files"), (NODE_PART, "nccl"), (NODE_PART, "pair"))


def with_expectation(path: "os.PathLike[str]") -> Run:
    """Return `run`, with the expectation that these parts of the program read. The path becomes absolute, because probes run in the root folder."""

    def do(argv: Iterable[str], probe: Probe) -> dict[str, Any]:
        words = tuple(argv)
        return run((*words, "--expectation", os.path.abspath(path)) if words in _READ_EXPECTATION else words, probe)

    return do


def _command(words: list[str]) -> list[str]:
    """Return the command line; `NODE_PART` becomes the running zipapp, or the package of a checkout."""
    if words[0] != NODE_PART:
        return words
    program = os.path.abspath(sys.argv[0])
    part = [program] if program.endswith(".pyz") else ["-m", __package__ or "gpuinfra.node"]
    return [sys.executable, *part, *words[1:]]


def _collect(process: subprocess.Popen, keeper: "_Keeper", deadline: float) -> bool:
    """Collect the output and end the command. Return False if it reached its time limit."""
    selector = selectors.DefaultSelector()
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    for stream in streams:
        os.set_blocking(stream.fileno(), False)
        selector.register(stream, selectors.EVENT_READ, stream is process.stdout)
    try:
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                _end(process)
                return False
            for key, _ in selector.select(left):
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                elif not keeper.take(key.data, data):
                    # Truncation is not a failure of the command. The remaining output is not needed.
                    _end(process)
                    return True
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _end(process)
            return False
        return True
    finally:
        selector.close()
        for stream in streams:
            stream.close()


def _end(process: subprocess.Popen) -> None:
    """Kill the command and its children. A process that hangs in the kernel (a lost GPU) is abandoned after a grace period."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        pass


class _Keeper:
    """Collects the output to keep: everything or only the matching lines, up to the limit."""

    def __init__(self, probe: Probe) -> None:
        self.truncated = False
        self._left = probe.limit
        self._keep = re.compile(probe.keep.encode()) if probe.keep else None
        self._out: list[bytes] = []
        self._err: list[bytes] = []
        self._rest = b""
        self._lines = 0
        self._alike: dict[bytes, int] = {}

    def take(self, is_stdout: bool, data: bytes) -> bool:
        """Keep the output that fits. Returns False once the limit is reached."""
        if is_stdout and self._keep is not None:
            *whole, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > 65536:
                self._rest = self._rest[:65536]
            data = b"".join(line + b"\n" for line in whole if self._matches(line))
        part = data[: self._left]
        (self._out if is_stdout else self._err).append(part)
        self._left -= len(part)
        self.truncated = self.truncated or len(part) < len(data)
        return not self.truncated

    def _matches(self, line: bytes) -> bool:
        self._lines += 1
        if self._lines <= _FIRST_LINES:
            return True
        if not (self._keep and self._keep.search(line)):
            return False
        kind = _kind(line)
        if kind in self._alike or len(self._alike) < _KINDS:
            self._alike[kind] = self._alike.get(kind, 0) + 1
        return self._alike.get(kind, 0) <= _ALIKE

    def repeated(self) -> dict[str, int]:
        """Return the number of omitted lines of each kind."""
        return {
            kind.decode("utf-8", "backslashreplace"): count - _ALIKE
            for kind, count in self._alike.items()
            if count > _ALIKE
        }

    def stdout(self) -> bytes:
        """Return the kept part of stdout."""
        if self._rest and not self.truncated and self._matches(self._rest):
            self._out.append(self._rest[: self._left])
            self._rest = b""
        return b"".join(self._out)

    def stderr(self) -> bytes:
        """Return the kept part of stderr."""
        return b"".join(self._err)


_XID = re.compile(rb"S?Xid \([^()]*\): \d+")
_WORD = re.compile(rb"(?i)\b(?:non-?fatal|fatal|Severity \d|Data|to 0x[0-9a-f]+ \([^)]*\)|previous Xid \d+)")


def _kind(line: bytes) -> bytes:
    """Return the key that lines of the same kind share: device, number and severity of an Xid or SXid, or the text without numbers."""
    xid = _XID.search(line)
    if xid:
        return b" ".join([xid.group(), *_WORD.findall(line[xid.end() :])])[:120]
    return re.sub(rb"[0-9a-fA-F]+", lambda found: found.group() if found.group().isalpha() else b"#", line)[:120]


def _record(
    argv: list[str],
    code: int,
    out: bytes,
    err: bytes,
    truncated: bool,
    started: float,
    problem: str | None,
    kept: str | None = None,
    repeated: dict[str, int] | None = None,
) -> dict[str, Any]:
    record = {
        "argv": argv,
        "exit": code,
        "stdout": escaped(out.decode("utf-8", "backslashreplace")),
        "stderr": escaped(err.decode("utf-8", "backslashreplace")),
        "truncated": truncated,
        "seconds": round(time.monotonic() - started, 3),
        "problem": problem,
    }
    if kept is not None:
        record["kept"] = kept
    if repeated:
        record["repeated"] = {escaped(kind): count for kind, count in repeated.items()}
    return record


def probe_all(
    names: Iterable[str], do: Run = run, retry_wait_s: float = 5.0, efa_devices: int = 0
) -> dict[str, dict[str, Any]]:
    """Run the given probes one at a time, because nvidia-smi is not faster in parallel.

    `efa_devices` is the number of EFA devices in the machine. Devices can appear late, so the probe is repeated up to three times
    while some are missing. An exporter that just started responds after a few seconds and has no metrics before its first
    collection, so its probe is repeated for up to a minute on nodes whose steps installed it.
    """
    records = {}
    for name in names:
        probe = PROBES[name]
        if name == "nvidia-smi-csv":
            records[name] = _run_table(probe, do)
        elif name == "efa":
            records[name] = _run_probe(probe, do)
            for _ in range(3):
                # Each fabric of the provider lists every device, so each domain is counted only once.
                domains = set(re.findall(r"domain: (\S+)", records[name]["stdout"]))
                if records[name]["problem"] or len(domains) >= efa_devices:
                    break
                time.sleep(retry_wait_s)
                records[name] = _run_probe(probe, do)
        elif name == "metrics" and os.path.exists(METRICS_QUERY):
            records[name] = _run_probe(probe, do)
            for _ in range(_METRICS_TRIES):
                if METRIC in records[name]["stdout"]:
                    break
                time.sleep(float(os.environ.get("GPUINFRA_METRICS_RETRY_S") or retry_wait_s))
                records[name] = _run_probe(probe, do)
        else:
            records[name] = _run_probe(probe, do)
    return records


def _run_probe(probe: Probe, do: Run) -> dict[str, Any]:
    record = do(probe.argv, probe)
    for argv in probe.otherwise:
        if record["problem"] is None and record["exit"] == 0:
            break
        second = do(argv, probe)
        if second["problem"] is None or second["exit"] != NOT_FOUND:
            record = second
    return record


def _run_table(probe: Probe, do: Run) -> dict[str, Any]:
    """Query only columns that this driver supports: a single unknown column makes nvidia-smi fail."""
    help_text = do(("nvidia-smi", "--help-query-gpu"), Probe(("nvidia-smi", "--help-query-gpu")))
    if help_text["problem"] or help_text["exit"] != 0:
        return do(probe.argv, probe)
    names = set(re.findall(r'"([A-Za-z][A-Za-z0-9_.]*)"', help_text["stdout"]))
    fields = [field if field in names else OLDER_NAMES.get(field, field) for field in GPU_FIELDS]
    fields = [field for field in fields if field in names]
    if not fields:
        return do(probe.argv, probe)
    return do(("nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv"), probe)
