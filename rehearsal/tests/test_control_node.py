"""The control node of a rehearsed stack is replaced, with its disk and without it."""

from __future__ import annotations

import io
import json
import re
import shutil
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra_rehearsal.nodes import endpoints
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, Session, open_session

from .conftest import Finished, Rehearse, command, run

STACKS = ("aws-monitoring", "azure-monitoring", "gcp-monitoring")
DISKS = ("aws:ebs/volume:Volume", "azure-native:compute:Disk", "gcp:compute/disk:Disk")
SAME = ("instance_id", "state", "verified_since")


def small(stack: str, folder: Path) -> Path:
    """Write the shipped stack with one node in each pool."""
    path = folder / f"Pulumi.{stack}.yaml"
    path.write_text(re.sub(r"count: \d+", "count: 1", (shipped("stacks") / path.name).read_text()))
    return path


def nodes_of(up: Finished, path: Path) -> dict[str, dict[str, Any]]:
    """The nodes as `gpuinfra nodes` shows them, keyed by pool."""
    shown = run(command("nodes", str(path), "--rehearsal", "--folder", str(up.root.parent), "--json"), up.root)
    assert shown.code == 0, shown.out + shown.err
    return {node["pool"]: node for node in json.loads(shown.out)["nodes"]}


def disk_of(session: Session, instance_id: str) -> list[str]:
    """The keys of the disks of a machine in the stand-in cloud."""
    instances = {one["id"]: one for one in session.cloud.ask("instances")["instances"]}
    return [disk["key"] for disk in instances[instance_id].get("disks", ())]


def samples(session: Session, instance_id: str, query: str) -> float:
    """The value of an instant query to Prometheus of a control node, which can still be starting."""
    address = endpoints.monitoring_address(f"http://127.0.0.1:{session.cloud.ready['http']}", instance_id)
    url = f"http://{address}:9090/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                if found := json.load(answer)["data"]["result"]:
                    return float(found[0]["value"][1])
        except OSError:
            pass
        assert time.monotonic() < until, f"no answer to {query}"
        time.sleep(1)


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", STACKS)
def test_a_replaced_control_node_has_the_metrics_of_its_predecessor(
    stack: str, rehearse: Rehearse, tmp_path: Path
) -> None:
    """The new control node attaches the disk of the old one: Prometheus has the samples of before. It is verified and has not drifted, so its check M2
    passes. The nodes with GPUs run on: same machine, verified since the same time."""
    path = small(stack, tmp_path)
    up = rehearse("up", str(path))
    assert up.code == 0, up.out + up.err
    before = nodes_of(up, path)
    assert {node["label"] for node in before.values()} == {"gpu-1", "monitoring-1"}
    options, measured = Options(stack=str(path), folder=up.root.parent), shutil.which("prometheus") is not None
    history = 'min_over_time(timestamp(up{pool="gpu"})[1h:1s])'
    with open_session(options, view_for(io.StringIO())) as session:
        disk = disk_of(session, before["monitoring"]["instance_id"])
        began = samples(session, before["monitoring"]["instance_id"], history) if measured else 0.0
    words = ("--rehearsal", "--folder", str(up.root.parent), "--json", "--save", str(tmp_path / "out"), "--yes")
    done = run(command("replace", str(path), "monitoring-1", *words), up.root)
    assert done.code == 0, done.out + done.err
    (replaced,) = json.loads(done.out)["nodes"]
    assert replaced["replacement"]["outcome"] == "verified"
    assert replaced["replacement"]["same_host"] is not True
    after = nodes_of(up, path)
    assert [after["gpu"][key] for key in SAME] == [before["gpu"][key] for key in SAME]
    control = after["monitoring"]
    assert control["verified_since"] != before["monitoring"]["verified_since"]
    assert (control["state"], control["drift"]) == ("verified", [])
    with open_session(options, view_for(io.StringIO())) as session:
        assert len(disk) == 1
        assert disk_of(session, control["instance_id"]) == disk
        if measured:
            assert samples(session, control["instance_id"], history) <= began


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", STACKS)
def test_a_lost_disk_stops_only_the_control_node(stack: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """Without the disk, the new control node waits, and the nodes with GPUs run on. The next refresh and `up` create another disk and replace the control
    node, which starts without metrics."""
    path = small(stack, tmp_path)
    up = rehearse("up", str(path))
    assert up.code == 0, up.out + up.err
    before = nodes_of(up, path)
    with open_session(Options(stack=str(path), folder=up.root.parent), view_for(io.StringIO())) as session:
        disk = disk_of(session, before["monitoring"]["instance_id"])
        (lost,) = [one for one in session.cloud.ask("resources")["resources"] if one["type"] in DISKS]
        session.cloud.ask("vanish", {"type": lost["type"], "id": lost["id"]})
        session.cloud.ask("terminate", {"instance_id": before["monitoring"]["instance_id"]})
    waiting = nodes_of(up, path)
    assert [waiting["gpu"][key] for key in SAME] == [before["gpu"][key] for key in SAME]
    assert waiting["monitoring"]["state"] != "verified"
    for action in ("refresh", "up"):
        again = rehearse(action, str(path))
        assert again.code == 0, again.out + again.err
    after = nodes_of(up, path)
    assert [after["gpu"][key] for key in SAME] == [before["gpu"][key] for key in SAME]
    assert after["monitoring"]["state"] == "verified"
    with open_session(Options(stack=str(path), folder=up.root.parent), view_for(io.StringIO())) as session:
        found = disk_of(session, after["monitoring"]["instance_id"])
    assert (len(found), found == disk) == (1, False)
