"""What must never give a pass: exceptions inside checks, missing rows, storms that hide a line."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node.advice import advise
from gpuinfra.node.checks import ALL
from gpuinfra.node.checks.speed import is_plugin
from gpuinfra.node.judge import judge, verdict
from gpuinfra.node.nccl import network_of
from gpuinfra.node.outcome import CheckResult
from gpuinfra.node.probe import run
from gpuinfra.node.probes import KERNEL_LINES, MIB, Probe
from gpuinfra.node.xids import ACTIONS_OF_154, TO_DO
from tests.node.healthy import H100, JOURNAL, MIG, P4D, healthy, record
from tests.node.real import NCCL_LOGS
from tests.node.test_checks import MACHINES
from tests.typed import present

ERRORS = (
    KeyError("x"),
    TypeError("x"),
    ValueError("x"),
    IndexError(3),
    ZeroDivisionError(),
    RecursionError(),
    AssertionError(),
    RuntimeError("x"),
    MemoryError(),
    StopIteration(),
    OSError("x"),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "x"),
)


@pytest.mark.parametrize("part", ["parse", "judge"])
@pytest.mark.parametrize("check", sorted(ALL))
def test_an_exception_in_a_check_is_an_error_and_blocks(check: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any exception while a check parses or judges a healthy output ends in `error`, names the exception, and blocks the node."""
    expectation = next(machine for machine in MACHINES if check in machine["required"])
    wanted = {**expectation, "required": [check], "skips": {}}
    probes = healthy(expectation)
    assert judge(probes, wanted, journal=JOURNAL)[0]["outcome"] == "pass"
    for error in ERRORS:

        def broken(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(type(ALL[check]), part, broken)
        found = judge(probes, wanted, journal=JOURNAL)
        assert [one["outcome"] for one in found] == ["error"], error
        assert type(error).__name__ in present(found[0]["reason"])
        assert not verdict(found, wanted).verified


READS_TABLE = sorted(check.id for check in ALL.values() if "nvidia-smi-csv" in check.probes)


@pytest.mark.parametrize("rows", [0, 1, 4, 7])
@pytest.mark.parametrize("check", READS_TABLE)
def test_a_table_with_missing_rows_never_passes(check: str, rows: int) -> None:
    """Each check of the GPU table counts its rows: a correct value on some of the GPUs is no pass."""
    expectation = next(machine for machine in (H100, *MACHINES) if check in machine["required"])
    probes = healthy(expectation)
    lines = probes["nvidia-smi-csv"]["stdout"].splitlines()
    probes["nvidia-smi-csv"]["stdout"] = "\n".join(lines[: 1 + rows]) + "\n"
    found = judge(probes, {**expectation, "required": [check], "skips": {}}, journal=JOURNAL)
    assert found[0]["outcome"] in ("fail", "error")
    assert not rows or f"{rows} of 8" in present(found[0]["reason"])


PER_GPU = {
    "nvidia-smi-list": r"^GPU 3: .*\n", "nvlink-status": r"^GPU 3: .*\n(\s+Link.*\n)*", "nvlink-errors": r"^GPU 3: .*\n(\s+Link.*\n)*",
    "nvidia-smi-xml": r"\t<gpu id=(?:.|\n)*?</gpu>\n", "dcgm": r'"entity_id": 3,\s+"status": "Pass"', "cdi": r"^nvidia.com/gpu=3\n",
    "metrics": r'^DCGM_FI_DEV_GPU_TEMP\{gpu="3".*\n', "topology": r"^GPU3.*\n", "lspci": r"^.*3D controller.*\n",
    "nvbandwidth": r'"(?:25.13|12.30)",\s+', "heat": r'\{"index": 3.*?\}, ',
}  # fmt: skip
"""Probe that lists every GPU -> the part about one of them."""


@pytest.mark.parametrize("probe", PER_GPU)
def test_a_list_without_one_gpu_never_passes(probe: str) -> None:
    """Every check that reads a list of all GPUs notices one that is missing."""
    probes = healthy(H100)
    text, done = re.subn(PER_GPU[probe], "", probes[probe]["stdout"], count=1, flags=re.MULTILINE)
    assert done
    if probe == "dcgm":
        text = re.sub(PER_GPU[probe], '"entity_id": 2, "status": "Pass"', probes[probe]["stdout"], count=1)
    probes[probe]["stdout"] = text
    reading = [name for name in H100["required"] if probe in ALL[name].probes]
    found = judge(probes, {**H100, "required": reading, "skips": {}}, journal=JOURNAL)
    # The driver version in the document is not per GPU, and G1 counts what the driver lists: P1 counts the bus.
    counted_elsewhere = {"nvidia-smi-xml": {"D2"}, "lspci": {"G1"}}
    assert {one["id"] for one in found if one["outcome"] == "pass"} <= counted_elsewhere.get(probe, set())


def _log(folder: Path, text: str) -> dict[str, Any]:
    (folder / "log").write_text(text, encoding="utf-8")
    return run(["cat", str(folder / "log")], Probe(("cat",), limit=MIB, keep=KERNEL_LINES))


START = "2026-11-21T09:00:00+0000 n kernel: Linux version 6.8.0-1040-aws (x)\n"
STORM = "2026-11-21T10:{at:02d}:00+0000 n kernel: NVRM: Xid (PCI:0000:10:1c): 31, pid={pid}, name=python3, Ch 0000000{at:x}, intr 00000000. MMU Fault\n"


def _judged(log: dict[str, Any]) -> dict[str, CheckResult]:
    probes = {**healthy(P4D), "kernel-log": log}
    return {one["id"]: one for one in judge(probes, {**P4D, "required": ["X1", "X2"], "skips": {}}, journal=JOURNAL)}


def test_a_storm_of_application_errors_is_counted_and_passes(tmp_path: Path) -> None:
    """Of 30,000 application Xids some are kept and the rest counted; they neither fail the node nor end in an error."""
    log = _log(tmp_path, START + "".join(STORM.format(at=at % 10, pid=at) for at in range(30_000)))
    assert not log["truncated"]
    assert len(log["stdout"]) < 64 * 1024
    assert sum(log["repeated"].values()) + log["stdout"].count("Xid") == 30_000
    found = _judged(log)
    assert (found["X1"]["outcome"], found["X2"]["outcome"]) == ("warn", "pass")
    assert "more lines" in present(found["X1"]["reason"])


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:10:1c): 79, pid=1, name=python3, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:20:1c): 48, pid=1, name=python3, DBE",
        "nvidia-nvswitch0: SXid (PCI:0000:c0:18.0): 20034, Fatal, Link 12 LTSSM Fault Up",
    ],
)
@pytest.mark.parametrize("where", [0, 15_000, 29_999])
def test_a_storm_hides_no_other_error(tmp_path: Path, line: str, where: int) -> None:
    """One serious line before, inside or after a storm fails the node."""
    lines = [STORM.format(at=at % 10, pid=at) for at in range(30_000)]
    lines.insert(where, f"2026-11-21T10:00:00+0000 n kernel: {line}\n")
    found = _judged(_log(tmp_path, START + "".join(lines)))
    assert "fail" in {found["X1"]["outcome"], found["X2"]["outcome"]}


