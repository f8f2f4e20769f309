"""The command `gpuinfra drill --live`: options, what it prints, the removal and the record. The cloud and the engine are stand-ins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.errors import DeploymentError, GpuinfraError, UsageError
from gpuinfra.cli import drill as cli
from gpuinfra.clouds.aws.cloud import AwsCloud
from gpuinfra.clouds.region.checkpoints import CheckpointObject, CheckpointPair
from gpuinfra.clouds.region.drill import CopiedObject
from gpuinfra.engine.find import Engine
from gpuinfra.engine.up import EngineFailure, UpFailed
from gpuinfra.region.live_drill.journal import DrillJournal
from gpuinfra.remote import live_drills
from gpuinfra.spec.load import read_stack
from tests.cli.test_failover import world as world
from tests.cli.test_failover import written as written
from tests.region.failover.world import World

STACK, FILE = "Pulumi.aws-recovery.yaml", Path("Pulumi.aws-recovery-drill.yaml")


@dataclass
class Account:
    """The engine and the second region."""

    calls: list[str] = field(default_factory=list)
    fails: BaseException | None = None
    """Error of the deployment of the nodes."""
    stays: bool = False
    """Whether the removal fails."""
    holders = frozenset({"bucket"})

    def bucket(self, resources: Sequence[Any], component: str) -> str:
        """The bucket of the drill."""
        return f"own-{component[-7:]}"

    def copy(self, replica: str, bucket: str, objects: Sequence[CheckpointObject]) -> tuple[CopiedObject, ...]:
        """Copy the objects."""
        self.calls.append(f"copy {len(objects)} {replica} {bucket}")
        return tuple(
            CopiedObject(key=one.key, size=one.size, algorithm="sha256", part_bytes=8, checksums=("00",))
            for one in objects
        )

    def up(self, engine: Engine, name: str, project: Path, **_: Any) -> None:
        """Deploy the stack file as it is."""
        spec = read_stack(FILE).spec
        assert spec.recovery is None
        assert spec.audit.trail == "none"
        assert (spec.expires_at, spec.budget.recipients) != (None, ())
        self.calls.append(f"up {name} {spec.nodes} {[step.name for step in spec.software.steps]}")
        if spec.nodes and self.fails is not None:
            raise self.fails

    def remove(self, engine: Engine, name: str, project: Path, holders: frozenset[str], **_: Any) -> None:
        """Remove the stack."""
        assert holders == self.holders
        self.calls.append(f"remove {name}")
        if self.stays:
            raise DeploymentError("`pulumi destroy` exited with code 255")


@pytest.fixture
def account(world: World, monkeypatch: pytest.MonkeyPatch) -> Account:
    """A deployed stack whose replica has one complete checkpoint."""
    found, now = Account(), datetime.now(UTC)
    objects = [
        CheckpointObject(key=f"runs/1/step-5/{name}", size=size, modified=now - timedelta(minutes=20))
        for name, size in (("shard", 2_000_000), ("COMPLETE", 0))
    ]
    pair = CheckpointPair(replica="replica", source=lambda _: objects, copy=lambda _: objects)
    monkeypatch.setattr(AwsCloud, "checkpoints", lambda *_: (pair,))
    monkeypatch.setattr(AwsCloud, "drill_copies", lambda *_: found)
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda *_, **__: SimpleNamespace(path=Path("pulumi")))
    left = {"resources": [{"custom": True, "type": "key", "id": "k-1", "urn": "urn:a::b::key::train-drill-0a1b-data"}]}
    monkeypatch.setattr(
        "gpuinfra.engine.pending.read_deployment", lambda *_: left if found.stays and found.calls else {}
    )
    monkeypatch.setattr("gpuinfra.search.interrupted.continue_killed_run", lambda *_, **__: None)
    monkeypatch.setattr("gpuinfra.engine.up.up", found.up)
    monkeypatch.setattr("gpuinfra.engine.disposable.remove_stack", found.remove)
    monkeypatch.setattr("gpuinfra.doctor.run.live_rows", lambda *_: [])
    monkeypatch.setattr(cli, "exported", lambda *_, **__: [])
    steps = {"state": {"steps": [{"id": "own-read-checkpoint", "seconds": 2.0}]}}
    evidence = SimpleNamespace(newest=[SimpleNamespace(document=steps)])
    monkeypatch.setattr("gpuinfra.verification.store.found_of", lambda *_: (evidence, {}))
    return found


def run(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli.command, [STACK, *words], standalone_mode=False)


def recorded() -> dict[str, Any]:
    """The recorded result."""
    found = live_drills.newest(read_stack(STACK))
    assert found is not None
    return dict(found)


def test_a_drill_copies_reads_measures_and_removes(account: Account) -> None:
    """The site is deployed without nodes, then the nodes with the script, and neither the stack nor a file is left."""
    done = run("--live", "--yes", "--nodes", "2")
    assert done.return_value == 0, done.exception or done.output
    assert account.calls == [
        "up aws-recovery-drill 0 []",
        "copy 2 replica own-drill-0",
        "up aws-recovery-drill 2 ['read-checkpoint']",
        "remove aws-recovery-drill",
    ]
    assert "checkpoint  runs/1/step-5, 20 minutes old: 2 objects, 0.00 GB" in done.output
    assert "price  " in done.output
    assert not list(Path().glob("*drill*"))
    body = recorded()
    assert (body["nodes"], body["problems"], body["seconds"]["read"]) == (2, [], 2.0)
    assert live_drills.read_mb_s(body) == 1.0


def test_the_reason_of_a_node_is_the_problem(account: Account) -> None:
    """Everything is removed after a failure, and the exit code is 1."""
    failure = EngineFailure(urn="urn:pulumi:s::p::gpuinfra:index:NodesReady::ready", message="node gpu-0: disk full")
    account.fails = UpFailed("exited with code 255", [failure])
    done = run("--live", "--yes")
    assert done.return_value == 1
    assert "failed nodes: node gpu-0: disk full" in done.output
    assert account.calls[-1] == "remove aws-recovery-drill"
    assert recorded()["problems"] == ["nodes: node gpu-0: disk full"]


def test_an_interrupt_removes_everything(account: Account) -> None:
    """Ctrl-C ends with the exit code 130 after the removal."""
    account.fails = KeyboardInterrupt()
    done = run("--live", "--yes")
    assert done.return_value == 130
    assert account.calls[-1] == "remove aws-recovery-drill"
    assert not FILE.exists()


def test_what_remains_is_printed_and_the_next_command_removes_it(account: Account) -> None:
    """A failed removal names the resources and the command. The same drill then removes only, and `--remove` without a drill is no error."""
    account.stays = True
    done = run("--live", "--yes")
    assert done.return_value == 1
    assert "remains: key k-1" in done.output
    assert "run: gpuinfra drill aws-recovery --live --remove" in done.output
    assert FILE.exists()
    account.stays = False
    account.calls.clear()
    again = run("--live", "--yes")
    assert (again.return_value, account.calls) == (1, ["remove aws-recovery-drill"])
    assert not FILE.exists()
    assert run("--live", "--remove").return_value == 0
    assert run("--live", "--yes").return_value == 0


def test_a_drill_of_another_machine_is_left_alone(account: Account) -> None:
    """Without a journal on this machine, the stack is removed only with `--remove`."""
    FILE.write_text("config: {}\n")
    done = run("--live", "--yes")
    assert isinstance(done.exception, UsageError)
    assert "a drill on another machine is running or was interrupted" in str(done.exception)
    assert account.calls == []
    assert run("--live", "--remove").return_value == 0
    assert account.calls == ["remove aws-recovery-drill"]


def test_a_stack_with_the_name_of_a_drill_is_not_removed(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack without a cluster of a drill belongs to somebody else."""
    theirs = {"resources": [{"custom": True, "type": "key", "id": "k-1", "urn": "urn:a::b::key::train-drill-data"}]}
    monkeypatch.setattr("gpuinfra.engine.pending.read_deployment", lambda *_: theirs)
    done = run("--live", "--remove")
    assert isinstance(done.exception, UsageError)
    assert "is not one of a drill" in str(done.exception)
    assert account.calls == []


