from __future__ import annotations

from gpuinfra.report.nodes import checks_text
from gpuinfra_rehearsal.document import node_entry, report_schema, totals
from tests.report.samples import check, node, report
from tests.report.validate import violations


def test_document_matches_the_published_schema() -> None:
    """Nodes of each outcome make a document that the published schema accepts."""
    failed = node(outcome="failed", reason="x", checks=(check(outcome="fail", found=7),), blocking=(check(),))
    silent = node(outcome="waiting", reason="no evidence yet", checks=(), settled=False)
    document = report([node_entry(n, console=["end"]) for n in (node(evidence_sha256="a"), failed, silent)])
    assert violations(document, report_schema()) == []
    assert [n["outcome"] for n in document["nodes"]] == ["verified", "failed", "never reported"]
    assert [n["hint"] for n in document["nodes"]][:2] == ["", "replace the node"]


def test_schema_refuses_undeclared_values() -> None:
    """The test's own validator finds a wrong word, a missing field and an undeclared field."""
    document = report([node_entry(node())])
    document["nodes"][0]["outcome"] = "fine"
    del document["totals"]["gpus"]
    document["surprise"] = 1
    assert len(violations(document, report_schema())) == 3


def test_totals_count_nodes_that_were_never_launched() -> None:
    """Nodes that no group launched count as missing nodes and missing GPUs."""
    sums = totals([node_entry(node()), node_entry(node(outcome="failed", reason="x"))], missing=2)
    assert (sums["nodes"], sums["nodes_verified"], sums["gpus"], sums["gpus_verified"]) == (4, 1, 32, 8)


def test_sum_of_checks_separates_skips_from_failures() -> None:
    """A skip is not a failure, and a node without evidence has no sum of checks."""
    checks = (check(), check(), check(outcome="skip", found=None))
    assert checks_text(node_entry(node(checks=checks))) == "2 checks passed, 1 does not apply"
    worse = (
        *checks,
        check(id="F3", outcome="fail"),
        check(outcome="error"),
        check(outcome="warn"),
        check(outcome="skip"),
    )
    text = checks_text(node_entry(node(outcome="failed", reason="x", checks=worse)))
    assert text == "2 checks passed, 1 failed, 1 could not be evaluated, 1 with a warning, 2 do not apply"
    missing = (*worse, check(id="G1", name="gpu_count", outcome="fail"))
    text = checks_text(node_entry(node(outcome="failed", reason="x", checks=missing)))
    assert text == "G1 gpu_count failed, 2 other checks did not pass, 2 passed"
    silent = node_entry(node(outcome="waiting", reason="no evidence yet", checks=(), settled=False))
    assert checks_text(silent) == "no evidence"
    refused = node_entry(node(outcome="refused", reason="x", checks=(), evidence_key="k", evidence_sha256="a"))
    assert checks_text(refused) == "evidence not evaluated"
