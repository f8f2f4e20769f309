from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node.__main__ import main
from gpuinfra.node.fabric_command import FabricFolder
from tests.node.healthy import GOOGLE
from tests.node.test_nccl import libraries
from tests.node.test_pair import FLOORS

__all__ = ["libraries"]


def expectation(folder: Path, **changes: Any) -> Path:
    """The expectation of a machine whose floor the stand-in library reaches."""
    file = folder / "expectation.json"
    file.write_text(json.dumps({**GOOGLE, "fabric_provider": "efa", "floors": FLOORS, **changes}))
    return file


def options(folder: Path, name: str, nodes: int, **changes: Any) -> list[str]:
    """The arguments of the command on one node."""
    words = ["fabric", "--store", str(folder / "shared"), "--run", "r1", "--nodes", str(nodes), "--name", name]
    return [*words, "--gib", "0.001", "--rounds", "2", "--expectation", str(expectation(folder, **changes))]


@pytest.mark.long
def test_four_processes_find_the_node_with_wrong_sums(libraries: Path, tmp_path: Path) -> None:
    """Four processes meet in a folder, measure in rounds with the NCCL library, and agree on the bad node; only that node's exit code is 1."""
    nodes = [f"vm-{at}" for at in range(4)]
    started = {}
    for name in nodes:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "FAKE_PAIR": str(tmp_path)}
        environment.update({"FAKE_WRONG": "1"} if name == "vm-2" else {})
        words = [sys.executable, str(libraries / "node.pyz"), *options(tmp_path, name, 4)]
        pipe = subprocess.PIPE
        started[name] = subprocess.Popen(words, env=environment, stdout=pipe, stderr=pipe, text=True)
    ended = {name: (*process.communicate(timeout=600), process.returncode) for name, process in started.items()}
    for name, (stdout, stderr, code) in ended.items():
        assert code == (1 if name == "vm-2" else 0), stderr
        found = json.loads(stdout)
        assert (found["schema"], found["node"], found["verified"]) == ("gpuinfra.fabric/1", name, False)
        assert (found["good"], list(found["slow"])) == (["vm-0", "vm-1", "vm-3"], ["vm-2"])
        assert (found["slow_paths"], found["unknown"], found["absent"], found["rounds"]) == ([], [], [], 2)
        assert "wrong" in found["slow"]["vm-2"]


def test_an_object_is_written_once(tmp_path: Path) -> None:
    """The first content of a file stays, and a file that is being written is not listed."""
    store = FabricFolder(tmp_path)
    assert store.list("plan/") == []
    assert store.get("plan/00/a/plan") is None
    assert store.put("plan/00/a/plan", b"1") is True
    assert store.put("plan/00/a/plan", b"2") is False
    (tmp_path / "plan" / "00" / "a" / ".part-x").write_bytes(b"")
    assert store.list("plan/") == ["plan/00/a/plan"]
    assert store.get("plan/00/a/plan") == b"1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nodes", "1"], "--nodes is 1; it must be between 2 and 1000"),
        (["--run", "../x"], "--run is '../x'; use letters, digits, dots and dashes"),
        (["--store", "shared"], "--store is shared; specify the absolute path of a folder that all nodes mount"),
        (["--gib", "0"], "--gib must be between 0 and 64"),
        (["--join", "0"], "--join between 0 and 86400"),
    ],
)
def test_invalid_options_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """Exit code 2 and one line, before anything is written."""
    assert main([*options(tmp_path, "vm-0", 2), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "shared").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fabric_provider": None}, "has no fabric, so there is nothing to measure"),
        ({"floors": []}, "has no floor for check B3, so every pair would fail"),
    ],
)
def test_a_machine_that_cannot_be_measured_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    """A machine type needs a fabric and a floor."""
    assert main(options(tmp_path, "vm-0", 2, **changes)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "shared").exists()


def test_an_invalid_name_and_an_unusable_folder_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3 and one line."""
    assert main(options(tmp_path, "a/b", 2)) == 3
    assert "the name of this node is 'a/b'" in capsys.readouterr().err
    (tmp_path / "shared").write_text("a file")
    assert main(options(tmp_path, "vm-0", 2)) == 3
    assert "cannot be used" in capsys.readouterr().err
