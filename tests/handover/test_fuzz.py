"""Documents of hostile nodes of any content: they raise nothing, take a bounded time, and no report contains their characters."""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.handover.evidence import evidence_of
from gpuinfra.handover.examine import examine, judge_node
from gpuinfra.handover.ports import EvidenceRef
from gpuinfra.node import evidence as node_evidence
from gpuinfra.node.fabric_relay import REPORT, NodeReport
from gpuinfra.report.tables import Cell, Table, markdown
from gpuinfra.report.verification_page import page
from gpuinfra.report.verification_text import document as report_document
from gpuinfra.report.verification_text import junit
from gpuinfra.report.verification_text import text as report_text
from gpuinfra.verification.judged import judge_all
from gpuinfra.verification.read import EvidenceDocument, FoundEvidence, parse
from tests.node import healthy
from tests.node.test_evidence import BOOT, NODE

from .fleet import LAUNCHED
from .fuzz import BAD, DIRTY, PARTS, mutated, text

DECODED, EXAMINED = 25.0, 60.0
"""Decoding, bounding and cleaning a document takes at most the first multiple of the time that `json.loads` takes for it, and examining it with the
checks of its machine at most the second one. A document that is smaller than the evidence of the healthy machine counts like this evidence, because the
checks take a few milliseconds for any document."""


def original() -> dict[str, Any]:
    """Evidence of a healthy machine, as the node program makes it."""
    return node_evidence.make(
        node=NODE, expectation=healthy.P4D, journal=healthy.JOURNAL, probes=healthy.healthy(), instance_id="i-00000000000000001", boot_id=BOOT,
        seq=1, previous=None, started="2026-11-21T09:00:00Z", finished="2026-11-21T09:00:05Z", host_keys=[],
    )  # fmt: skip


def reports(one: EvidenceDocument) -> Iterator[str]:
    """The reports about a document: JSON, HTML, JUnit and the lines on the terminal."""
    found = FoundEvidence(newest=(one,), about="")
    nodes = judge_all(found, lambda _: healthy.P4D)
    yield json.dumps(report_document(nodes, found), ensure_ascii=False)
    yield page(report_document(nodes, found), "title")
    yield junit(nodes, found)
    yield from report_text(nodes, found)
    yield from markdown(
        Table(["text", "code"], [(value, Cell(value, code=True)) for value in texts(one.document)]), 100
    )


def texts(content: Any) -> Iterator[str]:
    """All texts of a document."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from texts(inner)


def examined(data: bytes) -> object:
    """Examine one document with the checks of its machine."""
    ref = EvidenceRef(instance_id="i-00000000000000001", boot_id=BOOT, seq=1, key="k.json", etag="e", modified=LAUNCHED)
    return examine(data, ref, healthy.P4D, judge_node)


def spent(function: Callable[[bytes], object], data: bytes, times: int = 2) -> float:
    """The CPU time of a function, which may refuse the document."""
    seconds = []
    for _ in range(times):
        begun = time.thread_time()
        with contextlib.suppress(ValueError, RecursionError):
            function(data)
        seconds.append(time.thread_time() - begun)
    return min(seconds)


@PARTS
def test_documents_of_any_content_are_examined_in_bounded_time(part: int, tmp_path: Path) -> None:
    """A changed document of a real machine raises nothing, needs a bounded time, and no report contains its control characters."""
    base = original()
    least = spent(json.loads, json.dumps(base).encode(), 5)
    for seed in range(part * 1000, part * 1000 + (10 if part == 0 else 75)):
        rng = random.Random(f"document {seed}")
        data = mutated(rng, base)
        decoding = max(least, spent(json.loads, data))
        assert spent(evidence_of, data) < DECODED * decoding, seed
        assert spent(examined, data) < EXAMINED * decoding, seed
        one = parse(data, "x.json")
        for report in reports(one) if isinstance(one, EvidenceDocument) else [one]:
            assert not set(report) & BAD, seed


ANY = ([], {}, [[]], {"x": []}, None, True, -1, 10**40, "x")
"""One value of each type, and values that neither a set nor a dictionary accepts as a key."""


def places(content: Any) -> dict[str, tuple[str | int, ...]]:
    """The shape of each path in a document -> one path with it."""
    found: dict[str, tuple[str | int, ...]] = {}
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), content)]
    while waiting:
        path, inner = waiting.pop()
        if path:
            found["/".join("*" if isinstance(part, int) else part for part in path)] = path
        items = inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else ()
        waiting += [((*path, name), one) for name, one in items]
    return found


@pytest.mark.parametrize(
    ("value", "reported"),
    [(ANY[0], False), *(pytest.param(one, True, marks=pytest.mark.long) for one in ANY)],
    ids=repr,
)
def test_a_field_may_have_any_type(value: object, reported: bool) -> None:
    """Each field of evidence, of the journal in it and of each probe can have a value of any type: examining and reporting it raises nothing."""
    base = json.loads(json.dumps(original()))
    for shape, (*path, last) in places(base).items():
        changed = json.loads(json.dumps(base))
        place = changed
        for part in path:
            place = place[part]
        place[last] = value
        data = json.dumps(changed).encode()
        try:
            examined(data)
            one = parse(data, "x.json")
            assert not reported or not isinstance(one, EvidenceDocument) or list(reports(one))
        except Exception as error:
            raise AssertionError(f"{shape} = {value!r}: {error!r}") from error


@PARTS
def test_reports_of_any_content_have_clean_fields(part: int) -> None:
    """A changed report to the fabric test raises nothing, and what the handover copies from it has its form and no control characters."""
    report = NodeReport(
        test="0" * 16, ask=1, ready=True, run="0001", gpus=8, unique_id="ab" * 128, outcome="fail", reason="61.0 GB/s"
    )
    place: dict[str, object] = {"instance_id": "i-00000000000000001", "boot_id": BOOT, "seq": 1}
    base = {"schema": REPORT, **place, **asdict(report)}
    ref = EvidenceRef(
        instance_id="i-00000000000000001",
        boot_id=BOOT,
        seq=1,
        key="k.json",
        etag="e",
        modified=LAUNCHED,
        is_report=True,
    )
    for seed in range(part * 1000, part * 1000 + (200 if part == 0 else 500)):
        content = examine(mutated(random.Random(f"report {seed}"), base), ref, healthy.P4D, judge_node)
        if (kept := content.report) is not None:
            assert re.fullmatch(
                r"[0-9a-f]{16} [0-9]{0,6} (?:[0-9a-f]{256})?", f"{kept.test} {kept.run} {kept.unique_id}"
            ), seed
            assert 0 <= kept.gpus <= 64, seed
            assert len(kept.reason) <= 200, seed
            assert not set(kept.reason) & frozenset(DIRTY), seed


@PARTS
def test_markdown_keeps_texts_in_their_cells(part: int) -> None:
    """A text of any content is on one line and in one cell of a Markdown table, without control characters."""
    for seed in range(part * 1000, part * 1000 + (25 if part == 0 else 125)):
        rng = random.Random(f"markdown {seed}")
        lines = markdown(
            Table(["text", "code"], [(value, Cell(value, code=True)) for value in (text(rng), text(rng))]), 9
        )
        assert len("\n".join(lines).splitlines()) == 4, seed
        for line in lines:
            assert not set(line) & frozenset(DIRTY), seed
            assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3, (seed, line)
