"""The list of scenarios, their recorded results, and the tables in `docs/reference/scenarios.md`."""

from __future__ import annotations

import pytest

from rehearsal.tests.scenarios import PAGE, PLACES, READY, SCENARIOS, page, recorded, table

CASES = (
    "no capacity in the first zone",
    "no capacity anywhere",
    "quota of 0",
    "missing permission",
    "reservation is full",
    ("block has ended", "future reservation has ended", "reservation was deleted"),
    "image is gone",
    "evicted during bootstrap",
    "throttled API",
    "slow region",
    "partial capacity",
    "killed during the search",
)
"""Titles that each cloud has. Of several titles, it has one."""


@pytest.mark.parametrize("cloud", PLACES)
def test_each_cloud_has_each_case(cloud: str) -> None:
    """Each cloud has a scenario of each case, and at least 12 scenarios."""
    titles = {one.title for one in SCENARIOS.values() if one.cloud == cloud}
    assert [case for case in CASES if not titles & set((case,) if isinstance(case, str) else case)] == []
    assert len(titles) >= 12


def test_each_scenario_has_a_result() -> None:
    """The recorded results are those of the scenarios in the list: the same attempts, and nothing is left over."""
    results = recorded()
    assert list(results) == list(SCENARIOS)
    for name, one in SCENARIOS.items():
        found = results[name]
        assert tuple(attempt["result"] for attempt in found["attempts"]) == one.attempts, name
        assert found["left_over"] == 0, name
        assert found["preview"] == [] or one.outcome != READY, name


def test_the_page_has_the_results() -> None:
    """The tables on the page are generated from the results. `python -m rehearsal.tests.scenarios` writes them."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, table()) == text
