"""Why nodes are missing: the errors of the engine and the messages of the groups, on each cloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.engine.up import Failure
from gpuinfra.handover import wire
from gpuinfra.handover.connect import ports_of
from gpuinfra.handover.explain import reasons
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict
from gpuinfra.handover.ports import GroupExpected, GroupProblem, Member
from gpuinfra.handover.watch import DEADLINE_TEXT, Outcome
from gpuinfra.plan.make import make_plan
from gpuinfra.plan.model import Plan
from gpuinfra.rules import load_stack
from gpuinfra.search import outcome
from gpuinfra.search.outcome import group_types, groups_in, running_groups, shortage, summary
from tests.rules.cases import TODAY

from .world import QUOTA, STOCK_OUT, problem

GROUPS = {
    "aws-p4d": "aws:autoscaling/group:Group",
    "azure-ndv4": "azure-native:compute:VirtualMachineScaleSet",
    "gcp-a3high": "gcp:compute/instanceGroupManager:InstanceGroupManager",
}
MESSAGES = {
    "aws-p4d": (STOCK_OUT, QUOTA),
    "azure-ndv4": (
        'Code="AllocationFailed" Message="Allocation failed. We do not have sufficient capacity for the requested VM size in this region."',
        "OperationNotAllowed: Operation could not be completed as it results in exceeding approved Total Regional Cores quota.",
    ),
    "gcp-a3high": (
        "ZONE_RESOURCE_POOL_EXHAUSTED: The zone 'projects/p/zones/us-central1-a' does not have enough resources available to fulfill the request.",
        "Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally.",
    ),
}


def plan_of(stack: str) -> Plan:
    """The plan of a shipped stack."""
    return make_plan(load_stack(stack, TODAY).spec, TODAY)


def urn(stack: str, name: str, kind: str = "") -> str:
    """The URN of a resource in a pool."""
    return f"urn:pulumi:{stack}::gpuinfra::gpuinfra:index:GpuCluster$x:NodePool${kind or GROUPS[stack]}::{name}"


@pytest.mark.parametrize("stack", GROUPS)
def test_refused_group_is_a_shortage_only_without_capacity(stack: str) -> None:
    """On each cloud, an error of the engine about a group is classified with the table of the cloud, and a quota is final."""
    plan = plan_of(stack)
    group = plan.pools[0].groups[0]
    assert group_types(plan.cloud) == {GROUPS[stack]}
    capacity, quota = MESSAGES[stack]
    for message, final in ((capacity, False), (quota, True), ("The moon is full.", True)):
        found = shortage(plan, [], [Failure(urn=urn(stack, f"{plan.name}-{group.name}"), message=message)])
        assert found is not None
        assert (found.pools, bool(found.final)) == ((plan.pools[0].name,), final), message
        assert found.problems[0].name == group.name


def test_other_error_of_the_engine_is_no_shortage() -> None:
    """If another resource fails too, the deployment did not fail for lack of capacity."""
    plan = plan_of("aws-p4d")
    refused = Failure(urn=urn("aws-p4d", "train-gpu-spot-0"), message=STOCK_OUT)
    other = Failure(urn=urn("aws-p4d", "train-scratch", "aws:fsx/lustreFileSystem:LustreFileSystem"), message="no")
    stack = Failure(urn="urn:pulumi:s::p::pulumi:pulumi:Stack::p-s", message="update failed")
    assert shortage(plan, [], [refused, other]) is None
    assert shortage(plan, [], [refused, stack, Failure(urn="", message="update failed")]) is not None


def node(result: str, *, settled: bool = True, instance_id: str = "i-1", needs_partner: bool = False) -> NodeVerdict:
    """A node of pool `gpu` with this outcome."""
    found = object.__new__(NodeVerdict)
    for name, value in (
        ("outcome", result),
        ("settled", settled),
        ("instance_id", instance_id),
        ("pool", "gpu"),
        ("untested", needs_partner),
    ):
        object.__setattr__(found, name, value)
    return found


@pytest.fixture
def handover(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The nodes and the messages that the groups report."""
    said: dict[str, Any] = {"nodes": (), "missing": {"gpu-spot-0": 2}, "problems": []}

    class Gatherer:
        def problems(self, missing: dict[str, int]) -> list[GroupProblem]:
            return [one for one in said["problems"] if one.name in missing]

    class Poll:
        gatherer = Gatherer()

        @property
        def verdict(self) -> FleetVerdict:
            return FleetVerdict(nodes=said["nodes"], missing=said["missing"])

    monkeypatch.setattr(outcome, "polled", lambda resources: (Poll(),))
    return said


