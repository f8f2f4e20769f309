"""The wheel contains everything that a user of the library needs, and nothing of the rehearsal, which has a wheel of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from gpuinfra.cli.rehearsals import LABEL
from tests.dist import ROOT, SHIPPED, assert_reproducible, built, tracked


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from this checkout."""
    return built(ROOT, tmp_path_factory.mktemp("dist"), "-t", "wheel")[0]


def test_wheel_contains_the_files_of_the_checkout(wheel):
    """The wheel contains exactly the package, steps, engine, plugin and stacks."""
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = tracked("gpuinfra") | {f"gpuinfra/_shipped/{name}" for name in tracked(*SHIPPED)}
    found = {name for name in names if ".dist-info/" not in name}
    assert found == expected


def test_installed_wheel_finds_its_own_files(wheel, tmp_path):
    """The unpacked package finds its own steps, engine, plugin and stacks, and the engine has the same key."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = (
        "from gpuinfra.base.shipped import shipped\n"
        "from gpuinfra.engine.module import CLI, read_module\n"
        "import gpuinfra\n"
        f"for name in {SHIPPED!r}: print(shipped(name))\n"
        "print(read_module().key((CLI,)))\n"
    )

    def printed(path: Path) -> list[str]:
        answer = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return answer.stdout.splitlines()

    *folders, key = printed(tmp_path / "site")
    assert folders == [str(tmp_path / "site" / "gpuinfra" / "_shipped" / name) for name in SHIPPED]
    assert key == printed(ROOT)[-1]


def test_wheel_has_the_command_and_one_extra_per_cloud(wheel):
    """The metadata contains the entry point and one extra for each cloud."""
    archive = zipfile.ZipFile(wheel)
    (entry,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    (metadata,) = [name for name in archive.namelist() if name.endswith("METADATA")]
    assert "gpuinfra = gpuinfra.cli:run" in archive.read(entry).decode()
    lines = archive.read(metadata).decode().splitlines()
    assert {line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra")} == {
        "aws",
        "azure",
        "gcp",
        "all",
        "rehearsal",
        "forecast",
    }
    extras = {
        extra: {
            line.partition(";")[0]
            for line in lines
            if line.startswith("Requires-Dist") and line.endswith(f"extra == '{extra}'")
        }
        for extra in ("aws", "azure", "gcp", "all")
    }
    assert extras["all"] == extras["aws"] | extras["azure"] | extras["gcp"] != set()


def test_wheel_alone_plans_and_names_the_file_of_the_rehearsal(wheel: Path, tmp_path: Path) -> None:
    """With the wheel of gpuinfra alone, `plan` works, and `rehearse` ends with the name of the wheel to install."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("gpuinfra", "_gpuinfra", "__editable__")) and not (site / path.name).exists():
            (site / path.name).symlink_to(path)

    def done(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-m", "gpuinfra", *words]  # -S: without the packages of the tests
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)

    assert done("plan", "aws-p4d").returncode == 0
    refused = done("rehearse", "up", "aws-p4d")
    assert refused.returncode == 3
    assert f"FOLDER/gpuinfra_rehearsal-{wheel.name.split('-')[1]}{LABEL}-py3-none-any.whl" in refused.stderr


def test_two_builds_have_equal_bytes(tmp_path: Path) -> None:
    """Wheel and source distribution do not depend on the folder, the times of the files or the time of the build, and contain the mark of typed packages."""
    wheel, source = assert_reproducible(".", tmp_path)
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        assert "gpuinfra/py.typed" in archive.namelist()
    with tarfile.open(fileobj=io.BytesIO(source)) as archive:
        assert any(name.endswith("/gpuinfra/py.typed") for name in archive.getnames())
