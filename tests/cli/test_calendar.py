"""The command `gpuinfra calendar`: options, exit codes, and its output. The state and the search are stand-ins."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.day import VARIABLE
from gpuinfra.base.errors import DeploymentError, EnvironmentMissing, SpecError, UsageError
from gpuinfra.cli import calendar as cli
from gpuinfra.cli import stacks
from gpuinfra.cli.stack_context import ActiveStack
from gpuinfra.clouds.aws import offerings
from gpuinfra.clouds.aws.preflight import Preflight
from gpuinfra.clouds.offerings import Offering, Wanted
from gpuinfra.clouds.preflight import Unanswered
from gpuinfra.handover.ports import GroupExpected, Member, PortUnavailable
from gpuinfra.handover.wire import TYPE
from gpuinfra.node.notices import Notice, NoticeKind
from gpuinfra.remote.drain import JobStop, not_stopped
from gpuinfra.remote.hosts import Hosts
from tests.test_idle import evidence

STACK = """\
config:
  aws:region: us-east-2
  gpuinfra:cluster:
    name: burst
    where: {cloud: aws, region: us-east-2, zone: use2-az1}
    pools:
      - name: gpu
        machine: p5.48xlarge
        capacity:
          - {kind: block, id: cr-0123456789abcdef0, count: 2, starts_at: "2026-12-01T11:30:00Z", ends_at: "2026-12-08T11:30:00Z"}
    budget: {recipients: [ops@example.com]}
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The resources of the stack `burst` of the project in the current folder. The test fills them in."""
    (tmp_path / "Pulumi.yaml").write_text("name: project\nruntime: python\n")
    (tmp_path / "Pulumi.burst.yaml").write_text(STACK)
    monkeypatch.chdir(tmp_path)
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(stacks, "exported", lambda *_, **__: found)
    return found


def deployed(nodes: int) -> dict[str, Any]:
    """The handover of a stack that expects this number of nodes."""
    group = {"name": "gpu-block-0", "group": "burst-gpu-block-0-abc", "count": nodes}
    pool = {"name": "gpu", "machine": "p5.48xlarge", "expectation": {}, "groups": [group]}
    return {"type": TYPE, "custom": True, "outputs": {"cloud": "aws", "pools": [pool]}}


def run(*words: str) -> Result:
    """Run the command on the stack."""
    return CliRunner().invoke(cli.command, ["Pulumi.burst.yaml", *words], standalone_mode=False)


@pytest.mark.parametrize(
    ("at", "nodes", "code"),
    [
        ("2026-11-20T11:30:00Z", 0, 0),
        ("2026-11-24T11:30:00Z", 0, 1),
        ("2026-12-01T11:30:00Z", 0, 1),
        ("2026-12-01T10:54:00Z", 2, 1),
        ("2026-12-09T00:00:00Z", 2, 1),
        ("2026-12-09T00:00:00Z", 0, 0),
    ],
)
def test_the_exit_code_reports_dates_that_are_due_or_soon(
    state: list[dict[str, Any]], at: str, nodes: int, code: int
) -> None:
    """The exit code is 1 if a date is due or within seven days, and 0 otherwise, also after a block has ended."""
    state.append(deployed(nodes))
    done = run("--at", at)
    assert done.return_value == code, done.output


def test_the_days_ahead_can_be_chosen(state: list[dict[str, Any]]) -> None:
    """`--within` sets the number of days for which a date is soon."""
    state.append(deployed(0))
    assert run("--at", "2026-11-24T11:30:00Z", "--within", "6").return_value == 0
    assert run("--at", "2026-11-24T11:30:00Z", "--within", "7").return_value == 1


def test_the_output_contains_the_command_for_each_date(state: list[dict[str, Any]]) -> None:
    """Text and JSON contain the dates with their commands."""
    state.append(deployed(0))
    at = ("--at", "2026-12-01T12:00:00Z")
    assert "pulumi up --stack burst" in run(*at).output
    found = json.loads(run(*at, "--json").output)
    assert found["schema"] == "gpuinfra.calendar/1"
    assert found["now"] == "2026-12-01T12:00:00Z"
    first, last = found["events"]
    assert (first["at"], first["state"], first["command"]) == ("2026-12-01T11:30:00Z", "due", "pulumi up --stack burst")
    assert (last["at"], last["state"], last["command"]) == (
        "2026-12-08T10:55:00Z",
        "soon",
        "gpuinfra calendar burst --offers",
    )


def test_a_stack_that_is_not_deployed_needs_offline(state: list[dict[str, Any]]) -> None:
    """Without resources in the state, the command names the missing step. `--offline` reads only the stack file."""
    done = run("--at", "2026-12-01T12:00:00Z")
    assert isinstance(done.exception, EnvironmentMissing)
    assert "no resources in its state" in str(done.exception)
    assert run("--at", "2026-12-01T12:00:00Z", "--offline", "--within", "0").return_value == 0


def test_errors_of_the_declaration_stop_the_command(state: list[dict[str, Any]]) -> None:
    """An ended block is a date and no error. A wrong count is an error."""
    state.append(deployed(0))
    assert run("--at", "2026-12-09T12:00:00Z").exception is None
    Path("Pulumi.burst.yaml").write_text(STACK.replace("count: 2", "count: 65"))
    done = run("--at", "2026-12-09T12:00:00Z")
    assert isinstance(done.exception, SpecError)
    assert "64 nodes" in str(done.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--days", "3"], "add --offers"),
        (["--direct"], "add --drain"),
        (["--offline", "--offers"], "omit --offline"),
        (["--offline", "--drain", "5"], "omit --offline"),
        (["--offline", "--notices"], "omit --notices, or omit --offline"),
        (["--drain", "5", "--at", "2026-12-08T10:00:00Z"], "--drain stops jobs now; omit --at"),
        (["--stop-idle", "--offline"], "omit --offline and --at"),
        (["--stop-idle", "--at", "2026-12-08T10:00:00Z"], "omit --offline and --at"),
        (["--at", "2026-12-01"], "allowed: a time in UTC such as 2026-12-01T11:30:00Z"),
    ],
)
def test_options_that_have_no_effect_are_rejected(state: list[dict[str, Any]], words: list[str], message: str) -> None:
    """An option without the option that it belongs to is a usage error."""
    done = run(*words)
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)


def offering(wanted: Wanted) -> Offering:
    """The extension of a block."""
    return Offering(kind="extension", id="cbe-1", machine=wanted.machine, nodes=wanted.nodes, zone="us-east-2a", starts=wanted.ends,
                    ends=datetime(2026, 12, 15, 11, 30, tzinfo=UTC), price="1000.50", currency="USD", command="BUY")  # fmt: skip


def test_offers_are_listed_with_their_price(state: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """An offer has the length of the block, its price, and the command that buys it."""
    state.append(deployed(2))
    asked: list[Wanted] = []
    monkeypatch.setattr(Preflight, "find_credentials", lambda self: None)
    monkeypatch.setattr(offerings, "search", lambda cloud, wanted, now: asked.append(wanted) or [offering(wanted)])
    done = run("--at", "2026-12-02T12:00:00Z", "--offers", "--json", "--within", "0")
    assert done.return_value == 0, done.exception
    (offer,) = json.loads(done.output)["offers"]
    assert (offer["group"], offer["price"], offer["command"]) == ("gpu-block-0", "1000.50", "BUY")
    assert (offer["starts"], offer["ends"]) == ("2026-12-08T11:30:00Z", "2026-12-15T11:30:00Z")
    assert "1000.50 USD" in run("--at", "2026-12-02T12:00:00Z", "--offers", "--days", "3").output
    assert [(one.days, one.nodes, one.machine) for one in asked] == [(7, 2, "p5.48xlarge"), (3, 2, "p5.48xlarge")]


def test_offers_that_cannot_be_read_have_their_own_exit_code(
    state: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing is due or soon, a search without an answer is exit code 3."""
    state.append(deployed(2))

    def search(*_: object) -> list[Offering]:
        raise Unanswered("ec2:DescribeCapacityBlockOfferings is denied", "", "attach the policy")

    monkeypatch.setattr(Preflight, "find_credentials", lambda self: None)
    monkeypatch.setattr(offerings, "search", search)
    done = run("--at", "2026-12-01T12:00:00Z", "--offers", "--within", "0")
    assert done.return_value == 3
    assert (
        "offers for gpu-block-0 were not read: ec2:DescribeCapacityBlockOfferings is denied; attach the policy"
        in done.output
    )


