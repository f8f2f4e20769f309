"""The command `gpuinfra failover`: options, confirmation, the journal, and its output. The cloud and the engine are stand-ins."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.errors import GpuinfraError, UsageError
from gpuinfra.base.naming import logical
from gpuinfra.base.shipped import shipped
from gpuinfra.cli import failover as cli
from gpuinfra.cli import ready
from gpuinfra.cli.stacks import NoStack
from gpuinfra.clouds.aws.cloud import AwsCloud
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.readiness import OK, ReadinessLine
from gpuinfra.engine.find import Engine
from gpuinfra.engine.up import EngineFailure, UpFailed
from gpuinfra.plan.make import build_plan
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import CloneRequest
from gpuinfra.region.failover.journal import FailoverJournal
from gpuinfra.region.failover.run import FailoverResult as FailoverResult
from gpuinfra.region.failover.steps import FailoverStep, StackNames
from gpuinfra.spec.load import read_stack
from tests.clouds.region.test_dns import NAMES
from tests.clouds.stacks import TODAY
from tests.region.failover.returning import Returned
from tests.region.failover.shared import CLUSTER_STATE
from tests.region.failover.test_names import Zone
from tests.region.failover.world import PAIR, World

REGION = ["--to", "us-west-2"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with `aws-recovery` and the file of its second region, which uses the replica."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    path = folder / "Pulumi.aws-recovery.yaml"
    shutil.copyfile(shipped("stacks") / path.name, path)
    values: tuple[tuple[str, object], ...] = (("storage[0].bucket", PAIR.replica),)
    (file,) = clone(read_stack(path), path.read_text(), CloneRequest(region="us-west-2", values=values), TODAY).files
    file.path.write_text(file.text)
    return folder


@pytest.fixture
def world(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Both regions, as the command reaches them, and a project of this test as the current folder."""
    found = World()
    project = tmp_path / "project"
    shutil.copytree(written, project)
    monkeypatch.chdir(project)
    monkeypatch.setenv("GPUINFRA_TODAY", TODAY.isoformat())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    state: list[dict[str, Any]] = [
        {"type": "x", "custom": True},
        CLUSTER_STATE,
        {"type": "gpuinfra:aws:RegionClone", "outputs": {"buckets": {"scratch-0": PAIR.replica}}},
    ]
    monkeypatch.setattr(ready, "readable_stack", lambda *_, **__: nullcontext(state))
    monkeypatch.setattr("gpuinfra.region.readiness.of_cloud", lambda *_: iter(found.lines))
    monkeypatch.setattr("gpuinfra.doctor.cloud.live_rows", lambda *_: [])
    monkeypatch.setattr(AwsCloud, "failover", lambda *_: found)
    monkeypatch.setattr(AwsCloud, "record", lambda *_: found.record)

    def exported(name: str, *, project: Path) -> Any:
        assert project == tmp_path / "project"
        return found._state(name)

    def up(engine: Engine, name: str, project: Path, *, again: bool, **_: Any) -> None:
        assert project == tmp_path / "project"
        found._deploy(name, again)

    monkeypatch.setattr(cli, "exported", exported)
    monkeypatch.setattr("gpuinfra.cli.up.exported", exported)
    engine = Engine(path=tmp_path, version="3.259.0", host_dir=tmp_path, source="path")
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda *_, **__: engine)
    monkeypatch.setattr("gpuinfra.search.interrupted.read_deployment", lambda *_: {})
    monkeypatch.setattr("gpuinfra.engine.up.up", up)
    monkeypatch.setattr("gpuinfra.cli.obtaining.adopt_retained", lambda *_, **__: None)
    monkeypatch.setattr("gpuinfra.cli.obtaining.exported", exported)
    monkeypatch.setattr(cli, "_restart", lambda *_: False)
    monkeypatch.setattr(
        "gpuinfra.verification.store.polled",
        lambda resources: [type("P", (), {"verdict": one}) for one in found._verdicts(resources)],
    )
    monkeypatch.setattr("gpuinfra.region.failover.steps.POLL_S", 0.0)
    monkeypatch.setattr(reach, "PROOF_S", 0.0)
    return found


RESTART = cli._restart


