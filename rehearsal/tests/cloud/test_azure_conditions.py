"""Conditions of role assignments: supported ones are evaluated as Azure documents them, others allow nothing."""

from __future__ import annotations

import pytest

from gpuinfra_rehearsal.cloud.azure.conditions import SUB_OPERATION, holds

BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
PATH = f"@Resource[{BLOBS}:path]"
READ, WRITE = f"{BLOBS}/read", f"{BLOBS}/write"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f"{PATH} StringEquals 'a/b'", True),
        (f"{PATH} StringEquals 'A/b'", False),
        (f"{PATH} StringEqualsIgnoreCase 'A/b'", True),
        (f"{PATH} StringStartsWith 'a/'", True),
        (f"{PATH} StringNotStartsWith 'a/'", False),
        (f"{PATH} StringLike 'a/*'", True),
        (f"{PATH} StringLike 'b/*'", False),
        (f"{PATH} StringEquals {{'x', 'a/b'}}", True),
        (f"!({PATH} StringEquals 'a/b')", False),
        (f"(ActionMatches{{'{READ}'}})", True),
        (f"(ActionMatches{{'{WRITE}'}})", False),
        (f"(ActionMatches{{'{BLOBS}/*'}})", True),
        (f"!(ActionMatches{{'{READ}'}}) OR {PATH} StringEquals 'x'", False),
        (f"ActionMatches{{'{WRITE}'}} AND {PATH} StringEquals 'x' OR {PATH} StringEquals 'a/b'", True),
        (f"ActionMatches{{'{WRITE}'}} AND ({PATH} StringEquals 'x' OR {PATH} StringEquals 'a/b')", False),
        (f"ActionMatches{{'{READ}'}} && {PATH} StringStartsWith 'a'", True),
        (f"@Request[{BLOBS}:path] StringEquals 'a/b'", True),
        (f"@Resource[{BLOBS}:version] StringEquals 'a/b'", False),
        (f"{PATH} StringEquals 'it''s'", False),
    ],
)
def test_conditions_are_evaluated(condition: str, expected: bool) -> None:
    """AND precedes OR, and an attribute that a request lacks compares as false."""
    assert holds(condition, READ, {f"{BLOBS}:path": "a/b"}) is expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("SubOperationMatches{'Blob.List'}", True),
        ("SubOperationMatches{'Blob.Read.WithTagConditions'}", False),
        (f"!(ActionMatches{{'{READ}'}} AND NOT SubOperationMatches{{'Blob.List'}})", True),
        (f"!(ActionMatches{{'{READ}'}} AND SubOperationMatches{{'Blob.List'}})", False),
    ],
)
def test_a_listing_is_a_suboperation_of_a_read(condition: str, expected: bool) -> None:
    """A listing has the read action and the suboperation `Blob.List`; other reads have no suboperation."""
    assert holds(condition, READ, {SUB_OPERATION: "Blob.List"}) is expected
    assert holds("SubOperationMatches{'Blob.List'}", READ, {}) is False


@pytest.mark.parametrize(
    "condition",
    [
        "", "(", "()", f"{PATH}", f"{PATH} StringEquals", f"{PATH} NumericEquals '1'", f"{PATH} StringEquals 'a/b') ", "true",
        f"SubOperationMatches OR {PATH} StringEquals 'a/b'", f"ActionMatches{{}} OR {PATH} StringEquals 'a/b'",
        f"{PATH} StringWhatever 'a/b'", "@Environment[x] StringEquals 'a'", f"{PATH} StringEquals 'a/b' {PATH}", "@Principal[x:y] StringEquals 'a'",
    ],
)  # fmt: skip
def test_an_unsupported_condition_allows_nothing(condition: str) -> None:
    """A gap is a denial, even where another part of the condition holds."""
    assert holds(condition, READ, {f"{BLOBS}:path": "a/b"}) is False
