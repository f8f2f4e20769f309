"""Long files do not make the end of a run in parallel."""

from __future__ import annotations

from pathlib import Path

from tests.distribution import SHARED, scope

ROOT = Path(__file__).parents[1]


def test_scenarios_of_a_cloud_and_the_tests_of_a_file_run_in_one_process() -> None:
    """The scenarios of a cloud continue from each other, and files that are not listed share fixtures."""
    scenarios = "rehearsal/tests/test_scenarios.py::test_scenario"
    assert scope(f"{scenarios}[aws: quota of 0]") == scope(f"{scenarios}[aws: no capacity]")
    assert scope(f"{scenarios}[aws: quota of 0]") != scope(f"{scenarios}[gcp: quota of 0]")
    assert scope("tests/test_docs.py::test_links[a]") == scope("tests/test_docs.py::test_words")


def test_files_of_the_table_have_no_fixture_that_their_tests_share_unless_it_belongs_to_a_cloud() -> None:
    """A table entry that splits each test of a file names a file without fixtures of the module."""
    assert [file for file in SHARED if not (ROOT / file).is_file()] == []
    split = [file for file, common in SHARED.items() if common("test[aws: a]") == "test[aws: a]"]
    assert len(split) > 2
    assert [file for file in split if 'scope="module"' in (ROOT / file).read_text(encoding="utf-8")] == []
