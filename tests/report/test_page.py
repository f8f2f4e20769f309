from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from gpuinfra.handover.judge import NodeVerdict
from gpuinfra.report import node_entry, page, report_schema, totals
from gpuinfra.report.document import checks_text
from tests.rehearsal.validate import violations

HOSTILE = "<script>alert(1)</script>\x1b[2J\"'>&<img src=x onerror=y>"


def check(**more: Any) -> dict[str, Any]:
    """One outcome."""
    return {
        "id": "G1", "name": "gpu_count", "phase": "presence", "severity": "block", "outcome": "pass", "found": 8,
        "expected": 8, "unit": "GPUs", "hint": "replace the node", "reason": None, **more,
    }  # fmt: skip


def node(**more: Any) -> NodeVerdict:
    """One node's verdict."""
    given: dict[str, Any] = {
        "label": "gpu-1", "pool": "gpu", "group": "gpu-spot-0", "instance_id": "i-0abc", "outcome": "verified", "reason": "",
        "settled": True, "gpus_expected": 8, "checks": (check(),), "gpus": ({"index": 0, "uuid": "GPU-1"},),
    }  # fmt: skip
    return NodeVerdict(**{**given, **more})


def report(nodes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A whole document."""
    cost = {
        "usd_per_hour": 61.83, "usd_per_month": 45135.9, "unknown": [],
        "lines": [{"what": "gpu: 2 nodes", "usd_per_hour": 43.9, "read": "2026-07-28", "source": "a list", "certain": False}],
    }  # fmt: skip
    return {
        "schema": "gpuinfra.report/1", "rehearsal": True, "stack": "try", "cluster": "train", "cloud": "aws",
        "region": "us-east-1", "action": "up", "ok": True, "finished": "2026-11-21T09:00:00Z", "seconds": 1.0, "faults": [],
        "problems": [], "notes": [], "cost": cost, "nodes": nodes, "totals": totals(nodes), "kept": [],
        "not_shown": ["real bandwidth"], "provenance": [],
        "engine": {"version": "3.259.0", "operations": {}, "runs": [], "resources": 3}, **more,
    }  # fmt: skip


class Tags(HTMLParser):
    """Every tag and attribute of a page, and whether each was closed in order."""

    VOID = frozenset({"meta", "br", "img", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    """The tags of a page that is well nested."""
    parser = Tags()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser.seen


def test_document_is_what_the_schema_says() -> None:
    """Nodes of each outcome make a document that the published schema accepts."""
    failed = node(outcome="failed", reason="x", checks=(check(outcome="fail", found=7),), blocking=(check(),))
    silent = node(outcome="waiting", reason="no evidence yet", checks=(), settled=False)
    document = report([node_entry(n, console=["end"]) for n in (node(evidence_sha256="a"), failed, silent)])
    assert violations(document, report_schema()) == []
    assert [n["outcome"] for n in document["nodes"]] == ["verified", "failed", "never reported"]
    assert [n["hint"] for n in document["nodes"]][:2] == ["", "replace the node"]


def test_schema_refuses_what_it_does_not_know() -> None:
    """The test's own validator finds a wrong word, a missing field and an undeclared one."""
    document = report([node_entry(node())])
    document["nodes"][0]["outcome"] = "fine"
    del document["totals"]["gpus"]
    document["surprise"] = 1
    assert len(violations(document, report_schema())) == 3


def test_totals_count_nodes_that_were_never_launched() -> None:
    """Nodes that no group launched are missing nodes and missing GPUs, not fewer to expect."""
    sums = totals([node_entry(node()), node_entry(node(outcome="failed", reason="x"))], missing=2)
    assert (sums["nodes"], sums["nodes_verified"], sums["gpus"], sums["gpus_verified"]) == (4, 1, 32, 8)


def test_page_holds_nothing_from_elsewhere_and_no_script() -> None:
    """The page loads nothing, runs nothing, and says so in its policy."""
    seen = tags(page(report([node_entry(node())])))
    assert not {t for t, _ in seen} & {"script", "img", "link", "iframe", "object", "form", "a"}
    assert not [a for _, attrs in seen for a in attrs if a in ("src", "href", "srcset") or a.startswith("on")]
    policy = next(a["content"] for t, a in seen if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy


def test_page_escapes_what_nodes_say() -> None:
    """Hostile text in every place that a node or a cloud can write to stays text."""
    bad = node(
        outcome="failed", reason=HOSTILE, label=HOSTILE, instance_id=HOSTILE, evidence_key=HOSTILE,
        checks=(check(outcome="fail", found=HOSTILE, expected=[HOSTILE], reason=HOSTILE, hint=HOSTILE, name=HOSTILE),),
        blocking=(check(),), gpus=({"index": HOSTILE, "uuid": HOSTILE},),
    )  # fmt: skip
    life = [{"step": HOSTILE, "ok": False, "found": HOSTILE}]
    kept = [{"name": HOSTILE, "type": HOSTILE, "why": HOSTILE}]
    text = page(
        report([node_entry(bad, console=[HOSTILE])], problems=[HOSTILE], life=life, kept=kept, faults=[HOSTILE])
    )
    assert not {t for t, _ in tags(text)} & {"script", "img"}
    assert "\x1b" not in text


def test_page_says_what_it_is() -> None:
    """Rehearsal, sums, price and doubt are on the page."""
    text = page(report([node_entry(node())]))
    for words in ("This is a rehearsal", "1 of 1", "8 of 8", "61.83 USD", "not certain", "real bandwidth"):
        assert words in text, words
    assert "This is a rehearsal" not in page(report([node_entry(node())], rehearsal=False))


def test_checks_are_summed_up_in_words_that_do_not_mislead() -> None:
    """A skip does not read as a failure, and a node without evidence has no sum of checks."""
    checks = (check(), check(), check(outcome="skip", found=None))
    assert checks_text(node_entry(node(checks=checks))) == "2 checks passed, 1 does not apply"
    worse = (*checks, check(outcome="fail"), check(outcome="error"), check(outcome="warn"), check(outcome="skip"))
    said = checks_text(node_entry(node(outcome="failed", reason="x", checks=worse)))
    assert said == "2 checks passed, 1 failed, 1 could not be judged, 1 with a warning, 2 do not apply"
    silent = node_entry(node(outcome="waiting", reason="no evidence yet", checks=(), settled=False))
    assert checks_text(silent) == "no evidence"
    refused = node_entry(node(outcome="refused", reason="x", checks=(), evidence_key="k", evidence_sha256="a"))
    assert checks_text(refused) == "evidence not judged"
    text = page(report([node_entry(node(checks=checks)), silent]))
    for words in ("2 checks passed, 1 does not apply", "no evidence"):
        assert words in text, words


def test_a_price_that_lacks_the_nodes_is_no_price() -> None:
    """Without the nodes' own price the page shows no sum; without another price it says that it is the least."""
    given = {"usd_per_hour": 0.07, "usd_per_month": 51.1, "lines": [{"what": "/scratch: Lustre", "usd_per_hour": None}]}
    more = {"unknown": ["/scratch: Lustre: no price of it", "traffic: by the gigabyte"], "complete": False}
    text = page(report([], cost={**given, **more, "nodes_priced": False}))
    assert "<b>unknown</b><span>an hour, if it were real" in text
    assert "the nodes' own price is not" in text.replace("&#x27;", "'")
    text = page(report([], cost={**given, **more, "nodes_priced": True}))
    assert "<b>0.07 USD</b><span>an hour at least, if it were real" in text
    # The file system's own row says that its price is unknown.
    assert "Not in the sum: traffic: by the gigabyte." in text


def test_checks_that_fail_for_one_reason_are_one_problem_of_the_page() -> None:
    """A GPU that is lost fails many checks in the same words; a person reads them once, the cause first."""
    lost = [check(id=name, outcome="fail", reason="a GPU is lost", hint="reboot") for name in ("G1", "G3", "G5")]
    xid = check(id="X1", outcome="fail", reason="Xid 79", hint="drain")
    failed = node(outcome="failed", reason="x", checks=(*lost, xid), blocking=(xid, *lost))
    text = page(report([node_entry(failed)]))
    assert text.count("<b>What to do:</b>") == 2
    assert text.index("<b>X1") < text.index("<b>G1")
    assert "The same holds for G3, G5." in text
