"""Each sentence of the security pages names the tests that prove it, or why it is no promise (`tests/promises.py`)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import SpecError
from gpuinfra.base.findings import Level
from gpuinfra.region.clone.draft import put
from gpuinfra.rules import check
from gpuinfra.spec.load import parse_spec, read_stack
from tests.promises import PROMISES
from tests.rules.cases import TODAY

ROOT = Path(__file__).parents[1]
KEY = "AKIA" + "IOSFODNN7EXAMPLE"


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, and the rows of its tables, without markup. Headings and the first rows of tables are left out."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("**", "")
    before = ""
    for line in text.splitlines():
        if line.startswith("|"):
            if before.startswith("|") and not line.startswith("| ---"):
                yield line.strip("| ")
        elif line and not line.startswith("#"):
            yield from (
                re.split(r"(?<=[.:])\s+(?=[A-Z`a-z])", line.removeprefix("- "))
                if ". " in line
                else [line.removeprefix("- ")]
            )
        before = line


@cache
def functions(path: Path) -> frozenset[str]:
    """The names of the functions of a module."""
    return frozenset(one.name for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.FunctionDef))


@pytest.mark.parametrize("page", PROMISES)
def test_every_sentence_names_its_tests(page: str) -> None:
    """A sentence without an entry, an entry without a sentence and a test that does not exist are errors."""
    entries, used = PROMISES[page], set[str]()
    for sentence in sentences((ROOT / page).read_text()):
        found = [key for key in entries if sentence.startswith(key)]
        assert len(found) == 1, f"{page}: tests/promises.py has {found or 'no entry'} for: {sentence}"
        used.update(found)
    assert used == set(entries)
    tests = {test for proof in entries.values() if not isinstance(proof, str) for test in proof}
    missing = [
        test for test in sorted(tests) for path, _, name in [test.partition("::")] if name not in functions(ROOT / path)
    ]
    assert missing == []
    assert all(entries.values())


def test_unpinned_packages_are_those_of_the_page() -> None:
    """`docs/internals/bootstrap.md` lists every package that a step installs without a version."""
    found = set[str]()
    for script in sorted((ROOT / "bootstrap").glob("*.sh")):
        for words in re.findall(r"^ *install_packages ((?:[^\n\\]|\\\n)+)$", script.read_text(), re.MULTILINE):
            found |= {word for word in words.split() if re.fullmatch(r"[a-z0-9.+-]+", word)}
    page = (ROOT / "docs" / "internals" / "bootstrap.md").read_text()
    (row,) = [line for line in page.splitlines() if "and the kernel | that of the image's Ubuntu archive" in line]
    assert set(re.findall(r"`([^`]+)`", row)) == found


def test_a_key_in_any_text_of_a_declaration_is_an_error() -> None:
    """Each text of a declaration is replaced by an access key, one after the other. Neither the plan nor an error shows it."""
    declared: Any = read_stack("aws-p4d").document
    value = declared.value["config"]["gpuinfra:cluster"]
    value["tags"] = {"team": "research"}
    value["pools"][0]["tags"] = {"role": "training"}
    places = list(_texts(value, ()))
    assert len(places) > 8
    for route in places:
        changed = _copy(value)
        put(changed, route, KEY)
        try:
            findings = list(check(parse_spec(changed), TODAY))
        except SpecError as problem:
            findings = list(problem.findings)
        errors = [str(one) for one in findings if one.level is Level.ERROR]
        assert errors, route
        assert KEY not in "".join(errors)


def _texts(value: Any, route: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, str):
        yield route
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(item, (*route, key))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def test_the_engine_is_built_from_locked_modules() -> None:
    """`engine/go.sum` has the checksum of each module that `engine/go.mod` requires."""
    required = re.findall(r"^\t(\S+) (v\S+)", (ROOT / "engine" / "go.mod").read_text(), re.MULTILINE)
    locked = (ROOT / "engine" / "go.sum").read_text()
    assert required
    assert [module for module, version in required if f"{module} {version}" not in locked] == []