READY = [Failure(urn=urn("aws-p4d", "train-ready", wire.TYPE), message="0 of 4 nodes verified")]


def at(second: int) -> datetime:
    """A time."""
    return datetime(2026, 11, 23, 6, 0, second, tzinfo=UTC)


def test_latest_message_of_a_group_counts(handover: dict[str, Any]) -> None:
    """A quota that was raised since does not end the search, and throttling is not a reason."""
    plan = plan_of("aws-p4d")
    handover["problems"] = [
        replace(problem("gpu-spot-0", "RequestLimitExceeded: Request limit exceeded."), at=at(9)),
        replace(problem("gpu-spot-0", STOCK_OUT), at=at(5)),
        replace(problem("gpu-spot-0", QUOTA), at=at(1)),
    ]
    found = shortage(plan, [], READY)
    assert found is not None
    assert [one.message for one in found.problems] == [STOCK_OUT]
    assert (found.final, found.pools) == ((), ("gpu",))


def test_failed_node_is_no_shortage(handover: dict[str, Any]) -> None:
    """If a node failed its checks, another placement is not tried."""
    plan = plan_of("aws-p4d")
    handover["problems"] = [problem("gpu-spot-0", STOCK_OUT)]
    assert shortage(plan, [], READY) is not None
    handover["nodes"] = (node("failed"),)
    assert shortage(plan, [], READY) is None


LATE = [replace(READY[0], message="0 of 4 nodes verified after 3600 s (the deadline passed)")]


def test_silent_group_is_a_shortage_after_the_deadline(handover: dict[str, Any]) -> None:
    """A group without a message is a shortage only if the deadline passed, and only if no launched node has still to report."""
    plan = plan_of("aws-p4d")
    assert shortage(plan, [], READY) is None
    found = shortage(plan, [], LATE)
    assert found is not None
    assert [(one.kind, one.name) for one in found.problems] == [("no-message", "gpu-spot-0")]
    assert (found.final, found.pools) == ((), ("gpu",))
    assert found.problems[0].message == "2 nodes not launched before the deadline, and the cloud reported no reason"
    handover["nodes"] = (node("verified"),)
    assert shortage(plan, [], LATE) is not None
    handover["nodes"] = (node("verified"), node("waiting", settled=False))
    assert shortage(plan, [], LATE) is None
    handover["nodes"], handover["problems"] = (), [problem("gpu-spot-0", QUOTA)]
    found = shortage(plan, [], LATE)
    assert found is not None
    assert [one.kind for one in found.final] == ["quota"]


def test_the_error_of_the_handover_states_that_the_deadline_passed() -> None:
    """The search recognizes the deadline in the text that the handover writes."""
    late = Outcome(verdict=FleetVerdict(nodes=(), missing={"gpu-spot-0": 2}), ready=False, ended="deadline", seconds=9)
    full = replace(late, ended="stock-out", problems=(problem("gpu-spot-0", STOCK_OUT),))
    assert [DEADLINE_TEXT in "\n".join(reasons(one)) for one in (late, full)] == [True, False]


def in_state(name: str, id: str = "asg-1") -> dict[str, str]:
    """A group in the state."""
    return {"type": "aws:autoscaling/group:Group", "urn": urn("aws-p4d", name), "id": id}


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> list[Member]:
    """The nodes in the cloud."""
    found: list[Member] = []

    class Membership:
        def members(self, groups: Sequence[GroupExpected]) -> list[Member]:
            return [one for one in found if one.group in {group.group for group in groups}]

    monkeypatch.setattr(outcome, "ports_of", lambda cloud, **_: SimpleNamespace(membership=Membership()))
    return found


