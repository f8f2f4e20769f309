from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinfra.bundle import node_program
from gpuinfra.node import evidence
from tests.node.healthy import P4D
from tests.node.test_evidence import made

NODE = Path(__file__).parents[2] / "gpuinfra" / "node"
FILES = sorted(NODE.rglob("*.py"))
NEW_MODULES = {"tomllib"}
"""Standard library modules that are newer than Python 3.9."""


TREES = {path: ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9)) for path in FILES}
"""The syntax trees of all files. Parsing fails on grammar that is newer than Python 3.9."""


def test_node_code_is_python_3_9() -> None:
    """No file uses grammar newer than Python 3.9."""
    assert len(TREES) > 50
    for path in FILES:
        compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True, flags=0)


def test_node_code_imports_only_the_standard_library() -> None:
    """The code runs before anything is installed; its own modules are imported relatively, so it works from a zip."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in sys.stdlib_module_names, f"{path} imports {name}"
                assert top not in NEW_MODULES, f"{path} imports {name}, which Python 3.9 lacks"


def test_annotations_are_not_evaluated_and_no_newer_argument_is_used() -> None:
    """`X | None` is only text under 3.9, and newer dataclass options and functions are not used."""
    for path, tree in TREES.items():
        uses_bar = any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) for node in ast.walk(tree))
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
        if uses_bar:
            assert imports, f"{path} writes unions without postponed annotations"
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                keywords = {keyword.arg for keyword in node.keywords}
                if function == "dataclass":
                    assert not keywords & {"kw_only", "slots", "match_args"}, path
                if function == "zip":
                    assert "strict" not in keywords, path
                assert function not in {"pairwise", "anext", "aiter", "bit_count"}, path
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"UTC", "StrEnum"}, path


def test_judge_imports_no_clock_file_or_network() -> None:
    """The judge is pure: the modules that it imports access nothing outside their arguments."""
    pure = ["cause", "advice", "outcome", "states", "table", "nvsmi", "answer", "expectation", "xids", "judge"]
    paths = [NODE / f"{name}.py" for name in pure] + sorted((NODE / "checks").glob("*.py"))
    allowed = {
        "__future__",
        "re",
        "enum",
        "dataclasses",
        "typing",
        "functools",
        "json",
        "math",
        "xml.parsers",
        "collections.abc",
    }
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= allowed, path.name
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert node.module in allowed, path.name
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"open", "eval", "exec", "__import__"}, path.name


def test_zipapp_runs_under_python_3_9(tmp_path: Path) -> None:
    """A real Python 3.9 judges evidence with the same result; skipped if none is installed."""
    places = [shutil.which("python3.9"), *map(str, Path.home().glob(".pyenv/versions/3.9.*/bin/python"))]
    found = [
        place
        for place in places
        if place and subprocess.run([place, "-c", ""], capture_output=True, check=False, timeout=300).returncode == 0
    ]
    if not found:
        pytest.skip("there is no Python 3.9 on this machine")
    (tmp_path / "node.pyz").write_bytes(node_program())
    (tmp_path / "expectation.json").write_text(json.dumps(P4D))
    (tmp_path / "evidence.json").write_bytes(evidence.dumped(made()))
    command = [found[-1], "-I", str(tmp_path / "node.pyz"), "verify", "--evidence", str(tmp_path / "evidence.json")]
    done = subprocess.run(
        [*command, "--expectation", str(tmp_path / "expectation.json")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["verified"] is True
