"""Declared files and environment variables on stand-in nodes of three clouds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node.judge import judge
from gpuinfra.plan.files import VARIABLES
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import NAME, TODAY, Machine, host, metadata
from rehearsal.tests.nodes.test_containers import NODE_PART
from rehearsal.tests.nodes.test_own_steps import only
from tests.node.healthy import record
from tests.rules.cases import declaration, user

__all__ = ["host", "metadata"]

CONF = {"path": "/etc/enroot/cache.conf", "content": "CACHE /mnt\n"}
NOTES = {"path": "/srv/notes.txt", "content": "private", "owner": "alice", "mode": "0600"}
QUOTED = 'it\'s a "test"; rm -rf x \\ `id` #'


def pool(cloud: str, *files: dict[str, object], **variables: str) -> PoolPlan:
    """A pool with declared files and variables, and only the steps that they depend on."""
    changes = {
        "software.image": "plain", "pools.0.fabric": "none", "access.users": [user("alice", 2001)],
        "software.files": list(files), "software.environment": {"HF_HOME": "/scratch/hf"}, "pools.0.environment": variables,
    }  # fmt: skip
    made = build_plan(parse_spec(declaration((cloud, changes))), TODAY).pools[0]
    return only(made, "10-prepare", "64-users", "92-files")


def s3(node: Machine) -> dict[str, Any]:
    """The outcome of check S3 for what the node program reads on the node."""
    code, said = node.run("python3", NODE_PART, "files")
    assert code == 0, said
    probes = {"declared-files": record(["files"], said)}
    checks = judge(probes, {**node.pool.expectation, "required": ["S3"]}, journal=None, phases=["presence"])
    (found,) = [check for check in checks if check["id"] == "S3"]
    return dict(found)


def shown(node: Machine, name: str) -> str:
    """The value of a variable in a login shell on the node."""
    return node.run("bash", "-l", "-c", f"printenv {name}")[1].rstrip("\n")


@pytest.mark.parametrize(
    "cloud",
    ["aws", pytest.param("azure", marks=pytest.mark.long), pytest.param("gcp", marks=pytest.mark.long)],
)
def test_files_are_written_changed_and_judged(host: NodeHost, cloud: str) -> None:
    """Files have content, owner and mode as declared, login shells have the variables, a second run changes nothing,
    and check S3 reports what changes later."""
    node = Machine(host, pool(cloud, CONF, NOTES, QUOTED=QUOTED))
    node.launch(cloud, file_systems=())
    code, said = node.steps()
    assert code == 0, said
    assert node.run("cat", CONF["path"])[1] == CONF["content"]
    assert node.run("cat", NOTES["path"])[1] == NOTES["content"]
    assert node.run("stat", "-c", "%U %G %a", NOTES["path"])[1] == "alice alice 600\n"
    assert (shown(node, "HF_HOME"), shown(node, "QUOTED")) == ("/scratch/hf", QUOTED)
    assert s3(node)["outcome"] == "pass", s3(node)
    code, said = node.steps("--again")
    assert "none made changes" in said, said

    root: Path = host._nodes[NAME].root
    (root / "etc/enroot/cache.conf").chmod(0o666)
    (root / "srv/notes.txt").unlink()
    (root / "srv/notes.txt").write_text("private", encoding="utf-8")
    (root / "etc/profile.d/zz.sh").write_text("export HF_HOME=/tmp\nunset QUOTED\n", encoding="utf-8")
    found = s3(node)
    assert (found["outcome"], found["reason"]) == (
        "fail",
        (
            "/etc/enroot/cache.conf has mode 0666 instead of 0644; "
            "/srv/notes.txt has owner root instead of alice, group root instead of alice, mode 0644 instead of 0600; "
            "the variable HF_HOME is '/tmp' in login shells instead of '/scratch/hf'; login shells do not have the variable QUOTED"
        ),
    )
    (root / "etc/profile.d/zz.sh").unlink()
    (root / "etc/enroot/cache.conf").chmod(0o644)

    node.pool = pool(cloud, {**CONF, "content": "CACHE /data\n"})
    node.unpack()
    assert s3(node)["reason"] == f"{CONF['path']} has another content; {VARIABLES} has another content"
    code, said = node.steps()
    assert code == 0, said
    assert (node.run("cat", CONF["path"])[1], shown(node, "QUOTED")) == ("CACHE /data\n", "")
    assert s3(node)["outcome"] == "pass", s3(node)


REFUSED = {
    "belongs to user prometheus, who does not exist on this node": {"owner": "prometheus", "group": "root"},
    "belongs to group prometheus, which does not exist on this node": {"group": "prometheus"},
    "/etc/apt is a folder on this node": {"path": "/etc/apt"},
    "cannot create the folder /etc/hostname/x": {"path": "/etc/hostname/x/y"},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_file_that_cannot_be_written_is_the_reason(host: NodeHost, reason: str) -> None:
    """A missing owner or group, or a path that is a folder, fails the step with the reason and what to declare instead."""
    node = Machine(host, pool("aws", {**CONF, **REFUSED[reason]}))
    node.launch("aws", file_systems=())
    code, said = node.steps()
    assert code == 1, said
    assert reason in said, said
    assert "software.files" in said


def test_a_dry_run_writes_no_file(host: NodeHost) -> None:
    """A dry run lists the files that it would write."""
    node = Machine(host, pool("aws", CONF))
    node.launch("aws", file_systems=())
    code, said = node.steps("--dry-run")
    assert code == 0, said
    assert f"92-files: would write {CONF['path']}" in said
    assert node.run("test", "-e", str(CONF["path"]))[0] != 0