def test_a_rotated_log_warns_and_still_fails_for_what_it_shows() -> None:
    """A log without the start of the boot is a warning that does not block; an error in the rest of it fails."""
    text = STORM.format(at=1, pid=2)
    found = _judged(record(["journalctl"], text))
    assert (found["X1"]["outcome"], found["X2"]["outcome"]) == ("warn", "warn")
    assert "rotated" in present(found["X1"]["reason"])
    assert verdict(list(found.values()), {"required": ["X1", "X2"]}).verified
    assert advise(found.values()).action == "look"
    text += "2026-11-21T10:00:00+0000 n kernel: NVRM: Xid (PCI:0000:10:1c): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    assert _judged(record(["journalctl"], text))["X1"]["outcome"] == "fail"


@pytest.mark.parametrize("counts", [3, {"x": "many"}, {"x": -1}, {"x": 10**12}])
def test_invalid_counts_of_repeated_lines_are_an_error(counts: object) -> None:
    """The count is part of the untrusted record."""
    found = _judged(record(["journalctl"], START, repeated=counts))
    assert {one["outcome"] for one in found.values()} == {"error"}


@pytest.mark.parametrize("words", ACTIONS_OF_154)
def test_hint_and_action_of_xid_154_agree(words: str) -> None:
    """The action that is advised for Xid 154 is the one in its hint, for every word that drivers print."""
    line = f"2026-11-21T10:00:00+0000 n kernel: NVRM: Xid (PCI:0000:20:1d): 154, GPU recovery action changed from 0x0 (None) to 0x1 ({words})\n"
    check = _judged(record(["journalctl"], START + line))["X1"]
    do = ACTIONS_OF_154[words]
    assert check["outcome"] == ("pass" if do == "nothing" else "fail")
    if do != "nothing":
        assert check["hint"] == TO_DO[do]
        assert advise([check]).action == do


@pytest.mark.parametrize(
    ("levels", "outcome"),
    [
        ({"DEPRECATED": ["Key 'x' is deprecated"]}, "pass"),
        ({"WARNING": ["x"]}, "fail"),
        ({"DEPRECATED": ["x"], "ERROR": ["y"]}, "fail"),
    ],
)
def test_a_deprecation_notice_is_no_fault(levels: dict[str, list[str]], outcome: str) -> None:
    """cloud-init exits with 2 for a notice about a deprecated key, which does not block a node; warnings and errors do."""
    status = {"status": "done", "extended_status": "degraded done", "errors": [], "recoverable_errors": levels}
    probes = {**healthy(P4D), "cloud-init": record(["cloud-init"], json.dumps(status), 2)}
    found = judge(probes, {**P4D, "required": ["S1"], "skips": {}}, journal=JOURNAL)[0]
    assert found["outcome"] == outcome, found["reason"]


@pytest.mark.parametrize("provider", NCCL_LOGS)
def test_the_plugin_in_a_real_log_is_known(provider: str) -> None:
    """The name that NCCL prints with today's plugin of a fabric passes, and no name of another fabric does."""
    (name,) = network_of(NCCL_LOGS[provider])
    assert is_plugin(name, provider)
    assert not is_plugin("Socket", provider)
    assert [other for other in NCCL_LOGS if is_plugin(name, other)] == [provider]
    assert not is_plugin(name + "_x", provider)


def test_a_missing_kernel_record_is_named() -> None:
    """P2 names what is missing if no step recorded the kernel."""
    journal = copy.deepcopy(JOURNAL)
    journal["recorded"].pop("kernel")
    found = judge(healthy(P4D), {**P4D, "required": ["P2"], "skips": {}}, journal=journal)[0]
    assert (found["outcome"], found["reason"]) == ("fail", "no bootstrap step recorded the locked kernel")


def test_mig_is_no_reason_to_count_fewer_rows() -> None:
    """A machine with MIG lists every GPU too."""
    probes = healthy(MIG)
    assert judge(probes, {**MIG, "required": ["G12"], "skips": {}}, journal=JOURNAL)[0]["outcome"] == "pass"
