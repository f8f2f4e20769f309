"""Pools with `idle_stop` on a rehearsed stack: an idle pool becomes due and is stopped, and a pool in use is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.remote.servers import needed

from .conftest import Rehearse, command, run

STACK = """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: idle
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    handover: {fabric_test: "off"}
    pools:
      - name: unused
        machine: g6.12xlarge
        capacity: [{kind: on_demand, count: 1}]
        idle_stop: 12h
      - name: used
        machine: g6.12xlarge
        capacity: [{kind: on_demand, count: 1}]
        idle_stop: 12h
"""

PASSED = """python3 - <<END
import json, time
HOURS, EXTRA_W = 13, %d
started = float(open("/run/standin/booted").read()) - HOURS * 3600
open("/run/standin/booted", "w").write(str(started))
path = "/var/lib/gpuinfra/energy.json"
state = json.load(open(path))
first, now = state["readings"][0], time.clock_gettime(time.CLOCK_BOOTTIME)
life = time.time() - started
measured = life - HOURS * 3600 - (now - first["uptime_s"])
watts = [count / 1000 / measured for count in first["millijoules"]]
def at(hours):
    counts = [int(one * (life - hours * 3600) * 1000) - EXTRA_W * 3600 * 1000 for one in watts]
    return {"uptime_s": now - hours * 3600, "millijoules": counts}
state["readings"] = [at(hours) for hours in range(HOURS, 0, -1)]
state["uptime_s"] = state["readings"][-1]["uptime_s"]
json.dump(state, open(path, "w"))
END
python3 /opt/gpuinfra/current/node.pyz verify --upload"""
"""Moves the boot of a node to 13 hours ago, with a reading for each hour. In the last hour, each GPU used more power by the given number of watts."""


@needed()
@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_an_idle_pool_is_stopped_and_a_used_pool_is_not(rehearse: Rehearse, tmp_path: Path) -> None:
    """Right after the boot, no pool is idle. After 13 hours, the unused pool is due, and its command leaves only the nodes of the used pool."""
    path = tmp_path / "Pulumi.aws-idle.yaml"
    path.write_text(STACK, encoding="utf-8")
    up = rehearse("up", str(path))
    assert up.code == 0, up.out + up.err
    place = ("--rehearsal", "--folder", str(up.root.parent))
    calendar = (*command("calendar", str(path), *place), "--json")
    found = json.loads(run(calendar, up.root).out)
    assert [(one["pool"], one["since"]) for one in found["use"]] == [("unused", None), ("used", None)]
    assert [one["reason"] for one in found["use"]] == [f"{name}-1: no earlier reading of this boot" for name in ("unused", "used")]  # fmt: skip
    for name, watts in (("unused", 0), ("used", 20)):
        passed = run(command("ssh", str(path), *place, f"{name}-1", PASSED % watts), up.root)
        assert passed.code == 0, passed.out + passed.err
    done = run(calendar, up.root)
    assert done.code == 1, done.out + done.err
    found = json.loads(done.out)
    assert [(one["group"], one["state"]) for one in found["events"]] == [("unused", "due")]
    assert f"--stop-idle && gpuinfra rehearse up {path}" in found["events"][0]["command"]
    assert "W on average, and at most 14 W is idle" in found["use"][1]["reason"]
    stopped = run((*calendar, "--stop-idle"), up.root)
    assert stopped.code == 0, stopped.out + stopped.err
    assert path.read_text(encoding="utf-8") == STACK.replace("count: 1", "count: 0", 1)
    after = rehearse("up", str(path))
    assert after.code == 0, after.out + after.err
    assert [node["label"] for node in after.report["nodes"]] == ["used-1"]
    again = run(calendar, up.root)
    assert again.code == 0, again.out + again.err
    assert json.loads(again.out)["use"][0]["reason"] == "the pool has no nodes"
