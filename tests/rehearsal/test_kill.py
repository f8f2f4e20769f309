"""Acceptance: `kill -9` at any moment, then the same command again: complete, nothing twice, nobody left running."""

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

from gpuinfra.rehearsal.processes import marked

from .conftest import REPOSITORY, Rehearse, Told, cloud_resources, command

pytestmark = pytest.mark.usefixtures("needs_nodes")
FEW = (("leader", 1), ("group", 3))
ALL = tuple((who, seed) for who in ("leader", "group") for seed in range(10, 20))
EARLIEST_S, LATEST_S = 1.0, 12.0
"""A rehearsal's own work begins after about a second; half of the kills hit the engine creating resources."""


def kill_in_the_middle(root: Path, who: str, seed: int, stack: str = "aws-p4d") -> float:
    """Start an up and kill it; returns after how many seconds. Whatever it printed went nowhere, as after a lost shell."""
    process = subprocess.Popen(
        command("rehearse", "up", stack, "--folder", str(root.parent)),
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
            for pid in marked(root):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.kill()
    process.wait()
    return seconds


def assert_whole(told: Told) -> None:
    """State and cloud hold the same things, each once, and no process is left."""
    assert told.code == 0, told.out[-4000:] + told.err
    assert told.report["totals"]["gpus_verified"] == 32
    held = cloud_resources(told.root)
    assert [urn for urn, count in Counter(urn for _, _, urn in held).items() if count > 1] == []
    state = [r for r in told.state if r.get("custom") and not r["type"].startswith(("pulumi:", "gpuinfra:"))]
    assert {(kind, identity) for kind, identity, _ in held} == {(r["type"], r["id"]) for r in state}
    assert len({n["instance_id"] for n in told.report["nodes"]}) == 4
    time.sleep(0.2)
    assert marked(told.root) == []


@pytest.mark.parametrize(("who", "seed"), FEW)
def test_killed_once(rehearse: Rehearse, tmp_path: Path, who: str, seed: int) -> None:
    """One kill of the leading process or of everything at a random moment is mended by the next run."""
    kill_in_the_middle(tmp_path / "r" / "aws-p4d", who, seed)
    assert_whole(rehearse("up", "aws-p4d"))


@pytest.mark.long
@pytest.mark.parametrize(("who", "seed"), ALL)
def test_killed_at_many_moments(rehearse: Rehearse, tmp_path: Path, who: str, seed: int) -> None:
    """The same at ten moments each."""
    kill_in_the_middle(tmp_path / "r" / "aws-p4d", who, seed)
    assert_whole(rehearse("up", "aws-p4d"))


@pytest.mark.long
@pytest.mark.parametrize(("who", "seed"), [("leader", 30), ("group", 31), ("group", 32)])
def test_a_cluster_on_google_cloud_is_killed(rehearse: Rehearse, tmp_path: Path, who: str, seed: int) -> None:
    """Google's ids are paths, and its keys are never gone: what a kill left is adopted or deleted all the same."""
    kill_in_the_middle(tmp_path / "r" / "gcp-a3high", who, seed, "gcp-a3high")
    assert_whole(rehearse("up", "gcp-a3high"))


@pytest.mark.long
def test_killed_again_and_again(rehearse: Rehearse, tmp_path: Path) -> None:
    """Kills in a row, also of runs that mend an earlier one, end in the same whole cluster."""
    for seed in range(30, 36):
        kill_in_the_middle(tmp_path / "r" / "aws-p4d", "leader", seed)
    assert_whole(rehearse("up", "aws-p4d"))


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
    rest = process.communicate(timeout=60)[0]
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    assert marked(root) == []