def run(*words: str, stack: str = "Pulumi.aws-recovery.yaml") -> Result:
    """Run the command."""
    return CliRunner().invoke(cli.command, [stack, *words], standalone_mode=False)


def journals(folder: Path) -> list[Path]:
    """The journals of this test."""
    return sorted((folder / "state" / "gpuinfra" / "failover").glob("*.json"))


def test_dry_run_prints_each_step_and_changes_nothing(world: World, tmp_path: Path) -> None:
    """The steps are named with their resources, nothing is called, and no journal is written."""
    done = run(*REGION, "--dry-run")
    assert done.return_value == 0, done.exception
    assert (
        "5/9 fence: scale to zero in us-east-2, and wait until no nodes are left: gpu-0 (from now on, us-west-2 is the active region)"
        in done.output.splitlines()
    )
    assert "pulumi up --stack aws-recovery-us-west-2" in done.output
    assert world.calls == []
    assert journals(tmp_path) == []
    document = json.loads(run(*REGION, "--dry-run", "--json").output)
    assert [one["state"] for one in document["steps"]] == [None] * 9


def test_failover_runs_prints_and_is_recorded(world: World, tmp_path: Path) -> None:
    """Each step is printed before its result. A second failover is refused, and `--resume` has nothing to do."""
    done = run(*REGION, "--yes")
    assert done.return_value == 0, done.exception
    lines = done.output.splitlines()
    fence = next(index for index, line in enumerate(lines) if line.startswith("5/9 fence: scale to zero"))
    assert lines[fence + 1].startswith("    done after 0 s: no nodes are left")
    end = lines.index("aws-recovery runs in us-west-2")
    assert [line.split(":")[0] for line in lines[end + 1 :]] == ["billed", "billed", "not protected", "next"]
    assert "USD an hour" in lines[end + 1]
    assert lines[end + 2].endswith("without nodes")
    assert "declare recovery in Pulumi.aws-recovery-us-west-2.yaml" in lines[end + 3]
    assert lines[-1] == "next: gpuinfra failback aws-recovery, when us-east-2 works again"
    assert (world.calls[0], world.calls[-1]) == ("up aws-recovery-us-west-2", "import fs-1")
    (journal,) = journals(tmp_path)
    calls = list(world.calls)
    again = run(*REGION, "--yes")
    assert isinstance(again.exception, UsageError)
    assert journal.is_file()
    assert "add --resume to continue the failover, or run `gpuinfra failback aws-recovery` to return" in str(
        again.exception
    )
    assert run(*REGION, "--yes", "--resume").return_value == 0
    assert world.calls == calls


