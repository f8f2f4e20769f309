"""A stack whose record names its second region is deployed by no command in its first region. The engine and the commands are those of users."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.active import SharedRecord, place_of
from gpuinfra_rehearsal.actions import errors_of, perform
from gpuinfra_rehearsal.applied_environment import applied
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, Session, open_session

from .test_drill import FILE, written
from .test_failback import finished

pytestmark = pytest.mark.long

FENCED = "recovery does not run in us-east-2: us-west-2 is active since"
AGAIN = "gpuinfra failback recovery"
ENDED = "an unhandled error occurred: Program exited with non-zero exit code: 1"
"""What the engine adds to each error of a program."""


@pytest.fixture(scope="module")
def fenced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A stack without nodes whose failover has recorded the second region."""
    folder = tmp_path_factory.mktemp("fenced")
    path = written(folder, FILE.read_text(), "on_demand", "cold")
    options = Options(stack=str(path), folder=folder / "rehearsal", without_nodes=True)
    with open_session(options, view_for(io.StringIO())) as session:
        assert perform(session, "up").ok
        place = place_of(session.pulumi.resources())
        assert place is not None
        with applied(session.pulumi.env):
            store = cloud_of("aws").record(place, "us-west-2", {})
            assert store is not None
            SharedRecord(store, "recovery", "us-east-2").update("failover", {"steps": {}, "ended": "now"}, "us-west-2")
        yield session


def changes(session: Session) -> list[str]:
    """The changes that the cloud received."""
    reads = ("read", "invoke", "check", "diff")
    return [f"{one['verb']} {one['id']}" for one in session.cloud.ask("calls")["calls"] if one["verb"] not in reads]


@pytest.mark.parametrize("words", [(), ("--refresh",)], ids=["up", "refresh"])
def test_the_engine_changes_nothing(fenced: Session, words: tuple[str, ...]) -> None:
    """`pulumi up` fails with one error that names the command that returns, and the cloud receives no change."""
    before = changes(fenced)
    operation = fenced.operate("up", "--yes", *words, title="up")
    error, *others = errors_of(operation)
    assert FENCED in error
    assert AGAIN in error
    assert others == [ENDED]
    assert changes(fenced) == before


def test_the_search_changes_nothing(fenced: Session) -> None:
    """`gpuinfra up` fails with the same error, and the cloud receives no change."""
    before = changes(fenced)
    done = finished(fenced, "up")
    assert done.returncode == 1
    assert FENCED in done.stderr
    assert AGAIN in done.stderr
    assert changes(fenced) == before
