"""Declared users in the plan."""

from __future__ import annotations

import pytest

from gpuinfra import bundle
from gpuinfra.plan.make import build_plan
from gpuinfra.spec import parse_spec
from tests.rules.cases import KEYS, TODAY, declaration, user

USERS = {"access.users": [user("alice", 2001, *KEYS, sudo=True), user("bob", 2002)]}


@pytest.mark.parametrize(
    ("mounts", "folder"),
    [((), "/home"), (("/home",), "/home"), (("/shared/home",), "/shared/home"), (("/a", "/home"), "/home")],
)
def test_home_directories_are_on_the_home_file_system(mounts: tuple[str, ...], folder: str) -> None:
    """Home directories are in /home, unless the only home file system is mounted elsewhere; the comment of a key stays out of the bundle."""
    storage = [{"kind": "home", "mount": mount} for mount in mounts]
    plan = build_plan(parse_spec(declaration(("gcp", {**USERS, "storage": storage}))), TODAY)
    (pool,) = plan.pools
    assert pool.versions["USERS_HOME"] == folder
    first, second = (key.rsplit(" ", key.count(" ") - 1)[0] for key in KEYS)
    assert pool.versions["NODE_USER_0"] == f"alice 2001 sudo {first}; {second}"
    assert pool.versions["NODE_USER_1"] == f"bob 2002 - {first}"
    assert [one.chosen for one in plan.decisions if ".users." in one.path] == [
        f"2001, {folder}/alice, sudo",
        f"2002, {folder}/bob",
    ]
    steps = [step.id for step in pool.steps]
    assert (
        steps.index("64-users") == (steps.index("62-home") if mounts else steps.index("70-container-toolkit") - 2) + 1
    )


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_bundle_without_users_is_unchanged(cloud: str) -> None:
    """Without users, the bundle contains neither the step nor its variables, so that existing nodes are not replaced.
    A pool with 50 users has one variable for each user."""
    (pool,) = build_plan(parse_spec(declaration((cloud, {}))), TODAY).pools
    assert "64-users" not in {step.id for step in pool.steps}
    assert not [name for name in pool.versions if "USER" in name]
    many = {"access.users": [user(f"user-{number}", 2000 + number, *KEYS) for number in range(50)]}
    (pool,) = build_plan(parse_spec(declaration((cloud, many))), TODAY).pools
    assert len([name for name in pool.versions if name.startswith("NODE_USER_")]) == 50
    assert bundle.build(pool).data
