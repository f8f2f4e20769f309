"""The scenarios of `gpuinfra up` with the real engine: outcome, message, attempts, leftovers, preview and simulated minutes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuinfra.base.day import today
from gpuinfra.engine import find_engine
from gpuinfra.engine.up import remove
from gpuinfra.handover.causes import CapacityCause
from gpuinfra.inventory import nodes_of
from gpuinfra.node.journal import write_whole
from gpuinfra.plan.make import build_plan
from gpuinfra.search.outcome import group_types
from gpuinfra.search.placements import DECLARED, stack_for
from gpuinfra.spec.load import read_stack
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, open_session

from .conftest import command
from .scenario_time import Tried, minutes
from .scenarios import FAILED, LONG, NOT_DEPLOYED, READY, RESULTS, SCENARIOS, Scenario, recorded
from .test_search import Run

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

THROTTLED = ("Throttling", "OperationNotAllowed", "rateLimitExceeded")
"""Codes of the clouds for a throttled request."""
REFUSED = "1 error occurred:"
"""Start of the provider's message about a group that the cloud does not create."""


class Account:
    """One account for each cloud in turn, with its stack. The network remains between scenarios, and the groups do not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = contextlib.ExitStack()
        self._cloud = ""
        self._run: Run | None = None
        self.last: Scenario | None = None

    def at(self, one: Scenario) -> Run:
        """The run of the cloud of a scenario."""
        if self._run is None or self._cloud != one.cloud:
            self.close()
            folder = self._folder / one.cloud
            folder.mkdir()
            path = folder / f"Pulumi.find-{one.cloud}.yaml"
            path.write_text(
                yaml.safe_dump({"config": {one.place.setting: one.place.region, "gpuinfra:cluster": one.declaration()}})
            )
            options = Options(stack=str(path), folder=folder / "r")
            session = self._open.enter_context(open_session(options, view_for(io.StringIO())))
            self._run, self._cloud, self.last = Run(session, folder / "state"), one.cloud, None
        return self._run

    def close(self) -> None:
        """Stop the processes of the last cloud."""
        self._open.close()
        self._run = None


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """The accounts, which the scenarios of a cloud share."""
    found = Account(tmp_path_factory.mktemp("scenarios"))
    yield found
    found.close()


def prepare(run: Run, one: Scenario) -> str:
    """Write the declaration, and set the faults. Returns the text of the stack file."""
    run.session.cloud.ask("faults", {"faults": list(one.faults)})
    if one.external:
        run.session.cloud.ask("external", dict(one.external))
    run.deadline = one.deadline
    document = yaml.safe_load(run.file.read_text())
    document["config"]["gpuinfra:cluster"] = one.declaration()
    run.file.write_text(yaml.safe_dump(document, sort_keys=False))
    return run.file.read_text()


def keeps_group(last: Scenario, one: Scenario) -> bool:
    """Whether a scenario continues with the group of the last one, as a command that is repeated: the group exists without nodes."""
    fails = [(each.outcome, each.attempts, each.capacity) for each in (last, one)]
    return fails[0] == fails[1] == (FAILED, ("failed",), one.capacity) and not one.place.refuses_groups


def remove_groups(run: Run, cloud: str) -> None:
    """Remove the groups of the last scenario with their nodes."""
    types = group_types(cloud)
    urns = [str(row["urn"]) for row in run.session.pulumi.resources() if row.get("type") in types]
    if urns:
        engine = find_engine(lambda _: None)
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, environment(run.session.pulumi.env):
            remove(engine, run.session.folder.stack, run.session.folder.project, urns, output=nowhere)


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """The environment of the session in this process."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def until(found: Callable[[], Any], process: Any = None) -> Any:
    """Wait for a value, while a command runs if one is given."""
    limit = time.monotonic() + 900
    while not (value := found()):
        assert process is None or process.poll() is None, process and process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.1)
    return value


def alive(run: Run) -> list[dict[str, Any]]:
    """The nodes that are not terminated."""
    return [node for node in run.session.cloud.nodes() if node.get("stage") != "terminated"]


