"""B8: the result of the fabric test between the nodes of a pool (`fabric_service.py`)."""

from __future__ import annotations

from typing import Any, Mapping

from ..answer import Answers
from ..cause import Cause
from ..expectation import Machine
from ..outcome import Outcome, Phase, Severity, Unreadable, failed, passed, shortened, warned
from .base import Check, json_object
from .speed import PairReduce

CHECK = "B8"
SCHEMA = "gpuinfra.fabric-result/1"
WAITING = "waiting"
"""The found value of a node that has no result yet. The handover waits for the result (`handover/judge.py`)."""


UNKNOWN = "unknown"
"""The state of a node whose test had no good pair. A later test with another node can pass."""
NO_GOOD_PAIR = "no pair of this test reached the floor"


class FabricTest(Check):
    """An all-reduce with another node of the pool passes check B3, and both nodes agree that it passed.
    The nodes select the partners in rounds, so that a slow node differs from a slow path."""

    id, name = CHECK, "fabric_test"
    phase, severity = Phase.SPEED, Severity.DRAIN
    probes = ("fabric-result",)
    hint = (
        "compare N1, N2, N5 and N7 with a fast node, and terminate the instance so that its group replaces it; to hand over without this test, set "
        "handover.fabric_test to off"
    )
    source = "the floors of B3; docs/internals/decisions/pairs.md describes the rounds"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, Any]:
        if answers.raw("fabric-result").exit != 0:
            return {"state": WAITING, "reason": "the fabric test has not started on this node"}
        found = json_object(answers.text("fabric-result"), "the result of the fabric test")
        if found.get("schema") != SCHEMA or found.get("state") not in (WAITING, "good", "slow", UNKNOWN):
            raise Unreadable("the result of the fabric test has an unknown format")
        return found

    def judge(self, found: dict[str, Any], machine: Machine) -> Outcome:
        state, reason = found["state"], shortened(str(found.get("reason") or ""), 400)
        if state == WAITING:
            return warned(WAITING, "good", reason or "the node has no partner yet", cause=Cause.UNTESTED)
        # The raw output decides. The verdict of all nodes can only make a result worse.
        outcome = _measured(found.get("pair"), machine)
        if outcome.outcome != "pass":
            why = "%s; %s, so the fabric or the floor can be the cause" % (outcome.reason, NO_GOOD_PAIR)
            return (
                outcome
                if state != UNKNOWN
                else failed(outcome.found, outcome.expected, why, outcome.unit, cause=Cause.NO_GOOD_PAIR)
            )
        if state != "good":
            cause = Cause.NO_GOOD_PAIR if state == UNKNOWN else None
            return failed(state, "good", reason or "the partner's all-reduce failed", cause=cause)
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


def _measured(record: object, machine: Machine) -> Outcome:
    """Judge the raw output of one all-reduce as check B3 does."""
    if not isinstance(record, Mapping):
        raise Unreadable("the result of the fabric test contains no measurement")
    check = PairReduce()
    return check.judge(check.parse(Answers({"pair": record}), machine), machine)
