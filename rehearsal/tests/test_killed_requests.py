"""All processes of `gpuinfra up` are killed at a known request, with the real engine; the cloud runs on. `--resume` continues."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.engine import find_engine
from gpuinfra.engine.state_files import make_readable
from gpuinfra_rehearsal import applied_environment
from gpuinfra_rehearsal.folder import read_yaml
from gpuinfra_rehearsal.processes import marked
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, Session, continue_interrupted, open_session

from .conftest import command

LIMIT_S = 600.0
READY = "gpuinfra:index:NodesReady::"
PLACES = {
    "aws": ("aws:region", "us-east-1", "use1-az4", "m7i.xlarge", ""),
    "gcp": ("gcp:region", "us-central1", "us-central1-a", "n2-standard-4", ""),
    "azure": (
        "azure-native:location",
        "southcentralus",
        "'1'",
        "Standard_D4s_v5",
        ", access: {evidence_from: [203.0.113.0/24]}",
    ),
}
"""Region setting, region, zone, machine type, and required fields."""


Point = tuple[str, str, str, int]
"""Verb, type and moment of a request, and its number among those of this verb and type."""
OTHERS_S = 0.3
"""Time for the requests that the engine sends in parallel to the one that is held first."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a command did."""

    killed: bool
    code: int
    out: str


@dataclass
class KilledRuns:
    """A session without nodes, and the commands of an operator in it."""

    session: Session
    state_home: Path

    def run(self, *words: str, points: Iterable[Point] = ()) -> Run:
        """Run a command, and kill all its processes while it waits at one of these requests."""
        asked = [
            {"verb": verb, "type": kind, "moment": moment, "number": number} for verb, kind, moment, number in points
        ]
        self.session.cloud.ask("hold", {"points": asked})
        environment = {**self.session.pulumi.env, "XDG_STATE_HOME": str(self.state_home), "GPUINFRA_WAIT": "none"}
        log = self.state_home / "output.txt"
        with log.open("w") as output:
            process = subprocess.Popen(
                list(words), cwd=self.session.folder.project, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )  # fmt: skip
        held, limit = False, time.monotonic() + LIMIT_S
        while process.poll() is None and not held:
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.02)
            held = bool(asked and self.session.cloud.ask("held")["held"])
        if held:
            time.sleep(OTHERS_S)
            while left := [
                pid for pid in marked(self.session.folder.root) if pid not in (self.session.cloud.pid, os.getpid())
            ]:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.poll()
        return Run(killed=held, code=process.wait(), out=log.read_text())

    def reached(self) -> tuple[list[tuple[str, str, str]], Counter[tuple[str, str]]]:
        """Verb, type and moment of each request at which the last command waited, and the number of performed requests by verb and type.

        Read it after `resume`, because the cloud still performs requests of a command that was killed.
        """
        answer = self.session.cloud.ask("held")
        held = [(one["verb"], one["type"], one["moment"]) for one in answer["held"]]
        return held, Counter({(one["verb"], one["type"]): one["count"] for one in answer["performed"]})

    def up(self, *options: str, points: Iterable[Point] = ()) -> Run:
        """Run `gpuinfra up`."""
        return self.run(*command("up", str(self.session.folder.stack_file), "--yes", *options), points=points)

    def pulumi(self, *words: str, points: Iterable[Point] = ()) -> Run:
        """Run a command of the engine."""
        return self.run(str(self.session.pulumi.path), *words, "--stack", self.session.folder.stack, points=points)

    def resume(self) -> None:
        """Do before the next command what `gpuinfra up --resume` does before it deploys, without the checks of the declaration."""
        continue_interrupted(find_engine(), self.session.pulumi, self.session.loaded, self.session.view)

    def unlock(self) -> None:
        """Do what an operator does before a plain `pulumi up`: repair the files of the backend, and remove the lock."""
        pulumi = self.session.pulumi
        with applied_environment.applied(pulumi.env):
            make_readable(
                find_engine(),
                pulumi.folder.stack,
                pulumi.folder.project,
                lambda: pulumi.env["PULUMI_BACKEND_URL"],
                self.session.view.line,
            )
        pulumi.quick("cancel", "--yes", "--stack", pulumi.folder.stack)

    def edit(self) -> None:
        """Declare a second pool, and another tag of all resources."""
        file = self.session.folder.stack_file
        document = read_yaml(file)
        cluster = document["config"]["gpuinfra:cluster"]
        cluster["tags"] = {"team": "blue"}
        cluster["pools"].append({**cluster["pools"][0], "name": "more"})
        file.write_text(json.dumps(document), encoding="utf-8")
        self.session.reload()

    def requests(self, words: tuple[str, ...]) -> Counter[tuple[str, str]]:
        """Number of requests that a command of the engine sends, by verb and type."""
        if words is DESTROY:
            kept = [
                one for one in self.session.pulumi.resources() if is_resource(one) and not one.get("retainOnDelete")
            ]
            return Counter(("delete", str(one["type"])) for one in kept)
        return Counter(
            (verb, one["urn"].split("::")[2].rpartition("$")[2])
            for one in self.changes()
            for verb in (("create", "delete") if one["op"] == "replace" else (one["op"],))
        )

    def changes(self) -> list[dict[str, Any]]:
        """Steps of a preview that change a resource of the cloud."""
        run = self.pulumi("preview", "--json", "--non-interactive")
        assert run.code == 0, run.out
        steps = json.loads(run.out[run.out.index("{") : run.out.rindex("}") + 1])["steps"]
        return [
            one
            for one in steps
            if one["op"] not in ("same", "read") and is_resource(one.get("newState") or one["oldState"])
        ]

    def assert_complete(self) -> None:
        """State and cloud contain the same resources, each once, and a preview changes nothing."""
        held = [one for one in self.session.cloud.resources() if one.get("urn")]
        assert [urn for urn, count in Counter(str(one["urn"]) for one in held).items() if count > 1] == []
        state = [one for one in self.session.pulumi.resources() if is_resource(one)]
        assert {(one["type"], one["id"]) for one in held} == {(one["type"], one["id"]) for one in state}
        assert self.session.pulumi.deployment().get("pending_operations") in (None, [])
        assert [one["urn"] for one in self.changes()] == []


