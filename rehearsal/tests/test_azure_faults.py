"""Each fault on Azure ends with exit code 1, its node or scale set, Azure's message and a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, fewer_nodes

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]


def test_each_broken_node_on_azure_has_its_own_finding(rehearse: Rehearse) -> None:
    """A lost GPU, an InfiniBand port that is down and a node that never reports, in one run: each with its finding."""
    faults = ("node:gpu-1:gpu-missing", "node:gpu-2:fabric-port-down", "node:gpu-3:never-reports")
    result = rehearse("up", "azure-ndv4", *[word for f in faults for word in ("--fault", f)], "--deadline", "240s")
    assert result.code == 1, result.out + result.err
    assert [n["outcome"] for n in result.report["nodes"]] == ["failed", "failed", "never reported", "waiting"]
    for words in (
        "gpu-1 (00000000-0000-4a00-8000-000000000001) failed",
        "G1 gpu_count: found 7, expected 8 GPUs",
        "gpu-2 (00000000-0000-4a00-8000-000000000002) failed",
        "gpu-3 (00000000-0000-4a00-8000-000000000003): never reported",
        "the test needs a second node of the pool",
        "what to do: ",
    ):
        assert words in result.out, words
    ill = [check["id"] for check in result.report["nodes"][1]["checks"] if check["outcome"] == "fail"]
    assert ill
    # B4 counts the devices that NCCL uses, so it also finds the port.
    assert all(one.startswith("N") or one == "B4" for one in ill), ill
    assert result.report["nodes"][2]["console"]
    assert "Traceback" not in result.out + result.err


@pytest.mark.parametrize(
    ("stack", "kind", "code"),
    [("azure-ndv5", "spot", "SkuNotAvailable"), ("azure-existing-network", "gpu", "AllocationFailed")],
)
def test_missing_capacity_on_azure(rehearse: Rehearse, tmp_path: Path, stack: str, kind: str, code: str) -> None:
    """A scale set without capacity fails with Azure's message, and the next `up` with capacity continues with the same set."""
    path = fewer_nodes(stack, tmp_path)
    result = rehearse("up", path, "--fault", f"cloud:no-capacity:{kind}", "--deadline", "600s")
    assert result.code == 1, result.out + result.err
    assert f'Code="{code}"' in result.out
    assert "what to do: the cloud has no capacity for this machine type in the group's zone" in result.out
    again = rehearse("up", path)
    assert again.code == 0, again.out[-4000:] + again.err
    assert again.report["totals"]["nodes_verified"] == again.report["totals"]["nodes"] > 1
    sets = [one for one in again.state if one["type"] == "azure-native:compute:VirtualMachineScaleSet"]
    assert len(sets) == 1
