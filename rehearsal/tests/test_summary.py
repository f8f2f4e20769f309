"""The last lines of a failed rehearsal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.handover.watch import NOT_DUE_TEXT
from gpuinfra_rehearsal.actions import errors_of
from gpuinfra_rehearsal.engine import OperationResult
from gpuinfra_rehearsal.events import RunProgress
from gpuinfra_rehearsal.folder import Folder
from gpuinfra_rehearsal.retry_hints import broken_nodes, ineffective_faults, refused_nodes
from gpuinfra_rehearsal.summary import summary_lines

URN = "urn:pulumi:try::gpuinfra::gpuinfra:index:GpuCluster$aws:fsx/lustreFileSystem:LustreFileSystem::train-lustre"
CHECK = {
    "id": "G1", "name": "gpu_count", "outcome": "fail", "found": 7, "expected": 8, "unit": "GPUs",
    "hint": "replace the node", "reason": "7 of 8",
}  # fmt: skip


def failed(text: str, urn: str = URN) -> tuple[str, ...]:
    """The messages for one error of the engine."""
    progress = RunProgress(diagnostics=[("error", urn, text)])
    return errors_of(OperationResult(name="up", exit_code=255, seconds=1.0, progress=progress, output=""))


def node(label: str, instance_id: str, outcome: str, *checks: dict[str, Any]) -> dict[str, Any]:
    """One node of a report."""
    return {
        "label": label, "instance_id": instance_id, "group": "gpu-spot-0", "outcome": outcome, "gpus_expected": 8,
        "checks": list(checks), "blocking": [c["id"] for c in checks if c["outcome"] == "fail"], "reason": "no evidence yet",
        "hint": "set a longer deadline", "evidence": "",
    }  # fmt: skip


def lines_after_failure(root: Path, nodes: list[dict[str, Any]], closing: tuple[str, ...] = ()) -> list[str]:
    """The summary of an `up` that failed on these nodes."""
    report = {
        "stack": "try", "action": "up", "ok": False, "problems": ["x"], "nodes": nodes, "engine": {"version": "3", "runs": []}, "cost": None,
        "totals": {"nodes_verified": 0, "nodes": len(nodes), "gpus_verified": 0, "gpus": 8 * len(nodes)},
    }  # fmt: skip
    return summary_lines(report, root, closing)


@pytest.mark.parametrize(
    ("action", "cost", "end"),
    [
        ("up", {"in_words": "1 USD an hour"}, "to deploy: gpuinfra up try"),
        ("life", {"in_words": "1 USD an hour"}, "to deploy: gpuinfra up try"),
        ("up", None, "to deploy: pulumi up --stack try"),
        ("preview", None, "to preview a deployment: pulumi preview --stack try"),
        ("refresh", None, "to refresh a deployed stack: pulumi refresh --stack try"),
        ("destroy", None, "to destroy a deployed stack: pulumi destroy --stack try"),
    ],
)
def test_last_line_names_the_same_action_on_a_deployed_stack(
    action: str, cost: dict[str, str] | None, end: str, tmp_path: Path
) -> None:
    """After a success, the last line states that nothing was deployed, and the command that does the same on a deployed stack."""
    report = {
        "stack": "try", "action": action, "ok": True, "problems": [], "nodes": [], "engine": {"version": "3", "runs": []}, "cost": cost,
        "kept": [], "not_shown": [],
    }  # fmt: skip
    assert summary_lines(report, tmp_path)[-1] == f"this was a rehearsal, and nothing was deployed; {end}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("api error ServiceUnavailable: StatusCode: 503", "the failure may be temporary: run the same command again"),
        ("Throttling: Rate exceeded", "the failure may be temporary: run the same command again"),
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
            "the cloud does not accept this combination of options",
        ),
        (
            'creating VirtualMachineScaleSet (/s/x): Status=400 Code="NobodyKnows" Message="..."',
            "fix the cause in the error above and run the same command again",
        ),
        ("InvalidParameterValue: no such subnet", "fix the cause in the error above and run the same command again"),
    ],
)
def test_an_error_of_the_cloud_ends_with_a_hint(text: str, words: str) -> None:
    """The hint under the cloud's message says that created resources remain and what to read if it fails again."""
    (problem,) = failed(text)
    assert text in problem
    last = problem.splitlines()[-1]
    assert last.startswith(f"  what to do: {words}")
    for part in ("created resources remain", "If it fails again", "engine.log"):
        assert part in last


def test_an_error_with_a_hint_gets_no_second_hint() -> None:
    """The handover's hint stays the only one, and a program's own error gets none."""
    (handover,) = failed(
        "gpu-1 failed\n  what to do: replace the node",
        "urn:pulumi:try::gpuinfra::gpuinfra:index:NodesReady::train-ready",
    )
    assert handover.count("what to do: ") == 1
    (program,) = failed("spec: count is missing", "urn:pulumi:try::gpuinfra::pulumi:pulumi:Stack::gpuinfra-try")
    assert program == "spec: count is missing"