def on_google_cloud(capacity: str) -> str:
    """The stack on Google Cloud, with one entry of capacity."""
    head, _, _ = STACK.partition("          - {kind")
    head = head.replace("aws:region: us-east-2", "gcp:project: p").replace("p5.48xlarge", "a3-megagpu-8g")
    head = head.replace(
        "{cloud: aws, region: us-east-2, zone: use2-az1}", "{cloud: gcp, region: us-central1, zone: us-central1-a}"
    )
    return (
        f"{head}          - {capacity}\n    software: {{registry: us-central1-docker.pkg.dev/my-project/gpudirect}}\n"
    )


def test_offers_exist_only_on_aws(state: list[dict[str, Any]]) -> None:
    """The search for Capacity Blocks is rejected for other clouds."""
    state.append(deployed(0))
    Path("Pulumi.burst.yaml").write_text(on_google_cloud("{kind: spot, count: 2}"))
    done = run("--offers")
    assert isinstance(done.exception, UsageError)
    assert "on AWS, but burst is on Google Cloud; omit --offers" in str(done.exception)


def iso(at: datetime) -> str:
    """A time in the form of a declaration."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def removed(state: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> str:
    """The time at which the nodes of the stack are removed, 50 minutes from now. The state has one node of two."""
    at = datetime.now(UTC) + timedelta(minutes=50)
    text = STACK.replace("2026-12-01T11:30:00Z", iso(at - timedelta(days=2)))
    Path("Pulumi.burst.yaml").write_text(text.replace("2026-12-08T11:30:00Z", iso(at + timedelta(minutes=35))))
    one = deployed(2)
    one["outputs"]["nodes"] = [{"label": "gpu-1", "instanceId": "i-1", "group": "gpu-block-0", "outcome": "verified"}]
    state.append(one)
    has_members(monkeypatch, Member(instance_id="i-1", group="burst-gpu-block-0-abc"))
    return iso(at)


def has_members(monkeypatch: pytest.MonkeyPatch, *members: Member, problem: str = "") -> None:
    """Let the cloud return these members of the groups, or no answer."""

    def found(groups: Sequence[GroupExpected]) -> list[Member]:
        if problem:
            raise PortUnavailable(problem)
        return [one for one in members if one.group in {group.group for group in groups}]

    ports = SimpleNamespace(membership=SimpleNamespace(members=found))
    monkeypatch.setattr("gpuinfra.handover.connect.connect", lambda inputs: ports)


STOPPED = JobStop(done=True, text="2 processes stopped")


def stops(monkeypatch: pytest.MonkeyPatch, result: JobStop = STOPPED) -> None:
    """Let each node have this result."""
    monkeypatch.setattr(ActiveStack, "stop_jobs", lambda self, plan, direct, ids: dict.fromkeys(ids, result))


@pytest.mark.parametrize(("result", "code"), [(STOPPED, 0), (not_stopped("no route"), 1)])
def test_jobs_that_could_not_be_stopped_change_the_exit_code(
    removed: str, monkeypatch: pytest.MonkeyPatch, result: JobStop, code: int
) -> None:
    """If nothing is due or soon, the exit code is 0 if all jobs were stopped, and 1 otherwise. The end of a node is part of its line."""
    stops(monkeypatch, result)
    done = run("--within", "0", "--drain", "55")
    assert done.return_value == code, done.exception
    assert f"gpu-1 (i-1): {result.text}; removed at {removed}" in done.output
    assert "gpu-1" not in run("--within", "0", "--drain", "10").output


def test_a_different_date_does_not_stop_jobs(removed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The present time determines whose jobs are stopped, also if `GPUINFRA_TODAY` is the day on which the nodes are removed."""
    at = datetime.now(UTC) + timedelta(days=10)
    text = Path("Pulumi.burst.yaml").read_text()
    ends = iso(datetime.fromisoformat(removed) + timedelta(minutes=35))
    Path("Pulumi.burst.yaml").write_text(text.replace(ends, iso(at + timedelta(minutes=65))))
    monkeypatch.setenv(VARIABLE, at.date().isoformat())
    stops(monkeypatch)
    done = run("--within", "0", "--drain", "60", "--json")
    assert done.exception is None
    assert json.loads(done.output)["drained"] == {}


