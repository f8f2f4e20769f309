"""B8: the result of the fabric test between the nodes of a pool (`fabric_service.py`)."""

from __future__ import annotations

import enum
from typing import Any, Mapping

from ..answer import Answers
from ..cause import Action, Cause, FaultyPart
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, failed, passed, shortened, warned
from .base import Check, json_object
from .conditions import fabric_test
from .speed import PairReduce

SCHEMA = "gpuinfra.fabric-result/1"


class TestState(str, enum.Enum):
    """The state of the stored result of a node."""

    WAITING = "waiting"
    """The node has no result yet. The handover waits for the result (`handover/judge.py`)."""
    GOOD = "good"
    SLOW = "slow"
    UNKNOWN = "unknown"
    """The test had no good pair. A later test with another node can pass."""


class Waits(str, enum.Enum):
    """What a waiting node waits for: the field `cause` of its stored result."""

    FIRST_EVIDENCE = "first-evidence"
    """The checks of this boot have not finished. No evidence can contain this cause."""
    CHECKS = "checks"
    """Other checks of the node have not passed."""
    GPUS = "gpus"
    """Processes use the GPUs, or nvidia-smi does not list them."""
    PARTNER = "partner"
    """The node has no measurement, for example because its service was restarted."""
    BUCKET = "bucket"
    """The evidence bucket does not respond, or a setting is wrong."""


class FabricTest(Check):
    """An all-reduce with another node of the pool passes check B3, and both nodes agree that it passed.

    The handover selects the partners, so that a slow node differs from a slow path."""

    id, name = "B8", "fabric_test"
    phase, severity = Phase.SPEED, Severity.DRAIN
    when = (fabric_test,)
    action = Action.REBOOT
    fault = FaultyPart.FABRIC
    may_warn = True
    probes = ("fabric-result",)
    hint = (
        "compare N1, N2, N5 and N7 with a fast node; if the test fails again after a reboot, replace the node; to hand over without this test, set "
        "handover.fabric_test to off"
    )
    source = "the floors of B3; docs/internals/decisions/pairs.md describes the test"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, Any]:
        if answers.raw("fabric-result").exit != 0:
            return {"state": TestState.WAITING.value, "reason": "no command has asked this node for the fabric test"}
        result = json_object(answers.text("fabric-result"), "the result of the fabric test")
        if result.get("schema") != SCHEMA or result.get("state") not in [state.value for state in TestState]:
            raise Unreadable("the result of the fabric test has an unknown format")
        return result

    def judge(self, found: dict[str, Any], machine: Machine) -> CheckOutcome:
        state, reason = TestState(found["state"]), shortened(str(found.get("reason") or ""), 400)
        if state is TestState.WAITING:
            return warned(state.value, "good", reason or "the node has no partner yet", cause=Cause.UNTESTED)
        # The raw output decides. The verdict of all nodes can only make a result worse.
        outcome = _measured(found.get("pair"), machine)
        if outcome.outcome != "pass":
            if state is not TestState.UNKNOWN:
                return outcome
            why = (
                "%s; no pair of this test reached the floor, so the fabric or the floor can be the cause"
                % outcome.reason
            )
            return failed(outcome.found, outcome.expected, why, outcome.unit, cause=Cause.NO_GOOD_PAIR)
        if state is not TestState.GOOD:
            cause = Cause.NO_GOOD_PAIR if state is TestState.UNKNOWN else None
            return failed(state.value, "good", reason or "the partner's all-reduce failed", cause=cause)
        others = found.get("slow_paths")
        if isinstance(others, list) and others:
            named = shortened(", ".join(str(one) for one in others), 200)
            return warned(
                outcome.found,
                outcome.expected,
                "the path to %s is slow, although both nodes are good" % named,
                outcome.unit,
            )
        return passed(outcome.found, outcome.expected, outcome.unit)


def _measured(record: object, machine: Machine) -> CheckOutcome:
    """Judge the raw output of one all-reduce as check B3 does."""
    if not isinstance(record, Mapping):
        raise Unreadable("the result of the fabric test contains no measurement")
    check = PairReduce()
    return check.judge(check.parse(Answers({"pair": record}), machine), machine)
