"""axe-core, an accessibility checker of others, examines every page in Chromium, at three widths, in light and dark colors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.report import plan_page, verification_page
from gpuinfra.report.plan_json import plan_report
from gpuinfra_rehearsal.document import node_entry
from gpuinfra_rehearsal.page import page as rehearsal_page
from tests.report.samples import check, node, report, verification
from tests.report.test_pages import DAY, PAGES

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLES = 6
"""Widths times color schemes of tests/report/axe.py."""


def failed_nodes() -> list[dict[str, Any]]:
    """One verified node, one failed node and one that has not reported."""
    bad = check(outcome="fail", reason="Xid 79: the GPU fell off the bus", hint="drain")
    return [
        node_entry(node()),
        node_entry(
            node(outcome="failed", label="gpu-2", reason="Xid 79", checks=(bad,), blocking=(bad,)), console=["a line"]
        ),
        node_entry(node(outcome="waiting", label="gpu-3", reason="no evidence")),
    ]


MORE: dict[str, Callable[[], str]] = {
    "plan-azure": lambda: plan_page.page(plan_report(shipped("stacks") / "Pulumi.azure-ndv5.yaml", DAY)),
    "plan-gcp": lambda: plan_page.page(plan_report(shipped("stacks") / "Pulumi.gcp-a3mega.yaml", DAY)),
    "rehearsal-failed": lambda: rehearsal_page(report(failed_nodes(), problems=["one node is not verified"])),
    "verification-failed": lambda: verification_page.page(
        verification(failed_nodes(), problems=["a problem"]), "Nodes"
    ),
}


def examine(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Examine pages and return what tests/report/axe.py prints. Skips the test without a browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    prepared = subprocess.run(
        [sys.executable, ROOT / "tools" / "environment.py", "pages"], capture_output=True, text=True, timeout=600
    )
    assert prepared.returncode == 0, prepared.stderr
    words = [ROOT / ".venv-pages" / "bin" / "python", ROOT / "tests" / "report" / "axe.py", chromium, *files]
    process = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, str]], list[dict[str, Any]]]:
    """Examines pages by name."""

    def run(pages: dict[str, str]) -> list[dict[str, Any]]:
        folder = tmp_path_factory.mktemp("pages")
        for name, text in pages.items():
            (folder / f"{name}.html").write_text(text, encoding="utf-8")
        return examine(sorted(folder.iterdir()))

    return run


@pytest.mark.long
def test_axe_finds_nothing_on_any_page(examined: Callable[[dict[str, str]], list[dict[str, Any]]]) -> None:
    """No page violates a rule of axe-core or scrolls sideways, at any width, in light or dark colors."""
    pages = {**{make.__name__: make() for make in PAGES}, **{name: make() for name, make in MORE.items()}}
    found = examined(pages)
    summaries = [one for one in found if "passes" in one]
    assert len(summaries) == SAMPLES * len(pages)
    assert min(one["passes"] for one in summaries) >= 20
    assert [one for one in found if "rule" in one] == []
    assert [one for one in summaries if one["scrolls_sideways"]] == []


@pytest.mark.long
def test_axe_finds_what_is_broken(examined: Callable[[dict[str, str]], list[dict[str, Any]]]) -> None:
    """A page without a language, with pale text or with a table that no keyboard can scroll is found."""
    text = PAGES[0]()
    found = examined(
        {
            "language": re.sub(r' lang="en"', "", text),
            "pale": text.replace("</style>", "p { color: #8a8a8a55 !important }</style>"),
        }
    )
    rules = {(one["page"], one["rule"]) for one in found if "rule" in one}
    assert {("language.html", "html-has-lang"), ("pale.html", "color-contrast")} <= rules
