from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import SpecError
from gpuinfra.rules import check
from gpuinfra.spec import ClusterSpec, parse_spec
from gpuinfra.spec.document import parse
from tests.rules.cases import declaration

DOCS = Path(__file__).parents[2] / "docs"
TODAY = date(2026, 11, 21)


def _page(name: str) -> Path:
    """Path of a page, whose name is unique."""
    (found,) = DOCS.rglob(name)
    return found


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _page(page).read_text(), re.DOTALL)


def test_yaml_and_python_of_the_declaration_are_equal() -> None:
    """The YAML and the Python on the page are the same declaration without errors."""
    value: Any = parse(_blocks("declaring.md", "yaml")[0], "declaring.md").value
    from_yaml = parse_spec(value["config"]["gpuinfra:cluster"])
    assert not [finding for finding in check(from_yaml, TODAY) if finding.level == "error"]
    names: dict[str, Any] = {}
    exec(_blocks("declaring.md", "python")[0], names)
    assert isinstance(names["spec"], ClusterSpec)
    assert names["spec"] == from_yaml


def test_examples_of_access_are_valid_on_their_clouds(tmp_path: Path) -> None:
    """Users and ports can be declared on each cloud, the permissions of the nodes on the named cloud, and the login nodes cause no warning."""
    users, login, ports, *permissions = _blocks("access.md", "yaml")
    every = ("aws", "azure", "gcp")
    for block, clouds in zip((users, ports, *permissions), (every, every, ("aws",), ("gcp",), ("azure",)), strict=True):
        opened: Any = parse(block, "access.md").value
        for cloud in clouds:
            fields = {f"access.{name}": value for name, value in opened["access"].items()}
            found = check(parse_spec(declaration((cloud, fields))), TODAY)
            assert not [one for one in found if one.path.startswith(tuple(fields)) and one.level == "error"]
    (tmp_path / "setup").mkdir()
    (tmp_path / "setup/tuning.sh").write_text("#!/bin/bash\n")
    nodes: Any = parse(login, "access.md").value
    with_login = parse_spec({**declaration(("aws", {"where.zone": "use1-az6"})), **nodes}, folder=tmp_path)
    assert not [finding for finding in check(with_login, TODAY) if finding.level != "info"]


def test_adding_a_machine_page_example_is_valid() -> None:
    """The machine type on the page can be declared and used in a pool."""
    described: Any = parse(_blocks("add-a-machine.md", "yaml")[0], "add-a-machine.md").value
    spec = parse_spec({**declaration(("aws", {"pools.0.machine": "p4x.24xlarge"})), **described})
    assert not [finding for finding in check(spec, TODAY) if finding.level == "error"]


def _declarations() -> dict[str, dict[str, Any]]:
    """Page and line -> declaration, or the part of one that the page shows."""
    found: dict[str, dict[str, Any]] = {}
    for page in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```yaml\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
            value: Any = parse(match[1], page.name).value
            if isinstance(value, dict) and "config" in value:
                value = value["config"]["gpuinfra:cluster"]
            if isinstance(value, dict) and set(value) <= set(ClusterSpec.model_fields):
                found[f"{page.relative_to(DOCS.parent)}:{text[: match.start()].count(chr(10)) + 2}"] = value
    return found


@pytest.mark.parametrize("place", _declarations())
def test_a_declaration_on_a_page_has_valid_fields(place: str) -> None:
    """Each declaration on a page, and each part of one together with a complete declaration of a cloud, has known fields with allowed values."""
    value = _declarations()[place]
    if "where" in value:
        parse_spec(value, folder=DOCS.parent)
        return
    problems = []
    for cloud in ("aws", "azure", "gcp"):
        try:
            parse_spec({**declaration((cloud, {})), **value}, folder=DOCS.parent)
        except SpecError as problem:
            # A part of a section can omit fields.
            problems.append([str(one) for one in problem.findings if one.rule != "field_is_given"])
    assert len(problems) < 3 or [] in problems, problems
