"""Acceptance on Azure: each fault ends in exit code 1 and is told with its node or set, in Azure's words, and with what to do."""

from __future__ import annotations

import pytest

from .conftest import Rehearse

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]


def test_broken_nodes_on_azure_are_told_apart(rehearse: Rehearse) -> None:
    """A lost GPU, an InfiniBand port that is down and a silent node in one run: each by its own finding, the silent one with the end of its boot diagnostics."""
    faults = ("node:gpu-1:gpu-missing", "node:gpu-2:fabric-port-down", "node:gpu-3:never-reports")
    told = rehearse("up", "azure-ndv4", *[word for f in faults for word in ("--fault", f)], "--deadline", "100s")
    assert told.code == 1, told.out + told.err
    assert [n["outcome"] for n in told.report["nodes"]] == ["failed", "failed", "never reported", "verified"]
    for words in (
        "gpu-1 (00000000-0000-4a00-8000-000000000001) failed",
        "G1 gpu_count: found 7, expected 8 GPUs",
        "gpu-2 (00000000-0000-4a00-8000-000000000002) failed",
        "gpu-3 (00000000-0000-4a00-8000-000000000003): never reported",
        "what to do: ",
    ):
        assert words in told.out, words
    ill = [check["id"] for check in told.report["nodes"][1]["checks"] if check["outcome"] == "fail"]
    assert ill
    assert all(one.startswith("N") for one in ill), ill
    assert told.report["nodes"][2]["console"]
    assert "Traceback" not in told.out + told.err


@pytest.mark.parametrize(
    ("stack", "kind", "code"),
    [("azure-ndv5", "spot", "SkuNotAvailable"), ("azure-existing-network", "gpu", "AllocationFailed")],
)
def test_no_capacity_on_azure_is_told_in_its_words(rehearse: Rehearse, stack: str, kind: str, code: str) -> None:
    """A set without capacity fails as Azure fails it, and the next `up` goes on where there is some: the set is there already and is neither lost nor made twice."""
    told = rehearse("up", stack, "--fault", f"cloud:no-capacity:{kind}", "--deadline", "60s")
    assert told.code == 1, told.out + told.err
    assert f'Code="{code}"' in told.out
    assert "what to do: the cloud has no capacity for this machine type here" in told.out
    again = rehearse("up", stack)
    assert again.code == 0, again.out[-4000:] + again.err
    assert again.report["totals"]["nodes_verified"] == again.report["totals"]["nodes"] > 1
    sets = [one for one in again.state if one["type"] == "azure-native:compute:VirtualMachineScaleSet"]
    assert len(sets) == 1
