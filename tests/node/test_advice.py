from __future__ import annotations

import json
from typing import Any

import pytest

from gpuinfra.node.advice import advise
from gpuinfra.node.cause import Action, Cause
from gpuinfra.node.checks import ALL
from gpuinfra.node.judge import judge
from gpuinfra.node.outcome import Severity
from gpuinfra.node.states import STATES
from gpuinfra.node.xids import TO_DO, XIDS
from tests.node.healthy import H100, JOURNAL, P4D, healthy, probes


@pytest.mark.parametrize(
    ("fault", "action"),
    [
        ("gpu-missing", "reboot"), ("gpu-off-bus", "replace"), ("xid-79", "reboot"), ("xid-48", "reset"),
        ("ecc-uncorrected", "reset"), ("remap-pending", "reset"), ("remap-failed", "replace"), ("recovery-reboot", "reboot"),
        ("recovery-reset", "reset"), ("inforom-corrupt", "replace"), ("power-capped", "look"), ("nvlink-inactive", "reboot"),
        ("sxid-fatal", "reboot"), ("gpu-wrong-model", "replace"), ("efa-missing", "reboot"), ("no-devices", "reboot"),
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
    """Each known state has its own cause, which requires an action, and every Xid has an action."""
    assert len({state.cause for state in STATES}) == len(STATES)
    assert all(state.cause.action for state in STATES)
    assert {xid.do for xid in XIDS.values()} <= set(TO_DO)
    assert {xid.severity for xid in XIDS.values()} == {"log", "warn", "drain"}
    for xid in XIDS.values():
        # Severity drain always has an action, and severity log never has one.
        assert (xid.severity == "drain") == (xid.do in (Action.RESET, Action.REBOOT, Action.REPLACE))


def test_every_blocking_failure_drains_the_node() -> None:
    """A failure of severity block or drain never leads to an action that leaves the node in use."""
    for check in ALL.values():
        if check.severity in (Severity.BLOCK, Severity.DRAIN):
            failed: Any = {"id": check.id, "outcome": "fail", "reason": "x", "cause": Cause.DIFFERS}
            assert advise([failed]).drain, check.id


@pytest.mark.parametrize(
    ("severities", "action"),
    [([2], "replace"), ([6], "reset"), ([6, 2], "replace"), ([], "configure"), ([5], "configure"), ([1], "configure")],
)
@pytest.mark.parametrize(("check", "probe"), [("B1", "dcgm"), ("B6", "dcgm-long")])
def test_diagnostics_follow_their_own_severity(check: str, probe: str, severities: list[int], action: str) -> None:
    """DCGM's error severity decides between reset and replace, whatever the text and its length; any failed test drains the node."""
    found = healthy(H100)
    document = json.loads(found[probe]["stdout"])
    category = document["DCGM Diagnostic"]["test_categories"][0]
    for result, severity in zip(category["tests"][0]["results"], [*severities, 1], strict=False):
        result.update(status="Fail", warnings=[{"warning": "x " * 200, "error_id": 1, "error_severity": severity}])
    found[probe]["stdout"] = json.dumps(document)
    advice = advise([one for one in judge(found, H100, journal=JOURNAL) if one["id"] == check])
    assert (advice.action, advice.drain) == (action, True)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("79, pid=1, GPU has fallen off the bus.", Cause.REBOOT_REQUIRED),
        ("48, pid=1, DBE", Cause.RESET_REQUIRED),
        ("54, x", Cause.REPLACEMENT_REQUIRED),
        ("145, RLW_SRC_TRACK Fatal XC0 i0 Link 04", Cause.RESET_REQUIRED),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", Cause.RESET_REQUIRED),
        ("154, GPU recovery action changed from 0x0 (None) to 0x9 (Something New)", Cause.REBOOT_REQUIRED),
    ],
)
def test_xid_has_the_cause_of_its_table(line: str, cause: Cause) -> None:
    """The table of Xids and the text of Xid 154 decide; a fatal error of a link requires a reset."""
    found = probes()
    found["kernel-log"]["stdout"] += f"2026-11-21T10:00:00+0000 gpu-1 kernel: NVRM: Xid (PCI:0000:20:1d): {line}\n"
    checks = [one for one in judge(found, P4D, journal=JOURNAL) if one["id"] == "X1"]
    assert checks[0]["cause"] is cause
    assert advise(checks).action is cause.action


def test_unreadable_output_never_replaces_a_node() -> None:
    """An error leaves the state of the hardware unknown, so the action is the one for the installation, even for a check of hardware."""
    checks = judge({}, P4D, journal=JOURNAL)
    assert {check["cause"] for check in checks if check["outcome"] == "error"} == {Cause.UNREADABLE}
    assert advise([one for one in checks if one["outcome"] == "error"]).action is Action.CONFIGURE
