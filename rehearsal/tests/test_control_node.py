"""The control node of a rehearsed stack is replaced, with its disk."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped

from .conftest import Rehearse, command, run

STACKS = ("aws-monitoring", "azure-monitoring", "gcp-monitoring")


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", STACKS)
def test_a_lost_control_node_comes_back_and_stops_nothing(stack: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """Without the control node and its disk, the nodes with GPUs run on: same machine, verified since the same time. The new control node is verified
    and has not drifted, so its check M2 passes: Prometheus and Alertmanager run."""
    path = tmp_path / f"Pulumi.{stack}.yaml"
    path.write_text(re.sub(r"count: \d+", "count: 1", (shipped("stacks") / path.name).read_text()))
    up = rehearse("up", str(path))
    assert up.code == 0, up.out + up.err
    place = ("--rehearsal", "--folder", str(up.root.parent), "--json")

    def nodes() -> dict[str, dict[str, Any]]:
        shown = run(command("nodes", str(path), *place), up.root)
        assert shown.code == 0, shown.out + shown.err
        return {node["pool"]: node for node in json.loads(shown.out)["nodes"]}

    before = nodes()
    assert {node["label"] for node in before.values()} == {"gpu-1", "monitoring-1"}
    done = run(command("replace", str(path), "monitoring-1", *place, "--save", str(tmp_path / "out"), "--yes"), up.root)
    assert done.code == 0, done.out + done.err
    (replaced,) = json.loads(done.out)["nodes"]
    assert replaced["replacement"]["outcome"] == "verified"
    assert replaced["replacement"]["same_host"] is not True
    after = nodes()
    same = ("instance_id", "state", "verified_since")
    assert [after["gpu"][key] for key in same] == [before["gpu"][key] for key in same]
    control = after["monitoring"]
    assert control["verified_since"] != before["monitoring"]["verified_since"]
    assert (control["state"], control["drift"]) == ("verified", [])
