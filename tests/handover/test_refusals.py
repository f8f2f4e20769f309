"""The tables of refusals: recorded messages of the providers, variations of them, and `docs/reference/refusals.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from gpuinfra.clouds.aws.handover import ports as aws
from gpuinfra.clouds.azure.handover import ports as azure
from gpuinfra.clouds.gcp.handover import ports as gcp
from gpuinfra.handover.causes import NO_CAPACITY, CapacityCause, WaitEnd
from gpuinfra.handover.explain import reasons
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.handover.refusals import HINTS, Refusals, summary
from gpuinfra.handover.watch import WaitOutcome

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "refusals.md"
TABLES: dict[str, tuple[str, Refusals]] = {
    "aws": ("AWS", aws.REFUSALS),
    "azure": ("Azure", azure.REFUSALS),
    "gcp": ("Google Cloud", gcp.REFUSALS),
}
VARIATIONS = (
    (r"\b(?:us|eu|ap)-\w+-\d[a-f]?\b", "me-central-1b"),
    (r"\b(?:us|europe|asia)-\w+\d-[a-f]\b", "europe-west99-z"),
    (r"\b(?:cr|i|lt|ami|subnet|snapshot)-[0-9a-f]{8,17}\b", "x-ffffffffffffffff0"),
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ffffffff-eeee-dddd-cccc-bbbbbbbbbbbb"),
    (r"\b[a-z]\d[a-z]*\.\d*x?large\b", "p6-b300.48xlarge"),
    (r"\bStandard_\w+", "Standard_ND96isr_H100_v5"),
    (r"\b\d+\b", "7"),
)
"""Zones, ids, machine types and numbers that differ between two messages of the same wording."""


def alternatives(pattern: str) -> Iterator[str]:
    """The top-level alternatives of a regular expression."""
    depth, start = 0, 0
    for at, char in enumerate(pattern):
        depth += (char in "([") - (char in ")]")
        if char == "|" and not depth:
            yield pattern[start:at]
            start = at + 1
    yield pattern[start:]


@pytest.mark.parametrize("cloud", TABLES)
def test_recorded_messages_have_the_cause_of_their_row(cloud: str) -> None:
    """Each recorded message, also with other zones, ids, machine types and numbers, is classified by its own row."""
    table = TABLES[cloud][1]
    wrong = []
    for row in table.rows:
        for one in row.texts:
            varied = one.text
            for pattern, other in VARIATIONS:
                varied = re.sub(pattern, other, varied)
            for text in (one.text, varied, f"error: 1 error occurred: * {one.text.upper()}"):
                found = table.of(text)
                if (found.cause, found.hint) != (row.cause, row.hint or HINTS[row.cause]):
                    wrong.append(f"{found.cause} instead of {row.cause}: {text}")
    assert wrong == []


@pytest.mark.parametrize("cloud", TABLES)
def test_each_wording_has_a_source(cloud: str) -> None:
    """Each alternative of each regular expression matches a recorded message with the address of its source and a date."""
    without = []
    for row in TABLES[cloud][1].rows:
        for one in alternatives(row.pattern):
            if not any(re.search(one, text.text, re.IGNORECASE | re.DOTALL) for text in row.texts):
                without.append(one)
        for text in row.texts:
            assert re.fullmatch(r"https://[^\s]+", text.source), text
            assert date(2010, 1, 1) < date.fromisoformat(text.date) <= date(2026, 11, 28), text
    assert without == []


@pytest.mark.parametrize("cloud", TABLES)
def test_each_cause_selects_a_recorded_message(cloud: str) -> None:
    """Each cause in a table selects the first recorded message of this cause, and its code selects a message with the same code."""
    table = TABLES[cloud][1]
    for row in table.rows:
        found = table.recorded(row.cause)
        assert found is not None
        code, message = found
        assert table.of(f"{code}: {message}" if code else message).cause == row.cause
        again = table.recorded(code) if code else None
        assert again is None or again[0] == code
    assert table.recorded("no-such-cause") is None


def test_tables_cover_the_causes() -> None:
    """The tables contain at least 60 recorded messages. Each cloud has each cause, except on Google Cloud prices, because no bids
    exist, and a quota of spot machines, whose message no public report contains."""
    assert sum(len(row.texts) for _, table in TABLES.values() for row in table.rows) >= 60
    for cloud, (_, table) in TABLES.items():
        missing = (
            set(CapacityCause) - {row.cause for row in table.rows} - {CapacityCause.UNKNOWN, CapacityCause.NO_MESSAGE}
        )
        assert missing == ({CapacityCause.PRICE, CapacityCause.SPOT_QUOTA} if cloud == "gcp" else set()), cloud


CAPACITY_CODES = {
    "aws": (
        "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
        "MaxSpotInstanceCountExceeded", "Unsupported: The requested configuration is currently not supported.", "SpotMaxPriceTooLow",
        "UnfulfillableCapacity", "ReservationCapacityExceeded",
    ),
    "azure": (
        "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest", "OverconstrainedZonalAllocationRequest",
        "SkuNotAvailable", "VMSizeNotSupported",
    ),
    "gcp": (
        "ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "REGION_RESOURCE_POOL_EXHAUSTED",
        "RESOURCE_POOL_EXHAUSTED", "VM_MIN_COUNT_NOT_REACHED", "insufficientCapacity", "resourcePoolExhausted",
    ),
}  # fmt: skip
"""Codes that the documentation of the cloud or a scheduler of the cloud treats as missing capacity: aws-parallelcluster-node
(`slurm_plugin/fleet_manager.py`, tests of `slurm_resources.py`), EC2's list of errors, Azure's page about allocation failures, and cluster-toolkit."""


@pytest.mark.parametrize(
    ("cloud", "code"), [(cloud, code) for cloud, codes in CAPACITY_CODES.items() for code in codes]
)
def test_codes_that_peers_treat_as_missing_capacity_continue_the_search(cloud: str, code: str) -> None:
    """A message with such a code has a cause for which another zone, another capacity kind or a later attempt can help."""
    assert TABLES[cloud][1].coded("g", code.partition(":")[0], code, None).cause in NO_CAPACITY


@pytest.mark.parametrize("cloud", TABLES)
def test_an_unknown_message_is_shown_unmodified(cloud: str) -> None:
    """A message that no row matches has the cause `unknown`, and the explanation of the handover contains it."""
    message = "FluxCapacitorMissing: the flux of zone q-9 is below 1.21 GW " + "x" * 900
    problem = TABLES[cloud][1].problem("asg-1", message, datetime(2026, 11, 23, tzinfo=UTC))
    assert (problem.cause, problem.hint) == (CapacityCause.UNKNOWN, HINTS[CapacityCause.UNKNOWN])
    verdict = FleetVerdict(nodes=(), missing={"asg-1": 2})
    outcome = WaitOutcome(
        verdict=verdict, ready=False, ended=WaitEnd.STOCK_OUT, seconds=300.0, problems=(replace(problem, name="asg-1"),)
    )
    assert f"asg-1: 2 nodes never launched: {message}\n  what to do: {HINTS[CapacityCause.UNKNOWN]}" in reasons(
        outcome, "aws"
    )
    assert "see its message" in reasons(outcome, "aws")[0]


def test_the_reason_names_what_is_wrong() -> None:
    """The summary states missing capacity only if all messages do; other causes are listed."""
    assert summary(["stock-out", "price"]) == "the cloud has no capacity for the missing nodes"
    assert summary(["stock-out", "quota"]) == "the cloud does not launch the missing nodes: quota, stock-out"


def test_a_row_can_have_its_own_hint() -> None:
    """The failure of an encrypted volume on AWS names the key policy instead of the general hint."""
    assert "kms:CreateGrant" in aws.REFUSALS.of("Client.InternalError: Client error on launch").hint


def page() -> str:
    """The table for the page."""
    lines = ["| cause | another zone or a later retry can help | what to do |", "| --- | --- | --- |"]
    lines += [f"| `{cause}` | {'yes' if cause in NO_CAPACITY else 'no'} | {HINTS[cause]} |" for cause in CapacityCause]
    return "\n".join(lines)


def test_page_lists_every_kind() -> None:
    """The table of docs/reference/refusals.md is generated from the code; run this file as a program to write it."""
    found = re.search(r"<!-- refusals -->\n(.*?)<!-- /refusals -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert found.group(1).strip() == page()


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- refusals -->")
    after = rest.partition("<!-- /refusals -->")[2]
    PAGE.write_text(f"{before}<!-- refusals -->\n\n{page()}\n\n<!-- /refusals -->{after}", encoding="utf-8")
