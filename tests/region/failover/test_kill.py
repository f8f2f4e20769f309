"""`kill -9` of `gpuinfra failover` at random moments, with the requests of the command to a stand-in cloud."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.plan.make import build_plan
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import CloneRequest
from gpuinfra.region.clone.replicas import replicas_of
from gpuinfra.region.failover.journal import DONE, FAILED, IGNORED, STARTED, UNREACHABLE
from gpuinfra.spec.load import read_stack
from gpuinfra_rehearsal.cloud.core.http import json_response
from gpuinfra_rehearsal.object_stores import admit
from tests.clouds.stacks import TODAY
from tests.region.clone.deployed import Deployed
from tests.region.failover.moved import Data, moved_once
from tests.region.failover.regions import REGIONS, UP, Regions

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).resolve().parents[3]
HANG_S = 600.0
ENGINE = """#!/bin/sh
# Reports a deployment to the stand-in cloud, and takes a moment to end, also after the command was killed.
case "$1" in
up) "{python}" -c 'import sys, urllib.request as r; r.build_opener(r.ProxyHandler({{}})).open(sys.argv[1], b"").read()' "{url}" && sleep 0.2 ;;
stack) echo '{{}}' ;;
esac
"""


@dataclass(frozen=True)
class Held:
    """A stack and its second region before the failover."""

    regions: Regions
    one: Deployed
    data: Data
    folder: Path
    states: dict[str, Any]
    saved: sqlite3.Connection
    nodes: int


@dataclass
class World:
    """Both stacks in a stand-in cloud, and the requests that it received."""

    regions: Regions
    deployed: Deployed
    data: Data
    folder: Path
    states: dict[str, Any]
    outage: bool = False
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
                if step := self.regions.step(request):
                    self.changes.append(step)
            process = self.process
            if mine and self.delay_s < 0:
                self.kill(process)
            answer = self._deploy() if request.raw_path == UP else route(request)
            if step.startswith("import "):
                self._imported()
            if mine and self.delay_s >= 0:
                threading.Timer(self.delay_s, self.kill, [process]).start()
            return answer

        self.deployed.server.route = watched  # type: ignore[method-assign]
        self.deployed.server.handle_error = lambda *_: None  # type: ignore[method-assign]: a killed command closes its connections

    def _deploy(self) -> Any:
        """The response to the script that replaces the engine. The nodes of the second region have no data yet."""
        return json_response({})

    def _imported(self) -> None:
        """Nodes of the second region write to the replicas after the import has started."""
        # A drain after an outage compares the buckets, so the object of both regions stays as it is.
        self.data.write(shared=not self.outage)

    def kill(self, process: subprocess.Popen[bytes] | None) -> None:
        """Kill the command, but not its engine."""
        if process is not None and process is self.process and process.poll() is None:
            self.killed = True
            process.send_signal(signal.SIGKILL)

    def failover(self, *words: str) -> tuple[int, str]:
        """Run the command to its end or until it is killed. While the engine of a killed run still runs, the command is repeated."""
        given = {
            "states": self.states, "name": self.regions.stack, "stack": str(self.folder / f"Pulumi.{self.regions.stack}.yaml"), "region": self.regions.second,
            "engine": str(self.folder / "pulumi"), "words": words,
        }  # fmt: skip
        file = self.folder / "given.json"
        file.write_text(json.dumps(given))
        environment = {**os.environ, **self.deployed.environment, "XDG_STATE_HOME": str(self.folder / "state"), "PYTHONPATH": str(REPOSITORY)}  # fmt: skip
        limit = time.monotonic() + HANG_S
        while True:
            self.received, self.killed = 0, False
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.region.failover.killed", str(file)],
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            text = self.process.communicate(timeout=HANG_S)[0].decode()
            if "of an interrupted run is still running" not in text:
                return self.process.returncode, text
            assert time.monotonic() < limit

    def journal(self) -> dict[str, Any] | None:
        """The journal, or None if the command has not begun."""
        found = list((self.folder / "state/gpuinfra/failover").glob("*.json"))
        return json.loads(found[0].read_text()) if found else None


@contextmanager
def operator(one: Deployed) -> Iterator[None]:
    """Use the credentials of the operator."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in one.environment.items():
            patch.setenv(name, value)
        yield


def replicate(regions: Regions, one: Deployed) -> None:
    """Replicate what is due. The stand-in replicates when a request reads a bucket."""
    with operator(one):
        cloud = cloud_of(one.name).failover(regions.first, regions.second, {})
        assert cloud is not None
        for pair in cloud.pairs(one.resources):
            cloud.answers(pair)


