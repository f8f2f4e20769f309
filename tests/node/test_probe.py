from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from gpuinfra.node import probe as probing
from gpuinfra.node.probe import probe_all, run
from gpuinfra.node.probes import GPU_FIELDS, PROBES, Probe
from tests.node.healthy import record


def script(folder: Path, name: str, body: str) -> str:
    """An executable for one test."""
    path = folder / name
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def ask(path: str, *args: str, timeout_s: int = 300, limit: int = 4096, keep: str | None = None) -> dict:
    """Run it as a probe."""
    return run((path, *args), Probe((path, *args), timeout_s=timeout_s, limit=limit, keep=keep))


def ask_until_it_prints(path: str) -> tuple[dict, int]:
    """The record of a probe that ends at its limit, and the limit: on a busy machine, bash itself needs longer than the shortest one."""
    for limit in (1, 10, 100):
        answer = ask(path, timeout_s=limit)
        if answer["stdout"]:
            break
    return answer, limit


def test_record_has_all_evidence_fields(tmp_path: Path) -> None:
    """It contains exit code, both streams, duration and truncation; no shell is involved."""
    answer = ask(script(tmp_path, "tool", 'echo "$1"; echo err >&2; exit 3'), "$(id); a b")
    assert (answer["exit"], answer["stdout"], answer["stderr"]) == (3, "$(id); a b\n", "err\n")
    assert (answer["truncated"], answer["problem"]) == (False, None)
    assert answer["seconds"] >= 0


def test_missing_command_gives_a_record() -> None:
    """The problem is `not found`, with the shell's usual exit code."""
    answer = ask("/nonexistent/nvidia-smi")
    assert (answer["exit"], answer["problem"]) == (127, "not found")


def test_hanging_command_is_killed_with_its_children(tmp_path: Path) -> None:
    """It takes the time limit and leaves no process behind."""
    marker = tmp_path / "pid"
    answer, limit = ask_until_it_prints(script(tmp_path, "tool", f"sleep 900 & echo $! > {marker}; echo early; wait"))
    assert (answer["exit"], answer["problem"], answer["stdout"]) == (124, f"timed out after {limit} s", "early\n")
    child = Path(f"/proc/{int(marker.read_text())}/stat")
    until = time.monotonic() + 300
    while child.exists() and child.read_text().split()[2] != "Z":
        assert time.monotonic() < until, "the child still runs"
        time.sleep(0.05)


def test_child_that_keeps_the_pipe_open_does_not_block_the_probe(tmp_path: Path) -> None:
    """A daemon started by a tool inherits its output; the probe ends at its limit."""
    pid = tmp_path / "pid"
    answer, limit = ask_until_it_prints(script(tmp_path, "tool", f"setsid sleep 900 & echo $! >{pid}; echo done"))
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert answer["stdout"] == "done\n"
    assert answer["problem"] == f"timed out after {limit} s"


def test_output_is_truncated_at_the_limit(tmp_path: Path) -> None:
    """The limit applies to both streams together, and truncation is marked."""
    answer = ask(
        script(
            tmp_path, "tool", "head -c 3000 /dev/zero | tr '\\0' a; head -c 3000 /dev/zero | tr '\\0' b >&2; sleep 60"
        )
    )
    assert len(answer["stdout"]) + len(answer["stderr"]) == 4096
    assert answer["truncated"]


def test_invalid_bytes_are_escaped(tmp_path: Path) -> None:
    """Invalid UTF-8, escape sequences and control characters are escaped in the record."""
    answer = ask(script(tmp_path, "tool", r"printf '\xff\x1b[31mred\x00\n'"))
    assert answer["stdout"] == "\\xff\\x1b[31mred\\x00\n"


def test_only_relevant_lines_of_a_kernel_log_are_kept(tmp_path: Path) -> None:
    """The first lines and matching lines are kept, for a log of any length."""
    body = 'echo "Linux version 6"; for i in $(seq 1 5000); do echo "noise $i"; done; echo "NVRM: Xid (PCI:0000:20:1d): 79, x"; echo -n "NVRM: last"'
    answer = ask(script(tmp_path, "tool", body), keep="NVRM")
    lines = answer["stdout"].splitlines()
    assert lines[0] == "Linux version 6"
    assert lines[-2:] == ["NVRM: Xid (PCI:0000:20:1d): 79, x", "NVRM: last"]
    assert len(lines) == 22
    assert (answer["truncated"], answer["kept"]) == (False, "NVRM")


def test_tools_run_in_english_without_a_terminal(tmp_path: Path) -> None:
    """Parsers read one language, and there are no color codes."""
    answer = ask(script(tmp_path, "tool", 'echo "$LC_ALL $TERM"; test -t 0 || echo no terminal'))
    assert answer["stdout"] == "C dumb\nno terminal\n"


def test_only_supported_columns_are_queried() -> None:
    """One unsupported column makes nvidia-smi fail, so the supported columns are listed first; older names are used if needed."""
    asked: list[tuple[str, ...]] = []

    def do(argv: object, probe: Probe) -> dict:
        words = tuple(argv)  # type: ignore[arg-type]
        asked.append(words)
        return record(words, '"index"\n"serial" or "gpu_serial"\n"clocks_throttle_reasons.active"\n')

    probe_all(["nvidia-smi-csv"], do)
    assert asked[0] == ("nvidia-smi", "--help-query-gpu")
    assert asked[1][1] == "--query-gpu=index,serial,clocks_throttle_reasons.active"


