"""`node.pyz fabric-service`: takes part in fabric tests through the evidence bucket, so that the handover can require a result of each node.

The service of a node whose checks pass and whose GPUs run no process joins the newest test of its pool, or starts one. It stores the raw output of one
all-reduce in `RESULT`, which every later evidence contains (check B8). Afterwards, a good node joins the test of a node that waits for a partner, such
as a replaced node, as a helper. A node whose test had no good pair joins such a test to get another result. Before each all-reduce, the service checks
again that no process uses the GPUs. A job that starts later than this check shares the GPUs with the all-reduce.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from . import cloud, evidence, fabric, fabric_bucket, fabric_run
from .checks.fabric_test import SCHEMA, FabricTest, TestState, Waits
from .console import BUNDLE, NODE, OK, MissingPrerequisite, load, optional, print_message
from .journal import write_whole
from .judge import verdict
from .outcome import shortened
from .probe import run as run_probe
from .probes import FABRIC_RESULT, PROBES

RESULT = Path(FABRIC_RESULT)
"""The folder is empty after a boot, so a result never belongs to an earlier boot."""
HELPER = "-helper"
"""Part of the incarnation of a helper."""
WAIT_S, LONGEST_WAIT_S = "GPUINFRA_FABRIC_WAIT_S", 3600
"""Environment variable: how long a node waits for more nodes after the last one joined, in seconds, and its maximum. The default is 10.
`BUSY_S` and `HELP_S` change in proportion, so nodes that wait are found sooner or later."""
JOIN_S = 300.0
"""Maximum wait for a partner in one attempt. After an attempt, the service checks again whether jobs use the GPUs."""
MOST_ENDED = 3
"""Number of tests that another node may end without this node after it joined. Then this node ignores the other node until it has a result."""
BUSY_S, HELP_S, AGAIN_S, FIRST_S = 60.0, 120.0, 5.0, 5.0
"""Pauses: until this node can take part, between two searches for a node that waits, after a test, and until this node has its first evidence.
A search takes three list requests, and the look for evidence none. After each attempt without a partner, the pause is twice as long, up to `HELP_S`:
two nodes that wait meet, because the pause is shorter than an attempt."""
RECHECK = ("systemctl", "start", "gpuinfra-recheck.service")


def fabric_service(args: argparse.Namespace) -> int:
    """Run until terminated."""
    expectation = load(BUNDLE / "expectation.json", "the bundle's expectation", "start gpuinfra-bootstrap")
    node = load(NODE, "the node's configuration", "user data writes it")
    if FabricTest.id not in expectation.get("required", ()):
        print_message("the handover of this pool does not require the fabric test")
        return OK
    # The service leaves its test, so that the other nodes do not wait for this node.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))
    connected = cloud.of(node)
    service = FabricService(node, expectation, connected, fabric_bucket.Sessions(node, connected))
    while True:
        time.sleep(service.once() * random.uniform(0.8, 1.2))


@dataclass(frozen=True)
class Waiting:
    """Why a node cannot measure now."""

    cause: Waits
    reason: str


class CannotMeasure(Exception):
    """A node that joined a test can no longer measure."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__(waiting.reason)
        self.waiting = waiting


