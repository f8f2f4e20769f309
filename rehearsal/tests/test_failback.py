"""`gpuinfra failback` of a rehearsed stack, after the drill that moved it to its second region."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clouds.cloud import cloud_of
from gpuinfra_rehearsal.applied_environment import applied
from gpuinfra_rehearsal.drill import run_drill
from gpuinfra_rehearsal.object_stores import store_of
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, Session, open_session

from .test_drill import google_stack

DAY_S = 86_400


def run(session: Session, *words: str) -> dict[str, Any]:
    """Run a command as for a deployed stack, and return its report."""
    done = finished(session, *words)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def finished(session: Session, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as for a deployed stack to its end."""
    env = {**session.pulumi.env, "XDG_STATE_HOME": str(session.folder.root / "journals")}
    stack = str(session.folder.stack_file)
    command = [sys.executable, "-m", "gpuinfra", words[0], stack, *words[1:], "--yes", "--json"]
    return subprocess.run(command, env=env, cwd=session.folder.project, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_a_stack_on_google_cloud_fails_back(tmp_path: Path) -> None:
    """After the first region responds again, its nodes are stopped, and its objects that are not in the replica are listed.
    The failback copies what the second region wrote, and the nodes of the first region are verified."""
    options = Options(stack=str(google_stack(tmp_path, mode="hot")), folder=tmp_path / "rehearsal", deadline="1200s")
    with open_session(options, view_for(io.StringIO())) as session:
        own = session.pulumi
        drilled = run_drill(session)
        assert drilled.ok, drilled.problems
        session.pulumi = own
        # The checkpoints have the simulated times of the drill.
        session.cloud.ask("clock", {"at": time.time() + DAY_S})
        # The tunnel of the cloud reaches no node in a rehearsal.
        over = ("failover", "--to", "us-east4", "--resume", "--ignore", "jobs")
        refused = finished(session, *over)
        assert refused.returncode == 1
        assert re.search(r"objects of train-scratch-\S+ are not in the replica, .*: runs/003/", refused.stderr)
        resumed = run(session, *over, "--ignore", "drain")
        # No node is left whose jobs could be stopped.
        assert {one["name"] for one in resumed["steps"] if one["state"] != "done"} == {"drain"}
        cloud = cloud_of("gcp").failover("us-central1", "us-east4", {})
        assert cloud is not None
        (pair,) = (one for one in cloud.pairs(own.resources()) if "scratch" in one.source)
        with applied(own.env):
            store_of("gcp", "us-east4").put(pair.replica, "results", b"second region")
        found = {one["name"]: one["found"] for one in run(session, "failback", "--ignore", "jobs")["steps"]}
        assert found["precopy"].startswith("1 object (0.0 GiB) copied while the nodes ran")
        assert found["copy"].startswith("0 objects copied")
        assert found["verify recovery"] == "1 of 1 node verified"
        with applied(own.env):
            assert store_of("gcp", "us-central1").get(pair.source, "results") == b"second region"
        groups = [one for one in own.resources() if one["type"] == "gcp:compute/instanceGroupManager:InstanceGroupManager"]  # fmt: skip
        assert [one["outputs"]["targetSize"] for one in groups] == [1]
        running = [one for one in session.cloud.ask("instances")["instances"] if one["state"] != "terminated"]
        assert [one["region"] for one in running] == ["us-central1"]