@pytest.fixture(scope="module", params=REGIONS)
def deployed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """A shipped stack in mode hot, and its second region, in a stand-in cloud whose groups launch instances."""
    regions = REGIONS[request.param]
    folder = tmp_path_factory.mktemp("project")
    (folder / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    path = folder / f"Pulumi.{regions.stack}.yaml"
    text = (shipped("stacks") / path.name).read_text()
    path.write_text(re.sub(r"      site_minutes: .*\n", "", text.replace("mode: cold", "mode: hot")))
    stack = read_stack(path)
    one = Deployed(stack, tmp_path_factory.mktemp("cloud"))
    for pool in stack.spec.pools:
        if ident := getattr(pool.capacity[0], "id", None):
            one.ask("external", id=ident, count=2, machine=pool.machine)
    with operator(one):
        cloud = cloud_of(request.param).failover(regions.first, regions.second, stack.config)
    assert cloud is not None
    pairs = cloud.pairs(one.resources)
    admit(request.param, lambda action, body: one.ask(action, **body), [name for pair in pairs for name in (pair.source, pair.replica)])  # fmt: skip
    values: tuple[tuple[str, object], ...] = (("storage[0].bucket", replicas_of(one.resources).buckets["scratch-0"]),)
    made = clone(stack, path.read_text(), CloneRequest(region=regions.second, mode="hot", values=values), TODAY)
    assert made.ok, made.findings
    (file,) = made.files
    file.path.write_text(file.text)
    states = {regions.stack: one.resources, file.stack: one.another(read_stack(file.path))}
    one.cloud.fleet.start()
    limit = time.monotonic() + HANG_S
    nodes = build_plan(stack.spec, TODAY).nodes
    while sum(map(regions.in_first, one.cloud.fleet.running())) < nodes:
        assert time.monotonic() < limit
        time.sleep(0.05)
    data = Data.of(one, cloud)
    replicate(regions, one)
    yield Held(regions, one, data, folder, states, one.save(), nodes)
    one.cloud.fleet.stop()
    one.close()


@pytest.fixture
def world(deployed: Held, tmp_path: Path) -> Iterator[World]:
    """The stacks before the failover, also after another test failed over."""
    one = deployed.one
    one.restore(deployed.saved)
    route, handle_error = one.server.route, one.server.handle_error
    shutil.copytree(deployed.folder, tmp_path, dirs_exist_ok=True)
    engine = tmp_path / "pulumi"
    engine.write_text(ENGINE.format(python=sys.executable, url=f"{one.cloud.endpoint}{UP}"))
    engine.chmod(0o755)
    found = World(regions=deployed.regions, deployed=one, data=deployed.data, folder=tmp_path, states=deployed.states)
    found.watch()
    yield found
    one.ask("outage", region=None)
    one.server.route, one.server.handle_error = route, handle_error  # type: ignore[method-assign]


@pytest.mark.parametrize(("kills", "outage"), [(10, False), (4, True)])
def test_failover_resumes_after_kills_at_random_moments(kills: int, outage: bool, deployed: Held, world: World) -> None:
    """After each kill, the journal lists the steps that are done, and the next run repeats none of them.
    Each failover completes, also if the first region does not respond until then. Nothing is moved twice, and no data of the second region is replaced."""
    chance, regions = random.Random(15), world.regions
    requests, once = undisturbed(world, outage=outage)
    interrupted = list[str | None]()
    while len(interrupted) < kills:
        begin(world, deployed, outage=outage)
        changed, starts = list[str](), list[str]()
        """Steps of all requests that change something, and steps that were interrupted, in this failover."""
        while True:
            before, world.changes = world.journal(), []
            done = steps_in(before, DONE)
            moments = (requests // 4, requests) if "check" not in done else (1, max(2, requests // 3))
            world.kill_at = chance.randint(*moments) if len(interrupted) < kills else 0
            world.delay_s = chance.uniform(-0.02, 0.04)
            code, text = world.failover(*(["--resume"] if before else []), *(regions.outage if outage else []))
            # Before the first region is stopped, the second one is deployed again, because its nodes can end.
            repeated = set() if "fence" in (before or {"steps": {}})["steps"] else {f"up {regions.target}"}
            starts += repeated & set(steps_in(before, DONE, STARTED))
            assert not (set(done) - repeated) & set(world.changes), (done, world.changes)
            changed += world.changes
            after = world.journal()
            assert not steps_in(after, FAILED), text
            consistent(regions, before, after)
            if not world.killed:
                break
            interrupted.append(next(iter(steps_in(after, STARTED)[-1:]), None))
            starts += [one for one in interrupted[-1:] if one and one not in repeated]
        assert code == 0, text
        if outage:
            assert set(steps_in(world.journal(), UNREACHABLE, IGNORED)) == regions.skipped
            code, text = returned(world)
            changed += world.changes
        completed(world, deployed, text)
        moved_once(changed, once, starts)
    assert outage or len(set(interrupted)) > 2, interrupted


def test_a_first_region_that_returns_changes_no_replica(deployed: Held, world: World) -> None:
    """After a failover without the first region, its replication is still enabled when it responds again, and the replicas refuse what it writes."""
    begin(world, deployed, outage=True)
    code, text = world.failover(*world.regions.outage)
    assert code == 0, text
    world.deployed.ask("outage", region=None)
    world.data.write_late()
    replicate(world.regions, world.deployed)
    world.data.prove()


def begin(world: World, deployed: Held, *, outage: bool) -> None:
    """Restore both regions, without a journal."""
    deployed.one.restore(deployed.saved)
    shutil.rmtree(world.folder / "state", ignore_errors=True)
    world.deployed.ask("outage", region=world.regions.first if outage else None)
    world.outage, world.kill_at, world.changes = outage, 0, []
    world.data.written.clear()


def undisturbed(world: World, *, outage: bool) -> tuple[int, Counter[str]]:
    """Fail over without a kill. Returns the number of requests, and how often each step changes something."""
    if outage:
        world.deployed.ask("outage", region=world.regions.first)
    world.outage = outage
    code, text = world.failover(*(world.regions.outage if outage else []))
    assert code == 0, text
    requests, changed = world.received, list(world.changes)
    if outage:
        returned(world)
        changed += world.changes
    return requests, Counter(changed)


def returned(world: World) -> tuple[int, str]:
    """Resume after the first region responds again. Only the steps in this region are repeated."""
    world.deployed.ask("outage", region=None)
    world.kill_at, world.changes = 0, []
    code, text = world.failover("--resume")
    assert code == 0, text
    assert set(world.changes) == world.regions.skipped - {"jobs", "export", "drain"}
    return code, text


def steps_in(journal: dict[str, Any] | None, *states: str) -> list[str]:
    """The steps of a journal with one of these states."""
    return [name for name, one in (journal or {"steps": {}})["steps"].items() if one["state"] in states]


def consistent(regions: Regions, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
    """The steps were started in order, one at a time, and the steps that were done before have not changed."""
    if after is None:
        assert before is None
        return
    names = list(after["steps"])
    assert names == regions.steps[: len(names)]
    states = [one["state"] for one in after["steps"].values()]
    assert set(states) <= {DONE, STARTED, UNREACHABLE, IGNORED}
    # A resumed run tries the steps in the first region again, before the step that was interrupted.
    # Before the first region is stopped, the deployment and the verification run again.
    waiting = before is not None and "fence" not in before["steps"]
    tried = {one["state"] for one in (before or {"steps": {}})["steps"].values()} | set(states)
    assert states.count(STARTED) <= (3 if waiting else 2 if {UNREACHABLE, IGNORED} & tried else 1)
    for name in steps_in(before, DONE):
        assert before is not None
        if waiting and name.startswith(("up ", "verify ")):
            continue
        assert after["steps"][name] == before["steps"][name]
    assert all(one["started"] and bool(one["ended"]) == (one["state"] != STARTED) for one in after["steps"].values())


def completed(world: World, deployed: Held, text: str) -> None:
    """Each step is done, the first region has no nodes, and nothing that it writes reaches the second region."""
    journal, regions = world.journal(), world.regions
    assert journal is not None
    assert journal["ended"]
    assert steps_in(journal, DONE) == regions.steps
    for name in regions.stops:
        if world.outage and name in regions.skipped:
            continue
        assert journal["steps"][name]["ended"] <= journal["steps"][f"import {regions.target}"]["started"]
    assert json.loads(text[text.index('{\n  "schema"') : text.rindex("}") + 1])["ok"] is True
    assert regions.replicating(world.deployed) == 0
    store = world.deployed.cloud.store
    states = [one["state"] for one in store.all("instance").values() if regions.in_first(one)]
    assert states == ["terminated"] * deployed.nodes
    world.data.write_late()
    replicate(regions, world.deployed)
    world.data.prove()
