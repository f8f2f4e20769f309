"""Declared packages on real apt and dpkg, in a private root."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gpuinfra.plan.model import BootstrapStep
from tests.plan.pools import with_steps

from .private_root.bench import Bench
from .private_root.root import PrivateRoot


def declared(bench: Bench, root: PrivateRoot, packages: str) -> tuple[int, str]:
    """Run the steps with these packages: exit code, and the output with the log."""
    pool = with_steps(bench.pool, "10-prepare", "90-holds")
    step = BootstrapStep(id="95-packages", timeout_s=300, retries=0, why="")
    pool = replace(pool, steps=(*pool.steps, step))
    lock = {
        **bench.versions,
        "EXTRA_PACKAGES": packages,
        "HOLD_PATTERNS": f"{bench.versions['HOLD_PATTERNS']} held-tool*",
    }
    root.bundle(pool, lock)
    code, output = root.steps()
    return code, output + root.read("var/log/gpuinfra/bootstrap.log")


def version(root: PrivateRoot, name: str) -> str:
    """The installed version of a package."""
    return root.run("dpkg-query", "-W", "-f", "${Version}", name)[1]


def test_packages_are_installed_at_their_versions_and_held(bench: Bench) -> None:
    """The newest version without a version, the declared one with a version, which is held; both can change later, and a second run changes nothing."""
    root = bench.machine(lustre=False)
    code, output = declared(bench, root, "htop nvtop=1.2-1")
    assert code == 0, output
    assert (version(root, "htop"), version(root, "nvtop")) == ("3.0.5-7", "1.2-1")
    assert "nvtop" in root.run("apt-mark", "showhold")[1].split()
    assert "htop" not in root.run("apt-mark", "showhold")[1].split()
    code, output = root.steps("--again")
    assert "none made changes" in output, output
    for wanted in ("1.3-1", "1.2-1"):
        code, output = declared(bench, root, f"nvtop={wanted}")
        assert code == 0, output
        assert version(root, "nvtop") == wanted


@pytest.mark.parametrize(
    ("packages", "reason"),
    [
        (
            "htop none-such nvtop=7",
            "the repositories of this node do not contain none-such nvtop=7 (software.packages)",
        ),
        ("greedy", "installing greedy failed 3 times"),
        ("rude", "installing rude failed 3 times"),
    ],
)
def test_packages_do_not_change_the_software_of_the_lock(bench: Bench, packages: str, reason: str) -> None:
    """A package that is not available, or that would change or remove a held package, fails the step with its name and changes nothing."""
    root = bench.machine(lustre=False)
    code, output = declared(bench, root, "htop")
    assert code == 0, output
    code, output = root.run("apt-get", "-y", "-q", "install", "held-tool=1-1")
    assert code == 0, output
    code, output = declared(bench, root, packages)
    assert code == 1, output
    assert reason in output
    assert version(root, "held-tool") == "1-1"
    assert root.run("dpkg-query", "-W", "-f", "${Status}", "greedy", "rude")[0] != 0


def test_a_package_that_the_repository_does_not_deliver_is_named(bench: Bench) -> None:
    """The reason is apt's line with the file and the response of the server, and a later run continues."""
    root = bench.machine(lustre=False)
    bench.vendors.troubles.append(lambda path: 503 if "/htop_" in path else None)
    code, output = declared(bench, root, "htop")
    bench.vendors.troubles.clear()
    assert code == 1, output
    reasons = [str(entry.get("reason")) for entry in root.state["steps"] if entry["status"] == "failed"]
    assert re.search(
        r"installing htop failed 3 times, last with exit code 100: E: Failed to fetch .*/htop_.* 503 ", reasons[0]
    ), reasons
    code, output = root.steps()
    assert code == 0, output
