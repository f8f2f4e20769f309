"""Checks on outputs of real machines. `real.py` has the table."""

from __future__ import annotations

import pytest

from gpuinfra.node import nvsmi
from gpuinfra.node.mig import instances
from tests.node.healthy import RECORDINGS
from tests.node.real import (
    CASES,
    DOCUMENTS,
    EVIDENCE,
    MEASURED,
    document_outcomes,
    measured,
    outcomes,
    outputs,
    reading,
)


def test_every_output_is_in_the_table() -> None:
    """Each file has a case, and each case a file."""
    assert {one.name for one in outputs()} == set(CASES)


@pytest.mark.parametrize("one", outputs(), ids=lambda one: one.name)
def test_every_check_of_the_command_reads_the_output(one) -> None:
    """Each check that reads the command gives the outcome of the table, and an output of a healthy machine never fails."""
    case = CASES[one.name]
    found = outcomes(one, case)
    assert set(case.verdicts) == reading(one)
    for check, word in case.verdicts.items():
        outcome = found[check]["outcome"]
        assert outcome == word or (word == "read" and outcome != "error"), (check, outcome, found[check]["reason"])
        assert not (one.state == "healthy" and word in ("fail", "error", "warn")), check
    assert one.state != "faulty" or set(case.verdicts.values()) - {"pass", "skip"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_check_reads_the_document_of_a_healthy_machine(name: str) -> None:
    """All checks of the GPUs pass on the values of a real document, except those that the table lists."""
    found = document_outcomes(name)
    assert len(found) >= 15
    wrong = {check: one["reason"] for check, one in found.items() if one["outcome"] not in ("pass", "skip")}
    assert set(wrong) == set(DOCUMENTS[name].verdicts), wrong
    assert {check: found[check]["outcome"] for check in wrong} == dict(DOCUMENTS[name].verdicts)


def test_the_list_of_a_real_machine_with_mig_is_read() -> None:
    """One GPU of eight is cut into six instances."""
    text = next(one.text for one in outputs() if one.name == "h200-mig-list-1")
    found = instances(text)
    assert [profile for profile, _ in found[0]] == ["2g.35gb", *["1g.18gb"] * 5]
    assert [len(found[gpu]) for gpu in sorted(found)] == [6, 0, 0, 0, 0, 0, 0, 0]


def test_blackwell_documents_show_a_denied_feature() -> None:
    """Every real Blackwell document holds `Insufficient Permissions`, so the documents prove that G13 accepts it."""
    for name in ("b200-8", "gb200-4", "gb300-4"):
        log = nvsmi.parse((RECORDINGS / f"{name}.xml").read_text(encoding="utf-8"))
        assert {gpu.get("power_smoothing") for gpu in log.gpus} == {"Insufficient Permissions"}


@pytest.mark.parametrize("name", MEASURED)
def test_every_check_judges_the_evidence_of_a_real_machine(name: str) -> None:
    """Each check gives the outcome of the table for evidence that the node program recorded on a machine with one H100 or H200."""
    found = measured(name)
    assert {check: one["outcome"] for check, one in found.items()} == MEASURED[name], found


def test_all_recorded_evidence_is_in_the_table() -> None:
    """Each file has a row, and each row a file."""
    assert {path.stem for path in EVIDENCE.glob("*.json")} == set(MEASURED)


def test_sockets_are_found_in_the_log_of_a_real_run() -> None:
    """NCCL 2.28.9 on a machine without a fabric names its socket network, and B4 reports the lines that explain it."""
    reason = measured("h100-idle")["B4"]["reason"]
    assert reason
    assert reason.startswith("NCCL uses Socket; NET/Plugin: Could not find: libnccl-net.so; NET/IB : No device found.")
