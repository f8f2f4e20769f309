"""`node.pyz fabric-service`: takes part in the fabric tests of the handover, which requires a result of each node.

While a command of the operator waits for the nodes, it asks nodes for all-reduces with partners (`fabric_relay.py`). The service of a node whose checks
pass and whose GPUs run no process reports that it is ready, measures, and stores the raw output of one all-reduce in `RESULT`, which every later
evidence contains (check B8). Afterwards, the command can ask a good node again, as a partner of a node without a result. Before each all-reduce, the
service checks again that no process uses the GPUs. A job that starts later than this check shares the GPUs with the all-reduce.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from . import cloud, evidence, fabric, fabric_relay, fabric_run
from .checks.fabric_test import SCHEMA, FabricTest, TestState, Waits
from .console import BUNDLE, NODE, OK, MissingPrerequisite, load, optional, print_message
from .fabric_relay import FabricRuling, NodeCall, NodeReport
from .journal import write_whole
from .judge import verdict
from .outcome import shortened
from .probe import run as run_probe
from .probes import FABRIC_RESULT, PROBES

RESULT = Path(FABRIC_RESULT)
"""The folder is empty after a boot, so a result never belongs to an earlier boot."""
WAIT_S, LONGEST_WAIT_S = "GPUINFRA_FABRIC_WAIT_S", 3600
"""Environment variable: the longest pause between two readings of the sheet while a node takes part, in seconds, and its maximum. The other pauses
change in proportion."""
ACTIVE_S = 10.0
"""Default of `WAIT_S`."""
IDLE_S, BUSY_S, FIRST_S, START_S = 60.0, 60.0, 5.0, 2.0
"""Pauses: the longest one while no command asks this node, until a busy node looks again, until this node has its first evidence, and the first one
after a change. Each of the following pauses is half as long again."""
RECHECK = ("systemctl", "start", "gpuinfra-recheck.service")


def fabric_service(args: argparse.Namespace) -> int:
    """Run until terminated."""
    expectation = load(BUNDLE / "expectation.json", "the bundle's expectation", "start gpuinfra-bootstrap")
    node = load(NODE, "the node's configuration", "user data writes it")
    if FabricTest.id not in expectation.get("required", ()):
        print_message("the handover of this pool does not require the fabric test")
        return OK
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))
    relay = fabric_relay.Relay(node, cloud.of(node), evidence.boot_id())
    service = FabricService(node, expectation, relay)
    # The service reports that it ends, so that the handover does not ask this node.
    with contextlib.closing(service):
        while True:
            time.sleep(service.once() * random.uniform(0.8, 1.2))


@dataclass(frozen=True)
class Waiting:
    """Why a node cannot measure now."""

    cause: Waits
    reason: str


class FabricService:
    """The service of one node."""

    def __init__(
        self,
        node: Mapping[str, Any],
        expectation: Mapping[str, Any],
        relay: fabric_relay.Relay,
        *,
        result: Path = RESULT,
        measure: Callable[[fabric.Measure, str], fabric_run.Measured] | None = None,
        ready: Callable[[], Waiting | None] | None = None,
        report: Callable[[], None] | None = None,
        reported: Callable[[], str | None] | None = None,
    ) -> None:
        self._expectation, self._relay, self._result = expectation, relay, result
        self._bundle = (node.get("bundle") or {}).get("sha256")
        self._measure = measure or self._run_pair
        self._ready = ready or (lambda: _not_ready(node, expectation))
        self._report, self._reported = report or _recheck, reported or _in_evidence
        self._active_s = _wait_s()
        self._idle_s, self._busy_s, self._first_s, self._start_s = (
            pause * self._active_s / ACTIVE_S for pause in (IDLE_S, BUSY_S, FIRST_S, START_S)
        )
        self._pause = self._start_s
        self._seen: object = None
        """The newest request, to notice a change."""
        self._measured: list[fabric_run.Measured] = []
        """The all-reduces of the current request."""
        self._asked: tuple[str, int] = ("", 0)
        self._closed: tuple[str, int] = ("", 0)
        """The request whose result is stored."""

    def once(self) -> float:
        """Do what the handover asks for. Return the number of seconds to wait before the next call."""
        state = self._state()
        if self._reported() is None:
            # The evidence is a file of this node, so that looking for it costs no request. All nodes of a new pool wait for it.
            return self._first_s
        try:
            self._report_again()
            # A good node would fail with a slow node as its only partner.
            called = None if state is TestState.SLOW else self._relay.call()
            return self._idle(called) if called is None else self._answer(state, *called)
        except (cloud.CloudError, MissingPrerequisite, OSError) as error:
            print_message("fabric test: %s" % error)
            self._wait_for(state, Waiting(Waits.BUCKET, str(error)))
            return self._busy_s

    def close(self) -> None:
        """Report that this node takes no further part."""
        last = self._relay.last()
        if last is not None and last.ready:
            with contextlib.suppress(cloud.CloudError, OSError):
                self._send(last.test, last.ask, ready=False)

    def _idle(self, seen: object) -> float:
        return self._next_pause(seen, self._idle_s)

    def _next_pause(self, seen: object, longest: float) -> float:
        """Return a pause that grows until there is something new."""
        self._pause = self._start_s if seen != self._seen else min(self._pause * 1.5, longest)
        self._seen = seen
        return min(self._pause, longest)

    def _answer(self, state: TestState | None, test: str, call: NodeCall) -> float:
        if self._asked != (test, call.ask):
            self._asked, self._measured = (test, call.ask), []
        if call.ruling is not None:
            if self._closed != self._asked:
                self._close(state, test, call.ruling)
                self._closed = self._asked
            return self._idle(self._asked)
        last = self._relay.last()
        joined = last is not None and last.ready and (last.test, last.ask) == self._asked
        starts = joined and call.run and last is not None and last.run != call.run
        if not joined or starts:
            waiting = self._ready()
            if waiting:
                print_message("fabric test: %s" % waiting.reason)
                self._wait_for(state, waiting)
                if joined:
                    self._send(test, call.ask, ready=False)
                return self._busy_s
        if not joined:
            self._send(test, call.ask)
        elif starts:
            self._take(test, call)
        elif last is not None and last.run and not last.outcome:
            # The service was restarted during an all-reduce.
            self._send(test, call.ask, last.run, fabric.AllReduceOutcome(fabric.ABSENT, "the service was restarted"))
        return self._next_pause((test, call), self._active_s)

    def _take(self, test: str, call: NodeCall) -> None:
        """Measure with the partner, and report the outcome."""
        measured = self._measure(fabric.Measure(call.run, call.partner, call.place), test)
        outcome = measured.outcome
        print_message("all-reduce with %s: %s %s" % (call.partner, outcome.word, outcome.reason))
        self._measured.append(measured)
        self._send(test, call.ask, call.run, outcome)

    def _send(
        self, test: str, ask: int, run: str = "", outcome: fabric.AllReduceOutcome | None = None, *, ready: bool = True
    ) -> None:
        word, reason = (outcome.word, outcome.reason) if outcome else ("", "")
        reason = shortened(reason, fabric_relay.MAX_REASON)
        self._relay.send(NodeReport(test=test, ask=ask, ready=ready, run=run, outcome=word, reason=reason))

    def _close(self, state: TestState | None, test: str, ruling: FabricRuling) -> None:
        """Store the result of this node, unless it has a better one from an earlier test."""
        result = result_of(ruling, self._measured, test)
        decided = result["state"] in (TestState.GOOD.value, TestState.SLOW.value)
        if state in (None, TestState.WAITING) or (state is TestState.UNKNOWN and decided):
            self._write(result)
            self._report()

    def _wait_for(self, state: TestState | None, waiting: Waiting) -> None:
        """Store why this node has no result. If the reason is new, upload evidence with it."""
        held = optional(self._result) or {}
        if state not in (None, TestState.WAITING) or (state and held.get("reason") == waiting.reason):
            return
        self._write({"state": TestState.WAITING.value, "cause": waiting.cause.value, "reason": waiting.reason})
        if waiting.cause is not Waits.FIRST_EVIDENCE:
            self._report()

    def _report_again(self) -> None:
        """Upload evidence if the newest evidence has another result. A result that is stored while the checks run is not in their evidence."""
        held, stored = self._reported(), optional(self._result)
        if held is None or stored is None or self._result.read_text(encoding="utf-8") == held:
            return
        if stored.get("cause") != Waits.FIRST_EVIDENCE.value:
            self._report()

    def _state(self) -> TestState | None:
        """Return the state of the stored result. The result of another bundle does not count, because its software differs."""
        stored = optional(self._result) or {}
        return TestState(stored["state"]) if "state" in stored and stored.get("bundle") == self._bundle else None

    def _run_pair(self, step: fabric.Measure, test: str) -> fabric_run.Measured:
        return fabric_run.measured(self._relay.name, step, self._expectation, {"session": test})

    def _write(self, content: Mapping[str, Any]) -> None:
        whole = {"schema": SCHEMA, "bundle": self._bundle, **content}
        write_whole(self._result, json.dumps(whole, sort_keys=True) + "\n")


def result_of(ruling: FabricRuling, measured: Sequence[fabric_run.Measured], test: str) -> dict[str, Any]:
    """Return the result of one node: the raw output of a good all-reduce, or of the last failed one."""
    is_good = ruling.state is TestState.GOOD
    met = [one for one in measured if one.outcome.word in (fabric.PASS, fabric.FAIL)]
    # A node can pass in each pair that its partner failed. Then the ruling counts, and the raw output shows a pass.
    chosen = [one for one in met if one.outcome.word == (fabric.PASS if is_good else fabric.FAIL)]
    chosen = chosen or ([] if is_good else met)
    if not chosen:
        reason = "this node has no measurement of the fabric test %s" % test
        return {"state": TestState.WAITING.value, "cause": Waits.PARTNER.value, "reason": reason}
    return {
        "state": ruling.state.value,
        "reason": shortened(ruling.reason or chosen[-1].outcome.reason, 400),
        "test": test,
        "nodes": ruling.nodes,
        "partner": chosen[-1].partner,
        "slow_paths": list(ruling.slow_paths),
        "pair": chosen[-1].record,
    }


def _wait_s() -> float:
    """Return the longest pause of a node that takes part. Raises `MissingPrerequisite` if the variable is not a number of seconds:
    without pauses, the service would read the bucket all the time."""
    given = os.environ.get(WAIT_S)
    try:
        seconds = float(given) if given else ACTIVE_S
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= LONGEST_WAIT_S:
        raise MissingPrerequisite(
            "%s is %r; allowed: 1 to %d seconds; correct it in /etc/environment" % (WAIT_S, given, LONGEST_WAIT_S)
        )
    return seconds


def _not_ready(node: Mapping[str, Any], expectation: Mapping[str, Any]) -> Waiting | None:
    """Return why this node cannot measure now."""
    newest = evidence.EvidenceFolder().newest()
    document = newest[1] if newest else {}
    bundle = (node.get("bundle") or {}).get("sha256")
    if document.get("boot_id") != evidence.boot_id() or document.get("bundle_sha256") != bundle:
        return Waiting(Waits.FIRST_EVIDENCE, "waits for the first evidence of this boot")
    others = {**expectation, "required": [one for one in expectation["required"] if one != FabricTest.id]}
    checks = [one for one in document.get("checks") or [] if one.get("id") != FabricTest.id]
    judged = verdict(checks, others)
    if not judged.verified:
        names = ", ".join([str(check["id"]) for check in judged.blockers] + list(judged.missing))
        return Waiting(Waits.CHECKS, "other checks of this node failed: %s" % names)
    probe = PROBES["nvidia-smi-apps"]
    record = run_probe(probe.argv, probe)
    lines = [line for line in str(record["stdout"]).splitlines()[1:] if line.strip()]
    if record["exit"] != 0 or record["problem"]:
        return Waiting(Waits.GPUS, "nvidia-smi does not list the processes on the GPUs")
    return Waiting(Waits.GPUS, "processes use the GPUs") if lines else None


def _in_evidence() -> str | None:
    """Return the result of the fabric test in the newest evidence, or None without evidence of this boot."""
    newest = evidence.EvidenceFolder().newest()
    document = newest[1] if newest else {}
    record = (document.get("probes") or {}).get("fabric-result")
    return str(record["stdout"]) if record and document.get("boot_id") == evidence.boot_id() else None


def _recheck() -> None:
    """Upload evidence with the result. The unit runs once at a time, so the documents keep their order."""
    done = subprocess.run(RECHECK, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        print_message("%s: %s" % (" ".join(RECHECK), done.stderr.decode("utf-8", "replace").strip()[-200:]))
