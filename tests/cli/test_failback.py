"""The command `gpuinfra failback`: options, the journals, and its output. The cloud and the engine are stand-ins."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.errors import GpuinfraError, UsageError
from gpuinfra.cli import failback as cli
from gpuinfra.clouds.aws.cloud import AwsCloud
from gpuinfra.clouds.region.active import SharedRecord
from gpuinfra.clouds.region.readiness import FAIL, ReadinessLine
from gpuinfra.region import readiness
from gpuinfra.region.failover.journal import SCHEMA, FailbackJournal, FailoverJournal
from tests.cli.test_failover import world as world
from tests.cli.test_failover import written as written
from tests.region.failover.returning import AHEAD, Returned
from tests.region.failover.world import World


@pytest.fixture
def returned(world: World, monkeypatch: pytest.MonkeyPatch) -> Returned:
    """Both regions after a failover, as the command reaches them."""
    found = Returned()
    mirror = found.mirror()
    monkeypatch.setattr(AwsCloud, "failover", lambda *_: mirror)
    monkeypatch.setattr(AwsCloud, "failback", lambda *_: found)
    monkeypatch.setattr("gpuinfra.cli.returning.exported", lambda name, **_: world._state(name))

    def up(engine: object, name: str, project: Path, *, again: bool, refresh: bool, keep: list[int], **_: Any) -> None:
        assert refresh
        assert len(keep) == 2
        found._ask("first", f"up {name}{' again' if again else ''}")

    monkeypatch.setattr("gpuinfra.search.interrupted.read_deployment", lambda *_: {})
    monkeypatch.setattr("gpuinfra.engine.up.up", up)
    return found


def run(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli.command, ["Pulumi.aws-recovery.yaml", *words], standalone_mode=False)


def failed_over(*, ended: bool = True) -> Path:
    """Write the journal of a failover and return its path."""
    journal = FailoverJournal(Path("Pulumi.aws-recovery.yaml"))
    journal.begin("aws-recovery", "us-west-2", {})
    if ended:
        journal.end()
    journal.close()
    return journal.path


def test_failback_runs_and_states_what_is_left(returned: Returned) -> None:
    """The last lines name the region and what is left to do, and the journal of the failover is renamed, so that a later failover can start."""
    path = failed_over()
    done = run("--yes")
    assert done.return_value == 0, done.exception
    lines = done.output.splitlines()
    assert lines[2] == "price  both regions, until us-west-2 is stopped: 127.53 USD an hour"
    assert lines[3].startswith("stop   no job runs from `jobs` to the end of `verify`: ")
    assert lines[4].startswith("1/12 check: check whether both regions respond")
    assert lines[-2] == "aws-recovery runs in us-east-2"
    assert lines[-1].endswith("pulumi destroy --stack aws-recovery-us-west-2")
    assert not path.exists()
    assert len(list(path.parent.glob(f"{path.stem}.*.old"))) == 1
    calls = list(returned.calls)
    again = run("--yes")
    assert isinstance(again.exception, UsageError)
    assert "a failback of aws-recovery to us-east-2 ended at" in str(again.exception)
    assert run("--yes", "--resume").return_value == 0
    assert returned.calls == calls


def started(*steps: str) -> None:
    """Write the journal of a failback with these steps."""
    with closing(FailbackJournal(Path("Pulumi.aws-recovery.yaml"))) as journal:
        journal.begin("aws-recovery", "us-east-2", {})
        for step in steps:
            journal.start(step)


def test_a_failback_is_undone_until_it_stops_the_second_region(returned: Returned) -> None:
    """`--abort` stops the nodes in the first region, and is refused without a failback."""
    failed_over()
    assert "was not started, so there is nothing to undo" in str(run("--abort", "--yes").exception)
    assert "omit them" in str(run("--abort", "--resume").exception)
    started("check", "launch", "nodes aws-recovery")
    returned.nodes = 1
    assert run("--abort", "--dry-run").output.startswith("1/1 abort launch: scale to zero in us-east-2")
    assert returned.calls == []
    done = run("--abort", "--yes")
    assert done.return_value == 0, done.exception
    assert done.output.splitlines()[-1] == "the failback is undone, and aws-recovery runs in us-west-2"
    assert returned.calls == ["stop gpu-0", "running gpu-0", "running gpu-0"]


def test_a_failback_that_stopped_the_second_region_is_not_undone(returned: Returned) -> None:
    """After the fence has started, only `--resume` continues."""
    failed_over()
    started("check", "fence")
    refused = run("--abort", "--yes").exception
    assert isinstance(refused, UsageError)
    assert str(refused).endswith("to continue, run: gpuinfra failback aws-recovery --resume")


def test_a_killed_abort_of_a_failback_is_repeated(returned: Returned) -> None:
    """A failback that is being undone is not resumed."""
    failed_over()
    with closing(FailbackJournal(Path("Pulumi.aws-recovery.yaml"))) as journal:
        journal.begin("aws-recovery", "us-east-2", {})
        journal.abort()
    assert "add --abort to continue, and omit --resume" in str(run("--yes", "--resume").exception)
    assert run("--abort", "--yes").return_value == 0


def test_roles_of_the_second_region_do_not_stop_a_failback(returned: Returned, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes of the second region run, so a stack file of an earlier version, with which a failover would create their role, is no reason to stop."""
    real = readiness.second_of
    line = ReadinessLine(
        topic="role", name="access.node_role_in_site", state=FAIL, reason="is not set", fix="gpuinfra clone"
    )

    def second_of(*words: Any) -> readiness.DeclaredSecond:
        found = real(*words)
        return replace(found, lines=(*found.lines, line))

    monkeypatch.setattr(readiness, "second_of", second_of)
    failed_over()
    done = run("--yes")
    assert done.return_value == 0, done.exception


