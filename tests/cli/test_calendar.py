"""The command `gpuinfra calendar`: options, exit codes, and its output. The state and the search are stand-ins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.cli import calendar as cli
from gpuinfra.cli import stacks
from gpuinfra.cli.stack_context import ActiveStack
from gpuinfra.clouds.aws import offerings
from gpuinfra.clouds.aws.preflight import Preflight
from gpuinfra.clouds.offerings import Offering, Wanted
from gpuinfra.clouds.preflight import Unanswered
from gpuinfra.errors import EnvironmentMissing, SpecError, UsageError
from gpuinfra.handover.ports import GroupExpected, Member, PortUnavailable
from gpuinfra.handover.wire import TYPE
from gpuinfra.remote.hosts import Hosts

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
    """The resources of the stack `burst` in the current folder. The test fills them in."""
    (tmp_path / "Pulumi.burst.yaml").write_text(STACK)
    monkeypatch.chdir(tmp_path)
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(stacks, "exported", lambda name: found)
    return found


def deployed(nodes: int) -> dict[str, Any]:
    """The handover of a stack that expects this number of nodes."""
    group = {"name": "gpu-block-0", "group": "burst-gpu-block-0-abc", "count": nodes}
    pool = {"name": "gpu", "machine": "p5.48xlarge", "expectation": {}, "groups": [group]}
    return {"type": TYPE, "custom": True, "outputs": {"pools": [pool]}}


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


def test_errors_of_the_declaration_are_reported_except_an_ended_block(state: list[dict[str, Any]]) -> None:
    """An ended block is a date. Other errors stop the command."""
    state.append(deployed(0))
    Path("Pulumi.burst.yaml").write_text(STACK.replace("count: 2", "count: 65"))
    done = run("--at", "2026-12-09T12:00:00Z")
    assert isinstance(done.exception, SpecError)
    assert "64 nodes" in str(done.exception)
    assert "has passed" not in str(done.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--days", "3"], "add --offers"),
        (["--direct"], "add --drain"),
        (["--offline", "--offers"], "omit --offline"),
        (["--offline", "--drain", "5"], "omit --offline"),
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
    assert "on AWS, but burst is on gcp; omit --offers" in str(done.exception)


@pytest.mark.parametrize(("result", "code"), [("2 processes stopped", 0), (f"{cli.NOT_STOPPED}: no route", 1)])
def test_jobs_that_could_not_be_stopped_change_the_exit_code(
    state: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, result: str, code: int
) -> None:
    """If nothing is due or soon, the exit code is 0 if all jobs were stopped, and 1 otherwise. The end of a node is part of its line."""
    node = {"label": "gpu-1", "instanceId": "i-1", "pool": "gpu", "group": "gpu-block-0", "outcome": "verified"}
    one = deployed(2)
    one["outputs"]["nodes"] = [node]
    state.append(one)
    monkeypatch.setattr(ActiveStack, "hosts", lambda *_: Hosts(hosts=()))
    monkeypatch.setattr(cli, "_stopped", lambda connector, host: result)
    at = ("--at", "2026-12-08T10:00:00Z", "--within", "0")
    done = run(*at, "--drain", "55")
    assert done.return_value == code, done.exception
    assert f"gpu-1 (i-1): {result}; removed at 2026-12-08T10:55:00Z" in done.output
    assert "gpu-1" not in run(*at, "--drain", "54").output


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
