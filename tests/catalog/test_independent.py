from __future__ import annotations

from datetime import date

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.plan.profile import profile_of
from tests.catalog.independent import FACTS, PAGE, Comparison, comparisons, list_price, page

ALL = list(comparisons())


@pytest.mark.parametrize("one", ALL, ids=[f"{one.machine}-{one.fact}" for one in ALL])
def test_fact_equals_the_independent_source(one: Comparison) -> None:
    """Shape and price of a record equal an independent source or have an explanation; an equal fact has no explanation."""
    assert one.ours is not None
    assert one.agrees != bool(one.explained), f"source {one.theirs:g}, catalog {one.ours:g}"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_ten_machine_types_of_each_cloud_are_compared(cloud: str) -> None:
    """At least ten machine types of each cloud are compared, each once."""
    names = [row["machine"] for row in FACTS["clouds"][cloud]]
    assert len(names) >= 10
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_sources_of_the_comparison_are_independent(cloud: str) -> None:
    """No fact is compared with the source of its record."""
    checks = {source["where"] for source in FACTS["sources"].values()}
    for row in FACTS["clouds"][cloud]:
        machine = profile_of(cloud).machines[row["machine"]]
        assert machine.source.page not in checks
        assert not checks & {price.source for price in machine.prices}


def test_source_has_a_place_version_and_date() -> None:
    """Each source is used and has a place, a version and a date in the past."""
    used = {one.source for one in ALL}
    assert used == set(FACTS["sources"])
    for source in FACTS["sources"].values():
        assert source["where"]
        assert source["commit"]
        assert date(2026, 1, 1) <= date.fromisoformat(source["date"]) <= date(2026, 11, 21)


def test_corrected_price_stays_in_the_catalog() -> None:
    """The catalog has the corrected price."""
    for one in FACTS["corrected"]:
        machine = profile_of(one["cloud"]).machines[one["machine"]]
        assert list_price(machine, one["kind"], one["region"]) == one["now"]
        assert one["was"] != one["now"]


def test_page_is_current() -> None:
    """`docs/internals/catalog-check.md` equals the generated page (`python -m tests.catalog.independent` writes it)."""
    assert PAGE.read_text(encoding="utf-8") == page()