def test_a_login_that_fails_does_not_hide_the_dates(removed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the login to the nodes fails, each node has the reason, and the dates are printed."""

    def refused(*_: object) -> Hosts:
        raise DeploymentError("the session has expired; log in again")

    monkeypatch.setattr(ActiveStack, "hosts", refused)
    done = run("--within", "0", "--drain", "60", "--json")
    assert done.return_value == 1, done.exception
    found = json.loads(done.output)
    assert len(found["events"]) == 2
    assert found["drained"] == {
        "gpu-1 (i-1)": f"jobs not stopped: the session has expired; log in again; removed at {removed}"
    }


def test_a_node_that_is_not_in_the_state_is_reported(removed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that runs in a group that ends, and that no `up` has verified, is reported with the command to run. A node that is terminating is not."""
    group = "burst-gpu-block-0-abc"
    gone = Member(instance_id="i-3", group=group, leaving=True)
    members = [Member(instance_id="i-1", group=group), Member(instance_id="i-2", group=group), gone]
    has_members(monkeypatch, *members, Member(instance_id="i-4", group="another"))
    stops(monkeypatch)
    done = run("--within", "0", "--drain", "60", "--json")
    assert done.return_value == 1, done.exception
    assert json.loads(done.output)["drained"] == {
        "gpu-1 (i-1)": f"2 processes stopped; removed at {removed}",
        "i-2": f"jobs not stopped: the node is not in the state of the stack; run `pulumi up --stack burst`; removed at {removed}",
    }


def test_groups_that_cannot_be_read_have_their_own_exit_code(removed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the nodes of a group that ends cannot be read from the cloud, the jobs on known nodes are stopped, and the exit code is 3."""
    has_members(monkeypatch, problem="no credentials")
    stops(monkeypatch)
    done = run("--within", "0", "--drain", "60", "--json")
    assert done.return_value == 3, done.exception
    found = json.loads(done.output)
    assert list(found["drained"]) == ["gpu-1 (i-1)"]
    assert found["unread"] == {"the nodes that are removed soon": "no credentials"}


def test_offers_before_a_refused_search_are_listed(
    state: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a search returns an offer and then fails, the output contains the offer and the problem."""
    state.append(deployed(2))

    def search(cloud: object, wanted: Wanted, now: object) -> Iterator[Offering]:
        yield offering(wanted)
        raise Unanswered("the block cannot be extended", "", "wait for the payment")

    monkeypatch.setattr(Preflight, "find_credentials", lambda self: None)
    monkeypatch.setattr(offerings, "search", search)
    done = run("--at", "2026-12-01T12:00:00Z", "--offers", "--within", "0", "--json")
    assert done.return_value == 3, done.exception
    found = json.loads(done.output)
    assert [one["command"] for one in found["offers"]] == ["BUY"]
    assert found["unread"] == {"offers for gpu-block-0": "the block cannot be extended; wait for the payment"}


def test_scheduled_actions_in_the_state_are_due_after_the_end(state: list[dict[str, Any]]) -> None:
    """After the end of a group, `up` is due until the state has no scheduled action of the group."""
    Path("Pulumi.burst.yaml").write_text(f'{STACK}    expires_at: "2026-12-02T00:00:00Z"\n')
    state.append(deployed(0))
    at = ("--at", "2026-12-02T12:00:00Z", "--json")
    assert "pulumi up --stack burst" not in run(*at).output
    action = {"type": "aws:autoscaling/schedule:Schedule", "custom": True}
    state.append({**action, "inputs": {"autoscalingGroupName": "another"}})
    assert "pulumi up --stack burst" not in run(*at).output
    state.append({**action, "inputs": {"autoscalingGroupName": "burst-gpu-block-0-abc"}})
    due = [one for one in json.loads(run(*at).output)["events"] if one["command"] == "pulumi up --stack burst"]
    assert [(one["state"], one["what"]) for one in due] == [("due", "2 nodes removed: the cluster expires")]


class Members:
    """The membership of a cloud with two flex-start nodes, one of which is terminating."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem

    def members(self, groups: Sequence[GroupExpected]) -> list[Member]:
        """Return the nodes of the groups."""
        if self.problem:
            raise PortUnavailable(self.problem)
        at = datetime(2026, 12, 1, 10, tzinfo=UTC)
        return [Member(instance_id=str(number), group=one.group, launched=at, leaving=bool(number)) for one in groups for number in range(2)]  # fmt: skip


@pytest.mark.parametrize(("problem", "code"), [("", 1), ("no credentials", 3)])
def test_flex_start_nodes_are_read_from_their_group(
    state: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, problem: str, code: int
) -> None:
    """A flex-start node that is not in the state makes `up` due. Nodes that cannot be read are exit code 3 if nothing else is due."""
    text = on_google_cloud("{kind: flex, count: 2, max_run_hours: 72}")
    Path("Pulumi.burst.yaml").write_text(text)
    handover = deployed(0)
    handover["outputs"]["pools"][0]["groups"] = [{"name": "gpu-flex-0", "group": "projects/p/g", "count": 0}]
    state.append(handover)
    ports = SimpleNamespace(membership=Members(problem))
    monkeypatch.setattr("gpuinfra.handover.connect.connect", lambda inputs: ports)
    done = run("--at", "2026-12-01T12:00:00Z", "--within", "0")
    assert done.return_value == code, (done.exception, done.output)
    said = (
        f"the flex-start nodes were not read: {problem}" if problem else "1 node started, but `up` has not verified 1"
    )
    assert said in " ".join(done.output.split())


IDLE = (
    STACK.partition("          - {kind")[0]
    + """\
          - {kind: on_demand, count: 1}
        idle_stop: 12h
"""
)


@pytest.fixture
def idle(state: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A stack with one node and `idle_stop`. The evidence of the node has the hourly power that the test sets in `watts`."""
    Path("Pulumi.burst.yaml").write_text(IDLE)
    state.append(deployed(1))
    found: dict[str, Any] = {"watts": (70,) * 13, "finished": datetime.now(UTC) - timedelta(hours=1), "problem": ""}

    def polled(resources: object) -> tuple[object, ...]:
        if found["problem"]:
            raise PortUnavailable(found["problem"])
        pool = SimpleNamespace(name="gpu", expectation={"gpus": 8})
        return (SimpleNamespace(pools=[pool]),)

    def used(poll: object, pool: str) -> dict[str, Any]:
        return {"gpu-1": evidence(*found["watts"], finished=iso(found["finished"]))}

    monkeypatch.setattr("gpuinfra.verification.store.polled", polled)
    monkeypatch.setattr("gpuinfra.verification.store.used_evidence", used)
    return found


def test_an_idle_pool_is_due_with_its_command(idle: dict[str, Any]) -> None:
    """After the time of `idle_stop`, the pool is due, and its command changes the stack file and then runs `up`. A pool in use is not listed as a date."""
    done = run("--json")
    assert done.return_value == 1, done.exception
    found = json.loads(done.output)
    (event,) = found["events"]
    assert (event["group"], event["state"], event["by"]) == ("gpu", "due", "you")
    assert event["command"] == "gpuinfra calendar burst --stop-idle && pulumi up --stack burst"
    assert [one["pool"] for one in found["use"]] == ["gpu"]
    idle["watts"] = (*idle["watts"], 632)
    done = run()
    assert done.return_value == 0, done.exception
    assert "pool gpu is not idle: gpu-1: GPU-0 used 632 W on average" in done.output


def test_the_present_determines_whether_a_pool_is_idle(idle: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A date in `GPUINFRA_TODAY` does not make evidence old. `--at` does."""
    monkeypatch.setenv(VARIABLE, "2026-01-01")
    assert [one["state"] for one in json.loads(run("--json").output)["events"]] == ["due"]
    later = iso(idle["finished"] + timedelta(hours=9))
    assert json.loads(run("--json", "--at", later).output)["events"] == []


def test_an_idle_pool_is_stopped_in_the_stack_file(idle: dict[str, Any]) -> None:
    """`--stop-idle` sets the number of nodes to 0 and returns 0, so that `up` can follow."""
    done = run("--stop-idle")
    assert done.return_value == 0, done.exception
    assert "pool gpu has no nodes in Pulumi.burst.yaml now; run `pulumi up --stack burst`" in done.output
    assert "pool gpu: count was 1 (on-demand)" in done.output
    assert Path("Pulumi.burst.yaml").read_text() == IDLE.replace("count: 1", "count: 0")


def test_a_stopped_pool_has_its_previous_counts_in_the_json_object(idle: dict[str, Any]) -> None:
    """`--stop-idle --json` contains the counts that you need to start the nodes again."""
    assert json.loads(run("--stop-idle", "--json").output)["stopped_counts"] == {"gpu": "1 (on-demand)"}
    assert json.loads(run("--json").output).get("stopped_counts") == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [({"watts": (70, 632)}, 1), ({"watts": (70,) * 11}, 1), ({"finished": datetime(2026, 1, 1, tzinfo=UTC)}, 1), ({"problem": "no login"}, 3)],
)  # fmt: skip
def test_a_pool_that_is_not_idle_is_not_stopped(idle: dict[str, Any], change: dict[str, Any], code: int) -> None:
    """`--stop-idle` reads the evidence again. If a GPU is in use, or its use is unknown, the stack file stays,
    and the exit code stops the following command."""
    idle.update(change)
    done = run("--stop-idle")
    assert done.return_value == code, done.exception
    assert Path("Pulumi.burst.yaml").read_text() == IDLE


def test_unread_evidence_is_reported(idle: dict[str, Any]) -> None:
    """If the evidence cannot be read, no pool is idle, and the exit code is 3."""
    idle["problem"] = "the credentials have expired"
    done = run()
    assert done.return_value == 3, done.exception
    assert "the energy readings were not read: the credentials have expired" in done.output


@pytest.fixture
def noticed(state: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A stack with one node, about which the cloud announced what the test sets in `notices`."""
    Path("Pulumi.burst.yaml").write_text(IDLE.replace("        idle_stop: 12h\n", ""))
    state.append(deployed(1))
    found: dict[str, Any] = {"notices": (), "problem": ""}

    def polled(resources: object) -> tuple[object, ...]:
        if found["problem"]:
            raise PortUnavailable(found["problem"])
        return (SimpleNamespace(verdict=SimpleNamespace(nodes=[SimpleNamespace(label="gpu-1")])),)

    monkeypatch.setattr("gpuinfra.verification.store.polled", polled)
    monkeypatch.setattr("gpuinfra.verification.nodes.notices_of", lambda poll, node: found["notices"])
    return found


@pytest.mark.parametrize(("ahead", "code", "shown"), [(60, 1, "soon"), (-60, 0, "done")])
def test_notices_are_dates_of_their_node(noticed: dict[str, Any], ahead: int, code: int, shown: str) -> None:
    """With `--notices`, the deadline of a notice is a date that is soon, and done afterwards. A notice without a deadline is no date."""
    at = datetime.now(UTC) + timedelta(seconds=ahead)
    spot = Notice("1", NoticeKind.RECLAIM, "spot interruption: terminate", at.timestamp())
    noticed["notices"] = (spot, Notice("2", NoticeKind.REBALANCE, "rebalance recommendation", None))
    done = run("--notices", "--json", "--at", iso(datetime.now(UTC)))
    assert done.return_value == code, done.exception
    (event,) = json.loads(done.output)["events"]
    assert (event["group"], event["what"], event["state"], event["by"]) == ("gpu-1", spot.what, shown, "AWS")
    assert json.loads(run("--json").output)["events"] == []


def test_notices_that_cannot_be_read_are_reported(noticed: dict[str, Any]) -> None:
    """If the evidence cannot be read, the exit code is 3."""
    noticed["problem"] = "the credentials have expired"
    done = run("--notices")
    assert done.return_value == 3, done.exception
    assert "the notices were not read: the credentials have expired" in done.output