class FabricService:
    """The service of one node."""

    def __init__(
        self,
        node: Mapping[str, Any],
        expectation: Mapping[str, Any],
        connected: cloud.NodeCloud,
        tests: fabric_bucket.Sessions,
        *,
        result: Path = RESULT,
        measure: Callable[[fabric.Measure, str], fabric_run.Measured] | None = None,
        ready: Callable[[], Waiting | None] | None = None,
        report: Callable[[], None] | None = None,
        reported: Callable[[], str | None] | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._expectation, self._tests, self._result, self._wait = expectation, tests, result, wait
        self._name, self._bundle = connected.instance_id(), (node.get("bundle") or {}).get("sha256")
        self._measure = measure or self._run_pair
        self._ready = ready or (lambda: _not_ready(node, expectation))
        self._report, self._reported = report or _recheck, reported or _in_evidence
        self._quiet_s = _wait_s()
        self._busy_s, self._help_s, self._first_s = (
            pause * self._quiet_s / fabric.QUIET_S for pause in (BUSY_S, HELP_S, FIRST_S)
        )
        self._over = 0
        """Number of the newest test that no node continues."""
        self._ended: Counter[str] = Counter()
        """Number of tests that each node ended without this node."""
        self._alone_s = AGAIN_S
        """Pause after the next attempt without a partner."""

    def once(self) -> float:
        """Take part in one test, or help in one. Return the number of seconds to wait before the next call."""
        state = self._state()
        try:
            self._report_again()
            waiting = self._ready()
            if waiting:
                self._wait_for(state, waiting)
                # The first evidence is a file of this node, so that looking for it costs no request. All nodes of a new pool wait for it.
                return self._first_s if waiting.cause is Waits.FIRST_EVIDENCE else self._busy_s
            if state in (None, TestState.WAITING):
                return self._take_part(state)
            # A good node would fail with this node as its only partner.
            return self._help_s if state is TestState.SLOW else self._help(state)
        except CannotMeasure as error:
            print_message("fabric test: %s" % error.waiting.reason)
            self._wait_for(state, error.waiting)
            return self._busy_s
        except (cloud.CloudError, MissingPrerequisite, OSError) as error:
            print_message("fabric test: %s" % error)
            self._wait_for(state, Waiting(Waits.BUCKET, str(error)))
            return self._busy_s

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

    def _take_part(self, state: TestState | None) -> float:
        """Join the newest test, or start one, and store the result of this node."""
        number = max(self._tests.newest(), 1)
        store = self._tests.store(number)
        if (
            number <= self._over
            or fabric_bucket.is_closed(store)
            or fabric_bucket.has_no_attempt_left(store, self._name)
        ):
            number += 1
            store = self._tests.store(number)
        try:
            plan, measured = self._run(number, store, "")
        except fabric.Alone as error:
            why = "%s; the test needs a second node of the pool whose GPUs are idle" % error
            self._wait_for(state, Waiting(Waits.PARTNER, why))
            pause, self._alone_s = self._alone_s, min(2 * self._alone_s, self._help_s)
            return pause
        except fabric.TestEnded as error:
            print_message("fabric test %d: %s" % (number, error))
            self._over = number
            self._ended[error.leader] += 1
            if error.leader and self._ended[error.leader] >= MOST_ENDED:
                print_message("%s ended %d tests without this node and is ignored" % (error.leader, MOST_ENDED))
                self._tests.ignored.add(error.leader)
                self._over = 0
            return AGAIN_S
        self._alone_s = AGAIN_S
        self._ended.clear()
        self._tests.ignored.clear()
        self._write(result_of(self._name, plan, measured, number))
        self._report()
        return AGAIN_S

    def _help(self, state: TestState | None) -> float:
        """Join a test in which a node waits. A good node joins as a helper if the test has fewer helpers than nodes that wait, plus one: a slow node needs
        two partners. A node whose result is unknown joins like a node that waits, and stores its result if this test decides."""
        number = self._tests.newest()
        if not number or number <= self._over:
            return self._help_s
        store = self._tests.store(number)
        if fabric_bucket.is_closed(store):
            self._over = number
            return self._help_s
        joined = fabric_bucket.members(store, time.time())
        helpers = [name for name, one in joined.items() if HELPER in one]
        is_good = state is TestState.GOOD
        if not joined or self._name in joined or (is_good and len(helpers) > len(joined) - len(helpers)):
            return self._help_s
        try:
            plan, measured = self._run(number, store, HELPER if is_good else "")
        except fabric.Alone as error:
            print_message("fabric test %d: %s" % (number, error))
            return self._help_s
        except fabric.TestEnded as error:
            print_message("fabric test %d: %s" % (number, error))
            self._over = number
            return AGAIN_S
        result = result_of(self._name, plan, measured, number)
        if not is_good and result["state"] in (TestState.GOOD.value, TestState.SLOW.value):
            self._write(result)
            self._report()
        return AGAIN_S

    def _run(
        self, number: int, store: fabric.FabricStore, mark: str
    ) -> tuple[fabric.RoundPlan, list[fabric_run.Measured]]:
        settings = fabric.Settings(
            name=self._name,
            incarnation=fabric_run.incarnation(mark),
            quiet_s=self._quiet_s,
            join_s=JOIN_S,
            round_s=fabric_run.round_s(),
        )
        session = self._tests.session(number)

        def measure(step: fabric.Measure) -> fabric_run.Measured:
            waiting = self._ready()
            if waiting:  # since the node joined
                raise CannotMeasure(waiting)
            return self._measure(step, session)

        return fabric_run.take_part(settings, store, measure, self._wait)

    def _run_pair(self, step: fabric.Measure, session: str) -> fabric_run.Measured:
        return fabric_run.measured(self._name, step, self._expectation, {"session": session})

    def _write(self, content: Mapping[str, Any]) -> None:
        whole = {"schema": SCHEMA, "bundle": self._bundle, **content}
        write_whole(self._result, json.dumps(whole, sort_keys=True) + "\n")


def result_of(
    name: str, plan: fabric.RoundPlan, measured: Sequence[fabric_run.Measured], number: int
) -> dict[str, Any]:
    """Return the result of one node: the raw output of a good all-reduce, or of the last failed one."""
    ruling = dict(plan.verdict or {})
    state = (
        TestState.GOOD if name in ruling["good"] else TestState.SLOW if name in ruling["slow"] else TestState.UNKNOWN
    )
    wanted = fabric.PASS if state is TestState.GOOD else fabric.FAIL
    met = [one for one in measured if one.outcome.word in (fabric.PASS, fabric.FAIL)]
    # A node can pass in each pair that its partner failed. Then the verdict counts, and the raw output shows a pass.
    chosen = [one for one in met if one.outcome.word == wanted] or ([] if state is TestState.GOOD else met)
    if not chosen:
        reason = "no partner arrived in the fabric test %d" % number
        return {"state": TestState.WAITING.value, "cause": Waits.PARTNER.value, "reason": reason}
    paths = [path for path in ruling["slow_paths"] if name in path]
    return {
        "state": state.value,
        "reason": shortened(str(ruling["slow"].get(name) or chosen[-1].outcome.reason), 400),
        "test": number,
        "nodes": len(plan.members),
        "partner": chosen[-1].partner,
        "slow_paths": [other for path in paths for other in path if other != name],
        "pair": chosen[-1].record,
    }


def _wait_s() -> float:
    """Return the wait for more nodes. Raises `MissingPrerequisite` if the variable is not a number of seconds:
    without pauses, the service would list the bucket all the time."""
    given = os.environ.get(WAIT_S)
    try:
        seconds = float(given) if given else fabric.QUIET_S
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
