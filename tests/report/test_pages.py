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

from gpuinfra.base.findings import Finding, Level
from gpuinfra.base.shipped import shipped
from gpuinfra.report import nodes, plan_page, verification_page
from gpuinfra.report.plan_json import PlanReport, plan_report
from gpuinfra_rehearsal.document import node_entry
from gpuinfra_rehearsal.page import page as rehearsal_page
from tests.report.samples import HOSTILE, check, node, report, tags, verification

DAY = date(2026, 11, 21)


def plan_html() -> str:
    """A plan of a shipped stack."""
    return plan_page.page(plan_report(shipped("stacks") / "Pulumi.aws-p4d.yaml", DAY))


def workload_html() -> str:
    """A plan of a shipped stack that declares its workload."""
    return plan_page.page(plan_report(shipped("stacks") / "Pulumi.aws-p5-block.yaml", DAY))


def broken_plan_html() -> str:
    """A stack with an error, in hostile words."""
    finding = Finding(level=Level.ERROR, path=HOSTILE, message=HOSTILE, hint=HOSTILE)
    return plan_page.page(PlanReport(stack=HOSTILE, path=Path("x"), findings=(finding,)))


def rehearsal_html() -> str:
    """A report of a rehearsal."""
    return rehearsal_page(report([node_entry(node())]))


def verification_html() -> str:
    """A verification."""
    return verification_page.page(verification([node_entry(node())]), "Verification of try")