def perform(run: Run, one: Scenario) -> tuple[int, str]:
    """Run `gpuinfra up` with the incident of the scenario. Returns the exit code and the output."""
    if not one.incident:
        code, out, err = run.up()
        return code, out + err
    if one.incident in ("lose", "more"):
        return after_a_loss(run, one)
    process = run.start(*command("up", str(run.file), "--yes"))
    if one.incident == "evict":
        (node,) = until(lambda: alive(run), process)
        # Without the notice of up to two minutes, because these nodes start in less time.
        run.session.cloud.ask("terminate", {"instance_id": node["instance_id"]})
        out, err = process.communicate(timeout=1200)
        assert node["instance_id"] not in {each["instance_id"] for each in alive(run)}
        return process.returncode, out + err
    # The first placement has no capacity, so the first node is one of the second attempt. It has not reported yet.
    until(lambda: alive(run), process)
    assert len(run.journal()["attempts"]) == 2
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    code, _, err = run.up()
    assert (code, "add --resume to continue the run" in err) == (2, True), err
    run.deadline = "300s"
    code, out, err = run.up("--resume")
    return code, out + err


def after_a_loss(run: Run, one: Scenario) -> tuple[int, str]:
    """Deploy without faults, terminate a node, and deploy again with the faults. For `more`, the first deployment has one node, which its group replaces."""
    run.session.cloud.ask("faults", {"faults": []})
    run.deadline, text = LONG, run.file.read_text()
    if one.incident == "more":
        run.file.write_text(text.replace("count: 2", "count: 1"))
    code, out, err = run.up()
    assert code == 0, extract(out + err)
    first = alive(run)[0]["instance_id"]
    if one.incident == "more":
        run.session.cloud.ask("terminate", {"instance_id": first})
        until(lambda: alive(run) and alive(run)[0]["instance_id"] != first)
        run.file.write_text(text)
        run.session.cloud.ask("faults", {"faults": list(one.faults)})
    else:
        run.session.cloud.ask("faults", {"faults": list(one.faults)})
        run.session.cloud.ask("terminate", {"instance_id": first})
    run.deadline = one.deadline
    code, out, err = run.up()
    return code, out + err


def left_over(run: Run) -> list[str]:
    """What a failed attempt left: resources of the cloud that are not in the state, and nodes without a group in the state."""
    state = {(str(row["type"]), str(row.get("id"))) for row in run.session.pulumi.resources()}
    groups = {id.rpartition("/")[2] for _, id in state}
    found = [
        f"{row['type']} {row['id']}"
        for row in run.session.cloud.resources()
        if row.get("urn") and (row["type"], row["id"]) not in state
    ]
    return found + [
        f"node {node['label']}" for node in alive(run) if str(node["group"]).rpartition("/")[2] not in groups
    ]


def tried(one: Scenario, run: Run, text: str, attempts: list[dict[str, Any]]) -> list[Tried]:
    """The attempts of a run, for the simulated time."""
    declared = read_stack(run.file)
    found = []
    for index, attempt in enumerate(attempts):
        stack = stack_for(declared, text, {"gpu": index - 1} if index else {"gpu": DECLARED})
        problems = [row["message"] for row in attempt["problems"]]
        waited = bool(problems) and not any(message.startswith(REFUSED) for message in problems)
        found.append(
            Tried(
                plan=build_plan(stack.spec, today()),
                waited=waited,
                silent=any(row["kind"] == CapacityCause.NO_MESSAGE for row in attempt["problems"]),
                launched=attempt["result"] == READY or (waited and "partial" in one.title),
            )
        )
    return found


def result(run: Run, one: Scenario, text: str, before: set[tuple[str, str]]) -> dict[str, Any]:
    """What is recorded about a scenario."""
    attempts = [] if one.outcome == NOT_DEPLOYED else list(run.journal()["attempts"])
    changes = []
    if one.outcome == NOT_DEPLOYED:
        assert {(row["type"], row["id"]) for row in run.session.cloud.resources()} == before
    else:
        changes = [re.sub(r"(\S+) \S+::", r"\1 ", change) for change in run.changes()]
    after = run.file.read_text()
    run.file.write_text(text)
    delay = sum(float(fault.rpartition(":")[2]) for fault in one.faults if ":slow:gpu:" in fault)
    total, complete = minutes(tried(one, run, text, attempts), delay, deployed=one.incident in ("lose", "more"))
    run.file.write_text(after)
    return {
        "attempts": [
            {
                "placement": attempt["placements"]["gpu"],
                "result": attempt["result"],
                "kinds": sorted({row["kind"] for row in attempt["problems"]}),
            }
            for attempt in attempts
        ],
        "minutes": total,
        "minutes_complete": complete,
        "left_over": len(left_over(run)),
        "preview": sorted(changes),
    }


