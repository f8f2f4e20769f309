from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuinfra.node.checks import ALL

PAGE = Path(__file__).parents[2] / "docs" / "checks.md"


def table() -> str:
    """The checks as the page lists them."""
    rows = ["| id | name | phase | severity | proves |", "| --- | --- | --- | --- | --- |"]
    for check in ALL.values():
        proves = " ".join((check.__doc__ or "").split())
        rows.append(f"| {check.id} | `{check.name}` | {check.phase.value} | {check.severity.value} | {proves} |")
    return "\n".join(rows)


def test_the_page_lists_every_check_as_it_is() -> None:
    """The table of docs/checks.md is the code's own; run this file as a program to write it."""
    found = re.search(r"<!-- checks -->\n(.*?)<!-- /checks -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert found.group(1).strip() == table()


@pytest.mark.parametrize("check", ALL.values(), ids=lambda check: check.id)
def test_every_check_explains_itself(check: object) -> None:
    """Name, docstring, hint and source are there for a person who meets the check for the first time."""
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
