"""Builds of the two distributions of this repository."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHIPPED = ("bootstrap", "engine", "plugin", "stacks")


def built(source: Path, folder: Path, *options: str) -> list[Path]:
    """Build a distribution. Return its files, wheel first."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *options, "-d", folder],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1750000000"},
        check=True,
        timeout=300,
    )
    return sorted(folder.iterdir(), key=lambda path: path.suffix, reverse=True)


def tracked(*folders: str) -> set[str]:
    """The files of these folders that are tracked by git or not ignored."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def assert_reproducible(name: str, tmp_path: Path) -> tuple[bytes, bytes]:
    """Build a distribution in two copies of the checkout with other times, and its wheel from its source distribution. Return wheel and source distribution."""
    files = tracked(
        "gpuinfra",
        *SHIPPED,
        "rehearsal",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "SECURITY.md",
        ".gitignore",
    )
    made: list[dict[str, bytes]] = []
    for copy in ("first", "second"):
        folder = tmp_path / copy
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, folder / file)
            shutil.copymode(ROOT / file, folder / file)
            os.utime(folder / file, (1_700_000_000 + len(made) * 86_400,) * 2)
        made.append({one.name: one.read_bytes() for one in built(folder / name, tmp_path / f"dist-{copy}")})
    assert [Path(one).suffix for one in made[0]] == [".whl", ".gz"]
    assert made[0] == made[1]
    wheel, source = made[0].values()
    with tarfile.open(fileobj=io.BytesIO(source)) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (unpacked,) = (tmp_path / "source").iterdir()
    assert built(unpacked, tmp_path / "again", "-t", "wheel")[0].read_bytes() == wheel
    return wheel, source