def is_resource(state: Mapping[str, Any]) -> bool:
    """Return whether a resource of a deployment is one of the cloud. Without nodes, each deployment checks them again."""
    return bool(state.get("custom")) and not str(state["type"]).startswith(("gpuinfra:", "pulumi:"))


def declaration(cloud: str) -> dict[str, str]:
    """Return a small stack with a network, an audit trail, keys and one node."""
    setting, region, zone, machine, more = PLACES[cloud]
    where = f"{{cloud: {cloud}, region: {region}, zone: {zone}}}"
    pool = f"{{name: gpu, machine: {machine}, capacity: {{kind: on_demand, count: 1}}}}"
    return {"setting": f"{setting}: {region}", "cluster": f"{{name: killed, where: {where}, pools: [{pool}]{more}}}"}


@contextlib.contextmanager
def opened(cloud: str, folder: Path) -> Iterator[KilledRuns]:
    """Open a session of the small stack."""
    given = declaration(cloud)
    path = folder / f"Pulumi.killed-{cloud}.yaml"
    path.write_text(f"config:\n  {given['setting']}\n  gpuinfra:cluster: {given['cluster']}\n")
    (folder / "home").mkdir()
    options = Options(stack=str(path), folder=folder / "r", without_nodes=True)
    with open_session(options, view_for(io.StringIO())) as session:
        yield KilledRuns(session, folder / "home")


UP = ("up", "--yes", "--skip-preview", "--non-interactive")
DESTROY = ("destroy", "--yes", "--skip-preview", "--non-interactive")


def kill_at_each_type(
    runs: KilledRuns, words: tuple[str, ...], *, last: bool = False, sample: random.Random | None = None
) -> list[tuple[str, str, str]]:
    """Kill a command of the engine before and after the first or last request of each type, and continue it. Return the kills.

    If there is only one request of a type, it is the first and the last one, and `last` selects the moment.
    With `sample`, the command is killed at requests of a few types that are drawn.
    """
    left = runs.requests(words)
    moments = {key: ["before", "after"] if count > 1 else [single_moment(key, last)] for key, count in left.items()}
    if sample:
        moments = {key: [sample.choice(["before", "after"])] for key in sample.sample(sorted(left), SAMPLE)}
    killed: list[tuple[str, str, str]] = []
    while True:
        points = [
            (*key, waiting[0], max(left[key], 1) if last else 1) for key, waiting in moments.items() if waiting
        ]  # fmt: skip
        run = runs.pulumi(*words, points=points)
        if not run.killed:
            assert run.code == 0, run.out[-6000:]
            assert {key: waiting for key, waiting in moments.items() if waiting} == {}
            return killed
        runs.resume()
        held, performed = runs.reached()
        left -= performed
        killed += held
        for verb, kind, _ in held:
            del moments[verb, kind][0]


