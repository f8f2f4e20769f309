"""`kill -9` at any moment, then the same command again: the cluster is complete, without duplicates or leftover processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from gpuinfra_rehearsal.processes import marked

from .conftest import REPOSITORY, Finished, Rehearse, cloud_resources, command, fewer_nodes

pytestmark = pytest.mark.usefixtures("needs_nodes")
FEW = (("leader", 1), pytest.param("group", 3, marks=pytest.mark.long))
ALL = tuple((who, seed) for who in ("leader", "group") for seed in (10, 15))
EARLIEST_S, LATEST_S = 1.0, 12.0
"""A rehearsal's own work begins after about a second; half of the kills hit the engine creating resources."""


def kill_in_the_middle(folder: Path, who: str, seed: int, stack: str) -> float:
    """Start an up and kill it; returns after how many seconds."""
    process = subprocess.Popen(
        command("rehearse", "up", stack, "--folder", str(folder)),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    seconds = random.Random(seed).uniform(EARLIEST_S, LATEST_S)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        if who == "group":
            for pid in marked(folder / Path(stack).stem.removeprefix("Pulumi.")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.kill()
    process.wait()
    return seconds


def assert_complete(result: Finished) -> None:
    """State and cloud have the same resources, each once, and no process is left."""
    assert result.code == 0, result.out[-4000:] + result.err
    assert result.report["totals"]["gpus_verified"] == 16
    held = cloud_resources(result.root)
    assert [urn for urn, count in Counter(urn for _, _, urn in held).items() if count > 1] == []
    state = [r for r in result.state if r.get("custom") and not r["type"].startswith(("pulumi:", "gpuinfra:"))]
    assert {(kind, identity) for kind, identity, _ in held} == {(r["type"], r["id"]) for r in state}
    assert len({n["instance_id"] for n in result.report["nodes"]}) == 2
    time.sleep(0.2)
    assert marked(result.root) == []


@pytest.mark.parametrize(("who", "seed"), FEW)
def test_killed_once(rehearse: Rehearse, tmp_path: Path, who: str, seed: int) -> None:
    """The next run recovers after a kill of the leading process or of all processes at a random moment."""
    stack = fewer_nodes("aws-p4d", tmp_path)
    kill_in_the_middle(tmp_path / "r", who, seed, stack)
    assert_complete(rehearse("up", stack))


@pytest.mark.long
@pytest.mark.parametrize(("who", "seed"), ALL)
def test_killed_at_other_moments(rehearse: Rehearse, tmp_path: Path, who: str, seed: int) -> None:
    """The same at other random moments."""
    stack = fewer_nodes("aws-p4d", tmp_path)
    kill_in_the_middle(tmp_path / "r", who, seed, stack)
    assert_complete(rehearse("up", stack))


@pytest.mark.long
@pytest.mark.parametrize(("who", "seed"), [("leader", 30), ("group", 31)])
def test_killed_on_google_cloud(rehearse: Rehearse, tmp_path: Path, who: str, seed: int) -> None:
    """Google's ids are paths and its keys cannot be deleted; the next run imports or deletes what a kill left."""
    stack = fewer_nodes("gcp-a3high", tmp_path)
    kill_in_the_middle(tmp_path / "r", who, seed, stack)
    assert_complete(rehearse("up", stack))


@pytest.mark.long
@pytest.mark.parametrize(("who", "first"), [("leader", 30), ("group", 36)])
def test_killed_again_and_again(rehearse: Rehearse, tmp_path: Path, who: str, first: int) -> None:
    """Several kills in a row, also during recovery, end in the same complete cluster."""
    stack = fewer_nodes("aws-p4d", tmp_path)
    for seed in range(first, first + 6):
        kill_in_the_middle(tmp_path / "r", who, seed, stack)
    assert_complete(rehearse("up", stack))


def test_interrupted_in_order(tmp_path: Path) -> None:
    """Ctrl-C ends engine, cloud and nodes in order, with exit code 130 and without a traceback."""
    root = tmp_path / "r" / "aws-p4d"
    process = subprocess.Popen(
        command("rehearse", "up", "aws-p4d", "--folder", str(root.parent)),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "resources" in line:
            break
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=300)[0]
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    assert f"to continue, run `gpuinfra rehearse up aws-p4d --folder {root.parent}` again" in rest
    assert f"to remove the data, run `gpuinfra rehearse destroy aws-p4d --folder {root.parent}`" in rest
    assert marked(root) == []
