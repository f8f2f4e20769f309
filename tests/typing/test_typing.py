from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinfra.spec import Aws, Azure, Candidate, ClusterSpec, Gcp, Pool
from tests.typing.places import FILE, text

HERE = Path(__file__).parent
SPEC = HERE.parents[1] / "gpuinfra/spec"


@pytest.fixture(scope="module")
def rejected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """File -> lines that the type checker rejects. Copies are outside the folders whose errors `make lint` leaves out."""
    checker = Path(sys.executable).parent / "basedpyright"
    copies = tmp_path_factory.mktemp("typing")
    files = [shutil.copy(HERE / name, copies) for name in ("right.py", "wrong.py")]
    done = subprocess.run(
        [checker, "--outputjson", "--level", "error", *files],
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
        check=False,
    )
    found: dict[str, set[int]] = {"right.py": set(), "wrong.py": set()}
    for problem in json.loads(done.stdout)["generalDiagnostics"]:
        found[Path(problem["file"]).name].add(problem["range"]["start"]["line"] + 1)
    return found


def test_valid_declarations_pass_the_type_checker(rejected: dict[str, set[int]]) -> None:
    """The type checker accepts valid declarations."""
    assert rejected["right.py"] == set()


def test_invalid_declarations_fail_the_type_checker(rejected: dict[str, set[int]]) -> None:
    """The type checker rejects each marked line and no other line."""
    lines = (HERE / "wrong.py").read_text().splitlines()
    assert rejected["wrong.py"] == {number for number, line in enumerate(lines, 1) if "# error" in line}


def test_constructor_signatures_match_the_models() -> None:
    """The constructor signatures for type checkers name exactly the fields of their models."""
    models = {model.__name__: model for model in (Aws, Azure, Gcp, Candidate, Pool, ClusterSpec)}
    seen = set()
    for name in ("target", "pool", "model"):
        for node in ast.parse((SPEC / f"{name}.py").read_text()).body:
            if not isinstance(node, ast.ClassDef) or node.name not in models:
                continue
            inner = next(item for item in node.body if isinstance(item, ast.If)).body[0]
            assert isinstance(inner, ast.FunctionDef)
            assert {argument.arg for argument in inner.args.kwonlyargs} == set(models[node.name].model_fields)
            seen.add(node.name)
    assert seen == set(models)


def test_places_match_the_region_tables() -> None:
    """`places.py` lists the regions and zones of the clouds' tables."""
    assert FILE.read_text() == text()


def test_valid_declarations_run() -> None:
    """Valid declarations also work at run time, and generic models accept a target as type argument."""
    from tests.typing import right

    assert right.nodes == 21
    assert Pool[Aws] is Pool
    assert ClusterSpec[Gcp] is ClusterSpec


@pytest.mark.parametrize("kind", ["reserved", "spot", "flex"])
def test_a3_mega_cluster_is_short(kind: str) -> None:
    """An A3 Mega cluster with Lustre takes at most 40 lines of Python for each kind of capacity."""
    from gpuinfra.plan.make import build_plan
    from gpuinfra.rules import check
    from tests.rules.cases import TODAY
    from tests.typing import a3mega

    spec = a3mega.a3mega(kind)
    assert len((HERE / "a3mega.py").read_text().splitlines()) <= 40
    assert not [finding for finding in check(spec, TODAY) if finding.level == "error"]
    plan = build_plan(spec, TODAY)
    assert [group.kind for group in plan.pools[0].groups] == [kind]
    assert plan.file_systems[0].capacity_gib == 36000
