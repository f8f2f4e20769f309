"""The command `gpuinfra up`: checks, confirmation, output, and the journal. The engine and the cloud are stand-ins."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click import UsageError as UsageProblem
from click.testing import CliRunner, Result

from gpuinfra.base.errors import DeploymentError, Interrupted, SpecError, UsageError
from gpuinfra.cli import up as cli
from gpuinfra.cli.stacks import NoStack
from gpuinfra.clouds.preflight import PreflightRow, ok, problem, skipped
from gpuinfra.engine.find import Engine
from gpuinfra.engine.locked import StateLocked
from gpuinfra.engine.up import OtherRun
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.handover.wire import TYPE
from gpuinfra.search import outcome
from gpuinfra.spec.load import read_stack
from tests.rules.cases import TODAY
from tests.search.world import STOCK_OUT, TEXT, Killed, World

ROWS = [ok("identity", "AWS", "account 000000000000"), skipped("account", "quota", "not checked without a permission")]


@pytest.fixture
def rows() -> list[PreflightRow]:
    """What the account answers."""
    return list(ROWS)


@pytest.fixture
def backend() -> list[PreflightRow]:
    """What the state backend answers."""
    return [ok("state", "backend", "file:///state")]


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[PreflightRow], backend: list[PreflightRow]
) -> World:
    """A project with a stack, and an account with capacity everywhere."""
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    found = World(tmp_path / "Pulumi.find.yaml")
    found.path.write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUINFRA_TODAY", TODAY.isoformat())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("gpuinfra.doctor.cloud.live_rows", lambda stack: rows)
    monkeypatch.setattr("gpuinfra.doctor.state.backend", lambda *_, **__: backend)
    engine = Engine(path=tmp_path, version="3.259.0", host_dir=tmp_path, source="path")
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda *_, **__: engine)

    def up(engine: Engine, name: str, project: Path, *, again: bool, exclude: Sequence[str], **_: Any) -> None:
        assert (name, project) == ("find", tmp_path)
        found.settle(exclude, again) if exclude else found.deploy(again)

    def remove(engine: Engine, name: str, project: Path, urns: Sequence[str], *, again: bool, **_: Any) -> None:
        found.remove(urns, again)

    monkeypatch.setattr("gpuinfra.engine.state_files.make_readable", lambda *_: None)
    monkeypatch.setattr("gpuinfra.engine.pending.read_deployment", lambda *_: {})
    monkeypatch.setattr("gpuinfra.search.interrupted.read_deployment", lambda *_: {})
    monkeypatch.setattr("gpuinfra.engine.up.up", up)
    monkeypatch.setattr("gpuinfra.engine.up.remove", remove)
    monkeypatch.setattr("gpuinfra.engine.up.check_last", lambda *_: None)
    handover = {"type": "gpuinfra:index:NodesReady", "outputs": {"summary": "3 of 3 nodes and 24 GPUs verified"}}

    def exported(name: str, *, project: Path) -> Sequence[Any]:
        assert (name, project) == ("find", tmp_path)
        return [*found.state(), handover]

    monkeypatch.setattr(cli, "exported", exported)
    return found


def run(*words: str, stack: str = "find") -> Result:
    """Run the command."""
    return CliRunner().invoke(cli.command, [stack, *words], standalone_mode=False)


def journals(folder: Path) -> list[Path]:
    """The journals of this test."""
    return sorted((folder / "state" / "gpuinfra" / "up").glob("*.json"))


def test_deployment_ends_with_the_result_and_the_next_commands(world: World) -> None:
    """The checks, the price of each placement, the attempts, the verification and the commands are printed."""
    done = run("--yes")
    assert done.return_value == 0, done.exception
    for words in (
        "skipped  account   quota: not checked without a permission",
        "price  declared: ",
        "price  gpu on p4d.24xlarge in use1-az1, on-demand: ",
        "USD an hour",
        "1. gpu: p4d.24xlarge in use1-az4, spot",
    ):
        assert words in done.stderr, words
    assert done.stdout.splitlines()[0] == "find is deployed: 3 of 3 nodes and 24 GPUs verified"
    assert "gpuinfra nodes find" in done.stdout


def test_the_engine_is_announced_after_the_price(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line before each run of the engine says what starts, after the prices and before the output of the engine."""
    deploy = world.deploy

    def up(again: bool) -> None:
        click.echo("(the engine)", err=True)
        deploy(again)

    monkeypatch.setattr(world, "deploy", up)
    world.refusals = {"use1-az4": STOCK_OUT}
    done = run("--yes")
    assert done.return_value == 0, done.exception
    lines = done.stderr.splitlines()
    starts = [at for at, line in enumerate(lines) if line == "starting pulumi up of find"]
    assert len(starts) == 2
    assert all(lines[at + 1] == "(the engine)" for at in starts)
    assert max(at for at, line in enumerate(lines) if line.startswith("price  ")) < starts[0] < lines.index("attempts")


