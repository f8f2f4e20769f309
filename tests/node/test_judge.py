"""The verdict on the outcomes of checks."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.node.judge import judge, verdict
from tests.node.healthy import JOURNAL, P4D, healthy

EXPECTATION = {"required": ["G1", "X1"], "skips": {"F2": "not on this GPU"}}


def check(name: str, outcome: str, severity: str = "drain") -> dict[str, Any]:
    """One outcome."""
    return {"id": name, "outcome": outcome, "severity": severity}


@pytest.mark.parametrize(
    ("first", "second", "verified"),
    [
        (check("G1", "pass"), check("X1", "pass"), True),
        (check("G1", "pass"), check("X1", "warn"), True),
        (check("G1", "warn"), check("X1", "pass"), False),
        (check("G1", "warn", "warn"), check("X1", "pass"), True),
        (check("G1", "skip"), check("X1", "pass"), False),
        (check("G1", "error", "info"), check("X1", "pass"), False),
        (check("G1", "pass"), check("F2", "skip"), False),
    ],
)
def test_only_passed_and_listed_outcomes_verify(first: dict[str, Any], second: dict[str, Any], verified: bool) -> None:
    """A required check must pass; only listed checks can be skipped, and only some can warn."""
    result = verdict([first, second, check("F2", "skip")], EXPECTATION)
    assert result.verified is verified
    assert result.missing == (("X1",) if second["id"] == "F2" else ())


@pytest.mark.parametrize("why", ["", None, 7])
def test_a_skip_needs_a_reason(why: object) -> None:
    """An expectation that skips a check without a reason is refused."""
    with pytest.raises(ValueError, match="a skip in the expectation has no reason"):
        verdict([check("G1", "pass")], {"required": ["G1"], "skips": {"F2": why}})


def test_lists_stay_lists() -> None:
    """A found value with several parts is a list of scalars in the outcome."""
    outcomes = judge(healthy(), P4D, journal=JOURNAL)
    assert any(isinstance(one["found"], list) and one["found"] for one in outcomes)
    assert all(
        not isinstance(part, list | dict)
        for one in outcomes
        for part in (one["found"] if isinstance(one["found"], list) else [])
    )


@pytest.mark.parametrize("required", [[], None, "G1", [1], ["G1", None]])
def test_an_expectation_names_its_checks(required: object) -> None:
    """An expectation without a list of required checks is refused, because it would verify any node."""
    with pytest.raises(ValueError, match="the expectation lists no required checks"):
        verdict([check("G1", "pass")], {"required": required, "skips": {}})


def test_a_listed_skip_is_not_judged() -> None:
    """A skipped check has the reason of the expectation, also where its probe was collected and is broken."""
    outcomes = judge({}, {"required": ["G1"], "skips": {"P1": "not on this machine"}})
    assert [(one["id"], one["outcome"], one["reason"]) for one in outcomes if one["id"] == "P1"] == [
        ("P1", "skip", "not on this machine")
    ]
