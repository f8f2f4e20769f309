"""A node that breaks after the handover."""

from __future__ import annotations

import pytest

from tests.remote.servers import needed

from .conftest import Rehearse, command, run

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
def test_refresh_finds_a_gpu_that_disappears_after_the_handover(rehearse: Rehearse) -> None:
    """The hourly check uploads that a GPU is lost, and a refresh reports the node as failed and changes nothing else."""
    up = rehearse("up", "aws-p4d")
    assert up.code == 0, up.out + up.err
    assert up.report["totals"]["gpus_verified"] == 32
    place = ("aws-p4d", "--rehearsal", "--folder", str(up.root.parent))
    broken = run(command("ssh", *place, "gpu-1", BREAK), up.root)
    assert broken.code == 0, broken.out + broken.err
    after = rehearse("refresh", "aws-p4d")
    totals = after.report["totals"]
    assert (totals["nodes_verified"], totals["gpus_verified"]) == (3, 24)
    assert [node["label"] for node in after.report["nodes"] if node["outcome"] == "failed"] == ["gpu-1"]
