"""The tables of Xids and SXids agree with NVIDIA's catalogs, number by number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node.cause import Action, Cause
from gpuinfra.node.checks.kernel_log import SwitchErrors, Xids
from gpuinfra.node.judge import judge
from gpuinfra.node.xids import UNKNOWN, XIDS, Bucket, nvlink5, sxid_action, xid_of
from tests.node.healthy import AZURE, JOURNAL, P4D, healthy, machine

CATALOG: dict[str, Any] = json.loads((Path(__file__).parent.parent / "recordings/xids/nvidia-catalog.json").read_text())
QUIET_BUCKETS = ("IGNORE", "RESTART_APP", "WORKFLOW_XID_45", "UPDATE_SWFW", "CHECK_UVM")


def x1(text: str, wanted: dict[str, Any] = P4D) -> Any:
    """Return the result of check X1 for a kernel log with one more Xid line."""
    return _judged(f"NVRM: Xid (PCI:0000:20:1d): {text}", wanted, Xids.id)


def x2(text: str) -> Any:
    """Return the result of check X2 for a kernel log with one more SXid line."""
    return _judged(f"nvidia-nvswitch0: SXid (PCI:0000:c0:18.0): {text}", P4D, SwitchErrors.id)


def _judged(line: str, wanted: dict[str, Any], check: str) -> Any:
    probes = healthy(wanted)
    probes["kernel-log"]["stdout"] += f"2026-11-21T10:00:00+0000 gpu-1 kernel: {line}\n"
    return next(one for one in judge(probes, wanted, journal=JOURNAL) if one["id"] == check)


@pytest.mark.parametrize("bucket", CATALOG["buckets"])
def test_every_number_has_the_bucket_of_nvidias_catalog(bucket: str) -> None:
    """Each number of the catalog has NVIDIA's immediate action, except test messages, which are information."""
    numbers = set(CATALOG["buckets"][bucket]) - {106, 107}
    assert {number for number in numbers if number not in XIDS} == set()
    assert {number: XIDS[number].bucket.value for number in numbers} == dict.fromkeys(numbers, bucket)


@pytest.mark.parametrize(
    "number",
    [one for name in QUIET_BUCKETS for one in CATALOG["buckets"][name] if one not in (106, 107)] + [173, 400, 999],
)
def test_harmless_and_unknown_numbers_warn(number: int) -> None:
    """Errors of applications, ignored errors and unknown numbers neither drain a node nor pass in silence."""
    check = x1(f"{number}, pid=1, name=python3, text", AZURE)
    assert (check["outcome"], check["found"]) == ("warn", [number])


@pytest.mark.parametrize("row", CATALOG["nvlink5"], ids=lambda row: f"{row[0]}-{row[1]}-{row[2][6:12]}-{row[3]}")
def test_nvlink5_line_has_the_action_of_nvidias_sheet(row: list[Any]) -> None:
    """For each row of the sheet, the line that the driver prints drains exactly if the sheet's actions contain a reset, with that action."""
    number, unit, bits, status, severity, action, second = row
    word = "Nonfatal" if severity.startswith("Non-fatal") else "Fatal"
    first = int(bits.replace("-", "0"), 2)
    check = x1(
        f"{number}, {unit.split('/')[-1]} {word} XC0 i0 Link 04 (0x{first:08x} 0x{status:08x} 0x00000000 0x00000000)"
    )
    if "RESET_GPU" in (action, second):
        assert (check["outcome"], check["cause"].action) == ("fail", Action.RESET)
    else:
        assert check["outcome"] == "warn"


@pytest.mark.parametrize(
    "text",
    ["149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0", "145, RLW_SRC_TRACK Fatal XC0", "150, x  Fatal"],
)
def test_fatal_nvlink5_error_without_details_requires_a_reset(text: str) -> None:
    """A truncated line that says Fatal drains."""
    assert nvlink5(text) is Bucket.RESET_GPU
    assert nvlink5(text.replace("Fatal", "Odd")) is Bucket.WORKFLOW_NVLINK5


@pytest.mark.parametrize("number", [63, 64])
def test_aws_replaces_instances_that_remap_rows(number: int) -> None:
    """Xids 63 and 64 require a replacement on AWS, as its profile states; the other clouds follow NVIDIA."""
    aws = machine("aws", "p4d.24xlarge")
    found, azure = (x1(f"{number}, pid=1, name=x, Row Remapper", one) for one in (aws, AZURE))
    assert (found["outcome"], found["cause"].action) == ("fail", Action.REPLACE)
    assert azure["outcome"] == ("warn" if number == 63 else "fail")
    assert azure["cause"] in (None, Cause.DIFFERS, Cause.RESET_REQUIRED)
    assert xid_of(999) is UNKNOWN


@pytest.mark.parametrize(
    ("section", "fatal", "action"),
    [
        ("corrected or harmless", False, None),
        ("non-fatal, restart", False, Action.REBOOT),
        ("fatal, restart the guest", True, Action.REBOOT),
        ("always fatal, restart the host", True, Action.REPLACE),
    ],
)
def test_switch_error_has_the_action_of_nvidias_guide(section: str, fatal: bool, action: Action | None) -> None:
    """A switch error drains with the recovery of its section: a restart of the guest is a reboot, a restart of the host a replacement."""
    for number in CATALOG["sxids"][section]:
        assert sxid_action(number, is_fatal=fatal).drains == bool(action)
        check = x2(f"{number}, {'Fatal' if fatal else 'Non-fatal'}, Link 12 error")
        assert check["outcome"] == ("fail" if action else "pass" if number == 22013 else "warn"), number
        assert action is None or check["cause"].action is action
