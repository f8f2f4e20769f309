"""The script of a live drill, which runs on the nodes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.region.drill import CopiedObject
from gpuinfra.region.live_drill import script as module
from gpuinfra.region.live_drill.script import script

PART = 4
CONTENTS = {"step/a": b"0123456789", "step/b": b"01234567", "step/COMPLETE": b""}


def copied(key: str, content: bytes) -> CopiedObject:
    """The copy of an object, with the checksums of its parts."""
    parts = [content[start : start + PART] for start in range(0, len(content), PART)] or [b""]
    sums = tuple(hashlib.sha256(one).hexdigest() for one in parts)
    return CopiedObject(key=key, size=len(content), algorithm="sha256", part_bytes=PART, checksums=sums)


COPIES = [*(copied(key, content) for key, content in CONTENTS.items()), copied("step/", b"")]


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mounted bucket with the files."""
    monkeypatch.setattr(module, "MOUNT", str(tmp_path))
    (tmp_path / "step").mkdir()
    for key, content in CONTENTS.items():
        (tmp_path / key).write_bytes(content)
    return tmp_path


def run() -> tuple[int, str]:
    """Run the script. Returns its exit code and its output."""
    done = subprocess.run([sys.executable, "-c", script(COPIES)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_files_with_the_checksums_of_the_copy_pass(mount: Path) -> None:
    """An empty file, a file of whole parts and a file with a shorter last part pass, and an object that stands for a folder is not read."""
    code, said = run()
    assert (code, said.partition(" bytes")[0]) == (0, "3 files, 18")


@pytest.mark.parametrize(
    ("key", "content", "problem"),
    [
        ("step/a", b"012345678x", "step/a has another checksum than the copy"),
        ("step/b", b"012", "step/b has 3 bytes, expected 8"),
        ("step/b", b"0123456789", "step/b has 10 bytes, expected 8"),
        ("step/COMPLETE", None, "step/COMPLETE cannot be read: No such file or directory"),
    ],
)
def test_a_different_file_fails(mount: Path, key: str, content: bytes | None, problem: str) -> None:
    """A wrong byte, a shorter, a longer and a missing file are named."""
    (mount / key).unlink()
    if content is not None:
        (mount / key).write_bytes(content)
    code, said = run()
    assert (code, problem in said) == (1, True), said


def test_too_many_files_are_refused() -> None:
    """A script has at most 256 KiB."""
    with pytest.raises(DeploymentError, match="write checkpoints with fewer files"):
        script([copied(f"step/{number}", b"x") for number in range(3000)])
