"""The wheel of the rehearsal contains everything that a rehearsal needs beside the wheel of gpuinfra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gpuinfra.cli.rehearsals import ENTRY_POINTS, LABEL
from gpuinfra_rehearsal.nodes import available
from tests.dist import ROOT, assert_reproducible, built, tracked


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels of gpuinfra and of the rehearsal, built from this checkout."""
    return [built(folder, tmp_path_factory.mktemp("dist"), "-t", "wheel")[0] for folder in (ROOT, ROOT / "rehearsal")]


def test_wheel_of_the_rehearsal_contains_the_files_of_the_checkout(wheels: list[Path]) -> None:
    """The wheel of the rehearsal contains exactly its package with all data files, the license, and the entry point that gpuinfra looks up."""
    archive = zipfile.ZipFile(wheels[1])
    found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {f"rehearsal/{name}" for name in found} == tracked("rehearsal/gpuinfra_rehearsal")
    assert {Path(name).suffix for name in found} >= {".json", ".txt", ".xml", ".j2"}
    (entry,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    assert archive.read(entry).decode().split("\n")[:2] == [
        f"[{ENTRY_POINTS}]",
        "commands = gpuinfra_rehearsal.commands:Commands",
    ]
    (license_,) = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
    assert archive.read(license_) == (ROOT / "LICENSE").read_bytes()
    assert wheels[1].name.endswith(f"{LABEL}-py3-none-any.whl")


def test_two_builds_have_equal_bytes(tmp_path: Path) -> None:
    """The wheel and the source distribution of the rehearsal are reproducible, and the source distribution builds on its own."""
    assert_reproducible("rehearsal", tmp_path)


@pytest.mark.long
def test_own_program_is_rehearsed_from_the_wheels(wheels: list[Path], tmp_path: Path) -> None:
    """A program outside of this checkout declares a cluster with `GpuCluster`, and its node is verified."""
    site = tmp_path / "site"
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(site)
    rehearsed_from(site, Path(sys.executable), tmp_path, os.environ | {"PYTHONPATH": str(site)})


@pytest.mark.long
def test_wheels_install_into_an_empty_environment(wheels: list[Path], tmp_path: Path) -> None:
    """The files of both wheels, with the extras `aws` and `rehearsal`, install everything that the same program needs into an empty environment."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    versions = tmp_path / "versions.txt"  # the versions of the lock, without hashes, because the wheels have none
    pinned = (ROOT / "requirements" / "aws.txt").read_text(encoding="utf-8").splitlines()
    versions.write_text("\n".join(line.removesuffix("\\").strip() for line in pinned if line[:1].isalnum()))
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    words = ["-c", versions, f"gpuinfra[aws,rehearsal] @ {wheels[0].as_uri()}", wheels[1]]
    done = subprocess.run([*pip, *words], capture_output=True, text=True, timeout=480)
    if "Temporary failure in name resolution" in done.stderr or "Failed to establish a new connection" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    (site,) = (tmp_path / "venv/lib").glob("python3.*/site-packages")
    bare = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    rehearsed_from(site, tmp_path / "venv/bin/python", tmp_path, bare)


def rehearsed_from(site: Path, python: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    """Rehearse a separate program with the package in `site`: a node is verified and destroyed."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "Pulumi.yaml").write_text("name: own\nruntime: python\n")
    (own / "Pulumi.dev.yaml").write_text("config: {}\n")
    (own / "__main__.py").write_text(
        "from pathlib import Path\n"
        "import gpuinfra\n"
        "from gpuinfra import Aws, ClusterSpec, GpuCluster, Pool, Spot\n"
        f"Path({str(own)!r}, 'imported').write_text(gpuinfra.__file__)\n"
        "pool = Pool(name='gpu', machine='p4d.24xlarge', capacity=[Spot(count=1)])\n"
        "spec = ClusterSpec(name='mine', where=Aws(region='us-east-1', zone='use1-az4'), pools=[pool])\n"
        "GpuCluster('mine', spec)\n"
    )

    def rehearse(action: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-m", "gpuinfra", "rehearse", action, "dev"],
            cwd=own,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
        )

    up = rehearse("up")
    assert up.returncode == 0, up.stdout + up.stderr
    assert (own / "imported").read_text() == str(site / "gpuinfra" / "__init__.py")
    project = (own / ".rehearsal" / "dev" / "project" / "Pulumi.yaml").read_text()
    assert str(site / "gpuinfra" / "_shipped" / "plugin") in project
    assert str(ROOT) not in project.replace(sys.prefix, "")  # the environment of the tests
    report = json.loads((own / ".rehearsal" / "dev" / "report.json").read_text())
    assert report["rehearsal"] is True
    possible, reason = available()
    if not possible:
        pytest.skip(f"stand-in nodes cannot run here: {reason}")
    assert (report["totals"]["nodes_verified"], report["totals"]["gpus_verified"]) == (1, 8)
    down = rehearse("destroy")
    assert down.returncode == 0, down.stdout + down.stderr