def test_dry_run_and_json(returned: Returned) -> None:
    """A dry run requests nothing. The JSON form contains what is left to do."""
    document = json.loads(run("--dry-run", "--json").stdout)
    assert document["schema"] == "gpuinfra.failback/1"
    assert [one["state"] for one in document["steps"]] == [None] * 12
    assert "12/12 verify aws-recovery" in run("--dry-run").stdout
    assert returned.calls == []
    failed_over()
    document = json.loads(run("--yes", "--json").stdout)
    assert document["ok"] is True
    assert len(document["left"]) == 1


def test_conflict_names_the_command_that_continues(returned: Returned) -> None:
    """The error lists the object and ends with the command; with the option, the failback continues."""
    returned.conflicts.append(AHEAD)
    failed_over()
    done = run("--yes")
    assert isinstance(done.exception, GpuinfraError)
    assert "/late is newer in the first region" in str(done.exception)
    assert str(done.exception).splitlines()[-1] == "  to continue, run: gpuinfra failback aws-recovery --resume"
    assert run("--yes", "--resume", "--ignore", "conflicts").return_value == 0


def test_stack_that_did_not_fail_over_is_refused(returned: Returned) -> None:
    """Nothing is requested or recorded, and the error names the command that moves the stack. A later failover and failback work."""
    done = run("--yes")
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).endswith("to move the stack, run: gpuinfra failover aws-recovery --to us-west-2")
    assert returned.calls == []
    failed_over()
    assert run("--yes").return_value == 0


def test_unfinished_failover_is_refused(returned: Returned) -> None:
    """A failover with steps that did not run continues first."""
    path = failed_over(ended=False)
    done = run("--yes")
    assert isinstance(done.exception, UsageError)
    assert "the failover of aws-recovery is not finished; run `gpuinfra failover aws-recovery --to us-west-2 --resume`" in str(done.exception)  # fmt: skip
    body = json.loads(path.read_text())
    steps = {"fence": {"state": "unreachable"}, "drain": {"state": "ignored"}, "replication": {"state": "ignored"}}
    path.write_text(json.dumps({**body, "ended": "2026-11-26T00:00:00Z", "steps": steps}))
    assert "steps of the failover did not run: fence, replication; run" in str(run("--yes").exception)
    assert returned.calls == []


@pytest.mark.parametrize("state", ["ignored", "unreachable"])
def test_jobs_of_nodes_that_are_gone_do_not_stop_a_failback(returned: Returned, state: str) -> None:
    """After the fence, no node is left whose jobs could be stopped, so that a failover with `--ignore jobs` is finished."""
    path = failed_over()
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "steps": {"jobs": {"state": state}, "fence": {"state": "done"}}}))
    done = run("--yes")
    assert done.return_value == 0, done.exception


def test_second_failback_after_a_second_failover_starts_again(returned: Returned, world: World) -> None:
    """The journal of a failback before the last failover is renamed."""
    failed_over()
    assert run("--yes").return_value == 0
    moved = {
        "schema": SCHEMA,
        "to": "us-west-2",
        "began": "2999-01-01T00:00:00Z",
        "ended": "2999-01-01T00:00:01Z",
        "steps": {},
    }
    SharedRecord(world.record, "aws-recovery", "us-east-2").update("failover", moved)
    before = len(returned.calls)
    assert run("--yes").return_value == 0
    assert len(returned.calls) > before


def test_wrong_calls_are_usage_errors(returned: Returned, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown topic, a missing confirmation, a resume without a start, and another cloud each are one error, and nothing is called."""
    for words, text in (
        (["--yes", "--ignore", "drain"], "--ignore is 'drain'; allowed: replication, "),
        ([], "a failback requires confirmation"),
        (["--yes", "--resume"], "no failback of aws-recovery was started"),
    ):
        failed_over()
        done = run(*words)
        assert isinstance(done.exception, UsageError), words
        assert text in str(done.exception)
    monkeypatch.setattr(AwsCloud, "failback", lambda *_: None)
    assert "does not support failover on AWS" in str(run("--yes").exception)
    assert returned.calls == []
