"""The last lines of a rehearsal that failed say what to do next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.handover.watch import NOT_DUE_TEXT
from gpuinfra.rehearsal.engine import Operation
from gpuinfra.rehearsal.events import Progress
from gpuinfra.rehearsal.folder import Folder
from gpuinfra.rehearsal.retry_hints import broken_nodes
from gpuinfra.rehearsal.run import Result, problems_of
from gpuinfra.rehearsal.summary import ending

URN = "urn:pulumi:try::gpuinfra::gpuinfra:index:GpuCluster$aws:fsx/lustreFileSystem:LustreFileSystem::train-lustre"
CHECK = {
    "id": "G1", "name": "gpu_count", "outcome": "fail", "found": 7, "expected": 8, "unit": "GPUs",
    "hint": "replace the node", "reason": "7 of 8",
}  # fmt: skip


def failed(text: str, urn: str = URN) -> tuple[str, ...]:
    """What is told of one error of the engine."""
    progress = Progress(diagnostics=[("error", urn, text)])
    return problems_of(Operation(name="up", exit_code=255, seconds=1.0, progress=progress, output=""))


def node(label: str, instance_id: str, outcome: str, *checks: dict[str, Any]) -> dict[str, Any]:
    """One node of a report."""
    return {
        "label": label, "instance_id": instance_id, "group": "gpu-spot-0", "outcome": outcome, "gpus_expected": 8,
        "checks": list(checks), "blocking": [c["id"] for c in checks if c["outcome"] == "fail"], "reason": "no evidence yet",
        "hint": "set a longer deadline", "evidence": "",
    }  # fmt: skip


def told(root: Path, nodes: list[dict[str, Any]], closing: tuple[str, ...] = ()) -> list[str]:
    """The ending of an `up` that failed on these nodes."""
    report = {
        "stack": "try", "action": "up", "nodes": nodes, "engine": {"version": "3", "runs": []}, "cost": None,
        "totals": {"nodes_verified": 0, "nodes": len(nodes), "gpus_verified": 0, "gpus": 8 * len(nodes)},
    }  # fmt: skip
    return ending(Result(ok=False, report=report, problems=("x",), closing=closing), root)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("api error ServiceUnavailable: StatusCode: 503", "this failure may pass: run the same command again"),
        ("Throttling: Rate exceeded", "this failure may pass: run the same command again"),
        (
            'creating VirtualMachineScaleSet (/s/x): Status=409 Code="SkuNotAvailable" Message="..."',
            "the cloud has no capacity for this machine type",
        ),
        (
            'creating VirtualMachineScaleSet (/s/x): Status=403 Code="AuthorizationFailed" Message="..."',
            "the group is not allowed to launch",
        ),
        (
            'creating VirtualMachineScaleSet (/s/x): Status=400 Code="InvalidParameter" Message="..."',
            "mend what the text above names",
        ),
        ("InvalidParameterValue: no such subnet", "mend what the text above names, then run the same command again"),
    ],
)
def test_an_error_of_the_cloud_ends_with_what_to_do(text: str, words: str) -> None:
    """Under the cloud's own text stands that what is made stays, and what to look at if it repeats."""
    (problem,) = failed(text)
    assert text in problem
    last = problem.splitlines()[-1]
    assert last.startswith(f"  what to do: {words}")
    for part in ("what is made stays", "If it repeats", "engine.log"):
        assert part in last


def test_an_error_that_has_its_advice_gets_no_second() -> None:
    """Neither the handover's text nor a program's own error is told to mend itself by trying again."""
    (handover,) = failed("gpu-1 failed\n  what to do: replace the node")
    assert handover.count("what to do: ") == 1
    (program,) = failed("spec: count is missing", "urn:pulumi:try::gpuinfra::pulumi:pulumi:Stack::gpuinfra-try")
    assert program == "spec: count is missing"


def test_a_broken_stand_in_node_is_told_to_stay_broken(tmp_path: Path) -> None:
    """A node that failed with an ordered fault is named with it and with the commands that replace it; others are not."""
    folder = Folder(root=tmp_path / "try", stack="try")
    for name, faults in {"i-1": ["gpu-missing"], "i-2": [], "i-3": ["xid-79"]}.items():
        (folder.ground / "nodes" / name).mkdir(parents=True)
        (folder.ground / "nodes" / name / "standin.json").write_text(json.dumps({"faults": faults}))
    bad, sound, well = (
        node("gpu-1", "i-1", "failed", CHECK),
        node("gpu-2", "i-2", "failed"),
        node("gpu-3", "i-3", "verified"),
    )
    (line,) = closing = broken_nodes(folder, Path(".rehearsal"), [bad, sound, well, node("gpu-4", "i-4", "failed")])
    assert "gpu-1 (gpu-missing);" in line
    assert "gpuinfra rehearse destroy try, then gpuinfra rehearse up try without that --fault" in line
    assert not [label for label in ("gpu-2", "gpu-3", "gpu-4") if label in line]
    assert told(tmp_path, [bad], closing)[-1] == line
    (elsewhere,) = broken_nodes(folder, tmp_path / "a b", [bad])
    assert f"rehearse destroy try --folder '{tmp_path}/a b', then" in elsewhere
    assert broken_nodes(folder, tmp_path, [sound, well]) == ()


def test_the_table_of_nodes_counts_checks_without_misleading(tmp_path: Path) -> None:
    """Skips are told as such, and a node that never reported has no evidence instead of 0 of 0."""
    passed, skipped = {**CHECK, "outcome": "pass"}, {**CHECK, "outcome": "skip"}
    lines = told(
        tmp_path, [node("gpu-1", "i-1", "verified", passed, passed, skipped), node("gpu-2", "i-2", "never reported")]
    )
    assert next(line for line in lines if line.startswith("gpu-1 ")).endswith("2 checks passed, 1 does not apply")
    assert next(line for line in lines if line.startswith("gpu-2 ")).endswith("8 GPUs, no evidence")


def test_a_cluster_whose_nodes_are_not_due_says_so(tmp_path: Path) -> None:
    """A block before its window ends well, and the last lines say why there is no node."""
    report = {
        "stack": "try", "action": "up", "nodes": [], "engine": {"version": "3", "runs": []}, "cost": None, "notes": [NOT_DUE_TEXT],
        "totals": {"nodes_verified": 0, "nodes": 0, "gpus_verified": 0, "gpus": 0}, "kept": [], "not_shown": [],
    }  # fmt: skip
    assert NOT_DUE_TEXT in ending(Result(ok=True, report=report), tmp_path)