def test_nothing_is_announced_without_a_confirmation(world: World) -> None:
    """A run that ends at the confirmation does not start the engine, and says nothing about it."""
    done = run()
    assert isinstance(done.exception, UsageError)
    assert "starting pulumi up" not in done.stderr


NODES = [
    {"label": "gpu-1", "instanceId": "i-1", "outcome": "failed"},
    {"label": "gpu-2", "instanceId": "i-2", "outcome": "verified"},
]


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ([{"type": TYPE, "outputs": {"nodes": NODES}}], ["nodes find", "ssh find gpu-2", "run find -- nvidia-smi -L"]),
        (
            [{"type": TYPE, "outputs": {"nodes": NODES[:1]}}],
            ["nodes find", "ssh find gpu-1", "run find -- nvidia-smi -L"],
        ),
        ([{"type": TYPE, "outputs": {"nodes": []}}], ["nodes find"]),
        ([], []),
    ],
)
def test_the_next_commands_can_be_run(
    world: World, resources: list[Any], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command for a login names a node, preferably a verified one. A stack without nodes has no commands for nodes."""
    monkeypatch.setattr(cli, "exported", lambda name, **_: [*world.state(), *resources])
    commands = [f"gpuinfra {one}" for one in words]
    assert json.loads(run("--yes", "--json").stdout)["next"] == commands
    printed = run("--yes").stdout.splitlines()
    assert [one.removeprefix("next:").strip() for one in printed[1:]] == commands


def test_a_stack_of_another_project_is_deployed_in_its_project(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the path of a stack file, the state is read and the stack is deployed in the project of the file, in any current folder.
    The next commands contain the path."""
    other, stacks = tmp_path / "other", tmp_path / "my stacks"
    for one in (other, stacks):
        one.mkdir()
    (other / "Pulumi.yaml").write_text("name: other\nruntime: python\n")
    world.path = world.path.rename(stacks / world.path.name)
    monkeypatch.chdir(other)
    done = run("--yes", stack="../my stacks/Pulumi.find.yaml")
    assert done.return_value == 0, done.exception
    assert world.calls == ["up use1-az4"]
    assert done.stdout.startswith("find is deployed: 3 of 3 nodes")
    assert "next: gpuinfra nodes '../my stacks/Pulumi.find.yaml'\n" in done.stdout


def test_search_is_one_json_object(world: World) -> None:
    """Standard output has only the object: checks, prices, attempts, result and commands."""
    world.refusals = {"use1-az4": STOCK_OUT}
    done = run("--yes", "--json")
    assert done.return_value == 0, done.exception
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert [one["result"] for one in document["attempts"]] == ["no capacity", "ready"]
    assert document["attempts"][0]["problems"][0]["kind"] == "stock-out"
    assert [one["placement"] for one in document["prices"]][:2] == ["declared", "gpu on p4d.24xlarge in use1-az6, spot"]
    assert [one["state"] for one in document["live"]["rows"]] == ["ok", "ok", "skipped"]
    assert "zone: use1-az6\n" in world.path.read_text()


@pytest.mark.long
def test_failed_search_prints_its_attempts(world: World) -> None:
    """The error comes after the log, the JSON object says so, and the next run starts again."""
    world.refusals = dict.fromkeys(["use1-az4", "use1-az6", "use1-az1"], STOCK_OUT)
    done = run("--yes", "--json")
    assert isinstance(done.exception, DeploymentError)
    assert (json.loads(done.stdout)["ok"], json.loads(done.stdout)["next"]) == (False, [])
    assert done.stderr.count("no capacity after") == 3
    world.refusals = {}
    assert run("--yes").return_value == 0


def test_without_search_only_the_declared_placement_is_priced(world: World) -> None:
    """`--no-search` deploys once, even without capacity."""
    world.refusals = {"use1-az4": STOCK_OUT}
    done = run("--yes", "--no-search")
    assert isinstance(done.exception, DeploymentError)
    assert "because of --no-search" in str(done.exception)
    assert done.stderr.count("price  ") == 1
    assert world.calls == ["up use1-az4"]


def test_a_pool_without_alternatives_is_named(world: World) -> None:
    """Without `fallback` and without `--no-search`, the error names the pool and the field, and not the option."""
    world.path.write_text(re.sub(r" +fallback:\n( +- {zone.*\n)+", "", TEXT))
    world.refusals = {"use1-az4": STOCK_OUT}
    done = run("--yes")
    assert "gpu has no `fallback`" in str(done.exception)
    assert "--no-search" not in str(done.exception)


def test_an_unreachable_backend_ends_before_the_confirmation(
    world: World, backend: list[PreflightRow], tmp_path: Path
) -> None:
    """If the state backend cannot be reached, the fix is printed, and nothing is confirmed, deployed or recorded."""
    backend[:] = [problem("state", "backend", "not logged in", "a login", "pulumi login")]
    done = run()
    assert (done.return_value, done.exception) == (1, None)
    for words in (
        "error    state     backend: not logged in",
        "fix: pulumi login",
        "nothing was created, because the checks found errors",
    ):
        assert words in done.stderr
    assert (world.calls, journals(tmp_path)) == ([], [])


def test_without_a_terminal_confirmation_is_one_error(world: World, tmp_path: Path) -> None:
    """Without `--yes`, nothing is deployed and no journal is written."""
    done = run()
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == "the deployment requires confirmation, but stdin is not a terminal; add --yes"
    assert world.calls == []
    assert journals(tmp_path) == []


def test_error_in_the_account_stops_before_anything_is_created(world: World, rows: list[PreflightRow]) -> None:
    """The fix is printed, and the exit code is 1."""
    rows.append(problem("quota", "L-417A185B", "0 vCPUs", "192", "request a higher quota"))
    done = run("--yes")
    assert done.return_value == 1
    assert "fix: request a higher quota" in done.stderr
    assert "nothing was created" in done.stderr
    assert world.calls == []


@pytest.mark.long
def test_missing_credentials_stop_before_anything_is_created(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without credentials, the command prints how to log in and what it did not check."""
    monkeypatch.undo()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "GPUINFRA_TODAY": TODAY.isoformat(),
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    done = run("--yes", stack=str(world.path))
    assert done.return_value == 1, done.exception
    assert "no credentials" in done.stderr
    assert "not checked without an identity" in done.stderr
    assert world.calls == []


def test_error_in_the_declaration_stops_before_the_account_is_asked(world: World, rows: list[PreflightRow]) -> None:
    """Errors of the rules, also those of an entry of `fallback`, are raised."""
    world.path.write_text(TEXT.replace("use1-az1", "use2-az1"))
    done = run("--yes")
    assert isinstance(done.exception, SpecError)
    assert "pools[0].fallback[2]" in str(done.exception)
    assert "identity" not in done.stderr


@pytest.mark.long
def test_interrupted_run_is_continued_only_with_resume(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupt, the error names the command that continues; a new run is refused, and `--resume` finishes."""
    first = run("--yes", "--resume")
    assert isinstance(first.exception, UsageError)
    assert "was interrupted on this machine" in str(first.exception)
    world.refusals = {"use1-az4": STOCK_OUT}
    real, failed = world.deploy, []

    def once(again: bool) -> None:
        if "use1-az6" in world.path.read_text().split("fallback")[0] and not failed:
            failed.append(again)
            raise KeyboardInterrupt
        real(again)

    monkeypatch.setattr(world, "deploy", once)
    done = run("--yes")
    assert isinstance(done.exception, Interrupted)
    assert str(done.exception) == "interrupted; to continue, run: gpuinfra up find --resume"
    refused = run("--yes")
    assert isinstance(refused.exception, UsageError)
    assert "add --resume to continue the run" in str(refused.exception)
    again = run("--yes", "--resume")
    assert again.return_value == 0, again.exception
    assert world.calls[-1] == "up use1-az4 use1-az6 again"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [("Pulumi.find.yaml", TEXT, "is not in a Pulumi project"), ("one.yaml", None, "contains only a declaration")],
)
def test_file_that_the_engine_cannot_use_is_one_error(
    world: World, tmp_path: Path, name: str, text: str | None, words: str
) -> None:
    """A file outside a project, and a file without `config`, are refused."""
    folder = tmp_path if text is None else tmp_path.parent / f"{tmp_path.name}-other"
    folder.mkdir(exist_ok=True)
    body = "\n".join(line.removeprefix("    ") for line in TEXT.splitlines()[4:])
    (folder / name).write_text(text or body)
    done = run("--yes", stack=str(folder / name))
    assert isinstance(done.exception, UsageError), done.exception
    assert words in str(done.exception)


def test_stack_over_the_price_limit_is_not_deployed(world: World, tmp_path: Path) -> None:
    """If the declared stack costs more than the limit, one error states both prices, and nothing is created."""
    done = run("--yes", "--max-usd-per-hour", "5")
    assert isinstance(done.exception, DeploymentError)
    assert re.fullmatch(
        r"find costs [0-9.]+ USD an hour, and --max-usd-per-hour is 5\.00; nothing was created; declare fewer or cheaper nodes, or raise the limit",
        str(done.exception),
    )
    assert world.calls == []
    assert journals(tmp_path) == []


def test_alternatives_over_the_limit_are_marked_and_skipped(world: World) -> None:
    """With `--yes`, only alternatives within the limit are deployed. The prices and the attempts show the others."""
    world.refusals = {"use1-az4": STOCK_OUT, "use1-az6": STOCK_OUT}
    prices = {one["placement"]: one for one in json.loads(run("--yes", "--json", "--no-search").stdout)["prices"]}
    limit = prices["declared"]["usd_per_hour"] + 1
    done = run("--yes", "--json", "--max-usd-per-hour", str(limit))
    assert isinstance(done.exception, DeploymentError)
    assert "within the price limit" in str(done.exception)
    document = json.loads(done.stdout)
    assert document["max_usd_per_hour"] == limit
    assert [one["over_limit"] for one in document["prices"]] == [False, False, True]
    assert [one["result"] for one in document["attempts"]] == ["no capacity", "no capacity", "over the price limit"]
    assert "on-demand: " in done.stderr
    assert "; over the limit\n" in done.stderr
    assert not any("use1-az1" in call for call in world.calls)


def test_resumed_run_keeps_its_limit(world: World, tmp_path: Path) -> None:
    """A run that was killed keeps the limit and the price file, unless `--resume` gets other values."""
    world.refusals = {"use1-az4": STOCK_OUT, "use1-az6": STOCK_OUT}
    declared = cli.Limit.of({}, asks=False).report(read_stack(world.path)).cost
    assert declared is not None
    limit = declared.usd_per_hour + 1
    world.kill_at = 3
    with pytest.raises(Killed):
        run("--yes", "--max-usd-per-hour", str(limit))
    world.kill_at = 0
    (path,) = journals(tmp_path)
    assert json.loads(path.read_text())["options"] == {"max_usd_per_hour": limit, "running": []}
    assert "within the price limit" in str(run("--yes", "--resume").exception)
    assert "use1-az1" not in " ".join(world.calls)
    world.kill_at = world.moment + 3
    with pytest.raises(Killed):
        run("--yes", "--max-usd-per-hour", str(limit))
    world.kill_at = 0
    assert run("--yes", "--resume", "--max-usd-per-hour", str(limit + 1000)).return_value == 0


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_the_command_asks_before_an_alternative_over_the_limit(
    answer: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question states the price and the limit, and a refused alternative is skipped."""
    asked: list[str] = []
    monkeypatch.setattr(cli.click, "confirm", lambda text, **_: asked.append(text) or answer)
    limit = cli.Limit.of({"max_usd_per_hour": 5}, asks=True)
    why = limit.refuses(read_stack(world.path))
    assert re.fullmatch(r"The next alternative costs [0-9.]+ USD an hour, and --max-usd-per-hour is 5\.00\. Deploy it\?", asked[0])  # fmt: skip
    assert bool(why) is not answer


def test_unknown_price_is_over_the_limit(world: World) -> None:
    """A stack whose nodes have no known price cannot be within a limit."""
    known = cli.Limit.of({"max_usd_per_hour": 1000}, asks=False)
    cost = known.report(read_stack(world.path)).cost
    assert cost is not None
    assert known.exceeded(cost) == ""
    unknown = replace(cost, lines=tuple(replace(line, usd_per_unit_hour=None) for line in cost.lines))
    assert known.exceeded(unknown) == (
        "costs an unknown amount, because the price of its nodes is unknown, and --max-usd-per-hour is 1,000.00"
    )


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-3", "much"])
def test_limit_must_be_a_positive_number(world: World, value: str) -> None:
    """A limit that is not a positive number is a usage error, and nothing is created."""
    done = run("--yes", "--max-usd-per-hour", value)
    assert isinstance(done.exception, UsageError | UsageProblem)
    assert world.calls == []


def test_own_prices_decide_about_the_limit(world: World, tmp_path: Path) -> None:
    """`--prices` replaces the prices of the catalog in the comparison with the limit."""
    own = tmp_path / "prices.yaml"
    own.write_text("read: 2026-11-01\nsource: our agreement\nmachines: {p4d.24xlarge: {on_demand: 0.5, spot: 0.5}}\n")
    assert run("--yes", "--max-usd-per-hour", "5", "--prices", str(own)).return_value == 0


def declares(world: World, choice: str) -> None:
    """Let the stack declare `on_failure`, and let no placement have capacity."""
    world.path.write_text(TEXT + f"    handover: {{on_failure: {choice}}}\n")
    world.refusals = {"use1-az4": STOCK_OUT}


@pytest.fixture
def destroyed(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the stacks that were destroyed."""
    found: list[str] = []
    monkeypatch.setattr("gpuinfra.engine.up.destroy", lambda engine, name, project, **_: found.append(name))

    def up(engine: Engine, name: str, project: Path, **_: Any) -> None:
        counts = [one.count for pool in read_stack(world.path).spec.pools for one in pool.capacity]
        if any(counts):
            world.deploy(False)
        else:
            world.calls.append("up without nodes")

    monkeypatch.setattr("gpuinfra.engine.up.up", up)
    return found


@pytest.mark.parametrize(
    ("choice", "calls", "ended"),
    [("keep", [], []), ("scale_to_zero", ["up without nodes"], []), ("destroy", [], ["find"])],
)
def test_a_failed_deployment_ends_as_declared(
    world: World, destroyed: list[str], choice: str, calls: list[str], ended: list[str]
) -> None:
    """The price of each choice is printed, the declared one is done, and the error of the deployment stays."""
    declares(world, choice)
    before = world.path.read_text()
    done = run("--yes", "--no-search")
    assert isinstance(done.exception, DeploymentError)
    assert "because of --no-search" in str(done.exception)
    lines = done.stderr.partition("price after the failure")[2].splitlines()[1:4]
    assert [line.split()[0] for line in lines] == ["keep", "scale_to_zero", "destroy"]
    amounts = [float(re.sub(r"[^0-9.]", "", line.split("USD")[0].split()[-1])) for line in lines[:2]]
    assert amounts[0] > amounts[1] >= 0
    assert [line.split()[0] for line in lines if line.endswith("(chosen)")] == [choice]
    assert (world.calls[1:], destroyed) == (calls, ended)
    after = before.replace("count: 2}\n        fallback", "count: 0}\n        fallback").replace("count: 1", "count: 0")
    assert world.path.read_text() == (after if choice == "scale_to_zero" else before)
    assert all(json.loads(path.read_text())["ended"] for path in journals(world.path.parent))


def unreadable(*_: object) -> frozenset[str]:
    """The cloud does not respond."""
    raise PortUnavailable("no response")


@pytest.mark.parametrize("running", [lambda *_: frozenset({"find-gpu-spot-0"}), unreadable], ids=["nodes", "unknown"])
@pytest.mark.parametrize("choice", ["scale_to_zero", "destroy"])
def test_nodes_that_ran_before_are_kept(
    world: World, destroyed: list[str], choice: str, running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the stack had nodes before the run, or if they cannot be read, they can have jobs, so a failed deployment removes nothing."""
    declares(world, choice)
    monkeypatch.setattr(outcome, "running_groups", running)
    before = world.path.read_text()
    done = run("--yes", "--no-search")
    assert isinstance(done.exception, DeploymentError)
    assert "(chosen, because the stack had nodes before this run)" in done.stderr
    assert (world.calls[1:], destroyed, world.path.read_text()) == ([], [], before)


def test_a_lock_of_another_run_removes_nothing(
    world: World, destroyed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another run holds the lock of the stack, `on_failure` has no effect, and the error names the holder."""
    declares(world, "destroy")

    def locked(*_: object, **__: object) -> None:
        raise StateLocked("find is locked by ci@runner (pid 7) since 2026-11-27T20:00:00Z; wait until the run ends")

    monkeypatch.setattr("gpuinfra.engine.up.up", locked)
    done = run("--yes")
    assert isinstance(done.exception, StateLocked)
    assert "price after the failure" not in done.stderr
    assert destroyed == []


@pytest.mark.parametrize("choice", ["scale_to_zero", "destroy"])
def test_an_update_of_another_operator_is_kept(
    world: World, destroyed: list[str], choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another machine updated the stack after the failed deployment, `on_failure` and the search delete nothing and write nothing."""
    declares(world, choice)
    text = world.path.read_text()

    def other(*_: object) -> None:
        raise OtherRun("the last update of find is not of this command")

    monkeypatch.setattr("gpuinfra.engine.up.check_last", other)
    done = run("--yes", "--no-search")
    assert isinstance(done.exception, DeploymentError)
    assert "is not of this command; resources can still be billed" in str(done.exception)
    calls = list(world.calls)
    done = run("--yes")
    assert isinstance(done.exception, OtherRun)
    assert "price after the failure" not in done.stderr
    assert not any(call.startswith("remove") for call in world.calls[len(calls) :])
    assert (destroyed, world.path.read_text()) == ([], text)
    assert all(json.loads(path.read_text())["ended"] for path in journals(world.path.parent))


def test_a_failed_removal_is_stated(world: World, destroyed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """If the resources cannot be deleted either, both errors are printed, and the message says that they can still be billed."""
    declares(world, "destroy")

    def destroy(*_: object, **__: object) -> None:
        raise DeploymentError("`pulumi destroy --stack find` exited with code 255")

    monkeypatch.setattr("gpuinfra.engine.up.destroy", destroy)
    done = run("--yes", "--no-search")
    assert isinstance(done.exception, DeploymentError)
    for words in (
        "because of --no-search",
        "exited with code 255",
        "resources can still be billed",
        "run `pulumi destroy`",
    ):
        assert words in str(done.exception)


def test_a_stack_that_does_not_exist_has_no_nodes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first deployment of a stack can be undone. A state that cannot be read is an error before the deployment."""

    def absent(name: str, **_: Any) -> list[dict[str, Any]]:
        raise NoStack("`pulumi stack export` failed for find: no stack named 'find' found; log in")

    monkeypatch.setattr(cli, "exported", absent)
    assert cli.running_before(read_stack(world.path), world.path.parent) == []
    monkeypatch.setattr(cli, "exported", lambda name, project: (_ for _ in ()).throw(DeploymentError("no login")))
    with pytest.raises(DeploymentError):
        cli.running_before(read_stack(world.path), world.path.parent)


def test_a_file_that_cannot_be_edited_is_an_error_before_the_deployment(world: World, destroyed: list[str]) -> None:
    """If the counts of the stack file cannot be changed after a failure, nothing is deployed."""
    declares(world, "scale_to_zero")
    text = world.path.read_text().replace(
        "capacity: {kind: on_demand, count: 2}", "capacity: &one {kind: on_demand, count: 2}"
    )
    world.path.write_text(text.replace("capacity: {kind: on_demand, count: 1}", "capacity: *one"))
    done = run("--yes", "--no-search")
    assert isinstance(done.exception, UsageError)
    assert "cannot be edited in place" in str(done.exception)
    assert world.calls == []


def test_a_killed_pulumi_up_is_continued_with_resume(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a journal, `--resume` continues if the state has pending creations: it imports what exists, and removes the lock of the killed run."""
    urn = "urn:pulumi:find::p::gpuinfra:index:NodesReady::train-ready"
    pending = {"type": "creating", "resource": {"urn": urn, "type": "gpuinfra:index:NodesReady", "custom": True}}
    written: list[Any] = []
    for module in ("gpuinfra.engine.pending", "gpuinfra.search.interrupted"):
        monkeypatch.setattr(f"{module}.read_deployment", lambda *_: {"pending_operations": [pending]})
    monkeypatch.setattr("gpuinfra.search.interrupted.write_deployment", lambda *given, **_: written.append(given[-1]))
    done = run("--yes", "--resume")
    assert done.return_value == 0, done.exception
    assert [one["pending_operations"] for one in written] == [[]]
    assert world.calls == ["up use1-az4 again"]
    assert "a run of find was killed while it created train-ready" in done.stderr


def test_a_finding_about_a_killed_run_deploys_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource without proof ends the command before the deployment."""
    pending = {
        "type": "creating",
        "resource": {"urn": "urn:pulumi:find::p::other:a:B::x", "type": "other:a:B", "custom": True},
    }
    monkeypatch.setattr("gpuinfra.search.interrupted.read_deployment", lambda *_: {"pending_operations": [pending]})
    done = run("--yes")
    assert "gpuinfra cannot find resources of this type" in str(done.exception)
    assert world.calls == []


def test_the_search_is_repeated_until_its_end(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With `--keep-trying`, the search waits and starts again. The journal contains its end."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        world.refusals = {}

    monkeypatch.setattr("time.sleep", sleep)
    world.refusals = dict.fromkeys(("use1-az4", "use1-az6", "use1-az1"), STOCK_OUT)
    done = run("--yes", "--keep-trying", "2h")
    assert done.return_value == 0, done.exception
    assert waits == [60.0]
    assert "no capacity: the next attempt begins in 60 s" in done.stderr
    assert json.loads(journals(tmp_path)[0].read_text())["options"]["until"] > 0


def test_a_wrong_duration_is_an_error_before_the_checks(world: World) -> None:
    """The error names the value and the allowed ones, and nothing is deployed."""
    done = run("--yes", "--keep-trying", "soon")
    assert "--keep-trying is 'soon'; allowed: minutes, hours or days up to 30d" in str(done.exception)
    assert world.calls == []
