"""The wheel contains everything that a user of the library needs."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from gpuinfra_rehearsal.nodes import available

ROOT = Path(__file__).parents[1]
SHIPPED = ("bootstrap", "engine", "plugin", "stacks")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from this checkout."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True, timeout=120
    )
    (built,) = folder.glob("*.whl")
    return built


def tracked(*folders: str) -> set[str]:
    """The files of these folders that are tracked by git or not ignored."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


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


def test_two_builds_have_equal_bytes(tmp_path):
    """Wheel and source distribution do not depend on the folder, the times of the files or the time of the build, and contain the mark of typed packages."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
    files = tracked(
        "gpuinfra", *SHIPPED, "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", ".gitignore"
    )
    built: list[dict[str, bytes]] = []
    for copy in ("first", "second"):
        folder = tmp_path / copy
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
            shutil.copymode(ROOT / name, folder / name)
            os.utime(folder / name, (1_700_000_000 + len(built) * 86_400,) * 2)
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", folder / "dist"],
            cwd=folder,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1750000000"},
            check=True,
            timeout=300,
        )
        built.append({one.name: one.read_bytes() for one in (folder / "dist").iterdir()})
    assert len(built[0]) == 2
    assert built[0] == built[1]
    wheel, source = (next(c for name, c in built[0].items() if name.endswith(end)) for end in (".whl", ".tar.gz"))
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        assert "gpuinfra/py.typed" in archive.namelist()
    with tarfile.open(fileobj=io.BytesIO(source)) as archive:
        assert any(name.endswith("/gpuinfra/py.typed") for name in archive.getnames())


@pytest.mark.long
def test_own_program_is_rehearsed_from_the_wheel(wheel, tmp_path):
    """A program outside of this checkout declares a cluster with `GpuCluster`, and its node is verified."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    rehearsed_from(site, Path(sys.executable), tmp_path, os.environ | {"PYTHONPATH": str(site)})


@pytest.mark.long
def test_wheel_installs_into_an_empty_environment(wheel, tmp_path):
    """`pip install gpuinfra[aws]` into an empty environment installs everything that the same program needs."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    versions = tmp_path / "versions.txt"  # the versions of the lock, without hashes, because the wheel has none
    pinned = (ROOT / "requirements" / "aws.txt").read_text(encoding="utf-8").splitlines()
    versions.write_text("\n".join(line.removesuffix("\\").strip() for line in pinned if line[:1].isalnum()))
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "-c", versions, f"gpuinfra[aws] @ {wheel.as_uri()}"], capture_output=True, text=True, timeout=480
    )
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
    report = json.loads((own / ".rehearsal" / "dev" / "report.json").read_text())
    assert report["rehearsal"] is True
    possible, reason = available()
    if not possible:
        pytest.skip(f"the rehearsal has no stand-in nodes: {reason}")
    assert (report["totals"]["nodes_verified"], report["totals"]["gpus_verified"]) == (1, 8)
    down = rehearse("destroy")
    assert down.returncode == 0, down.stdout + down.stderr
