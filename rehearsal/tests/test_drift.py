"""`gpuinfra drift` on a rehearsed stack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, open_session
from tests.remote.servers import needed

from .conftest import Finished, Rehearse, command, run

UNHOLD = "apt-mark unhold libnccl2 && systemctl start gpuinfra-recheck.service"


def drift(up: Finished, stack: str) -> tuple[int, dict[str, object]]:
    """Exit code and document of the command."""
    words = command("drift", stack, "--rehearsal", "--folder", str(up.root.parent), "--json")
    done = run(words, up.root)
    assert done.out, done.err
    return done.code, json.loads(done.out)


def change_by_hand(root: Path, stack: str, kind: str) -> str:
    """Add a tag to a resource of this type in the stand-in cloud. Return the name of the resource."""
    import io

    with open_session(Options(stack=stack, folder=root), view_for(io.StringIO())) as session:
        resource = next(one for one in session.pulumi.resources() if one["type"] == kind)
        tags = {**resource["outputs"]["tags"], "by-hand": "yes"}
        session.cloud.ask("drift", {"type": kind, "id": resource["id"], "set": {"tags": tags, "tagsAll": tags}})
    return str(resource["urn"]).rsplit("::", 1)[-1]


def test_a_stack_that_is_not_deployed_cannot_be_compared(tmp_path: Path) -> None:
    """Without a state, the exit code is 3 and the message has the command that deploys the stack."""
    done = run(command("drift", "aws-foundation", "--rehearsal", "--folder", str(tmp_path)), tmp_path)
    assert done.code == 3, done.out + done.err
    assert "gpuinfra rehearse up aws-foundation" in done.err


@pytest.mark.long
def test_changed_resource_is_drift_and_the_state_is_only_read(rehearse: Rehearse) -> None:
    """A tag that was added by hand is named with its path and the fix; the state file does not change; the fix ends the drift."""
    up = rehearse("up", "aws-foundation")
    assert up.code == 0, up.out + up.err
    assert drift(up, "aws-foundation")[0] == 0
    name = change_by_hand(up.root.parent, "aws-foundation", "aws:s3/bucket:Bucket")
    before = up.state
    code, document = drift(up, "aws-foundation")
    assert code == 1
    assert up.state == before
    (one,) = document["differences"]  # pyright: ignore[reportGeneralTypeIssues]
    assert (one["name"], one["what"], one["found"]) == (name, "tags.by-hand", '"yes"')
    place = f"aws-foundation --folder {up.root.parent}"
    assert one["fix"] == f"gpuinfra rehearse refresh {place} && gpuinfra rehearse up {place}"
    assert [rehearse(action, "aws-foundation").code for action in ("refresh", "up")] == [0, 0]
    assert drift(up, "aws-foundation") == (
        0,
        {**document, "drift": False, "differences": [], "totals": {"cloud": 0, "node": 0}},
    )


@needed()
@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_changed_resource_and_changed_node_are_both_named(rehearse: Rehearse) -> None:
    """A tag of the network and a package hold on a node are both named; the commands of both lines end the drift."""
    up = rehearse("up", "aws-p4d")
    assert up.code == 0, up.out + up.err
    assert drift(up, "aws-p4d")[0] == 0
    place = ("--rehearsal", "--folder", str(up.root.parent), "aws-p4d")
    name = change_by_hand(up.root.parent, "aws-p4d", "aws:ec2/vpc:Vpc")
    changed = run(command("ssh", *place, "gpu-2", UNHOLD), up.root)
    assert changed.code == 0, changed.out + changed.err
    code, document = drift(up, "aws-p4d")
    assert code == 1
    assert document["complete"] is True
    cloud, node = document["differences"]  # pyright: ignore[reportGeneralTypeIssues]
    assert (cloud["area"], cloud["name"], cloud["what"]) == ("cloud", name, "tags.by-hand")
    assert (node["area"], node["name"], node["what"]) == ("node", "gpu-2", "D4 holds")
    assert "not held: nccl" in node["reason"]
    listed = json.loads(run(command("nodes", *place, "--json"), up.root).out)
    assert [(one["label"], one["state"]) for one in listed["nodes"]] == [
        ("gpu-2", "drifted"), ("gpu-1", "verified"), ("gpu-3", "verified"), ("gpu-4", "verified"),
    ]  # fmt: skip
    assert all(one["verified_since"] for one in listed["nodes"])
    fix = node["fix"].split("'")[1]
    fixed = run(command("ssh", *place, "gpu-2", fix), up.root)
    assert fixed.code == 0, fixed.out + fixed.err
    assert [rehearse(action, "aws-p4d").code for action in ("refresh", "up")] == [0, 0]
    assert drift(up, "aws-p4d")[0] == 0