def single_moment(key: tuple[str, str], last: bool) -> str:
    """Return one moment of a type for the kills at first requests, and the other for those at last requests."""
    return "after" if (zlib.crc32(" ".join(key).encode()) % 2 == 0) is last else "before"


SAMPLE = 2
"""Types at whose requests an operation is killed in `make test`."""


@pytest.mark.parametrize(
    "cloud",
    # With real providers, a killed first run was stuck on Google Cloud most often. Each cloud takes about a minute.
    [pytest.param(cloud, marks=[] if cloud == "gcp" else [pytest.mark.long]) for cloud in PLACES],
)
def test_killed_operations_are_continued(cloud: str, tmp_path: Path) -> None:
    """After kills at drawn requests of the first `up` and of an update, everything exists once. A killed `destroy` deletes everything."""
    draw = random.Random(f"{cloud} 1")
    with opened(cloud, tmp_path) as runs:
        kill_at_each_type(runs, UP, sample=draw)
        runs.assert_complete()
        runs.edit()
        kill_at_each_type(runs, UP, sample=draw)
        runs.assert_complete()
        kill_at_each_type(runs, DESTROY, sample=draw)
        assert [one["urn"] for one in runs.session.pulumi.resources() if one.get("custom")] == []


@pytest.mark.long
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("cloud", PLACES)
def test_each_type_of_request_is_continued(cloud: str, last: bool, tmp_path: Path) -> None:
    """The same with kills before and after the first, or the last, request of each resource type."""
    with opened(cloud, tmp_path) as runs:
        killed = kill_at_each_type(runs, UP, last=last)
        assert len({kind for _, kind, _ in killed}) > 10
        runs.assert_complete()
        runs.edit()
        killed = kill_at_each_type(runs, UP, last=last)
        assert {verb for verb, _, _ in killed} >= {"create", "update"}
        runs.assert_complete()
        kill_at_each_type(runs, DESTROY, last=last)
        assert [one["urn"] for one in runs.session.pulumi.resources() if one.get("custom")] == []


@pytest.mark.long
@pytest.mark.parametrize("cloud", PLACES)
def test_the_command_continues_a_killed_run(cloud: str, tmp_path: Path) -> None:
    """`gpuinfra up --resume` continues a killed `gpuinfra up`, and a killed `pulumi up`, which has no journal."""
    draw = random.Random(cloud)
    with opened(cloud, tmp_path) as runs:
        assert runs.up(points=first(cloud, "after")).killed
        assert runs.up("--resume", points=first(cloud, draw.choice(["before", "after"]))).killed
        run = runs.up("--resume")
        assert run.code == 0, run.out[-6000:]
        runs.assert_complete()
        runs.edit()
        assert runs.pulumi(*UP, points=first(cloud, "after")).killed
        run = runs.up("--resume")
        assert run.code == 0, run.out[-6000:]
        runs.assert_complete()


def first(cloud: str, moment: str) -> list[Point]:
    """Points at the first creation of each type."""
    return [("create", row.type, moment, 1) for row in cloud_of(cloud).resource_kinds]


@pytest.mark.long
@pytest.mark.parametrize(
    ("cloud", "kind"),
    [
        ("aws", "aws:ec2/subnet:Subnet"),
        ("azure", "azure-native:keyvault:Vault"),
        ("gcp", "gcp:serviceaccount/account:Account"),
    ],
)
def test_pulumi_up_names_the_command(cloud: str, kind: str, tmp_path: Path) -> None:
    """A plain `pulumi up` after a kill fails at the resource that exists, and names the command that continues."""
    with opened(cloud, tmp_path) as runs:
        assert runs.pulumi(*UP, points=[("create", kind, "after", 1)]).killed
        runs.unlock()
        run = runs.pulumi(*UP)
        assert run.code != 0
        assert f"gpuinfra up {runs.session.folder.stack} --resume" in " ".join(run.out.split())
        run = runs.up("--resume")
        assert run.code == 0, run.out[-6000:]
        runs.assert_complete()
