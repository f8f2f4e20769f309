"""Each fault ends with exit code 1, and the last lines name node, instance, part and hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Finished, Rehearse, fewer_nodes

LAST_LINES = 40
WORDS = {
    "gpu-missing": ("G1 gpu_count: found 7, expected 8 GPUs", "GPU at 0000:"),
    "driver-mismatch": ("Driver/library version mismatch",),
    "xid-79": ("Xid 79 on GPU 0000:",),
    "efa-missing": ("N1 efa_devices: found 3, expected 4 EFA devices",),
}
pytestmark = pytest.mark.usefixtures("needs_nodes")


def section(result: Finished, label: str) -> str:
    """The part of the output about one node, from its heading to the next node's."""
    lines = [line.removeprefix("rehearsal: ") for line in result.out.splitlines()]
    start = next(n for n, line in enumerate(lines) if line.startswith(f"  {label} (") and "failed" in line)
    body = [lines[start]]
    for line in lines[start + 1 :]:
        if line.startswith("  gpu-") or not line.startswith("  "):
            break
        body.append(line)
    return "\n".join(body)


def test_each_broken_node_has_its_own_finding(rehearse: Rehearse) -> None:
    """Four nodes with four faults: each is named with its instance, its finding and a hint."""
    faults = [f"node:gpu-{n}:{name}" for n, name in enumerate(WORDS, start=1)]
    result = rehearse("up", "aws-p4d", *[word for f in faults for word in ("--fault", f)])
    assert result.code == 1, result.out + result.err
    assert result.report["totals"]["gpus_verified"] == 0
    for number, words in enumerate(WORDS.values(), start=1):
        text = section(result, f"gpu-{number}")
        for word in (*words, "what to do: ", "i-0000"):
            assert word in text, text
    tail = "\n".join(result.out.splitlines()[-9:])
    for number in range(1, 5):
        assert f"gpu-{number} (i-{number:017x}) failed: " in tail, tail
    assert tail.count("what to do: ") == 4
    assert "Traceback" not in result.out + result.err


NCCL = {
    "aws-p4d": ("libnl-route-3.so.200: cannot open shared object file", "efa-missing", "N1 efa_devices: found 3"),
    "azure-ndv5": ("Failed to open libibverbs", "fabric-port-down", "N2 infiniband_ports: "),
    "gcp-a3ultra": ("libnl-route-3.so.200: cannot open shared object file", "fabric-port-down", "N7 rdma_devices: "),
}
"""Stack -> NCCL's line about a library that is missing, a fault of one network device, and words about it."""


