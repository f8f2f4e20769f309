"""Declared users on stand-in nodes of three clouds."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import NAME, TODAY, Machine, host, metadata
from rehearsal.tests.nodes.test_own_steps import only
from tests.rules.cases import KEYS, declaration, user

__all__ = ["host", "metadata"]

ALICE, BOB = user("alice", 2001, sudo=True), user("bob", 2002, KEYS[1])


def pool(cloud: str, *users: dict[str, object]) -> PoolPlan:
    """A pool with declared users, and only the steps that they depend on."""
    changes = {"software.image": "plain", "pools.0.fabric": "none", "access.users": list(users)}
    return only(build_plan(parse_spec(declaration((cloud, changes))), TODAY).pools[0], "10-prepare", "64-users")


def lines(node: Machine, path: str) -> list[str]:
    """The lines of a file on the node."""
    code, text = node.run("cat", path)
    return text.splitlines() if code == 0 else []


@pytest.mark.parametrize(
    "cloud",
    ["aws", pytest.param("azure", marks=pytest.mark.long), pytest.param("gcp", marks=pytest.mark.long)],
)
def test_users_are_created_changed_and_closed(host: NodeHost, cloud: str) -> None:
    """Users have IDs, homes, keys and sudo as declared. A second run changes nothing, and a user that is removed is closed and can be declared again."""
    node = Machine(host, pool(cloud, ALICE, BOB))
    node.launch(cloud, file_systems=())
    code, said = node.steps()
    assert code == 0, said
    assert "alice:x:2001:2001::/home/alice:/bin/bash" in lines(node, "/etc/passwd")
    assert lines(node, "/etc/ssh/authorized_keys.d/bob") == [" ".join(KEYS[1].split(" ")[:2])]
    assert lines(node, "/etc/sudoers.d/90-gpuinfra-users") == ["alice ALL=(ALL) NOPASSWD:ALL"]
    assert node.run("test", "-d", "/home/bob")[0] == 0
    code, said = node.steps("--again")
    assert "none made changes" in said, said

    node.pool = pool(cloud, {**ALICE, "sudo": False})
    node.unpack()
    code, said = node.steps()
    assert code == 0, said
    assert "disabled user bob" in "\n".join(lines(node, "/var/log/gpuinfra/bootstrap.log"))
    assert [line.split(":")[7] for line in lines(node, "/etc/shadow") if line.startswith("bob:")] == ["1"]
    assert node.run("test", "-e", "/etc/ssh/authorized_keys.d/bob")[0] != 0
    assert node.run("test", "-e", "/etc/sudoers.d/90-gpuinfra-users")[0] != 0
    assert node.run("test", "-d", "/home/bob")[0] == 0

    node.pool = pool(cloud, ALICE, BOB)
    node.unpack()
    code, said = node.steps()
    assert code == 0, said
    assert [line.split(":")[7] for line in lines(node, "/etc/shadow") if line.startswith("bob:")] == [""]
    assert lines(node, "/etc/ssh/authorized_keys.d/bob")


CONFLICTS = {
    "user alice exists with the ID 1005": ("passwd", "alice:x:1005:1005::/home/alice:/bin/bash"),
    "the ID 2001 of user alice belongs to user carol": ("passwd", "carol:x:2001:2001::/home/carol:/bin/bash"),
    "group alice exists with the ID 1005": ("group", "alice:x:1005:"),
    "the ID 2001 of user alice belongs to group carol": ("group", "carol:x:2001:"),
    "sshd does not read /etc/ssh/authorized_keys.d": (
        "ssh/sshd_config.d/00-image.conf",
        "AuthorizedKeysFile /etc/keys/%u",
    ),
}
"""Reason -> a file of the image in /etc, and its conflicting line."""


def test_a_conflict_with_the_image_is_the_reason(host: NodeHost) -> None:
    """A name or an ID that the image uses, or an image whose sshd ignores the keys, fails the step with the reason."""
    node = Machine(host, pool("aws", ALICE))
    node.launch("aws", file_systems=())
    for reason, (file, line) in CONFLICTS.items():
        path: Path = host._nodes[NAME].root / "etc" / file
        path.parent.mkdir(exist_ok=True)
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(f"{before}{line}\n", encoding="utf-8")
        code, said = node.steps()
        assert code == 1, said
        assert reason in said, said
        path.write_text(before, encoding="utf-8")
    code, said = node.steps()
    assert code == 0, said


@pytest.mark.long
def test_a_lock_on_the_accounts_is_the_reason(host: NodeHost) -> None:
    """If another process keeps its lock on the accounts, the step fails with the message of useradd and does not open sudo for a missing user."""
    node = Machine(host, pool("aws", ALICE))
    node.launch("aws", faults=("accounts-locked",), file_systems=())
    code, said = node.steps()
    assert code == 1, said
    assert "cannot lock /etc/passwd; try again later." in said + "\n".join(
        lines(node, "/var/log/gpuinfra/bootstrap.log")
    )
    assert node.run("test", "-e", "/etc/sudoers.d/90-gpuinfra-users")[0] != 0
