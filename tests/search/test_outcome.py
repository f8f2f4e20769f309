"""Why nodes are missing: the errors of the engine and the messages of the groups, on each cloud."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuinfra.engine.up import Failure
from gpuinfra.handover import wire
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict
from gpuinfra.handover.ports import GroupProblem
from gpuinfra.plan.model import Plan
from gpuinfra.planning import make_plan
from gpuinfra.rules import load_stack
from gpuinfra.search import outcome
from gpuinfra.search.outcome import group_types, groups_in, shortage, summary
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


def node(result: str) -> NodeVerdict:
    """A node with this outcome."""
    found = object.__new__(NodeVerdict)
    object.__setattr__(found, "outcome", result)
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


def test_failed_node_or_silent_group_is_no_shortage(handover: dict[str, Any]) -> None:
    """If a node failed its checks, or no group reports a message, another placement is not tried."""
    plan = plan_of("aws-p4d")
    assert shortage(plan, [], READY) is None
    handover["problems"] = [problem("gpu-spot-0", STOCK_OUT)]
    assert shortage(plan, [], READY) is not None
    handover["nodes"] = (node("failed"),)
    assert shortage(plan, [], READY) is None


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
