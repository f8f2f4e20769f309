"""Recorded traffic of the real providers against the stand-in clouds."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra_rehearsal.cloud.core import registry
from tests.providers import replay, table
from tests.providers.replay import RECORDINGS

HEADER = {"source", "commit", "license", "provider", "region", "exchanges"}
PACKAGES = sorted({file.parent.name for file in RECORDINGS})


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_each_difference_from_a_recording_is_explained(file: Path) -> None:
    """The stand-in checks, compares, creates, reads and looks up as the recorded provider does, or the difference has a
    reason."""
    listed = replay.explained(file.parent.name)
    differences = replay.replay(file).differences
    assert [str(one) for one in sorted(differences) if not any(entry.covers(one) for entry in listed)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_each_explanation_is_needed(package: str) -> None:
    """An explanation without a difference is removed."""
    differences = [one for file in RECORDINGS if file.parent.name == package for one in replay.replay(file).differences]
    unused = [entry for entry in replay.explained(package) if not any(entry.covers(one) for one in differences)]
    assert unused == []


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_recording_names_its_source_and_license(file: Path) -> None:
    """Each recording has a source, a commit and a license that permits copies, and no account number."""
    recording = replay.load(file)
    assert set(recording) == HEADER
    assert recording["license"] in ("Apache-2.0", "MIT", "MPL-2.0")
    assert all(recording[key] for key in HEADER)
    assert recording["provider"].split()[0] == file.parent.name
    assert all(one["times"] > 0 and ("answer" in one) != ("error" in one) for one in recording["exchanges"])


@pytest.mark.parametrize("package", PACKAGES)
def test_most_recorded_types_are_replayed(package: str) -> None:
    """A recorded type that the installed SDK does not declare is left out; all others are replayed."""
    types = {
        one["type"] for file in RECORDINGS if file.parent.name == package for one in replay.load(file)["exchanges"]
    }
    assert {one for one in types if not replay.is_declared(one)} == replay.REMOVED.get(package, set())


def test_every_package_can_be_rehearsed() -> None:
    """Recordings belong to a package with a stand-in."""
    assert set(PACKAGES) <= {one.package for one in registry.installed()}


def test_the_page_has_the_counts_of_the_replay() -> None:
    """`docs/internals/cloud-models.md` lists for each cloud how many recorded exchanges were replayed and which differences remain. Run
    `python -m tests.providers` to write it."""
    assert table.written() == table.PAGE.read_text(encoding="utf-8")
