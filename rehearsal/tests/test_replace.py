"""`gpuinfra replace` on a rehearsed stack of each cloud."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped

from .conftest import Rehearse, command, run

REPORTS = {"aws-p4d": "aws-support.txt", "azure-ndv4": "guest-health-report.json", "gcp-a3high": "node.txt"}


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", REPORTS)
def test_node_is_replaced_and_its_replacement_verified(stack: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """The group replaces a node, the replacement is verified and has other GPUs, and the folder contains the report for the provider."""
    path = tmp_path / f"Pulumi.{stack}.yaml"
    path.write_text(re.sub(r"count: \d+", "count: 1", (shipped("stacks") / path.name).read_text()))
    up = rehearse("up", str(path))
    assert up.code == 0, up.out + up.err
    words = ("replace", str(path), "gpu-1", "--rehearsal", "--folder", str(up.root.parent), "--save", str(tmp_path / "out"))  # fmt: skip
    planned = run(command(*words[:-2], "--dry-run"), up.root)
    assert planned.code == 0, planned.out + planned.err
    done = run(command(*words, "--yes", "--json"), up.root)
    assert done.code == 0, done.out + done.err
    (node,) = json.loads(done.out)["nodes"]
    new = node["replacement"]
    assert (new["outcome"], new["same_host"]) == ("verified", False)
    assert (new["instance_id"] == node["instance_id"]) == (stack == "azure-ndv4")
    # The stack for Azure declares no SSH key, so its nodes accept no login.
    assert node["jobs"].startswith("jobs not stopped: the nodes accept no SSH key" if stack == "azure-ndv4" else "0 processes stopped")  # fmt: skip
    assert len(set(new["gpu_uuids"]) - set(node["gpu_uuids"])) == 8
    folder = tmp_path / "out" / "gpu-1"
    assert node["gpu_uuids"][0] in (folder / "evidence.json").read_text()
    assert (folder / REPORTS[stack]).is_file()
    assert "gpuinfra" in (folder / "console.log").read_text()
