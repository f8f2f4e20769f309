"""A Capacity Block from its declaration to its end, and the expiry of a cluster, on rehearsed stacks."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import time
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, Session, open_session
from tests.clouds.stacks import TODAY as DAY

from .conftest import Finished, Rehearse, command, run

TODAY = datetime.fromisoformat(f"{DAY}T11:30:00Z")
"""The day on which the commands of the tests run."""
GROUP, SCHEDULE = "aws:autoscaling/group:Group", "aws:autoscaling/schedule:Schedule"
FEE = "21147.84"


def iso(at: datetime) -> str:
    """A time in the form of a declaration."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def declared(path: Path, starts: datetime, ends: datetime, extra: str = "") -> None:
    """Write the shipped stack with a block of one node between two times, without a file system."""
    text = (shipped("stacks") / "Pulumi.aws-p5-block.yaml").read_text(encoding="utf-8")
    text = re.sub(r"count: 4, .*?}", f'count: 1, starts_at: "{iso(starts)}", ends_at: "{iso(ends)}"}}', text)
    text = text.partition("    storage:")[0]
    path.write_text(text + extra, encoding="utf-8")


def calendar(up: Finished, path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of the calendar of a rehearsed stack."""
    place = ("--rehearsal", "--folder", str(up.root.parent), "--json")
    done = run(command("calendar", str(path), *place, *words), up.root)
    assert done.out, done.err
    return done.code, json.loads(done.out)


def states(found: dict[str, Any]) -> list[tuple[str, str]]:
    """State and command of each date."""
    return [(one["state"], one["command"]) for one in found["events"]]


def sizes(up: Finished) -> tuple[list[int], list[str]]:
    """Desired sizes of the groups, and names of the scheduled actions, in the state."""
    groups = [one["outputs"]["desiredCapacity"] for one in up.state if one["type"] == GROUP]
    actions = [one["inputs"]["scheduledActionName"] for one in up.state if one["type"] == SCHEDULE]
    return groups, sorted(actions)


def cloud_of(path: Path, up: Finished) -> AbstractContextManager[Session]:
    """The stand-in cloud of a rehearsed stack, while a `with` block runs."""
    return open_session(Options(stack=str(path), folder=up.root.parent, without_nodes=True), view_for(io.StringIO()))


def in_cloud(up: Finished, kind: str, name: str) -> list[Any]:
    """An input of each resource of a type, as the stand-in cloud stores it."""
    with closing(sqlite3.connect(up.root / "cloud.sqlite")) as store:
        return [
            json.loads(text)[name] for (text,) in store.execute("select inputs from resources where type = ?", [kind])
        ]


def running(up: Finished) -> int:
    """Number of instances that run in the stand-in cloud."""
    with closing(sqlite3.connect(up.root / "cloud.sqlite")) as store:
        rows = store.execute("select data from things where kind = 'instance'").fetchall()
    return sum(json.loads(text)["state"] == "running" for (text,) in rows)


@pytest.mark.long
def test_a_capacity_block_is_declared_before_its_start(rehearse: Rehearse, tmp_path: Path) -> None:
    """A block is deployed without nodes, the cloud starts them, `up` is due until it runs, and offers continue the block."""
    path = tmp_path / "Pulumi.aws-p5-block.yaml"
    starts = TODAY + timedelta(days=3)
    ends = starts + timedelta(days=7)
    declared(path, starts, ends)
    up = rehearse("up", str(path), "--without-nodes")
    assert up.code == 0, up.out + up.err
    assert sizes(up) == ([0], ["end", "start"])
    code, found = calendar(up, path)
    assert code == 1
    assert found["rehearsal"] is True
    again = f"gpuinfra rehearse up {path}"
    assert states(found)[0] == ("soon", again)
    assert calendar(up, path, "--within", "0")[0] == 0
    with cloud_of(path, up) as session:
        session.cloud.ask("schedule", {"name": "start"})
        offer = {"offering": "block", "machine": "p5.48xlarge", "count": 1, "zone": "us-east-2a", "starts": iso(ends), "hours": 168, "fee": FEE}  # fmt: skip
        session.cloud.ask("external", {"id": "cb-0123456789abcdef0", **offer})
    code, found = calendar(up, path, "--at", iso(starts + timedelta(hours=1)), "--within", "0", "--offers")
    assert code == 1
    assert states(found)[0] == ("due", again)
    (offered,) = found["offers"]
    assert (offered["price"], offered["starts"]) == (FEE, iso(ends))
    assert "purchase-capacity-block --capacity-block-offering-id cb-0123456789abcdef0" in offered["command"]
    # A later day: the start has passed, and the cloud has deleted the action of the start.
    declared(path, starts - timedelta(days=4), ends)
    up = rehearse("up", str(path), "--without-nodes")
    assert up.code == 0, up.out + up.err
    assert sizes(up) == ([1], ["end"])
    code, found = calendar(up, path)
    assert (code, states(found)) == (0, [("done", ""), ("later", f"gpuinfra calendar {path} --rehearsal --folder {up.root.parent} --offers")])  # fmt: skip


@pytest.mark.long
def test_an_expired_cluster_has_no_nodes(rehearse: Rehearse, tmp_path: Path) -> None:
    """Before `expires_at`, each group has an action that ends it. Afterwards, `up` leaves no node and no action, and `destroy` is due."""
    path = tmp_path / "Pulumi.aws-p5-block.yaml"
    starts = TODAY - timedelta(days=2)
    declared(path, starts, starts + timedelta(days=14), f'    expires_at: "{iso(TODAY + timedelta(days=2))}"\n')
    up = rehearse("up", str(path), "--without-nodes")
    assert up.code == 0, up.out + up.err
    assert sizes(up) == ([1], ["end"])
    declared(path, starts, starts + timedelta(days=14), f'    expires_at: "{iso(TODAY - timedelta(days=1))}"\n')
    code, found = calendar(up, path)
    assert code == 1
    assert ("due", f"gpuinfra rehearse destroy {path}") in states(found)
    assert ("due", f"gpuinfra rehearse up {path}") in states(found)
    up = rehearse("up", str(path), "--without-nodes")
    assert up.code == 0, up.out + up.err
    assert sizes(up) == ([0], [])
    assert ("due", f"gpuinfra rehearse up {path}") not in states(calendar(up, path)[1])


SIZES = {
    "azure-ndv5": ("azure-native:compute:VirtualMachineScaleSet", lambda inputs: inputs["sku"]["capacity"]),
    "gcp-a3ultra": ("gcp:compute/instanceGroupManager:InstanceGroupManager", lambda inputs: inputs["targetSize"]),
}
"""Stack -> type of its groups, and the number of nodes in the inputs of a group."""


@pytest.mark.long
@pytest.mark.parametrize("stack", SIZES)
def test_up_removes_the_nodes_of_an_expired_cluster(stack: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """On a cloud without scheduled actions, `up` is due when the cluster expires, and leaves groups without nodes."""
    kind, size = SIZES[stack]
    path = tmp_path / f"Pulumi.{stack}.yaml"
    text = (shipped("stacks") / path.name).read_text(encoding="utf-8")

    def up(expires: datetime) -> tuple[Finished, set[int]]:
        path.write_text(text.replace("    name:", f'    expires_at: "{iso(expires)}"\n    name:', 1), encoding="utf-8")
        done = rehearse("up", str(path), "--without-nodes")
        assert done.code == 0, done.out + done.err
        return done, {int(size(one["inputs"])) for one in done.state if one["type"] == kind}

    done, sizes_before = up(TODAY + timedelta(days=2))
    assert min(sizes_before) > 0
    code, found = calendar(done, path, "--at", iso(TODAY + timedelta(days=2)), "--within", "0")
    assert code == 1
    assert {one["command"] for one in found["events"]} == {f"gpuinfra rehearse {verb} {path}" for verb in ("up", "destroy")}  # fmt: skip
    done, sizes_after = up(TODAY - timedelta(days=1))
    assert sizes_after == {0}
    last, *removed = (one["state"] for one in calendar(done, path)[1]["events"])
    assert (last, {*removed}) == ("due", {"done"})


@pytest.mark.long
def test_up_ends_nodes_that_only_a_scheduled_action_started(rehearse: Rehearse, tmp_path: Path) -> None:
    """If the cluster expires before an `up` after the start, the state expects no nodes. `up` is due, and removes the nodes without a refresh."""
    path = tmp_path / "Pulumi.aws-p5-block.yaml"
    starts = TODAY + timedelta(days=3)
    declared(path, starts, starts + timedelta(days=7))
    up = rehearse("up", str(path), "--without-nodes")
    assert up.code == 0, up.out + up.err
    with cloud_of(path, up) as session:
        session.cloud.ask("schedule", {"name": "start"})
    assert in_cloud(up, GROUP, "desiredCapacity") == [1]
    expires = f'    expires_at: "{iso(TODAY - timedelta(days=1))}"\n'
    declared(path, TODAY - timedelta(days=4), TODAY + timedelta(days=3), expires)
    assert ("due", f"gpuinfra rehearse up {path}") in states(calendar(up, path)[1])
    up = rehearse("up", str(path), "--without-nodes")
    assert up.code == 0, up.out + up.err
    assert sizes(up) == ([0], [])
    assert in_cloud(up, GROUP, "desiredCapacity") == [0]
    assert ("due", f"gpuinfra rehearse up {path}") not in states(calendar(up, path)[1])


FLEX = """\
config:
  gcp:region: us-central1
  gpuinfra:cluster:
    name: queue
    expires_at: "{expires}"
    where: {{cloud: gcp, region: us-central1, zone: us-central1-b}}
    pools:
      - name: gpu
        machine: a3-ultragpu-8g
        capacity: [{{kind: flex, count: 2, max_run_hours: 24}}]
"""


@pytest.mark.long
def test_up_removes_flex_start_nodes_of_an_expired_cluster(rehearse: Rehearse, tmp_path: Path) -> None:
    """The state expects no flex-start nodes also while they run. After the cluster expires, `up` removes them without a refresh."""
    path = tmp_path / "Pulumi.gcp-queue.yaml"
    path.write_text(FLEX.format(expires=iso(TODAY + timedelta(days=2))), encoding="utf-8")
    up = rehearse("up", str(path), "--without-nodes")
    assert up.code == 0, up.out + up.err
    with cloud_of(path, up):
        limit = time.monotonic() + 300
        while running(up) < 2:
            assert time.monotonic() < limit
            time.sleep(0.2)
    (kind, size) = SIZES["gcp-a3ultra"]
    assert [size(one["inputs"]) for one in up.state if one["type"] == kind] == [0]
    path.write_text(FLEX.format(expires=iso(TODAY - timedelta(days=1))), encoding="utf-8")
    assert ("due", f"gpuinfra rehearse up {path}") in states(calendar(up, path)[1])
    up = rehearse("up", str(path), "--without-nodes")
    assert up.code == 0, up.out + up.err
    assert running(up) == 0
    assert states(calendar(up, path)[1]) == [("due", f"gpuinfra rehearse destroy {path}"), ("done", "")]


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_jobs_stop_before_the_nodes_are_removed(rehearse: Rehearse, tmp_path: Path) -> None:
    """`--drain` logs in to the nodes that are removed within the time and stops their jobs, and logs in to no node before. `tests/remote` stops processes."""
    path = tmp_path / "Pulumi.aws-p5-block.yaml"
    removed = iso(datetime.now(UTC) + timedelta(hours=10))
    declared(path, TODAY, TODAY, f'    expires_at: "{removed}"\n')
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"{kind: block.*?}", "{kind: on_demand, count: 1}", text), encoding="utf-8")
    up = rehearse("up", str(path))
    assert up.code == 0, up.out + up.err
    assert calendar(up, path, "--drain", "60")[1]["drained"] == {}
    (result,) = calendar(up, path, "--drain", "1440")[1]["drained"].values()
    assert result == f"0 processes stopped; removed at {removed}"
