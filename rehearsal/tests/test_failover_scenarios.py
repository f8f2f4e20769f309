"""The scenarios of failover and failback with the real engine: exit code, message, nodes of both regions over time, fence, data, leftovers, next command.

The checks of each scenario are in `Account.play`. A scenario contains only what differs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.active import SharedRecord, place_of
from gpuinfra.node.journal import write_whole
from gpuinfra_rehearsal.applied_environment import applied
from gpuinfra_rehearsal.drill import _Drill
from gpuinfra_rehearsal.object_stores import admit, store_of
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.retained import retained_in
from gpuinfra_rehearsal.session import Options, Session, open_session

from .failover_scenarios import PATIENT, REGIONS, RESULTS, SCENARIOS, Scenario, recorded
from .test_azure_drill import azure_stack
from .test_drill import FILE, google_stack, written
from .test_scenarios import extract, until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

PRINTED = re.compile(
    r"(?:(?<=: )|(?<=run `)|(?<=or `))(?:gpuinfra (?:failover|failback) |pulumi (?:destroy|up) )[^\n,;`&]*[^\s,;`&.]"
)
"""A command in the output that is to be run, as in "run: COMMAND", "run `COMMAND`" and "or `COMMAND`"."""


def stack_file(cloud: str, folder: Path) -> Path:
    """The stack with `recovery` in mode `cold` and one node."""
    if cloud == "aws":
        return written(folder, FILE.read_text(), "on_demand", "cold")
    return azure_stack(folder, "cold") if cloud == "azure" else google_stack(folder, mode="cold")


class Watch:
    """Collects the instances of the stand-in cloud while a command runs. Its log loses the instances of a deleted group."""

    def __init__(self, session: Session) -> None:
        self._session, self._end = session, threading.Event()
        self.seen: dict[str, dict[str, Any]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def look(self) -> None:
        """Read the instances."""
        listed = {one["id"]: one for one in self._session.cloud.ask("instances", timeout=60)["instances"]}
        for id in self.seen.keys() - listed.keys():
            self.seen[id].setdefault("ended", time.time())
        self.seen |= listed

    def _run(self) -> None:
        while not self._end.wait(0.3):
            with contextlib.suppress(DeploymentError):
                self.look()

    def __enter__(self) -> Watch:
        self.look()
        self.began = time.time()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.look()

    def running(self, at: float) -> list[dict[str, Any]]:
        """The instances that run at a time."""
        return [one for one in self.seen.values() if one["launched"] <= at < one.get("ended", float("inf"))]

    def fewest(self) -> int:
        """The least number of instances that ran at the same time, from the start of the command to now."""
        ends = [one["ended"] for one in self.seen.values() if one.get("ended", 0) > self.began]
        return min(len(self.running(at)) for at in (self.began, *ends, time.time()))


class Account:
    """A cloud account with a stack that runs in its first region, and what the workload has written."""

    def __init__(self, cloud: str, folder: Path) -> None:
        self.cloud, self._open, self.regions = cloud, contextlib.ExitStack(), REGIONS[cloud]
        self.printed: list[str] = []
        self.failed = ""
        self._written = 0
        self._newest: dict[str, bytes] = {}
        self._only_first: dict[str, bytes] = {}
        self._is_down = False
        self._retained: set[tuple[str, str]] = set()
        self._homes = folder / "homes"
        options = Options(stack=str(stack_file(cloud, folder)), folder=folder / "r", deadline=PATIENT)
        self.session = self._open.enter_context(open_session(options, view_for(io.StringIO())))
        try:
            drill = _Drill(self.session, None)
            drill._up_primary()
            drill._prepare()
            (self.buckets,) = drill._buckets().items()
            every = [name for pair in drill.cloud.pairs(drill.resources) for name in (pair.source, pair.replica)]
            admit(cloud, self.session.cloud.ask, every)
            place = place_of(drill.resources)
            assert place is not None
            with applied(self.session.pulumi.env):
                self._record = cloud_of(cloud).record(place, self.regions[1], {})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the processes."""
        self._open.close()

    def play(self, one: Scenario) -> dict[str, Any]:
        """Run a scenario, and check it. Returns what is recorded."""
        if not one.idle:
            self._work()
        if one.before:
            getattr(self, one.before)()
        words = one.command or next(each for each in reversed(self.printed) if one.printed in each)
        self.session.cloud.ask("faults", {"faults": list(one.faults)})
        try:
            with Watch(self.session) as watch:
                before = self._counts(watch, watch.began)
                code, output = self._finish(one, self._start(one, f"{words} {one.more}"))
            # Without the fault, a group gets its nodes.
            after = self._counts(watch, time.time())
        finally:
            self.session.cloud.ask("faults", {"faults": []})
        following = list(dict.fromkeys(found.group() for found in PRINTED.finditer(output)))
        self.printed += following
        assert code == one.code, extract(output)
        assert one.message in output, extract(output)
        assert "Traceback" not in output
        assert after == one.nodes, extract(output)
        assert one.stops or watch.fewest() >= 1, extract(output)
        active, journal = self._shared().region, self._journal()
        assert active == self.regions[one.active]
        assert code or "unfinished" not in journal
        left = self._left_over()
        assert left == []
        self._check_data(one.active)
        return {
            "ran": f"{words} {one.more}".strip(),
            "code": code,
            "before": " / ".join(map(str, before)),
            "after": " / ".join(map(str, after)),
            "fewest": watch.fewest(),
            "active": active,
            "journal": journal,
            "left_over": len(left),
            "next": following,
        }

    def _environment(self, operator: str, deadline: str = PATIENT) -> dict[str, str]:
        home = {"XDG_STATE_HOME": str(self._homes / operator), "GPUINFRA_DEADLINE": deadline}
        return {**self.session.pulumi.env, **home}

    def _start(self, one: Scenario, text: str, operator: str = "") -> subprocess.Popen[str]:
        program, *words = shlex.split(text)
        gpuinfra = [sys.executable, "-m", "gpuinfra"]
        jobs = (
            ["--ignore", "jobs"]
            if words[0] == "failover" or (words[0] == "failback" and "--abort" not in words)
            else []
        )
        # The tunnel of the cloud reaches no node in a rehearsal, so that no command stops jobs.
        command = [*(gpuinfra if program == "gpuinfra" else [str(self.session.pulumi.path)]), *words, "--yes", *jobs]
        self._homes.mkdir(exist_ok=True)
        with self._output(operator or one.operator).open("w", encoding="utf-8") as out:
            return subprocess.Popen(
                command, cwd=self.session.folder.project, env=self._environment(operator or one.operator, one.deadline), text=True,
                stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def _output(self, operator: str) -> Path:
        return self._homes / f"{operator}.log"

    def _finish(self, one: Scenario, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for a command. Returns its exit code and its output."""
        if one.meanwhile:
            until(lambda: self._reached("up "), process)
            second = self._start(one, one.meanwhile, "b")
            second.wait(timeout=600)
            found = self._output("b").read_text()
            assert (second.returncode, "is not finished; add --resume" in found) == (2, True), found
        if one.kill:
            reached = self._fenced if one.kill == "fence" else lambda: self._reached(one.kill)
            until(reached, process)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=1700)
        return process.returncode, self._output(one.operator).read_text()

    def _fenced(self) -> bool:
        """Whether no node runs in the first region."""
        held = self.session.cloud.ask("instances")["instances"]
        return all(node["state"] == "terminated" for node in held if node["region"] == self.regions[0])

    def _reached(self, step: str) -> bool:
        """Whether an unfinished move in the record has started a step."""
        moves = [move for move in self._moves().values() if not move.get("ended")]
        return any(name.startswith(step) for move in moves for name in move.get("steps") or {})

    def _counts(self, watch: Watch, at: float) -> tuple[int, int]:
        running = [one["region"] for one in watch.running(at)]
        return running.count(self.regions[0]), running.count(self.regions[1])

    def _shared(self) -> SharedRecord:
        with applied(self.session.pulumi.env):
            assert self._record is not None
            return SharedRecord(self._record, "recovery", self.regions[0])

    def _moves(self) -> Mapping[str, Mapping[str, Any]]:
        """The moves in the record."""
        active = self._shared().active
        return active.moves if active else {}

    def _journal(self) -> str:
        moves = [f"{name} {'ended' if body.get('ended') else 'unfinished'}" for name, body in self._moves().items()]
        return ", ".join(moves) or "none"

    def _resources(self) -> list[dict[str, Any]]:
        """The resources in the states of both regions."""
        found = []
        for path in self.session.folder.state.glob(".pulumi/stacks/*/*.json"):
            latest = json.loads(path.read_text())["checkpoint"]["latest"] or {}
            found += latest.get("resources") or []
        return found

    def _left_over(self) -> list[str]:
        """Resources that no state contains and that no destroy retained, nodes without a group in a state, and locks of the state."""
        state = {(str(row["type"]), str(row.get("id"))) for row in self._resources()}
        groups = {id.rpartition("/")[2] for _, id in state}
        cloud = self.session.cloud
        held = [(str(row["type"]), str(row["id"])) for row in cloud.ask("resources", timeout=60)["resources"] if row.get("urn")]  # fmt: skip
        nodes = [node for node in cloud.nodes() if node.get("stage") != "terminated"]
        return [
            *(f"{type} {id}" for type, id in held if (type, id) not in state | self._retained),
            *(f"node {node['label']}" for node in nodes if str(node["group"]).rpartition("/")[2] not in groups),
            *(f"lock {path.name}" for path in self.session.folder.state.glob(".pulumi/locks/**/*.json")),
        ]

    # Data

    def _work(self) -> None:
        """Write a new object and a new version of an old one in the active region, as jobs do. A region that does not respond writes nothing."""
        active = self._shared().region
        number = self._written = self._written + 1
        for key in ("latest", f"run-{number}"):
            self._put(self.regions.index(active), key, f"{key} {number} {active}".encode())

    def _put(self, region: int, key: str, content: bytes) -> None:
        with applied(self.session.pulumi.env):
            store_of(self.cloud, self.regions[region]).put(self.buckets[region], key, content)
        self._newest[key] = content

    def _check_data(self, region: int) -> None:
        """Check that the active region has the newest version of each object, and that no object that only the first region has was replaced."""
        with applied(self.session.pulumi.env):
            store = store_of(self.cloud, self.regions[region])
            found = {key: store.get(self.buckets[region], key) for key in sorted(self._newest)}
            # A region that does not respond is read when it does again.
            only = {} if self._is_down else self._only_first
            first = {key: store_of(self.cloud, self.regions[0]).get(self.buckets[0], key) for key in only}
        assert found == dict(sorted(self._newest.items()))
        assert first == only

    # What happens before a command

    def declare_two(self) -> None:
        """Declare two nodes in the second region."""
        self._declare(2)

    def declare_one(self) -> None:
        """Declare one node in the second region."""
        self._declare(1)

    def _declare(self, count: int) -> None:
        path = self.session.folder.project / f"Pulumi.recovery-{self.regions[1]}.yaml"
        text, changes = re.subn(r"(\bcount: )\d+", rf"\g<1>{count}", path.read_text())
        assert changes == 1, path.read_text()
        path.write_text(text)

    def write_in_first(self) -> None:
        """Write a newer version of an object in the first region, while the second one is active."""
        content = self._newest.pop("run-1")
        with applied(self.session.pulumi.env):
            store = store_of(self.cloud, self.regions[0])
            assert store.get(self.buckets[0], "run-1") == content
            store.put(self.buckets[0], "run-1", b"newer in the first region")
        self._only_first["run-1"] = b"newer in the first region"

    def keep_retained(self) -> None:
        """Note what a destroy of the second region retains."""
        own = self.session.pulumi
        second = replace(own, folder=replace(own.folder, stack=f"recovery-{self.regions[1]}"))
        self._retained = {(one.type, one.id) for one in retained_in(second.deployment())}
        assert self._retained

    def begin_outage(self) -> None:
        """The APIs of the first region stop to respond."""
        self._is_down = True
        self.session.cloud.ask("outage", {"region": self.regions[0]})

    def end_outage(self) -> None:
        """The first region responds again."""
        self._is_down = False
        self.session.cloud.ask("outage", {"region": None})


class Accounts:
    """One account for each cloud in turn."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.open: Account | None = None

    def of(self, cloud: str) -> Account:
        """The account of a cloud. The account of the cloud before is closed."""
        if self.open is None or self.open.cloud != cloud:
            self.close()
            folder = self._folder / cloud
            folder.mkdir()
            self.open = Account(cloud, folder)
        return self.open

    def close(self) -> None:
        """Stop the processes of the account."""
        if self.open is not None:
            self.open.close()
        self.open = None


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    """The accounts. The scenarios of a cloud share one."""
    found = Accounts(tmp_path_factory.mktemp("failover"))
    yield found
    found.close()


def record(name: str, found: dict[str, Any]) -> None:
    """Write a result. Results of scenarios that no longer exist are removed."""
    every = {**recorded(), name: found}
    write_whole(RESULTS, json.dumps({each: every[each] for each in SCENARIOS if each in every}, indent=2) + "\n")


def same(found: Mapping[str, Any]) -> dict[str, Any]:
    """A result without what depends on the time between two commands: a group gets its node soon after the region has capacity again."""
    return {key: value for key, value in found.items() if key not in ("before", "fewest")}


RECORDING = bool(os.environ.get("RECORD_SCENARIOS"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_failover_scenario(name: str, accounts: Accounts) -> None:
    """Exit code, message, nodes, fence, data and leftovers are those of the scenario, and the result is the recorded one, if there is one."""
    one = SCENARIOS[name]
    account = accounts.of(one.cloud)
    assert RECORDING or not account.failed, f"this scenario continues from {account.failed}, which failed"
    before, account.failed = account.failed, name
    found = account.play(one)
    if RECORDING:
        record(name, found)
    assert same(recorded().get(name, found)) == same(found)
    account.failed = before
