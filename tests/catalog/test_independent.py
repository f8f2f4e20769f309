from __future__ import annotations

from datetime import date

import pytest

from gpuinfra.clouds import profile_of
from gpuinfra.registry import CLOUDS
from tests.catalog.independent import FACTS, PAGE, Comparison, comparisons, list_price, page

ALL = list(comparisons())


@pytest.mark.parametrize("one", ALL, ids=[f"{one.machine}-{one.fact}" for one in ALL])
def test_a_fact_agrees_with_a_source_it_was_not_written_from(one: Comparison) -> None:
    """A record's shape and price agree with an independent source, or the difference has a reason; no reason outlives its difference."""
    assert one.ours is not None
    assert one.agrees != bool(one.explained), f"theirs {one.theirs:g}, ours {one.ours:g}"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_cloud_has_ten_machine_types_checked(cloud: str) -> None:
    """Ten types of each cloud are compared, and no type twice."""
    names = [row["machine"] for row in FACTS["clouds"][cloud]]
    assert len(names) >= 10
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_source_of_the_check_is_no_source_of_the_records(cloud: str) -> None:
    """No fact is compared with the file that it was written from."""
    checks = {source["where"] for source in FACTS["sources"].values()}
    for row in FACTS["clouds"][cloud]:
        machine = profile_of(cloud).machines[row["machine"]]
        assert machine.source.page not in checks
        assert not checks & {price.source for price in machine.prices}


def test_a_source_says_where_and_when() -> None:
    """Each source is used, and has a place, a version and a date that is not in the future."""
    used = {one.source for one in ALL}
    assert used == set(FACTS["sources"])
    for source in FACTS["sources"].values():
        assert source["where"]
        assert source["commit"]
        assert date(2026, 1, 1) <= date.fromisoformat(source["date"]) <= date(2026, 11, 21)


def test_a_mended_record_stays_mended() -> None:
    """The price that the check put right is the one in the catalogue."""
    for one in FACTS["mended"]:
        machine = profile_of(one["cloud"]).machines[one["machine"]]
        assert list_price(machine, one["kind"], one["region"]) == one["now"]
        assert one["was"] != one["now"]


def test_the_page_is_the_comparison_of_today() -> None:
    """`docs/catalog-check.md` says what the comparison says: `python -m tests.catalog.independent` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()
