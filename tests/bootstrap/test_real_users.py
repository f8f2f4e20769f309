"""Declared users with the real useradd and usermod, in a private root."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuinfra.plan.model import BootstrapStep
from tests.plan.pools import with_steps

from .private_root.bench import Bench
from .private_root.root import PrivateRoot

pytestmark = pytest.mark.long

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"


def declared(bench: Bench, root: PrivateRoot, *users: str) -> tuple[int, str]:
    """Run the steps with these users: exit code, and the output with the log."""
    pool = with_steps(bench.pool, "10-prepare")
    pool = replace(pool, steps=(*pool.steps, BootstrapStep(id="64-users", timeout_s=300, retries=0, why="")))
    variables = {f"NODE_USER_{number}": user for number, user in enumerate(users)}
    root.bundle(pool, {**bench.versions, "USERS_HOME": "/home", **variables})
    code, output = root.steps()
    return code, output + root.read("var/log/gpuinfra/bootstrap.log")


def test_users_have_ids_homes_and_keys(bench: Bench) -> None:
    """useradd creates users with the declared IDs and without a password; a second run changes nothing;
    a removed user is closed, and a foreign home is refused."""
    root = bench.machine(lustre=False)
    root.run("mkdir", "-p", "/etc/sudoers.d", "/home/carol", check=True)
    alice, bob = f"alice 2001 sudo {KEY}; {KEY}2", f"bob 2002 - {KEY}3"
    code, output = declared(bench, root, alice, bob)
    assert code == 0, output
    assert root.run("getent", "passwd", "alice")[1].strip() == "alice:x:2001:2001::/home/alice:/bin/bash"
    assert root.run("getent", "group", "alice")[1].strip() == "alice:x:2001:"
    assert root.run("getent", "shadow", "alice")[1].split(":")[1] == "*"
    assert root.run("stat", "-c", "%u:%g %a", "/home/alice", "/etc/ssh/authorized_keys.d/alice")[1].split("\n")[:2] == [
        "2001:2001 750",
        "0:0 644",
    ]
    assert root.run("stat", "-c", "%u:%g %a", "/etc/sudoers.d/90-gpuinfra-users")[1].strip() == "0:0 440"
    assert root.read("etc/ssh/authorized_keys.d/alice") == f"{KEY}\n{KEY}2\n"
    code, output = root.steps("--again")
    assert "none made changes" in output, output

    code, output = declared(bench, root, alice)
    assert code == 0, output
    assert root.run("getent", "shadow", "bob")[1].split(":")[7] == "1"
    code, output = declared(bench, root, alice, f"carol 2003 - {KEY}4")
    assert code == 1, output
    assert "user carol cannot write to /home/carol, which belongs to the ID 0" in output
