"""The three pages are one product: one base, one stylesheet, one policy, and nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.findings import Finding, Level
from gpuinfra.report import plan_page, rehearsal_page, verification_page
from gpuinfra.report.document import node_entry
from gpuinfra.report.plan_json import PlanReport, plan_report
from gpuinfra.shipped import shipped
from tests.report.samples import HOSTILE, check, node, report, tags, verification

DAY = date(2026, 11, 21)


def plan_html() -> str:
    """A plan of a shipped stack."""
    return plan_page.page(plan_report(shipped("stacks") / "Pulumi.aws-p4d.yaml", DAY))


def broken_plan_html() -> str:
    """A stack with an error, in hostile words."""
    finding = Finding(level=Level.ERROR, path=HOSTILE, message=HOSTILE, hint=HOSTILE)
    return plan_page.page(PlanReport(stack=HOSTILE, path=Path("x"), findings=(finding,)))


def rehearsal_html() -> str:
    """A report of a rehearsal."""
    return rehearsal_page.page(report([node_entry(node())]))


def verification_html() -> str:
    """A verification."""
    return verification_page.page(verification([node_entry(node())]), "Verification of try")


PAGES = [plan_html, broken_plan_html, rehearsal_html, verification_html]


@pytest.mark.parametrize("make", PAGES, ids=lambda make: make.__name__)
def test_page_loads_and_runs_nothing(make: Callable[[], str]) -> None:
    """A page has no script, link, form, event handler or inline style, and its policy allows its stylesheet only."""
    text = make()
    seen = tags(text)
    assert not {tag for tag, _ in seen} & {"script", "img", "link", "iframe", "object", "form", "a"}
    names = [name for _, attributes in seen for name in attributes]
    assert not [name for name in names if name in ("src", "href", "srcset", "style") or name.startswith("on")]
    (policy,) = [a["content"] for tag, a in seen if tag == "meta" and "http-equiv" in a]
    (style,) = re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'"
    assert "url(" not in style
    assert "@import" not in style


def test_pages_share_header_stylesheet_and_footer() -> None:
    """Head, stylesheet, product line and footer are the same in all pages."""
    pages = [make() for make in PAGES]
    assert len({re.sub(r"<title>.*?</title>", "", text.split("</head>")[0]) for text in pages}) == 1
    assert all('<p class="product"><b>gpuinfra</b>' in text for text in pages)
    assert all("<footer>gpuinfra " in text for text in pages)


def test_every_class_of_the_templates_has_a_style() -> None:
    """A class that the stylesheet does not define is a typing error."""
    style = (Path(plan_page.__file__).parent / "templates" / "style.css").read_text()
    text = "".join(make() for make in PAGES)
    used = {name for value in re.findall(r'class="([^"]+)"', text) for name in value.split()}
    assert used - set(re.findall(r"\.([a-z]+)", style)) == set()


def test_text_of_nodes_is_escaped() -> None:
    """Hostile text in every field that a node or a cloud can write stays text, in both pages that show nodes."""
    bad = node(
        outcome="failed", reason=HOSTILE, label=HOSTILE, instance_id=HOSTILE, evidence_key=HOSTILE,
        checks=(check(outcome="fail", found=HOSTILE, expected=[HOSTILE], reason=HOSTILE, hint=HOSTILE, name=HOSTILE),),
        blocking=(check(),), gpus=({"index": HOSTILE, "uuid": HOSTILE},),
    )  # fmt: skip
    entry = node_entry(bad, console=[HOSTILE])
    life = [{"step": HOSTILE, "ok": False, "found": HOSTILE}]
    kept = [{"name": HOSTILE, "type": HOSTILE, "why": HOSTILE}]
    pages = [
        rehearsal_page.page(
            report([entry], problems=[HOSTILE], life=life, kept=kept, faults=[HOSTILE], provenance=[{HOSTILE: HOSTILE}])
        ),
        verification_page.page(
            verification([{**entry, "worse": [HOSTILE]}], problems=[HOSTILE], about=HOSTILE), HOSTILE
        ),
    ]
    for text in [*pages, broken_plan_html()]:
        assert not {tag for tag, _ in tags(text)} & {"script", "img"}
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "49" not in re.findall(r"alert\(1\)(.*?)<", text)[0]


def test_rehearsal_page_shows_sums_price_and_limits() -> None:
    """The page says that it is a rehearsal, and shows sums, price, doubt and what a rehearsal cannot show."""
    text = rehearsal_html()
    for words in ("This is a rehearsal", "1 of 1", "8 of 8", "61.83 USD", "estimate", "real bandwidth"):
        assert words in text, words
    assert "This is a rehearsal" not in rehearsal_page.page(report([node_entry(node())], rehearsal=False))


def test_price_without_the_nodes_is_unknown() -> None:
    """Without the price of the nodes the page shows no sum; without another price the sum is a minimum."""
    given: dict[str, Any] = {
        "usd_per_hour": 0.07, "usd_per_month": 51.1, "lines": [{"what": "/scratch: Lustre", "usd_per_hour": None}],
        "unknown": ["/scratch: Lustre: no price of it", "traffic: by the gigabyte"], "complete": False,
    }  # fmt: skip
    text = rehearsal_page.page(report([], cost={**given, "nodes_priced": False}))
    assert "<b>unknown</b><span>USD per hour, if deployed" in text
    assert "because the price of the nodes is unknown" in text
    text = rehearsal_page.page(report([], cost={**given, "nodes_priced": True}))
    assert "<b>0.07 USD</b><span>per hour, at least, if deployed" in text
    assert "At least 0.07 USD an hour" in text
    # The file system's own row shows that its price is unknown.
    assert "Not included: traffic: by the gigabyte." in text


def test_checks_with_one_reason_are_one_problem() -> None:
    """A lost GPU fails many checks for one reason: the page shows the reason once, the root cause first."""
    lost = [check(id=name, outcome="fail", reason="a GPU is lost", hint="reboot") for name in ("G1", "G3", "G5")]
    xid = check(id="X1", outcome="fail", reason="Xid 79", hint="drain")
    failed = node(outcome="failed", reason="x", checks=(*lost, xid), blocking=(xid, *lost))
    text = rehearsal_page.page(report([node_entry(failed)]))
    assert text.count("<b>What to do:</b>") == 2
    assert text.index("<b>X1") < text.index("<b>G1")
    assert "The same applies to G3, G5." in text


def test_plan_page_shows_topology_price_and_decisions() -> None:
    """The page draws each node, and lists price, purchase options, software, decisions and retained resources."""
    text = plan_html()
    assert text.count("<i></i>") == 4
    for words in ("10.64.0.0/16", "USD an hour", "by purchase option", "Decisions", "destroy retains", "11 of 16"):
        assert words in text, words
    assert "cannot be planned" in broken_plan_html()