PAGES = [plan_html, workload_html, broken_plan_html, rehearsal_html, verification_html]


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
        rehearsal_page(
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
    assert "This is a rehearsal" not in rehearsal_page(report([node_entry(node())], rehearsal=False))


def test_price_without_the_nodes_is_unknown() -> None:
    """Without the price of the nodes the page shows no sum; without another price the sum is a minimum."""
    given: dict[str, Any] = {
        "usd_per_hour": 0.07, "usd_per_month": 51.1, "lines": [{"what": "/scratch: Lustre", "usd_per_hour": None}],
        "unknown": ["/scratch: Lustre: no price of it", "traffic: by the gigabyte"], "excluded": ["traffic: by the gigabyte"],
        "complete": False,
    }  # fmt: skip
    text = rehearsal_page(report([], cost={**given, "nodes_priced": False}))
    assert "<b>unknown</b><span>USD per hour, if deployed" in text
    assert "because the price of the nodes is unknown" in text
    text = rehearsal_page(report([], cost={**given, "nodes_priced": True}))
    assert "<b>0.07 USD</b><span>per hour, at least, if deployed" in text
    assert "At least 0.07 USD an hour" in text
    # The file system's own row shows that its price is unknown.
    assert "Not included: traffic: by the gigabyte." in text


def test_checks_with_one_reason_are_one_problem() -> None:
    """A lost GPU fails many checks for one reason: the page shows the reason once, the root cause first."""
    lost = [check(id=name, outcome="fail", reason="a GPU is lost", hint="reboot") for name in ("G1", "G3", "G5")]
    xid = check(id="X1", outcome="fail", reason="Xid 79", hint="drain")
    failed = node(outcome="failed", reason="x", checks=(*lost, xid), blocking=(xid, *lost))
    text = rehearsal_page(report([node_entry(failed)]))
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


def test_plan_page_shows_the_forecast_of_a_workload_and_its_sources() -> None:
    """A declared workload is a section with tokens, price per token and energy, and each source of the numbers. Without one, there is no section."""
    section = workload_html().split("<h2>Workload</h2>")[1].split("<h2>")[0]
    assert all(
        text in section
        for text in ("llama-3.1-8b", "billion a day", "USD per billion tokens", "MWh a day", "interpolated")
    )
    assert "<h2>Workload</h2>" not in plan_html()


def test_each_version_has_its_reason() -> None:
    """The section about software shows each version with the reason for it, before the settings of the steps."""
    text = plan_html().partition("<h2>Software</h2>")[2].partition("</details>\n")[0]
    (row,) = re.findall(r"<tr>\s*<td[^>]*>fabric manager</td>(.*?)</tr>", text, flags=re.DOTALL)
    assert "595.91.07" in row
    assert "exactly the driver&#39;s version" in row
    assert "settings of the bootstrap steps" in text


def test_the_first_cell_of_a_row_names_it() -> None:
    """On a phone, the cells of a row are below each other, so the first one is the name of the row and not a number."""
    text = "".join(make() for make in PAGES)
    first = re.findall(r"<tr>\s*<td([^>]*)>", text)
    assert len(first) > 20
    assert [given for given in first if "right" in given] == []
    (row,) = re.findall(r"<tr>\s*<td[^>]*>create: train-network-vpc(.*?)</tr>", plan_html(), flags=re.DOTALL)
    assert '<span class="note">aws:ec2/vpc:Vpc</span>' in row
    assert 'data-of="minutes"' in row


def test_scrolling_diagrams_are_reachable_by_keyboard() -> None:
    """A box in which a diagram scrolls on a narrow screen can have the keyboard focus, and has a role and a name."""
    boxes = [given for tag, given in tags(plan_html()) if tag == "div" and given.get("role") == "region"]
    common = {"class": "scroll", "role": "region", "tabindex": "0"}
    assert boxes == [{**common, "aria-label": name} for name in ("Topology diagram", "Price chart")]


@pytest.mark.parametrize("make", PAGES, ids=lambda make: make.__name__)
def test_header_cells_have_text_and_scope(make: Callable[[], str]) -> None:
    """A column without a title has an ordinary cell in the header, because an empty header cell has no meaning."""
    text = make()
    assert all(given.get("scope") == "col" for tag, given in tags(text) if tag == "th")
    assert not re.search(r"<th[^>]*></th>", text)


def test_nodes_are_cells_by_zone_and_group_with_trouble_first() -> None:
    """Each GPU is a cell with the style of its node's outcome, an undetected GPU is marked, and zones, groups and nodes with trouble come first."""
    bad = check(outcome="fail", reason="7 of 8")
    found = [
        node_entry(node(label="gpu-1", zone="a", group="gpu-spot-0")),
        node_entry(node(label="gpu-2", zone="a", group="gpu-reserved-0", gpus=tuple({"index": at} for at in range(8)))),
        node_entry(node(label="gpu-3", zone="b", group="gpu-spot-1", outcome="waiting", checks=(), gpus=())),
        node_entry(
            node(
                label="gpu-4", zone="b", group="gpu-reserved-1", outcome="failed", checks=(bad,), blocking=(bad,),
                gpus=tuple({"index": at} for at in range(7)),
            )
        ),
    ]  # fmt: skip
    shown = nodes.cells(found)
    assert [(zone["name"], [group["text"].partition(":")[0] for group in zone["groups"]]) for zone in shown] == [
        ("b", ["gpu-spot-1", "gpu-reserved-1"]),
        ("a", ["gpu-spot-0", "gpu-reserved-0"]),
    ]
    (failed,) = shown[0]["groups"][1]["nodes"]
    assert failed["gpus"] == ["bad"] * 7 + ["gone"]
    assert failed["text"] == "gpu-4: failed, 7 of 8 GPUs detected"
    assert shown[0]["groups"][0]["nodes"][0]["gpus"] == ["bad"] * 8
    for text in (rehearsal_page(report(found)), verification_page.page(verification(found), "Nodes")):
        labels = re.findall(r"<li><b>(gpu-\d)</b>", text)
        assert labels == ["gpu-3", "gpu-4", "gpu-1", "gpu-2"]
        assert 'role="img" aria-label="gpu-4: failed, 7 of 8 GPUs detected"' in text
    order = re.findall(r"<b>(gpu-\d)</b> <code>", rehearsal_page(report(found)))
    assert order == ["gpu-3", "gpu-4", "gpu-1", "gpu-2"]


def test_a_large_group_draws_only_its_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a group with more nodes than the page can draw, nodes with trouble are drawn, and the others are counted."""
    monkeypatch.setattr(nodes, "MOST_DRAWN", 3)
    found = [
        node_entry(node(label=f"gpu-{at}", zone="a", outcome="refused" if at == 4 else "verified")) for at in range(5)
    ]
    (group,) = nodes.cells(found)[0]["groups"]
    assert [one["label"] for one in group["nodes"]] == ["gpu-4"]
    assert group["more"] == 4
    assert "4 of 5 nodes verified, 40 GPUs" in group["text"]


def test_text_in_backticks_is_code() -> None:
    """Commands in a finding are shown as code. A backtick without a partner is shown as it is, and the parts are escaped."""
    findings = (
        Finding(level=Level.ERROR, path="a", message="is wrong", hint="run `pulumi <up>` again"),
        Finding(level=Level.ERROR, path="b", message="has a ` in it"),
    )
    text = plan_page.page(PlanReport(stack="try", path=Path("x"), findings=findings))
    assert "run <code>pulumi &lt;up&gt;</code> again</span>" in text
    assert ">b has a ` in it</td>" in text


def test_expected_nothing_is_in_words() -> None:
    """A check that expects an empty list of Xids shows `no Xids`."""
    text = rehearsal_page(report([node_entry(node(checks=(check(found=[], expected=[], unit="Xids"),)))]))
    assert ">no Xids</td>" in text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_colors_have_enough_contrast(dark: bool) -> None:
    """Text has a contrast of at least 4.5:1 on each background that it is used on (WCAG 2.2, criterion 1.4.3)."""
    style = (Path(plan_page.__file__).parent / "templates" / "style.css").read_text().split("@media print")[0]
    light, _, rest = style.partition("@media (prefers-color-scheme: dark)")
    colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", light))
    if dark:
        colors |= dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", rest))
    pairs = [(text, back) for text in ("ink", "quiet") for back in ("bg", "card")]
    pairs += [("ink", back) for back in ("line", "good-bg", "warn-bg", "bad-bg")]
    pairs += [(tone, f"{tone}-bg") for tone in ("good", "warn", "bad")]
    low = {pair: _contrast(*(colors[name] for name in pair)) for pair in pairs}
    assert not {pair: found for pair, found in low.items() if found < 4.5}


def _contrast(one: str, other: str) -> float:
    """The contrast of two colors (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    """The relative luminance of a color (https://www.w3.org/TR/WCAG22/#dfn-relative-luminance)."""
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
