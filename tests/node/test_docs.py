from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from gpuinfra.node.cause import Action
from gpuinfra.node.checks import ALL
from gpuinfra.node.checks.base import LAST, Check
from gpuinfra.node.outcome import Phase, Severity
from tests.node.real import tried

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "checks.md"


def table() -> str:
    """The table of checks for the page, and the order of root causes."""
    rows: list[str] = []
    counts = tried()
    for phase in Phase:
        rows += [
            f"## {phase.value.capitalize()}",
            "",
            "| id | name | severity | required for pools | on failure | proves | outputs |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        rows += [_row(check, counts[check.id]) for check in ALL.values() if check.phase == phase]
        rows.append("")
    causes = sorted((check for check in ALL.values() if check.rank != LAST), key=lambda check: check.rank)
    rows += [f"Reports list root causes first, in this order: {', '.join(check.id for check in causes)}."]
    return "\n".join(rows)


def _row(check: Check, counts: tuple[int, int]) -> str:
    # The other paragraphs are in `gpuinfra explain`.
    proves = " ".join((check.__doc__ or "").partition("\n\n")[0].split())
    severity = f"{check.severity.value}, can warn" if check.may_warn else check.severity.value
    action = "look" if check.severity in (Severity.WARN, Severity.INFO) else check.action.value
    return f"| {' | '.join(map(str, (check.id, f'`{check.name}`', severity, pools(check), action, proves, '+'.join(map(str, counts)))))} |"


def pools(check: Check) -> str:
    """The pools whose nodes run a check."""
    if not check.when:
        return "on request"
    text = " and ".join(str(condition.__doc__) for condition in check.when)
    skipped = "; ".join(f"not {condition.__doc__}: {reason}" for condition, reason in check.skips)
    return f"{text} ({skipped})" if skipped else text


def test_ranks_are_unique() -> None:
    """Two root causes never have the same rank."""
    ranks = [check.rank for check in ALL.values() if check.rank != LAST]
    assert len(set(ranks)) == len(ranks)


@pytest.mark.parametrize("check", ALL.values(), ids=lambda check: check.id)
def test_a_declaration_on_a_class_has_an_effect(check: Check) -> None:
    """A check that only warns declares neither an action nor that it can warn, and a check without conditions declares no skips."""
    if check.severity in (Severity.WARN, Severity.INFO):
        assert not {"action", "may_warn"} & set(vars(type(check)))
    if not check.when:
        assert not check.skips


@pytest.mark.parametrize("check", ALL.values(), ids=lambda check: check.id)
def test_every_check_of_hardware_states_the_fault(check: Check) -> None:
    """A check that can require a reset, a reboot or a replacement states what is faulty, for the report to the provider."""
    assert check.fault or check.is_installation or check.action is Action.CONFIGURE


def test_page_lists_every_check() -> None:
    """The table of docs/reference/checks.md is generated from the code; run this file as a program to write it."""
    found = re.search(r"<!-- checks -->\n(.*?)<!-- /checks -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert found.group(1).strip() == table()


@pytest.mark.parametrize("check", ALL.values(), ids=lambda check: check.id)
def test_every_check_has_explanations(check: Check) -> None:
    """Name, docstring, hint and source exist."""
    assert re.fullmatch(r"[a-z0-9_]+", check.name)
    for text in (check.__doc__, check.hint, check.source):
        assert text
        assert len(text) > 10


MODULES = sorted((Path(__file__).parents[2] / "gpuinfra" / "node").rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_advice_of_a_node_fits_every_cloud(module: Path) -> None:
    """No text of the node code says how a cloud replaces a node. A termination shrinks a scale set; `handover/explain.py` names the way of the cloud."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation
    ]
    assert [text for text in texts if re.search(r"terminate (it|the)|(its|the|scaling) group|scale set", text)] == []


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        re.sub(
            r"(<!-- checks -->\n).*?(<!-- /checks -->)", lambda m: f"{m[1]}\n{table()}\n\n{m[2]}", text, flags=re.DOTALL
        ),
        encoding="utf-8",
    )
