"""Acceptance: each fault ends in exit code 1, and the last lines name the node, the instance, the part and what to do."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .conftest import Rehearse, Told

LAST_LINES = 40
WORDS = {
    "gpu-missing": ("G1 gpu_count: found 7, expected 8 GPUs", "GPU at 0000:"),
    "driver-mismatch": ("Driver/library version mismatch",),
    "xid-79": ("Xid 79 on GPU 0000:",),
    "efa-missing": ("N1 efa_devices: found 3, expected 4 EFA devices",),
}
pytestmark = pytest.mark.usefixtures("needs_nodes")


def section(told: Told, label: str) -> str:
    """What the output says of one node, from its heading to the next node's."""
    lines = [line.removeprefix("rehearsal: ") for line in told.out.splitlines()]
    start = next(n for n, line in enumerate(lines) if line.startswith(f"  {label} (i-") and "failed" in line)
    body = [lines[start]]
    for line in lines[start + 1 :]:
        if line.startswith("  gpu-") or not line.startswith("  "):
            break
        body.append(line)
    return "\n".join(body)


def test_each_broken_node_is_told_apart(rehearse: Rehearse) -> None:
    """Four nodes broken in four ways: each is named with its instance, its own finding and what to do."""
    faults = [f"node:gpu-{n}:{name}" for n, name in enumerate(WORDS, start=1)]
    told = rehearse("up", "aws-p4d", *[word for f in faults for word in ("--fault", f)])
    assert told.code == 1, told.out + told.err
    assert told.report["totals"]["gpus_verified"] == 0
    for number, words in enumerate(WORDS.values(), start=1):
        text = section(told, f"gpu-{number}")
        for word in (*words, "what to do: ", "i-0000"):
            assert word in text, text
    tail = "\n".join(told.out.splitlines()[-9:])
    for number in range(1, 5):
        assert f"gpu-{number} (i-{number:017x}) failed: " in tail, tail
    assert tail.count("what to do: ") == 4
    assert "Traceback" not in told.out + told.err


@pytest.mark.long
def test_one_missing_gpu(rehearse: Rehearse) -> None:
    """One lost GPU fails its node and no other; the very last lines name node, instance, GPU and what to do."""
    told = rehearse("up", "aws-p4d", "--fault", "node:gpu-1:gpu-missing")
    assert told.code == 1
    assert [n["outcome"] for n in told.report["nodes"]] == ["failed", "verified", "verified", "verified"]
    assert told.report["totals"]["gpus_verified"] == 24
    tail = "\n".join(told.out.splitlines()[-4:])
    for words in ("gpu-1 (i-00000000000000001) failed", "GPU at 0000:", "what to do: ", "rehearse destroy aws-p4d"):
        assert words in tail, tail


@pytest.mark.long
def test_a_silent_node_ends_at_the_deadline(rehearse: Rehearse) -> None:
    """A node that never reports costs the deadline and not more; the end of its console log is shown."""
    begun = time.monotonic()
    told = rehearse("up", "aws-p4d", "--fault", "node:gpu-1:never-reports", "--deadline", "50s")
    assert told.code == 1
    assert time.monotonic() - begun < 150
    tail = "\n".join(told.out.splitlines()[-LAST_LINES:])
    assert "gpu-1 (i-00000000000000001): never reported" in tail
    assert "    | " in tail
    assert told.report["nodes"][0]["outcome"] == "never reported"
    assert told.report["nodes"][0]["console"]


@pytest.mark.long
def test_no_capacity_is_told_in_the_clouds_words(rehearse: Rehearse) -> None:
    """A kind without capacity fails with EC2's own text, before the deadline, and with what to do."""
    told = rehearse("up", "aws-p4d", "--fault", "cloud:no-capacity:spot", "--deadline", "60s")
    assert told.code == 1
    tail = "\n".join(told.out.splitlines()[-LAST_LINES:])
    assert "gpu-spot-0: 2 nodes never launched" in tail
    assert "capacity" in tail
    assert "what to do: the cloud has no capacity for this machine type here" in tail
    assert told.report["totals"] == told.report["totals"] | {"nodes": 4, "nodes_verified": 2, "gpus": 32}


@pytest.mark.long
def test_an_error_of_the_cloud_is_mended_by_the_next_up(rehearse: Rehearse) -> None:
    """A creation that fails once is told with its resource; the next up goes on from there and completes."""
    fault = ("--fault", "cloud:error:LustreFileSystem:1")
    told = rehearse("up", "aws-p4d", *fault)
    assert told.code == 1
    assert "aws:fsx/lustreFileSystem:LustreFileSystem" in "\n".join(told.out.splitlines()[-LAST_LINES:])
    assert "what to do: this failure may pass: run the same command again" in told.out.splitlines()[-1]
    assert "Traceback" not in told.out + told.err
    again = rehearse("up", "aws-p4d", *fault)
    assert again.code == 0, again.out + again.err
    assert again.report["totals"]["gpus_verified"] == 32


@pytest.mark.long
def test_faults_on_google_cloud_are_told_as_on_aws(rehearse: Rehearse) -> None:
    """A lost GPU, a missing gVNIC and a stock-out in one run: each with its node or group, Google's words and what to do."""
    faults = ("node:gpu-1:gpu-missing", "node:gpu-2:gvnic-missing", "cloud:no-capacity:spot")
    told = rehearse("up", "gcp-a3high", *[word for f in faults for word in ("--fault", f)], "--deadline", "80s")
    assert told.code == 1, told.out + told.err
    for words in (
        "gpu-1 (1000000000000000001): failed",
        "G1 gpu_count: found 7, expected 8 GPUs",
        "N8 gvnics: found 4, expected 5 gVNICs",
        "gpu-spot-0: 2 nodes never launched: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: The zone ",
        "what to do: the cloud has no capacity for this machine type here",
    ):
        assert words in told.out, words
    assert told.report["totals"]["gpus_verified"] == 0


@pytest.mark.long
def test_a_silent_node_of_google_shows_its_serial_port(rehearse: Rehearse) -> None:
    """The end of what it said comes from Compute Engine's serial port, after a creation that failed once was mended."""
    fault = ("--fault", "cloud:error:lustre/instance:Instance:1")
    told = rehearse("up", "gcp-a3high", *fault)
    assert told.code == 1
    assert "googleapi: Error 503: The service is currently unavailable" in told.out
    silent = (*fault, "--fault", "node:gpu-1:never-reports", "--deadline", "100s")
    told = rehearse("up", "gcp-a3high", *silent)
    assert told.code == 1
    assert [n["outcome"] for n in told.report["nodes"]] == ["never reported", "verified", "verified", "verified"]
    assert "gpu-1 (1000000000000000001): never reported" in told.out
    assert any("no device got an address" in line for line in told.report["nodes"][0]["console"])


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
def test_a_queue_that_is_not_served_is_no_failure(rehearse: Rehearse, tmp_path: Path) -> None:
    """`up` ends well and claims no node; once there is room, the next one brings and verifies them all at once."""
    stack = tmp_path / "Pulumi.gcp-queue.yaml"
    stack.write_text(FLEX, encoding="utf-8")
    told = rehearse("up", str(stack), "--fault", "cloud:no-capacity:flex", "--deadline", "60s")
    assert told.code == 0, told.out[-4000:] + told.err
    assert "no node is due yet" in told.out
    told = rehearse("up", str(stack))
    assert told.code == 0, told.out[-4000:] + told.err
    assert told.report["totals"] == told.report["totals"] | {"nodes": 2, "nodes_verified": 2}
