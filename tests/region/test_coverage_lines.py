"""What a failover cannot guarantee: unreserved capacity, home directories, and images in a registry."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gpuinfra.cli.ready import _last_search
from gpuinfra.clouds.region.readiness import OK, SKIPPED, WARN, ReadinessLine
from gpuinfra.region.coverage import coverage
from gpuinfra.search.journal import NO_CAPACITY, READY, SearchJournal
from gpuinfra.spec.capacity import OnDemand, Reserved
from gpuinfra.spec.load import LoadedStack, read_stack
from gpuinfra.spec.storage import Home
from tests.region.clone.stacks import file_of


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder of this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def stack(tmp_path: Path, **fields: object) -> LoadedStack:
    """The shipped stack, with other fields of its declaration, in a file of this test."""

    loaded = read_stack(file_of("aws-recovery"))
    return replace(loaded, path=tmp_path / "Pulumi.second.yaml", spec=loaded.spec.model_copy(update=fields))


def of(topic: str, first: LoadedStack, second: LoadedStack) -> list[ReadinessLine]:
    """The lines of a topic."""
    return [line for line in coverage(first, [second], _last_search) if line.topic == topic]


def with_capacity(tmp_path: Path, *capacity: OnDemand | Reserved) -> LoadedStack:
    """The stack with other capacity."""
    (pool,) = read_stack(file_of("aws-recovery")).spec.pools
    return stack(tmp_path, pools=(pool.model_copy(update={"capacity": capacity}),))


def test_capacity_that_is_not_reserved_is_a_warning_with_its_last_search(tmp_path: Path) -> None:
    """The line has the number of nodes, the kinds, and the time of the last search that found capacity."""
    second = with_capacity(tmp_path, OnDemand(count=2))
    (line,) = of("capacity", second, second)
    assert line.state == WARN
    assert "2 nodes (on_demand) in us-east-2 are not guaranteed; no search for capacity succeeded" in line.reason
    assert "buy a reservation in us-east-2" in line.fix
    for result, found in ((NO_CAPACITY, False), (READY, True)):
        with closing(SearchJournal(second.path)) as journal:
            journal.begin("second")
            journal.start({})
            journal.finish(result, 3.0)
            journal.end()
        (line,) = of("capacity", second, second)
        assert ("the last search for capacity on this machine succeeded at 20" in line.reason) is found


def test_reserved_capacity_is_ok(tmp_path: Path) -> None:
    """The reservation itself is checked in the account."""
    second = with_capacity(tmp_path, Reserved(id="cr-0a1b2c3d4e5f60718", count=2))
    assert [line.state for line in of("capacity", second, second)] == [OK]
    mixed = with_capacity(tmp_path, Reserved(id="cr-0a1b2c3d4e5f60718", count=2), OnDemand(count=1))
    (line,) = of("capacity", mixed, mixed)
    assert line.reason.startswith("1 node (on_demand)")


def test_home_directories_name_what_is_lost(tmp_path: Path) -> None:
    """Each home of the first region has a line, and other storage has none."""
    first = stack(tmp_path, storage=(*stack(tmp_path).spec.storage, Home(mount="/home"), Home(mount="/team")))
    found = of("homes", first, stack(tmp_path))
    assert [line.name for line in found] == ["/home", "/team"]
    assert all(line.state == WARN and "are not replicated" in line.reason for line in found)
    assert of("homes", stack(tmp_path), first) == []


def test_a_registry_of_the_second_region_is_named(tmp_path: Path) -> None:
    """A registry that the clone rewrote is not checked, and the command copies the images."""
    first = read_stack(file_of("gcp-recovery"))
    moved = first.spec.model_copy(
        update={
            "software": first.spec.software.model_copy(
                update={"registry": "us-east4-docker.pkg.dev/my-project/gpudirect"}
            ),
            "where": first.spec.where.model_copy(update={"region": "us-east4"}),
        }
    )

    second = replace(first, path=tmp_path / "Pulumi.second.yaml", spec=moved)
    (line,) = of("registry", first, second)
    assert line.state == SKIPPED
    assert line.fix.startswith("gcrane cp --recursive us-central1-docker.pkg.dev")
    assert of("registry", first, first) == []


def test_home_directories_that_their_service_replicates_have_no_warning(tmp_path: Path) -> None:
    """With `recovery.homes`, only home directories on other services and outside the stack stay in the first region."""
    recovery = read_stack(file_of("aws-recovery")).spec.recovery
    assert recovery is not None
    homes = (Home(), Home(mount="/tools", service="openzfs"))
    for replicated, mounts in ((True, ["/tools"]), (False, ["/home", "/tools"])):
        first = stack(tmp_path, storage=homes, recovery=recovery.model_copy(update={"homes": replicated}))
        assert [line.name for line in of("homes", first, first)] == mounts