def extract(output: str) -> str:
    """The lines about errors, and the end of an output."""
    lines = output.splitlines()
    return "\n".join([*(line for line in lines if "rror" in line), "...", *lines[-60:]])


def check(one: Scenario, run: Run, code: int, output: str, text: str) -> None:
    """The exit code, the message, the attempts and the nodes are as expected."""
    assert (code == 0) == (one.outcome == READY), extract(output)
    assert one.message in output, extract(output)
    assert "Traceback" not in output
    if one.outcome == NOT_DEPLOYED:
        assert "nothing was created, because the checks found errors" in output
    else:
        assert tuple(attempt["result"] for attempt in run.journal()["attempts"]) == one.attempts, extract(output)
    if len(one.attempts) > 1 and one.outcome == FAILED and not one.other:
        assert run.groups() == []
        kept, zero = (
            re.search(rf"^  {choice} +(\S+ USD)", output, re.MULTILINE) for choice in ("keep", "scale_to_zero")
        )
        assert kept is not None
        assert zero is not None
        assert kept[1] == zero[1]
    if one.other:
        assert [(node.pool, node.outcome) for node in nodes_of(run.session.pulumi.resources())] == [("cpu", "verified")]
    if one.outcome != READY:
        assert yaml.safe_load(run.file.read_text()) == yaml.safe_load(text)
    assert len(alive(run)) == one.nodes
    assert left_over(run) == []


def record(name: str, found: dict[str, Any]) -> None:
    """Write a result. Results of scenarios that no longer exist are removed."""
    every = {**recorded(), name: found}
    text = json.dumps({each: every[each] for each in SCENARIOS if each in every}, indent=2) + "\n"
    write_whole(RESULTS, text)


def check_faults(one: Scenario, run: Run, calls: int) -> None:
    """Faults without a message of the cloud had an effect: requests were throttled, and the group launched its node late.
    `calls` is the last call before the command."""
    cloud = run.session.cloud
    for fault in one.faults:
        kind, _, target = fault.removeprefix("cloud:").partition(":")
        if kind == "throttled":
            errors = [call["error"] for call in cloud.ask(f"calls?since={calls}")["calls"]]
            assert sum(error in THROTTLED for error in errors) == int(target)
        elif kind == "slow" and one.attempts == (READY,):
            (created,) = (row["created"] for row in cloud.resources() if row["type"] in group_types(one.cloud))
            (node,) = alive(run)
            assert node["launched"] - created >= int(target.rpartition(":")[2])


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, account: Account) -> None:
    """Outcome, message, attempts and nodes are those of the scenario, nothing is left over, and the result is the recorded one."""
    one = SCENARIOS[name]
    run = account.at(one)
    if not (account.last and keeps_group(account.last, one)):
        remove_groups(run, one.cloud)
    text = prepare(run, one)
    try:
        before = {(row["type"], row["id"]) for row in run.session.cloud.resources()}
        calls = max((call["n"] for call in run.session.cloud.ask("calls")["calls"]), default=0)
        code, output = perform(run, one)
        check(one, run, code, output, text)
        check_faults(one, run, calls)
        found = result(run, one, text, before)
        if os.environ.get("RECORD_SCENARIOS"):
            record(name, found)
        assert recorded().get(name) == found
        if one.outcome == READY:
            assert found["preview"] == []
    finally:
        account.last = one
        run.session.cloud.ask("faults", {"faults": []})
        if one.external:
            # A quota without a limit, and a reservation of unknown size, do not refuse nodes.
            run.session.cloud.ask("external", {"id": one.external["id"]})
