"""Mutants of the code that decides trust, verification and prices are found by the tests of their module."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation import draw, shell
from tests.mutation.mutants import mutant, mutants, mutants_of_all_lines, sample, source_of
from tests.mutation.run import ROOT, TARGETS, chosen, every, sampled

LISTED: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "survivors.json").read_text(encoding="utf-8"))
"""Module -> name of a mutant of a sample that survives -> why it changes nothing, or which test is missing."""


def listed(module: str) -> dict[str, str]:
    """The mutants of a module that may survive, with the reasons: those of the samples, and those of the draw that still exist."""
    drawn = {name: row["reason"] for (of, name), row in draw.recorded().items() if of == module and row.get("reason")}
    there = set(chosen(module))
    return {**LISTED.get(module, {}), **{name: reason for name, reason in drawn.items() if name in there}}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("module", every())
def test_only_listed_mutants_survive(module: str) -> None:
    """The tests pass without a change, and of the chosen mutants only those of survivors.json pass them too."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation.run", module], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(done.stdout.splitlines()) == {f"{module}|{name}" for name in listed(module)}


def test_each_survivor_has_a_reason_and_is_chosen() -> None:
    """The list has no entry of code that no longer exists."""
    for module in every():
        own, names = listed(module), chosen(module)
        assert set(own) <= set(names), f"{module}: {sorted(set(own) - set(names))}"
        assert all(len(reason) > 20 for reason in own.values())
    assert set(LISTED) <= set(every())


def test_each_drawn_mutant_is_found_or_has_a_reason() -> None:
    """The record of the draw has 60 rows, each with the test that finds the mutant or the reason why none has to, and no row without both."""
    rows = draw.recorded().values()
    assert len(rows) == draw.COUNT
    assert [row for row in rows if bool(row.get("found_by")) == bool(row.get("reason"))] == []


@pytest.mark.long
def test_the_record_is_of_the_current_code() -> None:
    """The record has the mutants that its seed draws from the current code. After a change of the code, `python -m tests.mutation.draw` writes it again."""
    assert set(draw.recorded()) == set(draw.drawn())


def test_a_draw_covers_all_lines_and_depends_on_its_seed_only() -> None:
    """The drawn mutants are of Python and of shell code, and a change of other code does not change them."""
    mutants_of = {module for module, _ in draw.population()}
    assert mutants_of == set(draw.modules())
    assert {Path(module).suffix for module in mutants_of if "/" in module} == {".py", ".sh"}
    assert len(set(draw.drawn())) == draw.COUNT
    assert draw.drawn("another", 5) != draw.drawn()[:5]
    assert all(draw.tests_of(module) for module in draw.modules())


def test_changes_of_all_lines() -> None:
    """Also constants, options, elements and statements are changed, in and outside of functions; texts for readers, annotations and imports are not."""
    text = (
        'import a\nX: dict[str, int] = {\'k\': 1, \'l\': 2}\n@once\ndef f(a: list[int]) -> None:\n    """Text."""\n'
        "    a.b = g(a, follow=False)\n    h(a)\n    raise E('two words', f'one{a}')\n"
    )
    assert set(mutants_of_all_lines(text)) - set(mutants(text)) == {
        "module: 1 -> 2",
        "module: 2 -> 3",
        "module: {'k': 1, 'l': 2} -> {'l': 2}",
        "module: {'k': 1, 'l': 2} -> {'k': 1}",
        "module: 'k' -> 'k~'",
        "module: 'l' -> 'l~'",
        "f: @once def -> def",
        "f: a.b = g(a, follow=False) -> pass",
        "f: g(a, follow=False) -> g(a)",
        "f: h(a) -> pass",
    }


def test_changes_of_a_script() -> None:
    """Tests, options, connections and whole commands are changed; comments, here-documents and the frame of functions are not."""
    text = "set -e\n# a || b\nf() {\n  [[ -f $1 && $2 == a ]] || return 1\n  cat <<END\na || b\nEND\n  rm -f x\n}\n"
    names = shell.mutants(text)
    assert {name.partition(" -> ")[2] for name in names if name.startswith("f: rm")} == {"rm x", ":"}
    assert {name.partition(" -> ")[2] for name in names if name.startswith("script: set")} == {"set", ":"}
    assert {name.partition(" -> ")[2] for name in names if name.startswith("f: [[")} == {
        "[[ -f $1 && $2 == a ]] && return 1",
        "[[ -f $1 || $2 == a ]] || return 1",
        "[[ -f $1 && $2 != a ]] || return 1",
        "[[ -d $1 && $2 == a ]] || return 1",
        "! [[ -f $1 && $2 == a ]] || return 1",
        ":",
    }
    assert all(shell.is_valid(text, name) for name in names)
    assert "\na || b\n" in shell.mutant(text, names[-1])


def test_a_mutant_has_one_change_and_a_name_without_lines() -> None:
    """Comparisons, logic, numbers, conditions and errors are changed; texts and lines do not matter."""
    text = "def f(a, b):\n    if a < b and not a:\n        raise ValueError('x')\n    return a + 1, 'x' + b\n"
    found = mutants(text)
    assert set(found) == {
        "f: if a < b and (not a) -> if False",
        "f: a < b and (not a) -> a < b or not a",
        "f: a < b -> a <= b",
        "f: not a -> a",
        "f: raise ValueError('x') -> pass",
        "f: a + 1 -> a - 1",
        "f: 1 -> 2",
    }
    assert mutants("\n\n" + text) == found
    changed = ast.unparse(mutant(text, "f: a < b -> a <= b"))
    assert changed == ast.unparse(ast.parse(text.replace("a < b", "a <= b")))


def test_each_target_has_mutants_of_its_functions() -> None:
    """Each function of a target exists and has mutants, and the sample contains no other function."""
    for module, target in TARGETS.items():
        names = sampled(module)
        assert names
        text = source_of(module).read_text(encoding="utf-8")
        for function in target.functions:
            assert sample(text, 1, (function,)), f"{module} has no mutant of {function}"
        assert not target.functions or {name.partition(":")[0] for name in names} <= set(target.functions)


def test_the_tests_of_targets_and_of_the_record_exist() -> None:
    """With a test that was removed or renamed, pytest ends at once, which looks like a mutant that was found."""
    named = {test for target in TARGETS.values() for test in target.tests}
    named |= {row["found_by"].partition("[")[0] for row in draw.recorded().values() if row.get("found_by")}
    for path, _, function in (test.partition("::") for test in named):
        assert (ROOT / path).exists(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{function}"


def test_a_mutant_that_is_not_loaded_is_an_error() -> None:
    """Tests that never import the module do not count as tests of it."""
    program = (
        "from tests.mutation import run; module = 'gpuinfra.cost.price'; "
        "run.TARGETS[module] = run.Target(('tests/mutation/test_mutation.py::test_changes_of_a_script',)); "
        "run.outcome(module, run.sampled(module)[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "AssertionError: no test of gpuinfra.cost.price imports it" in done.stderr