def test_nodes_with_a_fault_are_listed_with_the_commands_that_replace_them(tmp_path: Path) -> None:
    """A failed node with a `--fault` is named with the fault and the commands, and so is a fault that no node has; other nodes are not."""
    folder = Folder(root=tmp_path / "try", stack="try")
    for name, faults in {"i-1": ["gpu-missing"], "i-2": [], "i-3": ["xid-79"]}.items():
        (folder.base / "nodes" / name).mkdir(parents=True)
        (folder.base / "nodes" / name / "standin.json").write_text(json.dumps({"faults": faults}))
    bad, sound, well = (
        node("gpu-1", "i-1", "failed", CHECK),
        node("gpu-2", "i-2", "failed"),
        node("gpu-3", "i-3", "verified"),
    )
    (line,) = closing = broken_nodes(folder, Path(".rehearsal"), [bad, sound, well, node("gpu-4", "i-4", "failed")])
    assert "gpu-1 (gpu-missing);" in line
    assert "gpuinfra rehearse destroy try, then gpuinfra rehearse up try without the fault" in line
    assert not [label for label in ("gpu-2", "gpu-3", "gpu-4") if label in line]
    assert lines_after_failure(tmp_path, [bad], closing)[-1] == line
    (elsewhere,) = broken_nodes(folder, tmp_path / "a b", [bad])
    assert f"rehearse destroy try --folder '{tmp_path}/a b', then" in elsewhere
    assert broken_nodes(folder, tmp_path, [sound, well]) == ()
    (missed,) = ineffective_faults(folder, Path(".rehearsal"), ["node:gpu-3:gpu-missing", "cloud:no-capacity:gpu"])
    assert missed.startswith("--fault node:gpu-3:gpu-missing, --fault cloud:no-capacity:gpu had no effect, because ")
    assert missed.endswith("what to do: run gpuinfra rehearse destroy try, then the same command again")
    assert ineffective_faults(folder, Path(".rehearsal"), []) == ()


def test_the_node_table_counts_skipped_checks_and_missing_evidence(tmp_path: Path) -> None:
    """Skipped checks are counted apart, and a node that never reported has no evidence instead of 0 of 0."""
    passed, skipped = {**CHECK, "outcome": "pass"}, {**CHECK, "outcome": "skip"}
    lines = lines_after_failure(
        tmp_path, [node("gpu-1", "i-1", "verified", passed, passed, skipped), node("gpu-2", "i-2", "never reported")]
    )
    assert next(line for line in lines if line.startswith("gpu-1 ")).endswith("2 checks passed, 1 does not apply")
    assert next(line for line in lines if line.startswith("gpu-2 ")).endswith("8 GPUs expected, no evidence")


def test_the_line_of_a_node_states_how_many_gpus_answer(tmp_path: Path) -> None:
    """A failed node with seven of eight GPUs is not shown with eight."""
    seven = {**node("gpu-1", "i-1", "failed", CHECK), "gpus": [{"index": index} for index in range(7)]}
    eight = {**node("gpu-2", "i-2", "failed", CHECK), "gpus": [{"index": index} for index in range(8)]}
    lines = lines_after_failure(tmp_path, [seven, eight])
    assert "7 of 8 GPUs detected, " in next(line for line in lines if line.startswith("gpu-1 "))
    assert " 8 GPUs, " in next(line for line in lines if line.startswith("gpu-2 "))


def test_nodes_before_their_window_are_explained(tmp_path: Path) -> None:
    """A Capacity Block before its window succeeds, and the last lines give the reason for zero nodes."""
    report = {
        "stack": "try", "action": "up", "ok": True, "nodes": [], "engine": {"version": "3", "runs": []}, "cost": None, "not_due": True,
        "totals": {"nodes_verified": 0, "nodes": 0, "gpus_verified": 0, "gpus": 0}, "kept": [], "not_shown": [],
    }  # fmt: skip
    assert NOT_DUE_TEXT in summary_lines(report, tmp_path)
    assert summary_lines(report, tmp_path, ("no effect: --fault",))[-1] == "no effect: --fault"


def test_after_a_simulated_refusal_the_next_command_has_no_fault(tmp_path: Path) -> None:
    """A run that failed with a fault of the cloud ends with the command that continues: without the fault. Other faults of the cloud end by themselves."""
    folder = Folder(root=tmp_path / "lab", stack="lab")
    faults = (
        "cloud:no-capacity:gpu",
        "node:gpu-1:gpu-missing",
        "cloud:error:aws:ec2/vpc:Vpc:1",
        "cloud:limited:spot:1",
    )
    (line,) = refused_nodes(folder, Path(".rehearsal"), faults)
    assert line == (
        "the stand-in cloud refused nodes because of --fault cloud:no-capacity:gpu --fault cloud:limited:spot:1; "
        "to continue with these resources, run gpuinfra rehearse up lab without the fault"
    )
    assert "--folder" in refused_nodes(folder, tmp_path / "a b", faults)[0]
    assert refused_nodes(folder, Path(".rehearsal"), faults[1:3]) == ()
