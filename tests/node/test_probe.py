from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from pathlib import Path

import pytest

from gpuinfra.node.probe import probe_all, run
from gpuinfra.node.probes import GPU_FIELDS, PROBES, Probe
from tests.node.healthy import record


def script(folder: Path, name: str, body: str) -> str:
    """An executable for one test."""
    path = folder / name
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def ask(path: str, *args: str, timeout_s: int = 20, limit: int = 4096, keep: str | None = None) -> dict:
    """Run it as a probe."""
    return run((path, *args), Probe((path, *args), timeout_s=timeout_s, limit=limit, keep=keep))


def test_a_record_holds_what_evidence_needs(tmp_path: Path) -> None:
    """Exit code, both streams, time and whether it was cut; and nothing is taken from a shell."""
    answer = ask(script(tmp_path, "tool", 'echo "$1"; echo err >&2; exit 3'), "$(id); a b")
    assert (answer["exit"], answer["stdout"], answer["stderr"]) == (3, "$(id); a b\n", "err\n")
    assert (answer["truncated"], answer["problem"]) == (False, None)
    assert answer["seconds"] >= 0


def test_a_missing_command_is_a_record_too() -> None:
    """What is not installed is told as such, with the shell's usual code."""
    answer = ask("/nonexistent/nvidia-smi")
    assert (answer["exit"], answer["problem"]) == (127, "not found")


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    """A tool that hangs costs its time limit and leaves no process behind."""
    marker = tmp_path / "pid"
    started = time.monotonic()
    answer = ask(script(tmp_path, "tool", f"sleep 300 & echo $! > {marker}; echo early; wait"), timeout_s=1)
    assert time.monotonic() - started < 10
    assert (answer["exit"], answer["problem"], answer["stdout"]) == (124, "timed out after 1 s", "early\n")
    child = int(marker.read_text())
    for _ in range(50):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the child still runs")


def test_a_child_that_keeps_the_pipe_open_does_not_hold_the_probe(tmp_path: Path) -> None:
    """A daemon started by a tool inherits its output; the probe ends at its limit."""
    answer = ask(script(tmp_path, "tool", "setsid sleep 4 & echo done"), timeout_s=1)
    assert answer["stdout"] == "done\n"
    assert answer["problem"] == "timed out after 1 s"


def test_output_is_cut_at_its_limit(tmp_path: Path) -> None:
    """More than the limit is cut and marked, from both streams together."""
    answer = ask(
        script(
            tmp_path, "tool", "head -c 3000 /dev/zero | tr '\\0' a; head -c 3000 /dev/zero | tr '\\0' b >&2; sleep 60"
        )
    )
    assert len(answer["stdout"]) + len(answer["stderr"]) == 4096
    assert answer["truncated"]
    assert answer["seconds"] < 15


def test_bytes_that_are_no_text_are_spelled_out(tmp_path: Path) -> None:
    """Invalid UTF-8, escapes and controls are visible in the record and act nowhere."""
    answer = ask(script(tmp_path, "tool", r"printf '\xff\x1b[31mred\x00\n'"))
    assert answer["stdout"] == "\\xff\\x1b[31mred\\x00\n"


def test_only_lines_that_matter_are_kept_of_a_kernel_log(tmp_path: Path) -> None:
    """The first lines and those that match are kept, however long the log is."""
    body = 'echo "Linux version 6"; for i in $(seq 1 5000); do echo "noise $i"; done; echo "NVRM: Xid (PCI:0000:20:1d): 79, x"; echo -n "NVRM: last"'
    answer = ask(script(tmp_path, "tool", body), keep="NVRM")
    lines = answer["stdout"].splitlines()
    assert lines[0] == "Linux version 6"
    assert lines[-2:] == ["NVRM: Xid (PCI:0000:20:1d): 79, x", "NVRM: last"]
    assert len(lines) == 22
    assert (answer["truncated"], answer["kept"]) == (False, "NVRM")


def test_tools_speak_english_and_see_no_terminal(tmp_path: Path) -> None:
    """Parsers read one language, and colour codes stay away."""
    answer = ask(script(tmp_path, "tool", 'echo "$LC_ALL $TERM"; test -t 0 || echo no terminal'))
    assert answer["stdout"] == "C dumb\nno terminal\n"


def test_only_columns_that_the_driver_knows_are_asked_for() -> None:
    """One unknown column makes nvidia-smi answer none, so the driver is asked first; older names are used where needed."""
    asked: list[tuple[str, ...]] = []

    def do(argv: object, probe: Probe) -> dict:
        words = tuple(argv)  # type: ignore[arg-type]
        asked.append(words)
        return record(words, '"index"\n"uuid" or "gpu_uuid"\n"clocks_throttle_reasons.active"\n')

    probe_all(["nvidia-smi-csv"], do)
    assert asked[0] == ("nvidia-smi", "--help-query-gpu")
    assert asked[1][1] == "--query-gpu=index,uuid,clocks_throttle_reasons.active"


def test_efa_devices_that_appear_late_are_asked_for_again() -> None:
    """Large instances show their devices one after the other; three more attempts are made."""
    counts = iter((1, 2, 4))

    def do(argv: object, probe: Probe) -> dict:
        return record(list(argv), "".join(f"domain: d{n}\ndomain: d{n}\n" for n in range(next(counts))))  # type: ignore[call-overload]

    assert probe_all(["efa"], do, retry_wait_s=0, efa_devices=4)["efa"]["stdout"].count("domain: d3") == 2


def test_a_second_command_is_asked_where_the_first_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a journal the kernel's ring buffer answers; where both are missing, the first one's absence is told."""
    script(tmp_path, "dmesg", "echo Linux version 6")
    monkeypatch.setenv("PATH", str(tmp_path))
    # The shebang is absolute, so an empty PATH finds only this folder.
    answer = probe_all(["kernel-log"])["kernel-log"]
    assert (answer["argv"][0], answer["stdout"]) == ("dmesg", "Linux version 6\n")
    (tmp_path / "dmesg").unlink()
    answer = probe_all(["kernel-log"])["kernel-log"]
    assert (answer["argv"][0], answer["problem"]) == ("journalctl", "not found")


def test_every_probe_is_a_plain_command_with_a_limit() -> None:
    """No probe goes through a shell, and each has a limit for time and size."""
    for name, probe in PROBES.items():
        assert probe.argv[0] not in ("sh", "bash", "env", "sudo"), name
        long = {
            "nccl": 600,
            "nvbandwidth": 600,
            "dcgm": 600,
            "dcgm-medium": 1800,
            "dcgm-long": 3600,
            "dcgm-extra-long": 14400,
        }
        assert 0 < probe.timeout_s <= {**long, "heat": 2400, "links": 2400, "pair": 1200}.get(name, 120)
        assert 0 < probe.limit <= 1024 * 1024
    assert len(set(GPU_FIELDS)) == len(GPU_FIELDS)


def test_all_columns_that_checks_read_are_asked_for() -> None:
    """A check can only judge a column that its probe asks for: that is how a public check came to test nothing."""
    folder = Path(__file__).parents[2] / "gpuinfra" / "node" / "checks"
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    read = set(re.findall(r'(?:row\.get|row\.number|word|needed)\((?:row, )?"([a-z_.]+)"\)', text))
    assert read - {"process_name", "pid"} <= set(GPU_FIELDS)
    assert len(read) > 20


def test_no_probe_process_is_left_behind() -> None:
    """After all these probes this process has no children."""
    children = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "comm="], capture_output=True, text=True, check=False
    )
    assert [line for line in children.stdout.split() if line not in ("ps",)] == []
