"""Mutants of the code that decides trust, verification and prices are found by the tests of their module."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.mutation.mutants import mutant, mutants, sample, source_of
from tests.mutation.run import TARGETS, outcome, sampled, survivors

LISTED: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "survivors.json").read_text(encoding="utf-8"))
"""Module -> name of a mutant that survives -> why it changes nothing, or which test is missing."""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("module", TARGETS)
def test_only_listed_mutants_survive(module: str) -> None:
    """The tests pass without a change, and of the sample of mutants only those of survivors.json pass them too."""
    assert outcome(module, None) == 0, f"the tests of {module} fail without a mutant"
    assert set(survivors(module)) == set(LISTED.get(module, {}))


def test_each_survivor_has_a_reason_and_is_in_the_sample() -> None:
    """The list has no entry of code that no longer exists."""
    for module, listed in LISTED.items():
        names = sampled(module)
        assert set(listed) <= set(names), f"{module}: {sorted(set(listed) - set(names))}"
        assert all(len(reason) > 20 for reason in listed.values())


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


def test_a_mutant_that_is_not_loaded_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that never import the module do not count as tests of it."""
    module = "gpuinfra.cost.price"
    monkeypatch.setitem(
        TARGETS,
        module,
        type(TARGETS[module])(
            ("tests/mutation/test_mutation.py::test_a_mutant_has_one_change_and_a_name_without_lines",)
        ),
    )
    with pytest.raises(AssertionError, match="no test of gpuinfra"):
        outcome(module, sample(source_of(module).read_text(encoding="utf-8"), 1)[0])
