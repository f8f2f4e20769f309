"""`node.pyz files` reads declared files and variables with the real stat and bash."""

from __future__ import annotations

import getpass
import grp
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.bundle import node_program
from gpuinfra.node import files
from tests.node.healthy import P4D


@pytest.fixture
def declare(tmp_path: Path) -> Any:
    """Write an expectation with these paths and variables, and read what it declares."""

    def write(*paths: Path, **variables: str) -> dict[str, Any]:
        expectation = {"files": [{"path": str(path)} for path in paths], "variables": variables}
        (tmp_path / "expectation.json").write_text(json.dumps(expectation), encoding="utf-8")
        return files.files(tmp_path / "expectation.json")

    return write


def _declared(path: Path, mode: str) -> dict[str, str]:
    """The expected state of a file of this user with one line."""
    owner, group = getpass.getuser(), grp.getgrgid(os.getgid()).gr_name
    return {
        "path": str(path),
        "sha256": hashlib.sha256(b"x\n").hexdigest(),
        "owner": owner,
        "group": group,
        "mode": mode,
    }


def test_files_are_read(declare: Any, tmp_path: Path) -> None:
    """A file has its checksum, owner, group and mode. A missing file, a link and a folder have a problem."""
    (tmp_path / "a").write_text("x\n", encoding="utf-8")
    (tmp_path / "a").chmod(0o040)
    (tmp_path / "link").symlink_to("a")
    found = declare(*(tmp_path / name for name in ("a", "none", "link", "")))["files"]
    assert found[0] == {**_declared(tmp_path / "a", "0040"), "problem": ""}
    assert [one["problem"] for one in found[1:]] == ["does not exist", "not a regular file", "not a regular file"]


def test_variables_are_those_of_a_login_shell(declare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the declared variables are read, and the environment of the unit does not count."""
    monkeypatch.setenv("HF_HOME", "/of/the/unit")
    assert declare(PATH="/x", HF_HOME="/y")["variables"].keys() == {"PATH"}
    assert declare()["variables"] == {}


def test_the_expectation_of_the_command_is_read(tmp_path: Path) -> None:
    """`verify --expectation FILE` judges the files and variables of that file, also with a relative path and without a bundle."""
    (tmp_path / "node.pyz").write_bytes(node_program())
    (tmp_path / "a").write_text("x\n", encoding="utf-8")
    (tmp_path / "a").chmod(0o644)
    one = _declared(tmp_path / "a", "0644")
    expectation = {**P4D, "required": ["S3"], "skips": {}, "files": [one], "variables": {}}
    (tmp_path / "other.json").write_text(json.dumps(expectation), encoding="utf-8")
    words = [sys.executable, "-I", "node.pyz", "verify", "--json", "--expectation", "other.json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    (check,) = json.loads(done.stdout)["checks"]
    assert (check["id"], check["outcome"], check["found"]) == ("S3", "pass", 1), check
