"""Differences between the nodes of a pool are warnings of the handover, of `verify` and of `nodes`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from gpuinfra.handover.explain import reasons
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.uniform import COMPARED, compared, difference_notes
from gpuinfra.handover.watch import Wait, watch
from gpuinfra.node.advice import advise
from gpuinfra.node.cause import Action, Cause
from gpuinfra.node.checks import ALL
from gpuinfra.verification.judged import judge_all
from gpuinfra.verification.nodes import rows
from gpuinfra.verification.read import FoundEvidence
from gpuinfra.verification.store import Poll
from tests.handover.fleet import INSIDE, Fleet, judge, pool
from tests.node.healthy import P4D
from tests.verification.test_drift import evidence

OLD, NEW = (
    ["vbios_version 96.00.61", "gsp_firmware_version 580"],
    ["vbios_version 96.00.74", "gsp_firmware_version 580"],
)


def checks(found: Any, outcome: str = "pass", id: str = "G17") -> tuple[Any, ...]:
    """The results of a node with these versions."""
    return (
        {"id": id, "name": ALL[id].name, "found": found, "outcome": outcome, "cause": None},
        {"id": "G1", "name": "gpu_count", "found": 8, "outcome": "pass", "cause": None},
    )


def outcomes(*nodes: tuple[str, str, tuple[Any, ...]]) -> list[str]:
    """The outcome of the compared check of each node."""
    return [one[0]["outcome"] for one in compared(nodes)]


def test_equal_nodes_have_no_warning() -> None:
    """Nodes with the same firmware, pools with different firmware, and nodes without a result are unchanged."""
    nodes = [("gpu-1", "gpu", checks(OLD)), ("gpu-2", "gpu", checks(OLD)), ("big-1", "big", checks(NEW))]
    nodes += [("gpu-3", "gpu", checks(None, "error"))]
    assert compared(nodes) == [own for _, _, own in nodes]


@pytest.mark.parametrize(
    ("id", "usual", "other"),
    [
        ("G17", OLD, NEW),
        ("N12", ["28.42.1000"], ["28.43.1000"]),
        ("D2", "580.126.20", "580.95.05"),
        ("P2", "6.8.0-1021-aws", "6.8.0-1024-aws"),
    ],
)
def test_the_node_that_differs_has_a_warning(id: str, usual: Any, other: Any) -> None:
    """GPU firmware, NIC firmware, driver and kernel that differ from most nodes of the pool are a warning, which does not drain the node."""
    nodes = [("gpu-1", "gpu", checks(usual, id=id)), ("gpu-2", "gpu", checks(other, id=id))]
    nodes += [("gpu-3", "gpu", checks(usual, id=id))]
    first, differs, third = compared(nodes)
    assert (first, third) == (nodes[0][2], nodes[2][2])
    assert (differs[0]["outcome"], differs[0]["cause"]) == ("warn", Cause.POOL_DIFFERS)
    assert differs[0]["expected"] == usual
    assert "2 nodes of the pool" in str(differs[0]["reason"])
    assert differs[1] == nodes[1][2][1]
    assert advise(differs).action is Action.LOOK
    assert set(COMPARED) == {"G17", "N12", "D2", "P2"}


def test_the_order_of_the_nodes_does_not_matter() -> None:
    """Of two nodes, the same one has the warning in each order."""
    one, two = ("gpu-1", "gpu", checks(OLD)), ("gpu-2", "gpu", checks(NEW))
    assert outcomes(one, two) == outcomes(two, one)[::-1]
    assert sorted(outcomes(one, two)) == ["pass", "warn"]


def test_a_result_of_the_node_itself_is_kept() -> None:
    """A node whose own adapters differ keeps its own warning."""
    nodes = [
        ("gpu-1", "gpu", checks(OLD)),
        ("gpu-2", "gpu", checks([*OLD, *NEW], "warn")),
        ("gpu-3", "gpu", checks(OLD)),
    ]
    assert compared(nodes)[1] == nodes[1][2]


def test_many_nodes_are_counted() -> None:
    """A note names at most eight nodes."""
    nodes = [(f"a-{n}", "gpu", checks(OLD)) for n in range(20)] + [(f"b-{n}", "gpu", checks(NEW)) for n in range(10)]
    (note,) = difference_notes(
        [(label, pool, own) for (label, pool, _), own in zip(nodes, compared(nodes), strict=True)]
    )
    assert note.startswith("gpu: gpu_firmware: most nodes have vbios_version 96.00.61")
    assert "b-7 (vbios_version 96.00.74" in note
    assert "b-8" not in note
    assert " and 2 more" in note


def judge_with_firmware(
    probes: Mapping[str, object], expectation: Mapping[str, object], journal: Mapping[str, object] | None
) -> list[Any]:
    """The check of the fleet, and the firmware in the raw output."""
    own = {**judge(probes, expectation, journal)[0], "id": "G17", "name": "gpu_firmware", "severity": "warn"}
    found = [probes.get("firmware")]
    return [*judge(probes, expectation, journal), {**own, "outcome": "pass", "found": found, "cause": None}]


def mixed() -> tuple[Fleet, Gatherer]:
    """Three nodes, of which the last one has other firmware."""
    fleet = Fleet()
    for number, firmware in ((1, "96.61"), (2, "96.61"), (3, "96.74")):
        fleet.launch(number)
        fleet.report(number, document={"probes": {"gpus": 8, "firmware": firmware}})
    return fleet, Gatherer(fleet.ports, [pool(3)], judge_node=judge_with_firmware, workers=INSIDE)


def test_the_handover_warns_and_hands_over() -> None:
    """All nodes are verified, the progress names the node that differs, and the report and a failed handover contain the warning."""
    _, gatherer = mixed()
    lines: list[str] = []
    outcome = watch(gatherer, Wait(), log=lines.append, cancelled=threading.Event())
    assert [one.outcome for one in outcome.verdict.nodes] == ["verified"] * 3
    assert [line for line in lines if "gpu-3 (96.74)" in line]
    (found,) = [one for one in outcome.verdict.nodes[2].checks if one["outcome"] == "warn"]
    assert (found["id"], found["cause"]) == ("G17", "pool-differs")
    assert any("gpu-3 (96.74)" in text for text in reasons(outcome, "aws"))


def test_nodes_lists_the_difference() -> None:
    """In `gpuinfra nodes`, the node is verified, with the difference as the reason."""
    fleet, gatherer = mixed()
    seen = Poll(pools=[pool(3)], gatherer=gatherer, verdict=gatherer.poll(), store=fleet, cluster="train")
    shown = {row.label: (row.state, row.reason) for row in rows([seen], (), {})}
    assert shown["gpu-1"] == ("verified", "")
    assert shown["gpu-3"][0] == "verified"
    assert "96.74" in shown["gpu-3"][1]


def test_verify_warns() -> None:
    """`verify` and `check` compare the nodes of the evidence that they read."""

    def other_vbios(document: dict[str, Any]) -> None:
        probe = document["probes"]["nvidia-smi-xml"]
        probe["stdout"] = probe["stdout"].replace("<vbios_version>92.00.36", "<vbios_version>92.00.45")

    nodes = (evidence(1), evidence(2), evidence(3, other_vbios))
    judged = judge_all(FoundEvidence(newest=nodes, about=""), lambda one: P4D)
    found = [[check["id"] for check in one.checks if check["cause"] is Cause.POOL_DIFFERS] for one in judged]
    assert found == [[], [], ["G17"]]
    assert [one.verified for one in judged] == [judged[0].verified] * 3