def test_stacks_of_another_project_are_deployed_in_their_project(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the path of a stack file, the states are read and the stacks are deployed in the project of the file, in any current folder.
    The command that continues contains the path."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "Pulumi.yaml").write_text("name: other\nruntime: python\n")
    monkeypatch.chdir(other)
    world.down.add("second")
    done = run(*REGION, "--yes", stack="../project/Pulumi.aws-recovery.yaml")
    again = "gpuinfra failover ../project/Pulumi.aws-recovery.yaml --to us-west-2 --resume"
    assert str(done.exception).splitlines()[-2] == f"  to continue, run: {again}"
    world.down.clear()
    done = run(*REGION, "--yes", "--resume", stack="../project/Pulumi.aws-recovery.yaml")
    assert done.return_value == 0, done.exception
    assert (world.calls[0], world.calls[-1]) == ("up aws-recovery-us-west-2 again", "import fs-1")


def test_failed_step_names_the_command_that_continues(world: World) -> None:
    """After a failed step, the error ends with the command, which continues with this step."""
    world.down.add("second")
    done = run(*REGION, "--yes")
    assert isinstance(done.exception, GpuinfraError)
    assert (
        str(done.exception).splitlines()[-2]
        == "  to continue, run: gpuinfra failover aws-recovery --to us-west-2 --resume"
    )
    world.down.clear()
    assert run(*REGION, "--yes", "--resume").return_value == 0


def test_unreachable_region_is_stated(world: World) -> None:
    """A region that does not respond is skipped only if the user names it. The last lines name the steps to repeat and the command."""
    world.down.add("first")
    refused = run(*REGION, "--yes")
    assert "to continue without us-east-2, add --unreachable us-east-2" in str(refused.exception)
    assert not any(call.startswith("import ") for call in world.calls)
    done = run(*REGION, "--yes", "--resume", "--unreachable", "us-east-2")
    assert done.return_value == 0, done.exception
    assert "the first region did not respond: jobs, fence, drain, replication; its nodes can still run" in done.output
    last = done.output.splitlines()[-1]
    assert last.startswith("next: gpuinfra failover aws-recovery --to us-west-2 --resume, when us-east-2 responds, ")
    assert last.endswith("the steps that did not run: jobs, fence, drain, replication")
    document = json.loads(run(*REGION, "--yes", "--resume", "--json", "--unreachable", "us-east-2").stdout)
    assert document["ok"] is True
    assert document["unreachable"] == ["jobs", "fence", "drain", "replication"]
    assert {one["service"] for one in document["evidence"]} == {"groups", "objects"}
    world.down.clear()
    document = json.loads(run(*REGION, "--yes", "--resume", "--json", "--unreachable", "us-east-2").stdout)
    assert document["unreachable"] == []
    assert "stop gpu-0" in world.calls


def test_the_name_of_an_unreachable_region_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal, the user enters the name of the region after the evidence. Another text stops the failover."""
    world.down.add("first")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    for answers, code in (("y\nyes\n", None), ("y\nus-east-2\n", 0)):
        words = [*REGION, *(["--resume"] if code == 0 else [])]
        done = CliRunner().invoke(cli.command, ["Pulumi.aws-recovery.yaml", *words], input=answers, standalone_mode=False)  # fmt: skip
        assert "groups: first timed out" in done.output
        assert done.return_value == code, done.output


def test_names_that_did_not_move_have_their_own_command(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the control plane of the records does not respond, the last lines contain the command that changes only the records,
    also if a resumed failover fails."""
    zone = Zone(world, control_plane="us-east-2", down=True)
    monkeypatch.setattr(cli, "names_in", lambda found: StackNames(plan=NAMES, dns=zone))
    command = "to change only the DNS names, run: gpuinfra names aws-recovery --to us-west-2"
    done = run(*REGION, "--yes", "--ignore", "names")
    assert done.return_value == 0, done.exception
    assert command in done.output
    loaded = read_stack("aws-recovery")
    journal = FailoverJournal(loaded.path)
    steps = (FailoverStep(name="names", what="", run=lambda _: ""),)
    with closing(journal), pytest.raises(GpuinfraError, match=re.escape(command)):
        cli._report(
            FailoverResult(steps=steps, journal=journal, problem="drain: x"), loaded, "us-west-2", as_json=False
        )


def test_wrong_calls_are_usage_errors(world: World, tmp_path: Path) -> None:
    """Another region, a missing confirmation, and a resume without a start each are one error, and nothing is called."""
    for words, text in (
        (["--to", "us-east-2", "--yes"], "--to is us-east-2; allowed: us-west-2"),
        ([*REGION, "--yes", "--unreachable", "us-west-2"], "--unreachable is us-west-2; allowed: us-east-2"),
        (REGION, "add --yes"),
        ([*REGION, "--yes", "--ignore", "lags"], "--ignore is 'lags'; allowed: replication, "),
        (
            [*REGION, "--yes", "--abort"],
            "no failover of aws-recovery was started, so there is nothing to undo",
        ),
        ([*REGION, "--yes", "--abort", "--resume"], "--abort cannot be combined"),
        ([*REGION, "--yes", "--resume"], "no failover of aws-recovery was started"),
    ):
        done = run(*words)
        assert isinstance(done.exception, UsageError), words
        assert text in str(done.exception)
    assert world.calls == []
    assert journals(tmp_path) == []


def test_another_region_is_rejected_before_the_state_is_read(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """The declaration contains the second region, so the error does not require a login."""
    monkeypatch.setattr(ready, "readable_stack", lambda *_, **__: pytest.fail("the state was read"))
    done = run("--to", "mars", "--yes")
    assert isinstance(done.exception, UsageError)
    assert "--to is mars; allowed: us-west-2" in str(done.exception)


def test_second_region_without_a_file_is_a_usage_error(world: World) -> None:
    """Without the stack file of the second region there are no steps."""
    Path("Pulumi.aws-recovery-us-west-2.yaml").unlink()
    done = run(*REGION, "--yes")
    assert isinstance(done.exception, UsageError)
    assert "Pulumi.aws-recovery-us-west-2.yaml cannot be read" in str(done.exception)


def test_changed_declaration_does_not_continue(world: World) -> None:
    """A failover continues with the declarations with which it began, except for capacity and placement.
    What `pulumi stack init` (v3.259.0) writes is no change."""
    file = Path("Pulumi.aws-recovery-us-west-2.yaml")
    file.write_text(file.read_text().replace("config:\n", "config:\n  mine:number: 1\n", 1))
    world.outcomes = ("verified", "failed")
    run(*REGION, "--yes")
    text = file.read_text().replace("mine:number: 1", 'mine:number: "1"', 1)
    file.write_text(f"encryptionsalt: v1:abc\n{text}")
    done = run(*REGION, "--yes", "--resume")
    assert "gpu-2: failed" in str(done.exception)
    file.write_text(file.read_text().replace("mount: /scratch", "mount: /data"))
    done = run(*REGION, "--yes", "--resume")
    assert isinstance(done.exception, UsageError)
    assert "the declaration of aws-recovery-us-west-2 changed" in str(done.exception)


@pytest.mark.parametrize("fenced", [False, True])
def test_a_resumed_failover_deploys_an_edited_capacity(fenced: bool, world: World) -> None:
    """After a change of the capacity in the second file, `--resume` deploys it, also after the first region was stopped."""
    file = Path("Pulumi.aws-recovery-us-west-2.yaml")
    if fenced:
        world.import_fails = True
    else:
        world.outcomes = ("verified", "failed")
    assert run(*REGION, "--yes").exception
    assert ("stop gpu-0" in world.calls) is fenced
    world.calls.clear()
    world.outcomes, world.import_fails = ("verified", "verified"), False
    file.write_text(file.read_text().replace("count: 2", "count: 1"))
    done = run(*REGION, "--yes", "--resume")
    assert done.return_value == 0, done.exception
    assert world.calls[0] == "up aws-recovery-us-west-2 again"
    assert world.calls[-1] == "import fs-1"


def test_nodes_that_ended_before_the_fence_are_obtained_again(world: World) -> None:
    """If nodes of the second region end after their verification, the first region keeps running, and `--resume` deploys the second one again."""
    world.reads = [("verified", "verified"), ("verified", "failed")]
    done = run(*REGION, "--yes")
    assert "jobs: not all nodes of aws-recovery-us-west-2 are verified" in str(done.exception)
    assert world.calls == ["up aws-recovery-us-west-2"]
    done = run(*REGION, "--yes", "--resume")
    assert done.return_value == 0, done.exception
    assert world.calls[1] == "up aws-recovery-us-west-2 again"


def test_missing_capacity_changes_nothing_and_lists_what_was_tried(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without capacity, each placement is tried, nothing in the first region changes, and the error states what was tried and what continues."""
    file = Path("Pulumi.aws-recovery-us-west-2.yaml")
    text = file.read_text()
    indent = next(line for line in text.splitlines() if "machine: " in line).partition("machine")[0].replace("-", " ")
    entry = f"{indent}fallback:\n{indent}- capacity: {{kind: on_demand, count: 2}}\n{indent}- zone: usw2-az3\n"
    end = text.index("\n", text.index("machine: ")) + 1
    file.write_text(text[:end] + entry + text[end:])
    tried: list[str] = []

    def up(engine: Engine, name: str, project: Path, **_: Any) -> None:
        tried.append(file.read_text())
        urn = f"urn:pulumi:{name}::p::aws:autoscaling/group:Group::"
        spec = read_stack(file).spec
        group = build_plan(spec, TODAY).pools[0].groups[0]
        raise UpFailed(
            "`pulumi up` exited",
            [
                EngineFailure(
                    urn=f"{urn}{logical(spec.name, group.name)}", message="InsufficientInstanceCapacity: no capacity"
                )
            ],
        )

    monkeypatch.setattr("gpuinfra.engine.up.up", up)
    monkeypatch.setattr("gpuinfra.cli.obtaining.adopt_retained", lambda *_, **__: None)
    monkeypatch.setattr("gpuinfra.engine.up.remove", lambda *_, **__: None)
    done = run(*REGION, "--yes")
    message = str(done.exception)
    assert isinstance(done.exception, GpuinfraError)
    assert "no placement of" in message, message
    assert "nothing in us-east-2 was changed" in message
    assert "usw2-az3" in message.split("tried:")[1]
    assert len(set(tried)) == 2
    assert world.calls == []


@pytest.fixture
def returned(world: World, monkeypatch: pytest.MonkeyPatch) -> Returned:
    """Both regions with the requests that return to the first one, which share the calls of `world`."""
    found = Returned(calls=world.calls)
    monkeypatch.setattr(AwsCloud, "failover", lambda _, first, *__: world if first == "us-east-2" else found.mirror())
    monkeypatch.setattr(AwsCloud, "failback", lambda *_: found)
    monkeypatch.setattr("gpuinfra.cli.returning.exported", lambda name, **_: found._state(name))
    return found


@pytest.mark.parametrize("step", ["up", "import"])
def test_abort_returns_to_the_first_region(
    step: str, world: World, returned: Returned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a failed failover has the command. The abort undoes what was changed, and a new failover starts again."""
    if step == "up":
        world.down.add("second")
    else:
        world.import_fails = True
    failed = run(*REGION, "--yes")
    undo = "gpuinfra failover aws-recovery --to us-west-2 --abort"
    assert str(failed.exception).splitlines()[-1] == f"  to return to us-east-2, run: {undo}"
    world.down.clear()
    world.import_fails = False
    (journal,) = journals(tmp_path)
    shown = run(*REGION, "--abort", "--dry-run").output
    assert ("up aws-recovery" in shown) is (step == "import")
    before, removed = len(world.calls), list[object]()
    group = {"type": "aws:autoscaling/group:Group", "urn": "urn:group"}
    monkeypatch.setattr(cli, "exported", lambda name, **_: [group, *world._state(name)])
    monkeypatch.setattr("gpuinfra.engine.up.remove", lambda engine, name, project, urns, **_: removed.append((name, urns)))  # fmt: skip
    done = run(*REGION, "--abort", "--yes")
    assert done.return_value == 0, done.exception
    assert removed == [("aws-recovery-us-west-2", ["urn:group"])]
    assert ("up aws-recovery" in world.calls[before:]) is (step == "import")
    assert "the failover is undone, and aws-recovery runs in us-east-2" in done.output
    assert "to remove them, run: pulumi destroy --stack aws-recovery-us-west-2" in done.output
    assert not journal.exists()
    again = run(*REGION, "--yes")
    assert again.return_value == 0, again.exception
    refused = run(*REGION, "--abort", "--yes")
    assert "to return to us-east-2, run: gpuinfra failback aws-recovery" in str(refused.exception)


def test_abort_before_the_first_deployment_leaves_nothing(
    world: World, returned: Returned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no stack of the second region exists, the abort prints no command that removes one."""
    assert "raise the limit" in str(run(*REGION, "--yes", "--max-usd-per-hour", "0.01").exception)

    def exported(name: str, **_: Any) -> Any:
        raise NoStack(name)

    monkeypatch.setattr(cli, "exported", exported)
    done = run(*REGION, "--abort", "--yes")
    assert done.return_value == 0, done.exception
    assert "the failover is undone" in done.output
    assert "pulumi destroy" not in done.output


@pytest.mark.parametrize("nodes", [0, 1])
def test_groups_that_a_failback_stopped_launch_nodes_again(
    nodes: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover after a failback without a destroy allows the groups to launch, and reads their sizes from the cloud, because the state has the old ones."""
    stopped, refreshed = Returned(nodes=nodes), list[bool]()
    monkeypatch.setattr(cli, "_restart", RESTART)
    monkeypatch.setattr(AwsCloud, "failback", lambda *_: stopped)
    deploy = world._deploy
    monkeypatch.setattr("gpuinfra.engine.up.up", lambda _, name, *__, again, refresh, **___: (refreshed.append(refresh), deploy(name, again)))  # fmt: skip
    done = run(*REGION, "--yes")
    assert done.return_value == 0, done.exception
    assert refreshed == [not nodes]
    assert ("start gpu-0 0" in stopped.calls) is (not nodes)


def test_a_failover_that_is_undone_does_not_continue(world: World, returned: Returned) -> None:
    """After an abort that failed, `--resume` is refused, and the abort continues."""
    world.import_fails = True
    assert run(*REGION, "--yes").exception
    returned.down.add("first")
    failed = run(*REGION, "--abort", "--yes")
    assert str(failed.exception).splitlines()[-1].endswith("--to us-west-2 --abort")
    assert "is being undone; add --abort" in str(run(*REGION, "--yes", "--resume").exception)
    returned.down.clear()
    assert run(*REGION, "--abort", "--yes").return_value == 0


def test_the_price_of_the_overlap_is_printed_before_the_confirmation(world: World) -> None:
    """The price of each region and their sum are the first lines. With `--stop-first`, the text states that no node runs meanwhile."""
    done = run(*REGION, "--dry-run")
    assert "price  both regions, until us-east-2 is stopped: " in done.output
    assert "price  aws-recovery-us-west-2 in us-west-2: " in done.output
    assert done.output.index("price  both regions") < done.output.index("1/9 check")
    stopped = run(*REGION, "--dry-run", "--stop-first").output
    assert "no node runs from the fence until" in stopped
    assert stopped.index("fence") < stopped.index("up aws-recovery-us-west-2")
    limited = run(*REGION, "--yes", "--max-usd-per-hour", "0.01")
    assert "--max-usd-per-hour is 0.01" in str(limited.exception)
    assert world.calls == []


def test_file_without_the_replica_is_not_ready(world: World) -> None:
    """A second region that would start with a new bucket does not become the target of a failover."""
    file = Path("Pulumi.aws-recovery-us-west-2.yaml")
    file.write_text(file.read_text().replace(PAIR.replica, "another-bucket"))
    world.lines[:] = [ReadinessLine(topic="key", name="k", state=OK)]
    done = run(*REGION, "--yes")
    assert isinstance(done.exception, GpuinfraError)
    assert "does not have the data of the replica" in str(done.exception)
    assert "--ignore data" in str(done.exception)
    assert world.calls == []
    assert run(*REGION, "--yes", "--resume", "--ignore", "data").return_value == 0


def test_engine_gets_the_lock_and_the_secrets_provider(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine keeps the lock of the journal, and creates a stack with the secrets provider of its file."""
    file = Path("Pulumi.aws-recovery-us-west-2.yaml")
    file.write_text(f"secretsprovider: awskms://alias/mine?region=eu-west-1\n{file.read_text()}")
    given: dict[str, Any] = {}

    def up(engine: Engine, name: str, project: Path, **more: Any) -> None:
        given.update(more, name=name, project=project, locked=[os.fstat(one).st_ino for one in more["keep"]])

    monkeypatch.setattr("gpuinfra.engine.up.up", up)
    monkeypatch.setattr("gpuinfra.cli.obtaining.adopt_retained", lambda *_, **__: None)
    assert run(*REGION, "--yes").return_value == 0
    assert given["name"] == "aws-recovery-us-west-2"
    assert given["project"] == Path.cwd()
    assert given["secrets"] == "awskms://alias/mine?region=eu-west-1"
    assert given["again"] is False
    (lock,) = Path(os.environ["XDG_STATE_HOME"]).glob("gpuinfra/failover/*.lock")
    assert lock.stat().st_ino in given["locked"]


def test_a_different_machine_undoes_a_failover(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty home folder, `--abort` reads the journal in the second region, and the first region is the active one again."""
    returned = Returned()
    monkeypatch.setattr(AwsCloud, "failback", lambda *_: returned)
    monkeypatch.setattr("gpuinfra.cli.returning.exported", lambda name, **_: world._state(name))
    world.import_fails = True
    assert "the import task is FAILED" in str(run(*REGION, "--yes").exception)
    assert world.record.active().region == "us-west-2"
    world.import_fails = False
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    done = run(*REGION, "--yes", "--abort")
    assert done.return_value == 0, done.exception
    assert "the failover is undone, and aws-recovery runs in us-east-2" in done.output
    record = world.record.active()
    assert (record.region, record.epoch, dict(record.moves)) == ("us-east-2", 2, {})


def test_a_record_that_cannot_be_read_stops_a_failover(world: World) -> None:
    """A failover requires the second region, so there is no option to continue without its record."""
    world.record.down = True
    done = run(*REGION, "--yes")
    assert "the record of the active region of aws-recovery cannot be read" in str(done.exception)
    assert world.calls == []
    done = run(*REGION, "--yes", "--confirm-active", "us-east-2")
    assert isinstance(done.exception, UsageError)
    assert "--confirm-active requires --abort" in str(done.exception)


def test_a_dead_second_region_does_not_block_an_abort(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--confirm-active`, the journal of this machine counts, and the engine gets the confirmation. Another region is not accepted."""
    returned, variables = Returned(), list[dict[str, str]]()
    monkeypatch.setattr(AwsCloud, "failback", lambda *_: returned)
    monkeypatch.setattr("gpuinfra.cli.returning.exported", lambda name, **_: world._state(name))
    world.import_fails = True
    assert "the import task is FAILED" in str(run(*REGION, "--yes").exception)
    world.import_fails, world.record.down = False, True
    assert "cannot be read" in str(run(*REGION, "--yes", "--abort").exception)
    wrong = run(*REGION, "--yes", "--abort", "--confirm-active", "us-west-2")
    assert "--confirm-active is us-west-2; allowed: us-east-2" in str(wrong.exception)
    monkeypatch.setattr("gpuinfra.engine.up.up", lambda *_, more, **__: variables.append(dict(more)))
    done = run(*REGION, "--yes", "--abort", "--confirm-active", "us-east-2")
    assert done.return_value == 0, done.exception
    assert variables[0] == {"GPUINFRA_CONFIRM_ACTIVE": "us-east-2"}


def test_the_search_is_repeated_for_the_stated_time(world: World, tmp_path: Path) -> None:
    """The journal of the search in the second region contains the end of `--keep-trying`, and a wrong duration is an error."""
    wrong = run(*REGION, "--yes", "--keep-trying", "soon")
    assert "--keep-trying is 'soon'; allowed: minutes, hours or days" in str(wrong.exception)
    assert run(*REGION, "--yes", "--keep-trying", "2h").return_value == 0
    (journal,) = tmp_path.rglob("up/*.json")
    assert json.loads(journal.read_text())["options"]["until"] > 0


def test_a_search_that_waited_once_continues_the_failover(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--keep-trying`, the search in the second region waits once and gets capacity, and only then the first region is stopped."""
    file = Path("Pulumi.aws-recovery-us-west-2.yaml")
    before, waits = file.read_text(), list[float]()

    def up(engine: Engine, name: str, project: Path, **_: Any) -> None:
        if waits:
            world._deploy(name, False)
            return
        spec = read_stack(file).spec
        group = build_plan(spec, TODAY).pools[0].groups[0]
        urn = f"urn:pulumi:{name}::p::aws:autoscaling/group:Group::{logical(spec.name, group.name)}"
        failure = EngineFailure(urn=urn, message="InsufficientInstanceCapacity: no capacity")
        raise UpFailed("`pulumi up` exited", [failure])

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        world.calls.append(f"wait {seconds:.0f}")

    monkeypatch.setattr("gpuinfra.engine.up.up", up)
    monkeypatch.setattr("time.sleep", sleep)
    done = run(*REGION, "--yes", "--keep-trying", "2h")
    assert done.return_value == 0, done.exception
    assert "no capacity: the next attempt begins in 60 s" in done.output
    assert waits == [60.0]
    assert (
        world.calls.index("wait 60") < world.calls.index("up aws-recovery-us-west-2") < world.calls.index("stop gpu-0")
    )
    (journal,) = tmp_path.rglob("up/*.json")
    attempts = json.loads(journal.read_text())["attempts"]
    assert [one["result"] for one in attempts] == ["no capacity", "ready"]
    assert file.read_text() == before