def test_late_efa_devices_are_probed_again() -> None:
    """Large instances list their devices one after another; the probe is repeated up to three times."""
    counts = iter((1, 2, 4))

    def do(argv: object, probe: Probe) -> dict:
        return record(list(argv), "".join(f"domain: d{n}\ndomain: d{n}\n" for n in range(next(counts))))  # type: ignore[call-overload]

    assert probe_all(["efa"], do, retry_wait_s=0, efa_devices=4)["efa"]["stdout"].count("domain: d3") == 2


def test_an_exporter_that_just_started_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node whose steps installed the exporter, the probe is repeated until there are metrics, at most for a minute."""
    query = tmp_path / "metrics.curl"
    monkeypatch.setattr(probing, "METRICS_QUERY", str(query))
    pauses: list[float] = []
    monkeypatch.setattr(probing.time, "sleep", pauses.append)

    def asked(*answers: tuple[int, str]) -> tuple[dict, int]:
        """The record, and how often the private address was asked."""
        pauses.clear()
        left, count = list(answers), 0

        def do(argv: object, probe: Probe) -> dict:
            nonlocal count
            words = list(argv)  # type: ignore[call-overload]
            if "-K" not in words:
                return record(words, "", exit=7)
            count += 1
            code, text = left.pop(0) if len(left) > 1 else left[0]
            return record(words, text, exit=code)

        return probe_all(["metrics"], do)["metrics"], count

    metrics = 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 30\n'
    assert asked((7, ""), (0, metrics))[1] == 1  # no step installed an exporter
    query.touch()
    found, count = asked((7, ""), (0, ""), (0, metrics))
    assert (found["stdout"], count, pauses) == (metrics, 3, [5, 5])
    found, count = asked((7, ""))
    assert (found["exit"], sum(pauses)) == (7, 60)


def test_second_command_runs_if_the_first_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without journalctl, dmesg is used; if both are missing, the record names the first."""
    script(tmp_path, "dmesg", "echo Linux version 6")
    monkeypatch.setenv("PATH", str(tmp_path))
    # The shebang is absolute, so PATH contains only this folder.
    answer = probe_all(["kernel-log"])["kernel-log"]
    assert (answer["argv"][0], answer["stdout"]) == ("dmesg", "Linux version 6\n")
    (tmp_path / "dmesg").unlink()
    answer = probe_all(["kernel-log"])["kernel-log"]
    assert (answer["argv"][0], answer["problem"]) == ("journalctl", "not found")


def test_every_probe_is_a_plain_command_with_a_limit() -> None:
    """No probe uses a shell, and each has a time and size limit."""
    for name, probe in PROBES.items():
        assert probe.argv[0] not in ("sh", "bash", "env", "sudo"), name
        long = {
            "nccl": 600,
            "nccl-network": 300,
            "nvbandwidth": 600,
            "gpu-copies": 600,
            "gpu-memory": 600,
            "dcgm": 600,
            "dcgm-medium": 1800,
            "dcgm-long": 3600,
            "dcgm-extra-long": 14400,
        }
        assert 0 < probe.timeout_s <= {**long, "heat": 2400, "links": 2400, "pair": 1200}.get(name, 120)
        assert 0 < probe.limit <= 1024 * 1024
    assert len(set(GPU_FIELDS)) == len(GPU_FIELDS)


def test_all_columns_of_checks_are_queried() -> None:
    """A check can judge only columns that its probe queries; a public check once tested nothing."""
    folder = Path(__file__).parents[2] / "gpuinfra" / "node" / "checks"
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    read = set(re.findall(r'(?:row\.get|row\.number|word|needed)\((?:row, )?"([a-z_.]+)"\)', text))
    assert read - {"process_name", "pid"} <= set(GPU_FIELDS)
    assert len(read) > 20


def test_probes_leave_no_processes(tmp_path: Path) -> None:
    """A probe that ends, one that is truncated, one that is killed and one that cannot start leave no child of this process."""
    before = children()
    assert ask(script(tmp_path, "ends", "true"))["exit"] == 0
    assert ask(script(tmp_path, "prints", "head -c 5000 /dev/zero; exec sleep 900"))["truncated"]
    assert ask(script(tmp_path, "hangs", "exec sleep 900"), timeout_s=1)["exit"] == 124
    assert ask("/nonexistent")["exit"] == 127
    until = time.monotonic() + 300
    while children() - before:  # a killed process that did not end within the grace period is collected later
        assert time.monotonic() < until, children() - before
        time.sleep(0.05)


def children() -> set[int]:
    """The processes that this process started, except `ps`."""
    with subprocess.Popen(["ps", "--ppid", str(os.getpid()), "-o", "pid="], stdout=subprocess.PIPE, text=True) as ps:
        return {int(pid) for pid in ps.communicate()[0].split()} - {ps.pid}