def member(group: str, *, leaving: bool = False) -> Member:
    """A node of a group."""
    return Member(instance_id="i-1", group=group, template_version="1", launched=None, zone="", leaving=leaving)


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize(
    ("before", "running"),
    [((), ()), (("train-other-0",), ()), (("train-gpu-spot-0",), ("gpu",)), (None, ("gpu",))],
)
def test_groups_with_nodes_from_before_the_run_are_found(
    handover: dict[str, Any],
    members: list[Member],
    before: tuple[str, ...] | None,
    running: tuple[str, ...],
    refused: bool,
) -> None:
    """A pool that had nodes before the run and has nodes now cannot move, even if its group replaced them. A pool without nodes can."""
    plan = plan_of("aws-p4d")
    handover["problems"] = [problem("gpu-spot-0", STOCK_OUT)]
    failures = [Failure(urn=urn("aws-p4d", "train-gpu-spot-0"), message=STOCK_OUT)] if refused else READY
    resources = [in_state("train-gpu-spot-0"), in_state("train-other-0", "asg-2")]
    members.append(member("asg-2"))
    found = shortage(plan, resources, failures, before)
    assert found is not None
    assert found.running == ()
    members.append(member("asg-1", leaving=True))
    found = shortage(plan, resources, failures, before)
    assert found is not None
    assert found.running == ()
    members.append(member("asg-1"))
    found = shortage(plan, resources, failures, before)
    assert found is not None
    assert found.running == running


def test_running_groups_are_read_from_the_cloud(members: list[Member]) -> None:
    """Without groups in the state, the cloud is not read. Otherwise, its nodes count, and not those in the state."""
    assert running_groups("aws", "us-east-1", [{"type": wire.TYPE, "urn": "urn", "id": "x"}]) == frozenset()
    members.append(member("asg-2"))
    rows = [in_state("train-gpu-spot-0"), in_state("train-other-0", "asg-2"), in_state("train-new-0", "")]
    assert running_groups("aws", "us-east-1", rows) == {"train-other-0"}


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_members_are_read_without_a_bucket(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On each cloud, the members of groups can be read without an evidence bucket, so that a stack without a handover can be read."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert ports_of(cloud, region="us-east-1", evidence_bucket="", evidence_prefix="").membership.members([]) == []


def test_failure_that_is_not_about_a_resource_is_no_shortage(handover: dict[str, Any]) -> None:
    """A lock, or an error of the program, does not start a search, even if a group reports missing capacity."""
    plan = plan_of("aws-p4d")
    handover["problems"] = [problem("gpu-spot-0", STOCK_OUT)]
    assert shortage(plan, [], []) is None
    stack = Failure(
        urn="urn:pulumi:s::p::pulumi:pulumi:Stack::p-s", message="the stack is currently locked by 1 lock(s)"
    )
    assert shortage(plan, [], [stack]) is None
    assert shortage(plan, [], READY) is not None


def test_groups_of_a_pool_are_found_in_the_state() -> None:
    """Only groups of these pools are found, not their templates and not groups of other stacks."""
    plan = plan_of("aws-p4d")
    rows = [
        {"type": kind, "urn": urn("aws-p4d", name, kind)}
        for kind, name in (
            ("aws:autoscaling/group:Group", "train-gpu-spot-0"),
            ("aws:ec2/launchTemplate:LaunchTemplate", "train-gpu-spot-0"),
            ("aws:autoscaling/group:Group", "other-gpu-spot-0"),
        )
    ]
    assert groups_in(plan, rows, ["gpu"]) == [rows[0]["urn"]]
    assert groups_in(plan, rows, ["cpu"]) == []
    assert summary([{"type": wire.TYPE, "outputs": {"summary": "4 of 4 nodes"}}, rows[0]]) == "4 of 4 nodes"
