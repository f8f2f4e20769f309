"""`kill -9` of `gpuinfra failover` at random moments, with the requests of the command to a stand-in cloud."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clone.make import clone
from gpuinfra.clone.model import Request
from gpuinfra.failover.journal import DONE, FAILED, STARTED, UNREACHABLE
from gpuinfra.rehearsal.cloud.core.http import json_response
from gpuinfra.shipped import shipped
from gpuinfra.spec.load import read_stack
from tests.clone.deployed import Deployed
from tests.clouds.stacks import TODAY

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).resolve().parents[2]
STACK, FIRST, REGION = "gcp-recovery", "us-central1", "us-east4"
NODES = 2
HANG_S = 300.0
STEPS = ["check", "fence", "drain", "replication", f"up {STACK}-{REGION}", f"import {STACK}-{REGION}", f"verify {STACK}-{REGION}"]  # fmt: skip
EFFECTS = {"/resize": "fence", "/v1/transferJobs/": "replication", ":importData": STEPS[5], "/up": STEPS[4]}
"""Part of the path of a request that changes something -> its step."""
ENGINE = """#!/bin/sh
# Reports a deployment to the stand-in cloud, and takes a moment to end, also after the command was killed.
case "$1" in
up) "{python}" -c 'import sys, urllib.request as r; r.build_opener(r.ProxyHandler({{}})).open(sys.argv[1], b"").read()' "{url}" && sleep 0.2 ;;
stack) echo '{{}}' ;;
esac
"""


@dataclass
class World:
    """Both stacks in a stand-in cloud, and the requests that it received."""

    deployed: Deployed
    folder: Path
    states: dict[str, Any]
    changes: list[str] = field(default_factory=list)
    """Steps of the requests that change something, in order."""
    received: int = 0
    kill_at: int = 0
    """Number of the request at which the command is killed. 0: never."""
    delay_s: float = 0.0
    """Time between the response to this request and the kill. Negative: the command is killed before the response."""
    process: subprocess.Popen[bytes] | None = None
    killed: bool = False

    def watch(self) -> None:
        """Count each request, and kill the command at the chosen one, before or after its effect."""
        route, lock = self.deployed.server.route, threading.Lock()

        def watched(request: Any) -> Any:
            with lock:
                self.received += 1
                mine = self.received == self.kill_at
                if request.method != "GET" and (step := _step(request.raw_path)):
                    self.changes.append(step)
            process = self.process
            if mine and self.delay_s < 0:
                self.kill(process)
            answer = _reported(request) or route(request)
            if mine and self.delay_s >= 0:
                threading.Timer(self.delay_s, self.kill, [process]).start()
            return answer

        self.deployed.server.route = watched  # type: ignore[method-assign]
        self.deployed.server.handle_error = lambda *_: None  # type: ignore[method-assign]: a killed command closes its connections

    def kill(self, process: subprocess.Popen[bytes] | None) -> None:
        """Kill the command, but not its engine."""
        if process is not None and process is self.process and process.poll() is None:
            self.killed = True
            process.send_signal(signal.SIGKILL)

    def failover(self, *words: str) -> tuple[int, str]:
        """Run the command to its end or until it is killed. While the engine of a killed run still runs, the command is repeated."""
        given = {
            "states": self.states, "name": STACK, "stack": str(self.folder / f"Pulumi.{STACK}.yaml"), "region": REGION,
            "engine": str(self.folder / "pulumi"), "words": words,
        }  # fmt: skip
        file = self.folder / "given.json"
        file.write_text(json.dumps(given))
        environment = {**os.environ, **self.deployed.environment, "XDG_STATE_HOME": str(self.folder / "state"), "PYTHONPATH": str(REPOSITORY)}  # fmt: skip
        limit = time.monotonic() + HANG_S
        while True:
            self.received, self.killed = 0, False
            self.process = subprocess.Popen([sys.executable, "-m", "tests.failover.killed", str(file)], cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
            text = self.process.communicate(timeout=HANG_S)[0].decode()
            if "of an interrupted run is still running" not in text:
                return self.process.returncode, text
            assert time.monotonic() < limit

    def journal(self) -> dict[str, Any] | None:
        """The journal, or None if the command has not begun."""
        found = list((self.folder / "state/gpuinfra/failover").glob("*.json"))
        return json.loads(found[0].read_text()) if found else None


def _step(path: str) -> str:
    return next((step for part, step in EFFECTS.items() if part in path), "")


def _reported(request: Any) -> Any:
    """The response to the script that replaces the engine."""
    return json_response({}) if request.raw_path == "/up" else None


def _in_first(instance: Any) -> bool:
    return "/zones/us-central1-" in str(instance["group"])


@pytest.fixture(scope="module")
def deployed(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Deployed, Path, dict[str, Any], sqlite3.Connection]]:
    """`gcp-recovery` in mode hot, and its second region, in a stand-in cloud whose groups launch instances."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    path = folder / f"Pulumi.{STACK}.yaml"
    text = (shipped("stacks") / path.name).read_text()
    path.write_text(text.replace("mode: cold", "mode: hot").replace("      site_minutes: 30\n", ""))
    stack = read_stack(path)
    one = Deployed(stack, tmp_path_factory.mktemp("cloud"))
    one.ask("external", id="train-reservation", count=2, machine="a3-megagpu-8g")
    replica = next(each for each in one.resources if each["type"].endswith(":RegionClone"))["outputs"]["buckets"]
    values: tuple[tuple[str, object], ...] = (("storage[0].bucket", replica["scratch-0"]),)
    made = clone(stack, path.read_text(), Request(region=REGION, mode="hot", values=values), TODAY)
    assert made.ok, made.findings
    (file,) = made.files
    file.path.write_text(file.text)
    states = {STACK: one.resources, file.stack: one.another(read_stack(file.path))}
    one.cloud.fleet.start()
    limit = time.monotonic() + HANG_S
    while sum(_in_first(each) for each in one.cloud.fleet.running()) < NODES:
        assert time.monotonic() < limit
        time.sleep(0.05)
    yield one, folder, states, one.save()
    one.cloud.fleet.stop()
    one.close()


