from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuinfra.node.checks import ALL
from tests.node.real import tried

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "checks.md"


def table() -> str:
    """The table of checks for the page."""
    rows = [
        "| id | name | phase | severity | proves | real outputs | rewritten outputs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    counts = tried()
    for check in ALL.values():
        proves = " ".join((check.__doc__ or "").split())
        rows.append(
            f"| {check.id} | `{check.name}` | {check.phase.value} | {check.severity.value} | {proves} | {counts[check.id][0]} | {counts[check.id][1]} |"
        )
    return "\n".join(rows)


def test_page_lists_every_check() -> None:
    """The table of docs/reference/checks.md is generated from the code; run this file as a program to write it."""
    found = re.search(r"<!-- checks -->\n(.*?)<!-- /checks -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert found.group(1).strip() == table()


@pytest.mark.parametrize("check", ALL.values(), ids=lambda check: check.id)
def test_every_check_has_explanations(check: object) -> None:
    """Name, docstring, hint and source exist."""
    assert re.fullmatch(r"[a-z0-9_]+", check.name)  # type: ignore[attr-defined]
    for text in (check.__doc__, check.hint, check.source):  # type: ignore[attr-defined]
        assert text
        assert len(text) > 10


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        re.sub(
            r"(<!-- checks -->\n).*?(<!-- /checks -->)", lambda m: f"{m[1]}\n{table()}\n\n{m[2]}", text, flags=re.DOTALL
        ),
        encoding="utf-8",
    )