def test_a_dry_run_prints_the_stack_file(account: Account) -> None:
    """The file is on stdout, and nothing is created. A machine type that is given replaces the cheapest one."""
    done = run("--live", "--dry-run", "--machine", "g6.xlarge")
    assert done.return_value == 0, done.exception
    assert "machine: g6.xlarge" in done.output
    assert "1 x g6.xlarge in us-west-2" in done.output
    assert "m7i.xlarge in us-west-2" in run("--live", "--dry-run").output
    assert account.calls == []
    with closing(DrillJournal(Path(STACK))) as journal:
        assert not journal.unfinished


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "--live is missing"),
        (["--live"], "requires confirmation"),
        (["--live", "--remove", "--dry-run"], "omit one of them"),
        (["--live", "--machine", "g6.xlarg"], "did you mean g6.xlarge?"),
        (["--live", "--machine", "p6e-gb200.36xlarge"], "--machine is p6e-gb200.36xlarge"),
    ],
)
def test_an_impossible_drill_creates_nothing(account: Account, words: list[str], problem: str) -> None:
    """Each has one clear error."""
    done = run(*words)
    assert isinstance(done.exception, UsageError)
    assert problem in str(done.exception)
    assert account.calls == []


@pytest.mark.parametrize(("cloud", "title"), [("azure", "Azure"), ("gcp", "Google Cloud")])
def test_other_clouds_have_one_error(cloud: str, title: str) -> None:
    """The command does not support them yet."""
    done = CliRunner().invoke(cli.command, [f"{cloud}-recovery", "--live"], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith(f"`gpuinfra drill --live` does not support {title} yet")


def test_without_a_complete_checkpoint_nothing_is_created(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the pattern."""
    monkeypatch.setattr(AwsCloud, "checkpoints", lambda *_: ())
    done = run("--live", "--yes")
    assert isinstance(done.exception, GpuinfraError)
    assert "no replica contains a complete checkpoint that matches runs/*/step-*/COMPLETE" in str(done.exception)


def test_the_result_is_one_document(account: Account) -> None:
    """`--json` prints it on stdout."""
    done = run("--live", "--yes", "--json")
    document = json.loads(done.stdout)
    assert (document["schema"], document["removed"]) == (live_drills.SCHEMA, True)