@pytest.fixture
def world(deployed: tuple[Deployed, Path, dict[str, Any], sqlite3.Connection], tmp_path: Path) -> Iterator[World]:
    """The stacks before the failover, also after another test failed over."""
    one, folder, states, saved = deployed
    one.restore(saved)
    route, handle_error = one.server.route, one.server.handle_error
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    engine = tmp_path / "pulumi"
    engine.write_text(ENGINE.format(python=sys.executable, url=f"{one.cloud.endpoint}/up"))
    engine.chmod(0o755)
    found = World(deployed=one, folder=tmp_path, states=states)
    found.watch()
    yield found
    one.ask("outage", region=None)
    one.server.route, one.server.handle_error = route, handle_error  # type: ignore[method-assign]


@pytest.mark.parametrize(("kills", "outage"), [(10, False), (4, True)])
def test_failover_resumes_after_kills_at_random_moments(kills: int, outage: bool, world: World) -> None:
    """After each kill, the journal lists the steps that are done, and the next run repeats none of them. Each failover completes, also if the first region does not respond until then."""
    chance, copy = random.Random(15), world.deployed.save()
    interrupted = list[str | None]()
    while len(interrupted) < kills:
        world.deployed.restore(copy)
        shutil.rmtree(world.folder / "state", ignore_errors=True)
        world.deployed.ask("outage", region=FIRST if outage else None)
        changed, starts = list[str](), list[str]()
        """Steps of all requests that change something, and steps that were interrupted, in this failover."""
        while True:
            before, world.changes = world.journal(), []
            done = steps_in(before, DONE)
            # Without the first region, a failover sends fewer requests.
            moments = ((19, 28) if outage else (12, 37)) if "check" not in done else ((5, 9) if outage else (1, 13))
            world.kill_at = chance.randint(*moments) if len(interrupted) < kills else 0
            world.delay_s = chance.uniform(-0.02, 0.04)
            code, text = world.failover(*(["--resume"] if before else []))
            assert not set(done) & set(world.changes), (done, world.changes)
            changed += world.changes
            after = world.journal()
            assert not steps_in(after, FAILED), text
            consistent(before, after)
            if not world.killed:
                break
            interrupted.append(next(iter(steps_in(after, STARTED)[-1:]), None))
            starts += [one for one in interrupted[-1:] if one]
        assert code == 0, text
        if outage:
            assert set(steps_in(world.journal(), UNREACHABLE)) == {"fence", "drain", "replication"}
            code, text = returned(world)
            changed += world.changes
        completed(world, text)
        assert changed.count("replication") == 2, (interrupted, changed)
        for step in set(EFFECTS.values()) - {"replication"}:
            assert 1 <= changed.count(step) <= 1 + starts.count(step), (interrupted, changed)
    assert outage or len(set(interrupted)) > 2, interrupted


def returned(world: World) -> tuple[int, str]:
    """Resume after the first region responds again. Only the steps in this region are repeated."""
    world.deployed.ask("outage", region=None)
    world.kill_at, world.changes = 0, []
    code, text = world.failover("--resume")
    assert code == 0, text
    assert set(world.changes) == {"fence", "replication"}
    return code, text


def steps_in(journal: dict[str, Any] | None, state: str) -> list[str]:
    """The steps of a journal with a state."""
    return [name for name, one in (journal or {"steps": {}})["steps"].items() if one["state"] == state]


def consistent(before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
    """The steps were started in order, one at a time, and the steps that were done before have not changed."""
    if after is None:
        assert before is None
        return
    names = list(after["steps"])
    assert names == STEPS[: len(names)]
    states = [one["state"] for one in after["steps"].values()]
    assert set(states) <= {DONE, STARTED, UNREACHABLE}
    # A resumed run tries the steps in the first region again, before the step that was interrupted.
    assert states.count(STARTED) <= (2 if UNREACHABLE in states else 1)
    for name in steps_in(before, DONE):
        assert before is not None
        assert after["steps"][name] == before["steps"][name]
    assert all(one["started"] and bool(one["ended"]) == (one["state"] != STARTED) for one in after["steps"].values())


def completed(world: World, text: str) -> None:
    """Each step is done, the first region has no nodes, and its replication is disabled."""
    journal = world.journal()
    assert journal is not None
    assert journal["ended"]
    assert steps_in(journal, DONE) == STEPS
    assert json.loads(text[text.index('{\n  "schema"') : text.rindex("}") + 1])["ok"] is True
    store = world.deployed.cloud.store
    assert {one.plain["status"] for one in store.list("gcp:storage/transferJob:TransferJob")} == {"DISABLED"}
    assert [one["state"] for one in store.all("instance").values() if _in_first(one)] == ["terminated"] * NODES
