"""A node that breaks after the handover."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote.servers import needed

from .conftest import Rehearse, command, fewer_nodes, run

BREAK = """python3 - <<END
import json
path = "/run/standin/standin.json"
state = json.load(open(path))
state["faults"] = ["gpu-missing"]
open(path, "w").write(json.dumps(state))
END
systemctl start gpuinfra-recheck.service"""


@needed()
@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_refresh_finds_a_gpu_that_disappears_after_the_handover(rehearse: Rehearse, tmp_path: Path) -> None:
    """The hourly check uploads that a GPU is lost, and a refresh reports the node as failed and changes nothing else."""
    stack = fewer_nodes("aws-p4d", tmp_path)
    up = rehearse("up", stack)
    assert up.code == 0, up.out + up.err
    assert up.report["totals"]["gpus_verified"] == 16
    place = (stack, "--rehearsal", "--folder", str(up.root.parent))
    broken = run(command("ssh", *place, "gpu-1", BREAK), up.root)
    assert broken.code == 0, broken.out + broken.err
    after = rehearse("refresh", stack)
    totals = after.report["totals"]
    assert (totals["nodes_verified"], totals["gpus_verified"]) == (1, 8)
    assert [node["label"] for node in after.report["nodes"] if node["outcome"] == "failed"] == ["gpu-1"]