@pytest.mark.long
@pytest.mark.parametrize("stack", NCCL)
def test_a_fallback_to_sockets_fails_the_default_checks(rehearse: Rehearse, stack: str) -> None:
    """Without a check on request, a broken plugin, variables that turn it off and a dead device fail with their node and cause.
    The fourth node has no partner for the fabric test, and the wait ends before the deadline."""
    library, fault, device = NCCL[stack]
    faults = ("node:gpu-1:nccl-library-broken", "node:gpu-2:nccl-environment", f"node:gpu-3:{fault}")
    words = [word for one in faults for word in ("--fault", one)]
    result = rehearse("up", stack, *words, "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["failed", "failed", "failed", "waiting"]
    assert "has no result of the fabric test yet: " in result.out
    lines = [line for line in result.out.splitlines() if " (" in line or "B4 " in line or device in line]
    for words in ("B4 network_plugin", library, "set by environment to", device, "gpu-3 ("):
        assert any(words in line for line in result.out.splitlines()), (words, lines)


@pytest.mark.long
def test_one_missing_gpu(rehearse: Rehearse) -> None:
    """A lost GPU fails only its node; the last lines name node, instance, GPU and hint."""
    result = rehearse("up", "aws-p4d", "--fault", "node:gpu-1:gpu-missing", "--deadline", "1200s")
    assert result.code == 1
    assert [n["outcome"] for n in result.report["nodes"]] == ["failed", "verified", "verified", "verified"]
    assert result.report["totals"]["gpus_verified"] == 24
    tail = "\n".join(result.out.splitlines()[-4:])
    for words in ("gpu-1 (i-00000000000000001) failed", "GPU at 0000:", "what to do: ", "rehearse destroy aws-p4d"):
        assert words in tail, tail


@pytest.mark.long
def test_a_node_that_never_reports_fails_at_the_deadline(rehearse: Rehearse, tmp_path: Path) -> None:
    """The run ends at the deadline, with the end of the node's console log."""
    stack = fewer_nodes("aws-p4d", tmp_path)
    result = rehearse("up", stack, "--fault", "node:gpu-1:never-reports", "--deadline", "240s")
    assert result.code == 1
    tail = "\n".join(result.out.splitlines()[-LAST_LINES:])
    assert "gpu-1 (i-00000000000000001): never reported" in tail
    assert "    | " in tail
    assert result.report["nodes"][0]["outcome"] == "never reported"
    assert result.report["nodes"][0]["console"]


@pytest.mark.long
def test_missing_capacity_is_reported_with_the_cloud_s_message(rehearse: Rehearse) -> None:
    """A capacity kind without machines fails before the deadline, with EC2's message and a hint."""
    result = rehearse("up", "aws-p4d", "--fault", "cloud:no-capacity:spot", "--deadline", "600s")
    assert result.code == 1
    tail = "\n".join(result.out.splitlines()[-LAST_LINES:])
    assert "gpu-spot-0: 2 nodes never launched" in tail
    assert "capacity" in tail
    assert "what to do: the cloud has no capacity for this machine type in the group's zone" in tail
    assert result.report["totals"] == result.report["totals"] | {"nodes": 4, "nodes_verified": 2, "gpus": 32}


@pytest.mark.long
def test_the_next_up_continues_after_an_error_of_the_cloud(rehearse: Rehearse, tmp_path: Path) -> None:
    """A create that fails once is reported with its resource, and the next up completes."""
    stack, fault = fewer_nodes("aws-p4d", tmp_path), ("--fault", "cloud:error:LustreFileSystem:1")
    result = rehearse("up", stack, *fault)
    assert result.code == 1
    assert "aws:fsx/lustreFileSystem:LustreFileSystem" in "\n".join(result.out.splitlines()[-LAST_LINES:])
    assert "what to do: the failure may be temporary: run the same command again" in result.out.splitlines()[-1]
    assert "Traceback" not in result.out + result.err
    again = rehearse("up", stack, *fault)
    assert again.code == 0, again.out + again.err
    assert again.report["totals"]["gpus_verified"] == 16


@pytest.mark.long
def test_faults_on_google_cloud(rehearse: Rehearse) -> None:
    """A lost GPU, a missing gVNIC and a stock-out in one run: each with its node or group, Google's message and a hint."""
    faults = ("node:gpu-1:gpu-missing", "node:gpu-2:gvnic-missing", "cloud:no-capacity:spot")
    result = rehearse("up", "gcp-a3high", *[word for f in faults for word in ("--fault", f)], "--deadline", "600s")
    assert result.code == 1, result.out + result.err
    for words in (
        "gpu-1 (1000000000000000001): failed",
        "G1 gpu_count: found 7, expected 8 GPUs",
        "N8 gvnics: found 4, expected 5 gVNICs",
        "gpu-spot-0: 2 nodes never launched: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: The zone ",
        "what to do: the cloud has no capacity for this machine type in the group's zone",
    ):
        assert words in result.out, words
    assert result.report["totals"]["gpus_verified"] == 0


@pytest.mark.long
def test_the_console_of_a_node_on_google_cloud_is_its_serial_port(rehearse: Rehearse) -> None:
    """A node that never reports shows the end of its serial port output; the up before failed once and continued."""
    fault = ("--fault", "cloud:error:lustre/instance:Instance:1")
    result = rehearse("up", "gcp-a3high", *fault)
    assert result.code == 1
    assert "googleapi: Error 503: The service is currently unavailable" in result.out
    silent = (*fault, "--fault", "node:gpu-1:never-reports", "--deadline", "400s")
    result = rehearse("up", "gcp-a3high", *silent)
    assert result.code == 1
    assert [n["outcome"] for n in result.report["nodes"]] == ["never reported", "verified", "verified", "verified"]
    assert "gpu-1 (1000000000000000001): never reported" in result.out
    assert any("no device got an address" in line for line in result.report["nodes"][0]["console"])


FLEX = """
config:
  gcp:region: us-central1
  gpuinfra:cluster:
    name: queue
    where: {cloud: gcp, region: us-central1, zone: us-central1-b}
    pools:
      - name: gpu
        machine: a3-ultragpu-8g
        capacity: [{kind: flex, count: 2, max_run_hours: 24}]
"""


@pytest.mark.long
def test_queued_capacity_is_no_failure(rehearse: Rehearse, tmp_path: Path) -> None:
    """`up` succeeds without nodes while the request is queued, and the next one verifies all nodes at once."""
    stack = tmp_path / "Pulumi.gcp-queue.yaml"
    stack.write_text(FLEX, encoding="utf-8")
    result = rehearse("up", str(stack), "--fault", "cloud:no-capacity:flex", "--deadline", "600s")
    assert result.code == 0, result.out[-4000:] + result.err
    assert "no nodes are expected now" in result.out
    result = rehearse("up", str(stack))
    assert result.code == 0, result.out[-4000:] + result.err
    assert result.report["totals"] == result.report["totals"] | {"nodes": 2, "nodes_verified": 2}
