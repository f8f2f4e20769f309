"""The groups that lack nodes at the end of a wait, and their way through the state."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpuinfra.clouds.aws.handover.ports import REFUSALS
from gpuinfra.handover import wire
from gpuinfra.handover.causes import CapacityCause, NodeCause, WaitEnd
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.handover.ports import GroupExpected, GroupProblem
from gpuinfra.handover.shortages import Shortage, shortages
from gpuinfra.handover.watch import WaitOutcome
from tests.report.samples import node

from .fleet import pool

STOCK_OUT = "Could not launch Spot Instances. InsufficientInstanceCapacity - There is no Spot capacity available that matches your request."
QUOTA = "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket"
THROTTLING = "RequestLimitExceeded: Request limit exceeded."
POOL = pool(groups=(GroupExpected(name="gpu-spot-0", group="asg-1", count=2, kind="spot", zone="use1-az4"),))


def problem(message: str, second: int | None = None) -> GroupProblem:
    """A classified message about the group, at this second."""
    at = None if second is None else datetime(2026, 11, 23, 6, 0, second, tzinfo=UTC)
    return replace(REFUSALS.problem("asg-1", message, at), name="gpu-spot-0")


def found(ended: WaitEnd, *problems: GroupProblem, nodes: tuple[Any, ...] = ()) -> list[Shortage]:
    """The shortages of a wait that ended with two missing nodes, after their way through the state."""
    verdict = FleetVerdict(nodes=nodes, missing={"gpu-spot-0": 2})
    outcome = WaitOutcome(verdict=verdict, ready=False, ended=ended, seconds=9.0, problems=problems)
    outputs = wire.outputs_of(outcome, shortages(outcome, [POOL]), "")
    assert outputs["ended"] == ended.value
    state = wire.from_struct(wire.to_struct(outputs))
    return wire.shortages_of(state)


def test_a_shortage_in_the_state_has_group_zone_cause_and_words() -> None:
    """Pool, group, kind of capacity, zone, count, cause, the cloud's own words and the hint survive the state."""
    (shortage,) = found(WaitEnd.STOCK_OUT, problem(STOCK_OUT, 1))
    hint = REFUSALS.of(STOCK_OUT).hint
    assert shortage == Shortage(
        pool="gpu", group="gpu-spot-0", kind="spot", zone="use1-az4", missing=2, cause=CapacityCause.STOCK_OUT,
        message=STOCK_OUT, hint=hint,
    )  # fmt: skip


def test_the_latest_message_that_is_not_throttling_is_the_cause() -> None:
    """A quota that was raised since is not the cause, nor is throttling. A group whose launches are only throttled is a shortage after the deadline."""
    messages = problem(THROTTLING, 9), problem(STOCK_OUT, 5), problem(QUOTA, 1)
    assert [one.message for one in found(WaitEnd.STOCK_OUT, *messages)] == [STOCK_OUT]
    assert [one.message for one in found(WaitEnd.STOCK_OUT, problem(QUOTA), problem(STOCK_OUT, 5))] == [STOCK_OUT]
    assert found(WaitEnd.STOCK_OUT, problem(THROTTLING, 9)) == []
    (throttled,) = found(WaitEnd.DEADLINE, problem(THROTTLING, 9))
    assert (throttled.cause, throttled.message) == (CapacityCause.THROTTLING, THROTTLING)
    assert found(WaitEnd.DEADLINE, problem(THROTTLING, 9), nodes=(node(outcome="waiting", settled=False),)) == []


def test_a_silent_group_is_a_shortage_after_the_deadline() -> None:
    """A group without a message is a shortage only if the deadline passed, and only if no launched node has still to report."""
    (silent,) = found(WaitEnd.DEADLINE)
    assert silent.cause is CapacityCause.NO_MESSAGE
    assert silent.message == "2 nodes not launched before the deadline, and the cloud reported no reason"
    assert found(WaitEnd.CANCELLED) == []
    assert found(WaitEnd.DEADLINE, nodes=(node(),)) == [silent]
    waiting = node(outcome="waiting", cause=NodeCause.UNTESTED, settled=False)
    assert found(WaitEnd.DEADLINE, nodes=(waiting,)) == [silent]
    assert found(WaitEnd.DEADLINE, nodes=(node(outcome="waiting", settled=False),)) == []
    assert [one.cause for one in found(WaitEnd.DEADLINE, problem(QUOTA))] == [CapacityCause.QUOTA]


def test_a_state_of_an_earlier_version_has_no_shortages() -> None:
    """A state without the output, or with a null value, is read."""
    assert wire.shortages_of({}) == wire.shortages_of({"shortages": None}) == []
