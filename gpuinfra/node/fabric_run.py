"""Runs the protocol of `fabric.py` with a store, and measures pairs.

Each all-reduce is `node.pyz pair` in a separate process, because a collective that hangs ends only with its process. Check B3 judges it with the machine's
floor and the expected NCCL plugin.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from . import fabric
from .console import NO_PARTNER, print_message
from .judge import judge
from .probe import run as run_probe
from .probes import PROBES


@dataclass(frozen=True)
class Measured:
    """One all-reduce of this node."""

    partner: str
    outcome: fabric.AllReduceOutcome
    record: Mapping[str, Any]
    """The raw output of `node.pyz pair`."""


Measure = Callable[[fabric.Measure], Measured]


def incarnation() -> str:
    """Return a name for this process: the time in seconds and microseconds. A later process has a greater name, also within the same second."""
    seconds, rest = divmod(time.time_ns(), 10**9)
    return "%010d-%06d" % (seconds, rest // 1000)


def round_s() -> float:
    """Return the maximum duration of one round."""
    return PROBES["pair"].timeout_s + 60.0


def take_part(
    settings: fabric.Settings, store: fabric.FabricStore, measure: Measure, wait: Callable[[float], None] = time.sleep
) -> tuple[fabric.RoundPlan, list[Measured]]:
    """Take part until the verdict is final. Return the last plan and the measurements of this node."""
    results: list[Measured] = []
    answer: Any = None
    # After an error or a signal, the node leaves the test.
    with contextlib.closing(fabric.run(settings, store, time.monotonic)) as steps:
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as ended:
                return ended.value, results
            answer = None
            if isinstance(step, fabric.Pause):
                wait(step.seconds)
            else:
                results.append(measure(step))
                answer = results[-1].outcome
                print_message("all-reduce with %s: %s %s" % (step.partner, answer.word, answer.reason))


def measured(
    name: str,
    step: fabric.Measure,
    expectation: Mapping[str, Any],
    place: Mapping[str, Any],
    options: Sequence[str] = (),
) -> Measured:
    """Run one all-reduce. `place` is the store in which the two nodes meet: `store` or `session` of an assignment."""
    assignment = {
        "schema": "gpuinfra.pair-assignment/1", "run": step.run, "self": name, "partner": step.partner, "place": step.place,
        "store": None, **place,
    }  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(assignment, file)
        file.flush()
        probe = PROBES["pair"]
        record = run_probe((*probe.argv, "--assignment", file.name, *options), probe)
    return Measured(step.partner, _outcome(record, expectation), record)


def _outcome(record: Mapping[str, Any], expectation: Mapping[str, Any]) -> fabric.AllReduceOutcome:
    if record["exit"] == NO_PARTNER:
        return fabric.AllReduceOutcome(fabric.ABSENT, str(record["stderr"]))
    (check,) = judge({"pair": record}, {**expectation, "required": ["B3"], "skips": {}})
    if check["outcome"] == "pass":
        return fabric.AllReduceOutcome(fabric.PASS)
    return fabric.AllReduceOutcome(fabric.FAIL, str(check["reason"]))
