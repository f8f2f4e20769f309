"""The text about a node that fails the handover."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuinfra.handover.causes import CapacityCause, NodeCause, WaitEnd
from gpuinfra.handover.connect import handover_of, terms_of
from gpuinfra.handover.explain import MOST_FINDINGS, hint, node_reason, reasons
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict, describe, judge_fleet, short_reason
from gpuinfra.handover.ports import GroupProblem, Member
from gpuinfra.handover.refusals import HINTS
from gpuinfra.handover.watch import WaitOutcome, stale_text
from gpuinfra.node.cause import Action, Cause
from gpuinfra.node.judge import causes_of

from .fleet import pool


def _check(number: int, reason: str, cause: Cause = Cause.DIFFERS) -> dict[str, Any]:
    return {
        "id": f"Z{number}",
        "name": f"check_{number}",
        "outcome": "fail",
        "found": "7",
        "reason": reason,
        "hint": "",
        "cause": cause,
    }


def test_findings_that_are_not_shown_state_how_many_checks_they_contain() -> None:
    """Checks with the same reason are one finding, so the line about the other findings also counts their checks,
    and the sum is the number of failed checks."""
    shown = [_check(number, f"reason {number}") for number in range(MOST_FINDINGS)]
    hidden = [_check(number, "no output" if number % 2 else "no answer") for number in range(10, 20)]
    node = NodeVerdict(
        label="gpu-1", cloud="aws", pool="gpu", group="gpu-spot-0", instance_id="i-1", outcome="failed", cause=NodeCause.CHECKS_FAILED,
        reason="", settled=True,
        blocking=(*shown, *hidden),
    )  # fmt: skip
    lines = node_reason(node).splitlines()
    assert lines[0] == f"gpu-1 (i-1): failed {MOST_FINDINGS + 10} checks"
    assert "  and 2 more findings from 10 checks; see the report" in lines


def test_consequences_of_a_missing_gpu_are_one_line() -> None:
    """A node with a missing GPU failed one check. The checks that depend on the GPU are named, but are no findings of their own."""
    missing = {**_check(0, "the driver lists 7 of 8 GPUs"), "id": "G1", "name": "gpu_count"}
    others = [
        {**_check(number, f"7 of 8 GPUs report {number}"), "id": name} for number, name in enumerate(("F3", "B1"))
    ]
    node = NodeVerdict(
        label="gpu-1", cloud="aws", pool="gpu", group="gpu-spot-0", instance_id="i-1", outcome="failed", cause=NodeCause.CHECKS_FAILED,
        reason="", settled=True, blocking=(missing, *others),
    )  # fmt: skip
    text = node_reason(node)
    assert text.startswith("gpu-1 (i-1): failed 1 check\n  G1 gpu_count: found 7")
    assert "  2 other checks did not pass, which can be a consequence: F3, B1" in text
    assert "GPUs report" not in text


def test_a_driver_that_misses_the_same_gpu_is_a_consequence() -> None:
    """D2, which sees fewer GPUs too, is no failure of its own beside G1; alone it is one."""
    missing = {**_check(0, "the driver lists 7 of 8 GPUs"), "id": "G1", "name": "gpu_count"}
    driver = {**_check(1, "7 of 8 GPUs respond", Cause.FEWER_GPUS), "id": "D2", "name": "driver_version"}
    assert [check["id"] for check in causes_of([missing, driver])] == ["G1"]
    assert [check["id"] for check in causes_of([driver])] == ["D2"]


def test_the_reason_of_a_node_is_short() -> None:
    """The reason, which `gpuinfra nodes` and the state contain, describes the causes and counts the other checks."""
    missing = {**_check(0, "the driver lists 7 of 8 GPUs"), "id": "G1", "name": "gpu_count"}
    others = [_check(number, f"reason {number}") for number in range(1, 26)]
    assert short_reason([missing, *others]) == "G1 gpu_count: found 7, expected None; 25 other checks did not pass"
    assert short_reason(others).endswith("; 22 other checks did not pass")
    assert short_reason(others[:1]) == describe(others[0])


TERMS = {
    "aws": (
        "Auto Scaling group",
        "launch template",
        "instance refresh",
        "scaling activities",
        "terminate the instance",
    ),
    "azure": ("scale set", "rolling upgrade", "az vmss", "activity log", "redeploy"),
    "gcp": ("managed instance group", "instance template", "gcloud", "rolling replacement", "recreate the instance"),
}
"""Words that only apply to one cloud."""
WAYS = ("terminate the instance", "redeploy", "recreate the instance")


def _foreign(text: str, cloud: str) -> list[str]:
    return [word for other, words in TERMS.items() if other != cloud for word in words if word.lower() in text.lower()]


def _node(cloud: str, cause: NodeCause, **more: Any) -> NodeVerdict:
    return NodeVerdict(
        label="gpu-1", cloud=cloud, pool="gpu", group="gpu-spot-0", instance_id="i-1", outcome="refused", cause=cause,
        reason="launch template, has no result of the fabric test yet", settled=True, **more,
    )  # fmt: skip


@pytest.mark.parametrize("cause", NodeCause)
@pytest.mark.parametrize("cloud", TERMS)
def test_advice_for_a_node_names_only_things_of_its_cloud(cloud: str, cause: NodeCause) -> None:
    """For each cloud and cause there is advice, which does not depend on the words of the reason and names no thing of another cloud."""
    for console in ((), ("step 30-driver",)):
        text = hint(_node(cloud, cause), console)
        assert text
        assert _foreign(text, cloud) == []
    if cause in (NodeCause.UNREADABLE, NodeCause.OTHER_BUNDLE, NodeCause.IDENTITY, NodeCause.NO_EVIDENCE):
        assert [way in text for way in WAYS] == [way in TERMS[cloud] for way in WAYS]


@pytest.mark.parametrize("action", [Action.CONFIGURE, Action.REBOOT, Action.REPLACE])
@pytest.mark.parametrize("cloud", TERMS)
def test_a_failed_check_states_how_its_cloud_replaces_a_node(cloud: str, action: Action) -> None:
    """If the cause of a failed check requires a reboot or a replacement, the text ends with the way of the cloud to replace the node."""
    cause = next(cause for cause in Cause if cause.action is action)
    failed = _node(cloud, NodeCause.CHECKS_FAILED, blocking=(_check(1, "no answer", cause),))
    text = node_reason(replace(failed, outcome="failed"))
    ways = [way in text for way in WAYS]
    assert ways == ([False] * len(WAYS) if action is Action.CONFIGURE else [way in TERMS[cloud] for way in WAYS])


@pytest.mark.parametrize(
    ("cloud", "words"),
    [
        ("aws", "start an instance refresh for the Auto Scaling group"),
        ("azure", "rolling upgrade of the scale set"),
        ("gcp", "rolling replacement in the managed instance group"),
    ],
)
def test_an_outdated_node_is_replaced_with_the_means_of_its_cloud(cloud: str, words: str) -> None:
    """The verdict, the advice and the progress about an outdated node use the names of its cloud."""
    expected = pool(1, cloud=cloud)
    member = Member(instance_id="i-1", group="asg-1", template_version="2")
    verdict = judge_fleet([expected], [member], {}, now=datetime.now(UTC))
    (node,) = verdict.nodes
    assert node.cause is NodeCause.OUTDATED
    assert words in hint(node)
    outcome = WaitOutcome(verdict=verdict, ready=False, ended=WaitEnd.STALE, seconds=1.0)
    for text in (hint(node), node.reason, stale_text(verdict), *reasons(outcome, cloud)):
        assert _foreign(text, cloud) == []


@pytest.mark.parametrize("cause", CapacityCause)
@pytest.mark.parametrize("cloud", TERMS)
def test_advice_for_a_group_names_only_things_of_its_cloud(cloud: str, cause: CapacityCause) -> None:
    """For each cloud and cause, the explanation of missing nodes names no thing of another cloud, with and without a message of the cloud."""
    verdict = FleetVerdict(nodes=(), missing={"gpu-0": 1})
    problem = GroupProblem(group="g", name="gpu-0", cause=cause, message="no")
    for problems in ((problem,), ()):
        outcome = WaitOutcome(verdict=verdict, ready=False, ended=WaitEnd.STOCK_OUT, seconds=1.0, problems=problems)
        texts = reasons(outcome, cloud)
        assert [one for text in texts for one in _foreign(text, cloud)] == []
    assert terms_of(cloud).activities in texts[1]


@pytest.mark.parametrize("cloud", TERMS)
def test_the_hints_for_messages_of_a_cloud_name_only_its_things(cloud: str) -> None:
    """A hint of a row in the table of a cloud names no thing of another cloud."""
    rows = handover_of(cloud).REFUSALS.rows
    assert [word for row in rows for word in _foreign(row.hint or HINTS[row.cause], cloud)] == []
