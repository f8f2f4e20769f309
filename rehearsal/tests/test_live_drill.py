"""`gpuinfra drill --live` in a rehearsal: the real engine, the real checks and stand-in nodes in the second region."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.region.clone.replicas import replicas_of
from gpuinfra_rehearsal import workload
from gpuinfra_rehearsal.access import _opened  # pyright: ignore[reportPrivateUsage]
from gpuinfra_rehearsal.object_stores import store_of
from gpuinfra_rehearsal.processes import marked
from gpuinfra_rehearsal.session import Options

from .conftest import REPOSITORY, Finished, cloud_resources, command, run
from .test_drill import stack

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]
PATTERN = "runs/*/step-*/COMPLETE"


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    """The stack file of a deployed stack without nodes, whose replica has two complete checkpoints."""
    path = stack(tmp_path, first="us-west-2", mode="cold")
    text = path.read_text()
    path.write_text(text.replace("kind: on_demand, count: 1", "kind: on_demand, count: 0"))
    words = command("rehearse", "up", str(path), "--folder", str(tmp_path / "r"))
    done = run(words, tmp_path / "r/recovery")
    assert done.code == 0, done.out + done.err
    path.write_text(text)
    with _opened(Options(stack=str(path), folder=tmp_path / "r")) as session:
        resources = session.pulumi.resources()
        session.cloud.ask("replication", {"lag_s": 0})
        names = replicas_of(resources).buckets
        (bucket,) = [
            str(one["id"])
            for one in resources
            if one["type"] == "aws:s3/bucket:Bucket" and one["urn"].endswith("scratch-0-bucket")
        ]
        for number in (1, 2):
            workload.write(store_of("aws", "us-west-2"), bucket, number, PATTERN)
        assert store_of("aws", "us-east-1").keys(names["scratch-0"], "runs/002/")
    return path


def words(path: Path, *options: str, faults: tuple[str, ...] = ()) -> list[str]:
    """The drill in the rehearsal of the stack."""
    given = [word for fault in faults for word in ("--fault", fault)]
    start = ["rehearse", "run", str(path), "--folder", str(path.parent / "r"), "--deadline", "1200s", *given, "--"]
    return command(*start, "drill", str(path), "--live", "--yes", *options)


def drill(path: Path, *options: str, faults: tuple[str, ...] = ()) -> Finished:
    """Run the drill."""
    return run(words(path, *options, faults=faults), path.parent / "r/recovery")


def held(path: Path) -> set[tuple[str, str]]:
    """What exists in the stand-in cloud."""
    return {(kind, identity) for kind, identity, _ in cloud_resources(path.parent / "r/recovery")}


def result(path: Path) -> dict[str, Any]:
    """The recorded result."""
    (found,) = (path.parent / "r/recovery").glob("**/live-drill/*.json")
    return dict(json.loads(found.read_text()))


def test_a_live_drill_reads_the_newest_checkpoint_and_leaves_nothing(deployed: Path) -> None:
    """The node in the second region is verified and has read each file, the times are in `ready`, and the cloud is as before."""
    before = held(deployed)
    done = drill(deployed)
    assert done.code == 0, done.out + done.err
    assert held(deployed) == before
    body = result(deployed)
    assert body["problems"] == []
    assert body["checkpoint"] == "runs/002/step-002"
    assert body["bytes"] > workload.FILES * workload.FILE_BYTES
    assert all(value is not None for value in body["seconds"].values())
    project = deployed.parent / "r/recovery/project"
    assert not list(project.glob("*drill*"))
    ready = command(
        "rehearse", "run", str(deployed), "--folder", str(deployed.parent / "r"), "--", "ready", str(deployed), "--json"
    )
    report = run(ready, deployed.parent / "r/recovery")
    lines = [one for one in json.loads(report.out)["lines"] if one["name"] == "us-east-1 live"]
    assert [one["state"] for one in lines] == ["ok"], lines


def test_a_node_that_fails_ends_the_drill_with_its_reason(deployed: Path) -> None:
    """The drill prints why the node is not verified, and removes everything."""
    before = held(deployed)
    done = drill(deployed, faults=("node:gpu-1:memory-missing",))
    assert done.code == 1, done.out + done.err
    assert held(deployed) == before
    (problem,) = result(deployed)["problems"]
    assert problem.startswith("nodes: ")


def test_a_killed_drill_is_removed_by_the_same_command(deployed: Path) -> None:
    """After `kill -9` of all processes while the drill deploys, the same command removes what exists, and a further one passes."""
    before = held(deployed)
    process = subprocess.Popen(
        words(deployed), cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 300
    while len(held(deployed)) < len(before) + 10 and time.monotonic() < until:
        time.sleep(0.5)
    for pid in marked(deployed.parent / "r/recovery"):
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
    assert len(held(deployed)) > len(before)
    again = drill(deployed)
    assert again.code == 1, again.out + again.err
    assert "everything that the drill created is removed" in again.err
    assert held(deployed) == before
    done = drill(deployed)
    assert done.code == 0, done.out + done.err
    assert held(deployed) == before
