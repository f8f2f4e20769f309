from __future__ import annotations

import pytest

from gpuinfra.node.advice import ACTIONS, BY_CHECK, advise
from gpuinfra.node.checks import ALL
from gpuinfra.node.judge import judge
from gpuinfra.node.outcome import Severity
from gpuinfra.node.states import STATES
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
def test_fault_requires_its_action(fault: str, action: str) -> None:
    """The action follows NVIDIA's Xid and recovery tables, with the reason."""
    advice = advise(judge(probes(fault), P4D, journal=JOURNAL))
    assert advice.action == action
    assert advice.why
    assert advice.drain == (action != "look")


def test_healthy_node_requires_no_action() -> None:
    """Without a failed check there is no action and no drain."""
    advice = advise(judge(probes(), P4D, journal=JOURNAL))
    assert (advice.action, advice.why, advice.drain) == ("nothing", (), False)


def test_missing_step_requires_configure() -> None:
    """Hardware is not replaced because a step did not run."""
    assert advise(judge(probes(), P4D, journal={"steps": []})).action == "configure"


def test_tables_contain_only_known_actions() -> None:
    """Actions are in the ordered list, checks exist, and every Xid has an action."""
    assert set(BY_CHECK.values()) <= set(ACTIONS)
    assert set(BY_CHECK) <= set(ALL)
    assert {state.do for state in STATES} <= set(ACTIONS)
    assert {xid.do for xid in XIDS.values()} <= set(TO_DO)
    assert {xid.severity for xid in XIDS.values()} == {"log", "warn", "drain"}
    for xid in XIDS.values():
        # Severity drain always has an action, and severity log never has one.
        assert (xid.severity == "drain") == (xid.do in ("reset", "reboot", "replace"))


def test_every_blocking_failure_drains_the_node() -> None:
    """A failure of severity block or drain never leads to an action that leaves the node in use."""
    for check in ALL.values():
        if check.severity in (Severity.BLOCK, Severity.DRAIN):
            failed = {"id": check.id, "outcome": "fail", "found": None, "reason": "x"}
            assert advise([failed]).drain, check.id


@pytest.mark.parametrize(
    ("reason", "action"),
    [
        ("memory on GPU 3: Fail, Detected 4 errors (isolate the GPU)", "replace"),
        ("software on GPU 3: Fail, A row remapping is pending (reset the GPU)", "reset"),
        ("pcie on GPU 1: Fail, x (reset the GPU); memory on GPU 3: Fail, y (isolate the GPU)", "replace"),
        ("software: Fail", "configure"),
        ("software: Fail, x (fix the configuration)", "configure"),
        ("software: Fail, x (watch it)", "configure"),
    ],
)
def test_diagnostics_follow_their_own_severity(reason: str, action: str) -> None:
    """DCGM's error severity decides between reset and replace; any failed test drains the node."""
    for name in ("B1", "B6"):
        assert advise([{"id": name, "outcome": "fail", "found": 1, "reason": reason}]).action == action
