"""The built wheel contains everything that a program elsewhere needs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from .conftest import REPOSITORY

PROGRAM = """
from gpuinfra import ClusterSpec, GpuCluster

GpuCluster("train", ClusterSpec.model_validate({
    "name": "train",
    "where": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"},
    "pools": [{"name": "gpu", "machine": "p4d.24xlarge", "capacity": [{"kind": "spot", "count": 1}]}],
}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel. Dependencies come from the tests' environment."""
    root = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(root / "dist")],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    wheel = next((root / "dist").glob("*.whl"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / "venv")], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = root / "venv" / "lib" / version / "site-packages"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(site)], check=True)
    # Only the folder: the editable install's own .pth file in it is not followed from here.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return root / "venv"


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_a_program_outside_the_repository_runs_with_the_wheel(environment: Path, tmp_path: Path) -> None:
    """A program with its declaration in Python is rehearsed with steps, node program, plugin and stand-ins from the wheel."""
    (tmp_path / "Pulumi.yaml").write_text("name: mine\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  aws:region: us-east-1\n")
    (tmp_path / "__main__.py").write_text(PROGRAM)
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    python = str(environment / "bin" / "python")
    where = subprocess.run(
        [python, "-c", "import gpuinfra; print(gpuinfra.__file__)"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(environment) in where.stdout
    words = [python, "-m", "gpuinfra", "rehearse", "up", "dev", "--folder", str(tmp_path / "r")]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "1 of 1 nodes and 8 of 8 GPUs verified" in done.stdout
    project = (tmp_path / "r" / "dev" / "project" / "Pulumi.yaml").read_text()
    assert str(environment) in project
    assert str(REPOSITORY) not in project


def test_the_wheel_has_the_files_that_are_not_python(environment: Path) -> None:
    """Steps, plugin, stacks and the engine's module are found by the same function as in a checkout."""
    text = "from gpuinfra.base.shipped import shipped\nfor n in ('bootstrap','engine','plugin','stacks'): print(shipped(n))"
    env = {"PATH": os.environ["PATH"]}
    python = str(environment / "bin" / "python")
    done = subprocess.run([python, "-c", text], cwd=environment, env=env, capture_output=True, text=True, check=True)
    folders = [Path(line) for line in done.stdout.splitlines()]
    assert all(environment in folder.parents for folder in folders), folders
    needed = ("30-driver.sh", "go.mod", "PulumiPlugin.yaml", "__main__.py")
    assert [name for folder, name in zip(folders, needed, strict=True) if not (folder / name).is_file()] == []
