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
def refused() -> dict[str, set[int]]:
    """File -> lines that the type checker refuses."""
    checker = shutil.which("basedpyright", path=str(Path(sys.executable).parent)) or shutil.which("basedpyright")
    if checker is None:
        pytest.skip("basedpyright is not installed")
    files = [str(HERE / name) for name in ("right.py", "wrong.py")]
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


def test_what_is_right_has_types(refused: dict[str, set[int]]) -> None:
    """A type checker accepts what can be built, in few words."""
    assert refused["right.py"] == set()


def test_what_cannot_be_is_refused_by_the_type_checker(refused: dict[str, set[int]]) -> None:
    """A type checker refuses what no cloud can build, each mistake on its own line, and nothing else."""
    lines = (HERE / "wrong.py").read_text().splitlines()
    assert refused["wrong.py"] == {number for number, line in enumerate(lines, 1) if "# refused" in line}


def test_what_the_checker_reads_is_what_the_models_have() -> None:
    """The signatures for type checkers name every field of their models and no other."""
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


def test_places_are_those_of_the_tables() -> None:
    """Regions and zones for type checkers are made from the clouds' tables."""
    assert FILE.read_text() == text()


def test_the_right_file_runs() -> None:
    """What a type checker accepts is built at run time too, and a generic part may be named with its target."""
    from tests.typing import right

    assert right.nodes == 21
    assert Pool[Aws] is Pool
    assert ClusterSpec[Gcp] is ClusterSpec


@pytest.mark.parametrize("way", ["reserved", "spot", "flex"])
def test_an_a3_mega_cluster_is_short(way: str) -> None:
    """An A3 Mega cluster with Lustre takes at most 40 lines of Python, for each way of buying it."""
    from gpuinfra.planning import make_plan
    from gpuinfra.rules import check
    from tests.rules.cases import TODAY
    from tests.typing import a3mega

    spec = a3mega.a3mega(way)
    assert len((HERE / "a3mega.py").read_text().splitlines()) <= 40
    assert not [finding for finding in check(spec, TODAY) if finding.level == "error"]
    plan = make_plan(spec, TODAY)
    assert [group.kind for group in plan.pools[0].groups] == [way]
    assert plan.file_systems[0].capacity_gib == 36000
