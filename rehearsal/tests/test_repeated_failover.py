"""A stack on AWS moves to its second region twice, with the commands that users run and the real engine."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuinfra_rehearsal.drill import _Drill
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, Session, open_session

from .test_drill import FILE, written
from .test_failback import finished, run

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

OVER = ("failover", "--to", "us-west-2", "--ignore", "jobs")
"""The command. Its tunnel to the nodes would be that of the cloud, so that it stops no jobs in a rehearsal."""


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A stack in mode cold that failed over to its second region."""
    folder = tmp_path_factory.mktemp("moved")
    path = written(folder, FILE.read_text(), "on_demand", "cold")
    options = Options(stack=str(path), folder=folder / "rehearsal", deadline="1200s")
    with open_session(options, view_for(io.StringIO())) as session:
        drill = _Drill(session, None)
        drill._up_primary()
        drill._prepare()
        run(session, *OVER)
        yield session


def test_a_second_failover_needs_no_manual_step(moved: Session) -> None:
    """After the failback and the destroy that it prints, the failover imports what was retained, and the nodes are verified again."""
    (left,) = run(moved, "failback", "--ignore", "jobs")["left"]
    assert left.endswith("pulumi destroy --stack recovery-us-west-2")
    own = moved.pulumi
    moved.pulumi = replace(own, folder=replace(own.folder, stack="recovery-us-west-2"))
    try:
        assert moved.operate("destroy", "--yes", title="destroy").ok
    finally:
        moved.pulumi = own
    ready = _Drill(moved, None)._gpuinfra("ready", str(moved.folder.stack_file), "--json")
    lines = {(one["topic"], one["state"]): one["reason"] for one in json.loads(ready.stdout)["lines"]}
    assert "exist already in this account" in lines["resource names", "ok"]
    done = finished(moved, *OVER)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "importing what an earlier deployment of recovery-us-west-2 retained: " in done.stderr
    found = {one["name"]: one["found"] for one in json.loads(done.stdout)["steps"]}
    assert found["verify recovery-us-west-2"] == "1 of 1 node verified"
