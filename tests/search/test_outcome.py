"""Why nodes are missing: the errors of the engine and the state, on each cloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.engine.up import EngineFailure
from gpuinfra.handover import wire
from gpuinfra.handover.causes import WaitEnd
from gpuinfra.handover.connect import ports_of
from gpuinfra.handover.ports import GroupExpected, Member, PortUnavailable
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.rules import load_stack
from gpuinfra.search import outcome
from gpuinfra.search.outcome import group_types, groups_in, missing_nodes, running_groups, summary
from tests.rules.cases import TODAY

from .world import QUOTA, STOCK_OUT, THROTTLED, problem

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
    return build_plan(load_stack(stack, TODAY).spec, TODAY)


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
        found = missing_nodes(plan, [], [EngineFailure(urn=urn(stack, f"{plan.name}-{group.name}"), message=message)])
        assert found is not None
        assert (found.pools, bool(found.final)) == ((plan.pools[0].name,), final), message
        assert found.shortages[0].group == group.name


def test_other_error_of_the_engine_is_no_shortage() -> None:
    """If another resource fails too, the deployment did not fail for lack of capacity."""
    plan = plan_of("aws-p4d")
    refused = EngineFailure(urn=urn("aws-p4d", "train-gpu-spot-0"), message=STOCK_OUT)
    other = EngineFailure(
        urn=urn("aws-p4d", "train-scratch", "aws:fsx/lustreFileSystem:LustreFileSystem"), message="no"
    )
    stack = EngineFailure(urn="urn:pulumi:s::p::pulumi:pulumi:Stack::p-s", message="update failed")
    assert missing_nodes(plan, [], [refused, other]) is None
    assert missing_nodes(plan, [], [refused, stack, EngineFailure(urn="", message="update failed")]) is not None


READY = [EngineFailure(urn=urn("aws-p4d", "train-ready", wire.TYPE), message="0 of 4 nodes verified", saved=True)]


def handover(message: str = STOCK_OUT, *nodes: str) -> dict[str, Any]:
    """A handover in the state, with the message about a group, and nodes with these outcomes."""
    found = problem("gpu-spot-0", message)
    return {
        "type": wire.TYPE, "urn": READY[0].urn,
        "outputs": {
            "nodes": [{"instanceId": f"i-{number}", "outcome": outcome} for number, outcome in enumerate(nodes)],
            "shortages": [
                {
                    "pool": "gpu", "group": "gpu-spot-0", "kind": "spot", "zone": "use1-az4", "missing": 2,
                    "cause": found.cause.value, "message": message, "hint": found.hint,
                }
            ],
        },
    }  # fmt: skip


def test_the_shortages_are_those_in_the_state() -> None:
    """The cause, the zone and the message come from the state. A quota is final, and a node that failed its checks stops the search."""
    plan = plan_of("aws-p4d")
    found = missing_nodes(plan, [handover()], READY)
    assert found is not None
    assert [(one.group, one.zone, one.cause.value, one.message) for one in found.shortages] == [
        ("gpu-spot-0", "use1-az4", "stock-out", STOCK_OUT)
    ]
    assert (found.final, found.pools) == ((), ("gpu",))
    found = missing_nodes(plan, [handover(QUOTA)], READY)
    assert found is not None
    assert [one.cause.value for one in found.final] == ["quota"]
    assert missing_nodes(plan, [handover(STOCK_OUT, "verified", "waiting")], READY) is not None
    assert missing_nodes(plan, [handover(STOCK_OUT, "verified", "failed")], READY) is None


def test_throttling_is_the_reason_only_without_another_one() -> None:
    """A group that is only throttled tries again, so the other group determines what happens. If all are throttled, no other placement helps."""
    plan = plan_of("aws-p4d")
    spot, reserved = [
        EngineFailure(urn=urn("aws-p4d", f"train-{name}"), message=message)
        for name, message in (("gpu-spot-0", STOCK_OUT), ("gpu-reserved-0", THROTTLED))
    ]
    found = missing_nodes(plan, [], [spot, reserved])
    assert found is not None
    assert [one.group for one in found.shortages] == ["gpu-spot-0"]
    found = missing_nodes(plan, [], [reserved])
    assert found is not None
    assert (found.pools, [one.message for one in found.final], found.lasting) == (("gpu",), [THROTTLED], ())
    found = missing_nodes(plan, [handover(THROTTLED)], READY)
    assert found is not None
    assert (len(found.final), found.lasting) == (1, ())
    found = missing_nodes(plan, [handover(QUOTA)], READY)
    assert found is not None
    assert found.lasting == found.final


def test_a_handover_that_did_not_reach_the_cloud_has_no_answer() -> None:
    """The state says that the nodes were not read, so the reason is unknown, unless a node failed its checks."""
    plan, state = plan_of("aws-p4d"), handover(STOCK_OUT)
    state["outputs"] |= {"ended": WaitEnd.UNREACHABLE.value, "shortages": []}
    with pytest.raises(PortUnavailable, match="the handover did not reach the cloud"):
        missing_nodes(plan, [state], READY)
    assert missing_nodes(plan, [handover(STOCK_OUT, "failed") | {"urn": READY[0].urn}, state], READY) is None


def test_only_the_state_of_this_deployment_counts() -> None:
    """If the handover failed before it wrote its state, the shortages of an earlier deployment are no reason to search."""
    plan = plan_of("aws-p4d")
    assert missing_nodes(plan, [handover()], [replace(READY[0], saved=False)]) is None
    other = {**handover(), "urn": urn("aws-p4d", "other-ready", wire.TYPE)}
    assert missing_nodes(plan, [other], READY) is None


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
    members: list[Member],
    before: tuple[str, ...] | None,
    running: tuple[str, ...],
    refused: bool,
) -> None:
    """A pool that had nodes before the run and has nodes now cannot move, even if its group replaced them. A pool without nodes can."""
    plan = plan_of("aws-p4d")
    failures = [EngineFailure(urn=urn("aws-p4d", "train-gpu-spot-0"), message=STOCK_OUT)] if refused else READY
    resources = [in_state("train-gpu-spot-0"), in_state("train-other-0", "asg-2"), handover()]
    members.append(member("asg-2"))
    found = missing_nodes(plan, resources, failures, before)
    assert found is not None
    assert found.running == ()
    members.append(member("asg-1", leaving=True))
    found = missing_nodes(plan, resources, failures, before)
    assert found is not None
    assert found.running == ()
    members.append(member("asg-1"))
    found = missing_nodes(plan, resources, failures, before)
    assert found is not None
    assert found.running == running


def handover_of_group(group: str, missing: int, *nodes: str) -> dict[str, Any]:
    """A handover in the state in which a group lacks nodes. `nodes` are the groups of the launched nodes."""
    found = handover()
    (shortage,) = found["outputs"]["shortages"]
    outputs = {
        "nodes": [{"instanceId": f"i-{number}", "group": name, "outcome": "verified"} for number, name in enumerate(nodes)],
        "shortages": [{**shortage, "group": group, "missing": missing}],
    }  # fmt: skip
    return {**found, "outputs": outputs}


@pytest.mark.parametrize(("missing", "partly"), [(2, ("gpu",)), (4, ())])
def test_a_pool_with_some_of_its_nodes_is_partly_launched(missing: int, partly: tuple[str, ...]) -> None:
    """A group of 4 nodes with 2 missing nodes is partly launched, and one with 4 missing nodes is not."""
    plan, group = plan_of("azure-ndv4"), "gpu-on-demand-0"
    state = handover_of_group(group, missing, *[group] * (4 - missing))
    found = missing_nodes(plan, [state], READY)
    assert found is not None
    assert (found.pools, found.partly) == (("gpu",), partly)


@pytest.mark.parametrize(("nodes", "partly"), [(("gpu-reserved-0",) * 2, ("gpu",)), ((), ()), (("other-0",), ())])
def test_a_group_without_a_shortage_counts_only_with_nodes(nodes: tuple[str, ...], partly: tuple[str, ...]) -> None:
    """A group whose launches are throttled has no shortage in the state, and no node either, so it is not a launched one."""
    found = missing_nodes(plan_of("aws-p4d"), [handover_of_group("gpu-spot-0", 2, *nodes)], READY)
    assert found is not None
    assert (found.pools, found.partly) == (("gpu",), partly)


def test_a_refused_group_keeps_its_pool_only_with_nodes_in_the_cloud(members: list[Member]) -> None:
    """If one of two groups of a pool is refused, the pool is partly launched only if one of them has nodes. Other pools do not count."""
    plan = plan_of("aws-p4d")
    failures = [EngineFailure(urn=urn("aws-p4d", "train-gpu-spot-0"), message=STOCK_OUT)]
    resources = [in_state("train-gpu-reserved-0"), in_state("train-other-0", "asg-2")]
    members.append(member("asg-2"))
    for node, partly in ((member("asg-1", leaving=True), ()), (member("asg-1"), ("gpu",))):
        members.append(node)
        found = missing_nodes(plan, resources, failures, keeps=True)
        assert found is not None
        assert (found.running, found.partly) == ((), partly)


def test_launched_nodes_are_read_only_if_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `--keep-trying`, a cloud that does not answer about launched nodes does not end the search."""

    def unread(*_: object, **__: object) -> None:
        raise PortUnavailable("503")

    monkeypatch.setattr(outcome, "ports_of", unread)
    failures = [EngineFailure(urn=urn("aws-p4d", "train-gpu-spot-0"), message=STOCK_OUT)]
    found = missing_nodes(plan_of("aws-p4d"), [in_state("train-gpu-reserved-0")], failures)
    assert found is not None
    assert found.partly == ()
    with pytest.raises(PortUnavailable):
        missing_nodes(plan_of("aws-p4d"), [in_state("train-gpu-reserved-0")], failures, keeps=True)


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


def test_failure_that_is_not_about_a_resource_is_no_shortage() -> None:
    """A lock, or an error of the program, does not start a search, even if a group reports missing capacity."""
    plan = plan_of("aws-p4d")
    assert missing_nodes(plan, [handover()], []) is None
    stack = EngineFailure(
        urn="urn:pulumi:s::p::pulumi:pulumi:Stack::p-s", message="the stack is currently locked by 1 lock(s)"
    )
    assert missing_nodes(plan, [handover()], [stack]) is None
    assert missing_nodes(plan, [handover()], READY) is not None


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
