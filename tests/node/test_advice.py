from __future__ import annotations

import pytest

from gpuinfra.node.advice import ACTIONS, BY_CHECK, advise
from gpuinfra.node.checks import ALL
from gpuinfra.node.judge import judge
from gpuinfra.node.states import STATES
from gpuinfra.node.words import Severity
from gpuinfra.node.xids import TO_DO, XIDS
from tests.node.healthy import JOURNAL, P4D, probes


@pytest.mark.parametrize(
    ("fault", "action"),
    [
        ("gpu-missing", "reboot"), ("gpu-off-bus", "replace"), ("xid-79", "reboot"), ("xid-48", "reset"),
        ("ecc-uncorrected", "reset"), ("remap-pending", "reset"), ("remap-failed", "replace"), ("recovery-reboot", "reboot"),
        ("recovery-reset", "reset"), ("inforom-corrupt", "replace"), ("power-capped", "look"), ("nvlink-inactive", "reboot"),
        ("sxid-fatal", "replace"), ("gpu-wrong-model", "replace"), ("efa-missing", "reboot"), ("no-devices", "reboot"),
        ("thermal", "reboot"), ("ecc-sram", "replace"),
    ],
)  # fmt: skip
def test_a_fault_calls_for_its_action(fault: str, action: str) -> None:
    """What to do follows NVIDIA's Xid and recovery tables, in one word, with the reason."""
    advice = advise(judge(probes(fault), P4D, journal=JOURNAL))
    assert advice.action == action
    assert advice.why
    assert advice.drain == (action != "look")


def test_a_healthy_node_needs_nothing() -> None:
    """No failed check, no action, no drain."""
    advice = advise(judge(probes(), P4D, journal=JOURNAL))
    assert (advice.action, advice.why, advice.drain) == ("nothing", (), False)


def test_a_missing_step_is_a_matter_of_installation() -> None:
    """Hardware is not replaced because a step did not run."""
    assert advise(judge(probes(), P4D, journal={"steps": []})).action == "configure"


def test_tables_name_only_known_words() -> None:
    """Actions are words of the ordered list, checks exist, and every Xid says what to do."""
    assert set(BY_CHECK.values()) <= set(ACTIONS)
    assert set(BY_CHECK) <= set(ALL)
    assert {state.do for state in STATES} <= set(ACTIONS)
    assert {xid.do for xid in XIDS.values()} <= set(TO_DO)
    assert {xid.severity for xid in XIDS.values()} == {"log", "warn", "drain"}
    for xid in XIDS.values():
        # What calls for a drain is never nothing to do, and what is only logged never asks for one.
        assert (xid.severity == "drain") == (xid.do in ("reset", "reboot", "replace"))


def test_whatever_holds_a_node_back_calls_for_a_drain() -> None:
    """No check of severity block or drain can fail while the advice says that work may go on."""
    for check in ALL.values():
        if check.severity in (Severity.BLOCK, Severity.DRAIN):
            failed = {"id": check.id, "outcome": "fail", "found": None, "reason": "x"}
            assert advise([failed]).drain, check.id


@pytest.mark.parametrize(
    ("told", "action"),
    [
        ("memory on GPU 3: Fail, Detected 4 errors (isolate the GPU)", "replace"),
        ("software on GPU 3: Fail, A row remapping is pending (reset the GPU)", "reset"),
        ("pcie on GPU 1: Fail, x (reset the GPU); memory on GPU 3: Fail, y (isolate the GPU)", "replace"),
        ("software: Fail", "configure"),
        ("software: Fail, x (fix the configuration)", "configure"),
        ("software: Fail, x (watch it)", "configure"),
    ],
)
def test_diagnostics_are_followed_by_their_own_severity(told: str, action: str) -> None:
    """DCGM says with each error whether to reset or isolate; a failed test drains in any case."""
    for name in ("B1", "B6"):
        assert advise([{"id": name, "outcome": "fail", "found": 1, "reason": told}]).action == action
