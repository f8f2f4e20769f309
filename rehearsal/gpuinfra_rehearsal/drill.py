"""`gpuinfra rehearse drill`: the failure of the first region of a stack, and the failover to its second region.

A workload writes checkpoints, and the first region fails just before the last checkpoint is replicated. `gpuinfra ready` and
`gpuinfra failover` run as for a deployed stack. Each program step has a measured time. The times of the cloud are not measured: they
are the parts of the recovery point and the recovery time in the plan.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from shlex import split
from typing import Any

from gpuinfra.base.errors import GpuinfraError, UsageError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.failover import label
from gpuinfra.clouds.region.readiness import FAIL
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.recovery_model import RecoveryPlan
from gpuinfra.region.clone.draft import route_of, value_at
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import CloneRequest
from gpuinfra.region.clone.replicas import image_values, replicas_of
from gpuinfra.region.failover.steps import IGNORABLE
from gpuinfra.region.readiness import DeclaredSecond, data, second_of
from gpuinfra.remote import drills
from gpuinfra.spec.load import LoadedStack, read_stack, stack_name
from gpuinfra_rehearsal import faults, processes, workload
from gpuinfra_rehearsal.actions import RehearsalResult, errors_of, finish, perform
from gpuinfra_rehearsal.applied_environment import applied
from gpuinfra_rehearsal.folder import edit_stack, write_atomically
from gpuinfra_rehearsal.object_stores import admit, pattern_of, store_of
from gpuinfra_rehearsal.session import Options, Session, read_options

CHECKPOINTS = 3
MARGIN_MINUTES = 1
"""Time between the failure and the moment at which the last checkpoint would be replicated."""
MOST_ERRORS = 10
_ERROR = re.compile(r"\*\*\w+ failed\*\* error: (.+)")
"""The message about a resource in the output of the engine."""
_STEP = re.compile(r"\d+/\d+ |    (done|unreachable|ignored) ")
"""Lines of `gpuinfra failover` about its steps. The other lines are from the engine."""


class _Failed(Exception):
    """Raised if a step does not have the expected effect."""


def check_options(options: Options, region: str | None) -> None:
    """Check that a drill of this stack is possible, before anything starts. Raises `UsageError`."""
    path, _, loaded = read_options(options)
    plan, stack = build_plan(loaded.spec, options.day) if loaded else None, stack_name(path)
    if plan is None or plan.recovery is None:
        raise UsageError(f"{stack} has no `recovery` in its stack file, so it has no second region; add `recovery` (docs/reference/recovery.md)")  # fmt: skip
    if region != plan.recovery.region:
        given = f"--to is {region}" if region else "--to is missing"
        raise UsageError(f"{given}; allowed: {plan.recovery.region}, the region in recovery.region of {stack}")
    if cloud_of(plan.cloud).failover(plan.region, plan.recovery.region, {}) is None:
        raise UsageError(
            f"a drill of {stack} is not possible yet, because gpuinfra does not support failover on {plan.cloud}; "
            f"to check the second region, run `gpuinfra ready {stack} --rehearsal`"
        )
    ordered = faults.parse(options.faults, {pool.name: pool.count for pool in plan.pools})
    if others := [one.text for one in ordered if one.scope != "cloud"]:
        raise UsageError(f"--fault is {others[0]}; allowed in a drill: faults of the cloud, which begin with cloud:")
    faults.check_against_plan(ordered, plan)
    refused = {"--under-least-permissions": options.least_privilege, "--without-nodes": options.without_nodes}  # fmt: skip
    for name, given in refused.items():
        if given:
            raise UsageError(f"{name} is not supported in a drill; omit {name}")


def run_drill(session: Session, lag_minutes: int | None = None, during: Sequence[str] = ()) -> RehearsalResult:
    """Run the steps and write the report. `lag_minutes` replaces the replication time of the plan in the stand-in cloud.

    `during` are the faults of the cloud while the failover runs. The result of a drill with faults is not recorded, because `gpuinfra ready` reports
    whether the second region works.
    """
    drill = _Drill(session, lag_minutes, during)
    problems: list[str] = []
    own = session.pulumi
    try:
        drill.reset()
        drill.run()
    except (_Failed, GpuinfraError) as error:
        drill.rows.append(_row(drill.current, ok=False, found=str(error), seconds=time.monotonic() - drill.begun))
        session.view.line(f"FAILED {drill.current}: {error}")
        problems.append(f"{drill.current}: {error}")
    finally:
        session.pulumi = own
        drill.reset()
    problems += drill.missed
    assert session.loaded is not None
    if not during:
        drills.record(session.loaded, problems=tuple(problems), rpo=drill.rpo, rto=drill.rto)
    if drill.moved:
        session.pulumi = replace(own, folder=replace(own.folder, stack=drill.moved))
    return finish(session, "drill", ok=not problems, problems=tuple(problems), extra={"drill": drill.document()})


class _Drill:
    """The steps of one drill."""

    def __init__(self, session: Session, lag_minutes: int | None, during: Sequence[str] = ()) -> None:
        plan, recovery = session.plan(), session.loaded and session.loaded.spec.recovery
        assert plan is not None
        assert plan.recovery is not None
        assert session.loaded is not None
        assert recovery is not None
        cloud = cloud_of(plan.cloud).failover(plan.region, plan.recovery.region, session.loaded.config)
        assert cloud is not None
        self.session, self.plan, self.cloud, self.during = session, plan, cloud, during
        self.recovery: RecoveryPlan = plan.recovery
        work, *copies, replication = plan.recovery.rpo.parts
        self.interval = work.minutes
        """Minutes between two checkpoints."""
        self.export = sum(one.minutes for one in copies)
        """Minutes until a checkpoint is in the bucket."""
        self.planned_lag = replication.minutes
        self.lag = self.planned_lag if lag_minutes is None else float(lag_minutes)
        self.rows: list[dict[str, Any]] = []
        self.missed: list[str] = []
        self.resources: Sequence[Mapping[str, Any]] = ()
        self.current, self.begun = "prepare", time.monotonic()
        self.rpo: float | None = None
        self.measured_s: float | None = None
        self.moved = ""
        """The stack with the nodes in the second region, if the failover was successful."""

    def run(self) -> None:
        with self._step("up"):
            self.found = self._up_primary()
        with self._step("prepare the second region"):
            self.found = self._prepare()
        if self.recovery.names:
            with self._step("names"):
                self.found = self._point_names()
        with self._step("checkpoints"):
            self.found = self._write()
        with self._step("ready"):
            self.found = self._ready()
        with self._step("region fails"):
            self.session.cloud.ask("outage", {"region": self.plan.region})
            self.session.cloud.ask("clock", {"at": None})
            self.found = f"every API in {self.plan.region} refuses requests or does not respond"
        self._failover()
        with self._step("data"):
            self.found = self._check_data()
        self._compare("RPO", self.rpo, self.recovery.rpo.declared_minutes)
        self._compare("RTO", self.rto, self.recovery.rto.declared_minutes)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Record a step. The block sets `found`."""
        self.current, self.begun, self.found = name, time.monotonic(), ""
        yield
        self.rows.append(_row(name, ok=True, found=self.found, seconds=time.monotonic() - self.begun))
        self.session.view.line(f"ok     {name}: {self.found}")

    def reset(self) -> None:
        """End the outage, and reset the clock and the replication of the stand-in cloud."""
        self.session.cloud.ask("outage", {"region": None})
        self.session.cloud.ask("clock", {"at": None})
        self.session.cloud.ask("replication", {"lag_s": 0})
        if self.during:
            self.session.cloud.ask("faults", {"faults": []})

    @property
    def rto(self) -> float | None:
        """Minutes of the failover: the measured time of its steps, and the planned times of the cloud."""
        return None if self.measured_s is None else self.measured_s / 60 + self.recovery.rto.minutes

    # Steps

    def _up_primary(self) -> str:
        for name in self._names():
            if any(self.session.folder.state.glob(f".pulumi/stacks/*/{name}.json")):
                raise _Failed(
                    f"{name} is already deployed in this rehearsal, but a drill must start without this stack; "
                    f"delete {self.session.folder.root}, and run the command again"
                )
        operation = perform(self.session, "up")
        if not operation.ok:
            raise _Failed("\n".join(errors_of(operation)))
        self.resources = self.session.pulumi.resources()
        verdict = next((one for one in self.resources if one["type"] == "gpuinfra:index:NodesReady"), None)
        return str(((verdict or {}).get("outputs") or {}).get("summary") or "no nodes are declared")

    def _names(self) -> list[str]:
        return [stack_name(path) for path in self._fresh()]

    def _fresh(self) -> dict[Path, str]:
        """Return the stack files that `gpuinfra clone` writes now."""
        loaded = read_stack(self.session.folder.stack_file)
        values = image_values(loaded, replicas_of(self.resources).images)
        mode: Any = self.recovery.mode
        project = self.session.program.project
        request = CloneRequest(region=self.recovery.region, mode=mode, project=project, values=values)
        made = clone(loaded, loaded.path.read_text(encoding="utf-8"), request, self.session.options.day)
        return {one.path: one.text for one in made.files}

    def _prepare(self) -> str:
        """Provide the stack files of the second region, and deploy the stacks that exist before a failover in this mode."""
        own = self.session.loaded
        assert own is not None
        texts = []
        for path, text in self._fresh().items():
            given = own.path.resolve().with_name(path.name)
            if given.is_file() and given != path:
                write_atomically(path, given.read_text(encoding="utf-8"))
                self._adapt(path)
                texts.append(f"{path.name} is a copy of your file")
            else:
                write_atomically(path, text)
                self._use_replicas()
                texts.append(f"{path.name} was written with `gpuinfra clone`")
        second = self._second()
        for file in {"cold": (), "pilot-light": second.files[:1], "hot": second.files}[self.recovery.mode]:
            self._deploy(file)
            texts.append(f"{file.name} is deployed")
        return ", ".join(texts)

    def _second(self) -> DeclaredSecond:
        loaded = read_stack(self.session.folder.stack_file)
        copies = replicas_of(self.resources).images
        return second_of(loaded, self.session.program.project, self.session.options.day, self.session.pulumi.env, copies=copies)  # fmt: skip

    def _use_replicas(self) -> None:
        """Run the commands that `gpuinfra ready` prints for the data."""
        stack = read_stack(self.session.folder.stack_file)
        for _ in stack.spec.storage:
            second = self._second()
            wrong = [one for one in data(stack, second, self.resources) if one.state == FAIL]
            if not wrong:
                return
            _, command, _, *words = split(wrong[0].fix)
            done = self._gpuinfra(command, str(stack.path), *words)
            if done.returncode:
                raise _Failed(f"`{wrong[0].fix}` failed: {(done.stderr or done.stdout).strip()}")

    def _adapt(self, path: Path) -> None:
        """Replace the replicas and the image copies in the account of the user by those in the stand-in account."""
        copies = image_values(read_stack(self.session.folder.stack_file), replicas_of(self.resources).images)
        replicas = [one.replica for one in self.cloud.pairs(self.resources)]

        def change(declaration: dict[str, Any]) -> None:
            for entry in declaration.get("storage") or []:
                for replica in replicas:
                    if re.fullmatch(pattern_of(self.plan.cloud, replica), str(entry.get("bucket"))):
                        entry["bucket"] = replica
            for text, copy in copies:
                *above, last = route_of(text, copy)
                if value_at(declaration, (*above, last)) is not None:
                    value_at(declaration, tuple(above))[last] = copy

        edit_stack(replace(self.session.folder, stack=stack_name(path)), change)

    def _deploy(self, loaded_stack: LoadedStack) -> None:
        own = self.session.pulumi
        self.session.pulumi = replace(own, folder=replace(own.folder, stack=loaded_stack.name))
        try:
            self.session.pulumi.ensure_stack()
            count = sum((build_plan(loaded_stack.spec, self.session.options.day).resources or {}).values())
            operation = self.session.operate("up", "--yes", "--skip-preview", title=f"up of {loaded_stack.name}", resources=count)  # fmt: skip
        finally:
            self.session.pulumi = own
        if not operation.ok:
            raise _Failed("\n".join(errors_of(operation)))

    def _point_names(self) -> str:
        """Create the declared zone in the stand-in account, and point the names to the first region."""
        names = self.recovery.names
        assert names is not None
        self.session.cloud.ask("external", {"id": names.zone, "domain": names.domain})
        done = self._gpuinfra("names", str(self.session.folder.stack_file), "--yes")
        if done.returncode:
            raise _Failed((done.stderr or done.stdout).strip())
        return "; ".join(done.stdout.splitlines())

    def _write(self) -> str:
        """Write checkpoints to the buckets of the file systems, with a simulated clock."""
        begin = time.time()
        self.session.cloud.ask("replication", {"lag_s": self.lag * 60})
        buckets = self._buckets()
        admit(self.plan.cloud, self.session.cloud.ask, [*buckets, *buckets.values()])
        for number in range(1, CHECKPOINTS + 1):
            self._set_clock(begin, number * self.interval + self.export)
            with applied(self.session.pulumi.env):
                objects = store_of(self.plan.cloud, self.plan.region)
                for source in buckets:
                    workload.write(objects, source, number, self.recovery.checkpoints)
        self.failure = CHECKPOINTS * self.interval + self.export + self.planned_lag - MARGIN_MINUTES
        self._set_clock(begin, self.failure)
        return (
            f"{CHECKPOINTS} checkpoints with {workload.FILES} files each in {', '.join(map(label, buckets))}, one every {self.interval:g} simulated minutes; "
            f"simulated replication lag: {self.lag:g} minutes"
        )

    def _set_clock(self, begin: float, minutes: float) -> None:
        self.session.cloud.ask("clock", {"at": begin + minutes * 60})

    def _buckets(self) -> dict[str, str]:
        """Return the buckets of the file systems with their replicas."""
        named = replicas_of(self.resources).buckets
        names = {replica for purpose, replica in named.items() if purpose != "evidence"}
        replicas = {one.source: one.replica for one in self.cloud.pairs(self.resources) if one.replica in names}
        if not replicas:
            raise _Failed("no file system has a replicated bucket, so a checkpoint would be lost; set `bucket: auto` in `storage`")  # fmt: skip
        return replicas

    def _ready(self) -> str:
        done = self._gpuinfra("ready", str(self.session.folder.stack_file), "--json")
        try:
            lines = json.loads(done.stdout)["lines"]
        except ValueError:
            raise _Failed((done.stderr or done.stdout).strip()) from None
        if wrong := [one for one in lines if one["state"] == FAIL]:
            raise _Failed("".join(f"\n{one['topic']} {one['name']}: {one['reason']}; to fix: {one['fix']}" for one in wrong))  # fmt: skip
        states = [str(one["state"]) for one in lines]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))

    def _failover(self) -> None:
        self.current, self.begun = "failover", time.monotonic()
        if self.during:
            self.session.cloud.ask("faults", {"faults": list(self.during)})
            self.rows.append(_row("faults begin", ok=True, found=", ".join(self.during), seconds=None))
        code, text, log = self._run_failover()
        missed = self.session.cloud.ask("faults")["without_effect"] if self.during else []
        measured_s = time.monotonic() - self.begun
        try:
            document = json.loads(text)
        except ValueError:
            raise _Failed(log[-4000:].strip()) from None
        for step in document["steps"]:
            if step["started"]:
                ok = step["state"] in ("done", "unreachable", "ignored")
                seconds = _seconds(step["started"], step["ended"])
                self.rows.append(_row(f"failover: {step['name']}", ok=ok, found=str(step["found"]), seconds=seconds))
        if code or not document["ok"]:
            errors = dict.fromkeys(_ERROR.findall(log))
            raise _Failed("".join(f"\n{one}" for one in (*list(errors)[:MOST_ERRORS], document["problem"])))
        if missed:
            raise _Failed(
                f"the failover ended without an effect of {', '.join(map(str, missed))}, so the drill proves nothing about it"
            )
        self.measured_s = measured_s
        self.moved = self._second().files[-1].name

    def _run_failover(self) -> tuple[int, str, str]:
        """Run the command, and show the lines about its steps."""
        words = ["failover", str(self.session.folder.stack_file), "--to", self.recovery.region, "--yes", "--json"]
        # On clouds with global endpoints, the services of a failed region respond with errors.
        words += ["--unreachable", self.plan.region, *(word for step in IGNORABLE for word in ("--ignore", step))]
        root = self.session.folder.root
        shutil.rmtree(self.session.journals, ignore_errors=True)  # The journal of an earlier drill.
        with (root / "failover.json").open("w+", encoding="utf-8") as out:
            process = processes.start(
                [sys.executable, "-m", "gpuinfra", *words], env=self._environment(), cwd=self.session.folder.project,
                stdout=out, stderr=subprocess.PIPE,
            )  # fmt: skip
            assert process.stderr is not None
            log = []
            with process.stderr as lines:
                for line in lines:
                    log.append(line)
                    if _STEP.match(line):
                        self.session.view.line(f"failover {line.rstrip()}")
            process.wait()
            out.seek(0)
            return process.returncode, out.read(), "".join(log)

    def _check_data(self) -> str:
        numbers = range(1, CHECKPOINTS + 1)
        newest = []
        for replica in self._buckets().values():
            with applied(self.session.pulumi.env):
                complete, wrong = workload.complete(
                    store_of(self.plan.cloud, self.recovery.region), replica, numbers, self.recovery.checkpoints
                )
            if wrong:
                raise _Failed(f"the replica {label(replica)} has wrong or missing files: {', '.join(wrong)}")
            if not complete:
                raise _Failed(
                    f"the replica {label(replica)} contains no complete checkpoint, so the RPO of {self.recovery.rpo.declared_minutes} minutes is missed"
                )
            newest.append(max(complete))
        self.rpo = self.failure - min(newest) * self.interval
        return f"checkpoint {min(newest)} of {CHECKPOINTS} is the newest in the replicas, and its checksums are correct"

    def _compare(self, name: str, reached: float | None, declared: int) -> None:
        if reached is not None and reached > declared:
            self.missed.append(f"{name} missed: {reached:.1f} minutes, declared: {declared} minutes")

    # Helpers

    def _environment(self) -> dict[str, str]:
        return {**self.session.pulumi.env, "XDG_STATE_HOME": str(self.session.journals)}

    def _gpuinfra(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = processes.start(
            [sys.executable, "-m", "gpuinfra", *words], env=self._environment(), cwd=self.session.folder.project,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def document(self) -> dict[str, Any]:
        """Return the part of the report about the drill."""
        rto, rpo = self.recovery.rto, self.recovery.rpo
        measured = None if self.measured_s is None else self.measured_s / 60
        return {
            "to": self.recovery.region,
            "faults": list(self.during),
            "mode": self.recovery.mode,
            "steps": self.rows,
            "simulated": [
                *({"target": "RPO", **_part(one)} for one in rpo.parts),
                *({"target": "RTO", **_part(one)} for one in rto.parts),
            ],
            "replication_lag_minutes": self.lag,
            "rpo": _target(self.rpo, rpo.declared_minutes),
            "rto": {**_target(self.rto, rto.declared_minutes), "measured_minutes": _rounded(measured), "simulated_minutes": rto.minutes},
            "not_included": list(dict.fromkeys((*rpo.excluded, *rto.excluded))),
        }  # fmt: skip


def _row(step: str, *, ok: bool, found: str, seconds: float | None) -> dict[str, Any]:
    return {"step": step, "ok": ok, "found": found, "seconds": _rounded(seconds)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _target(reached: float | None, declared: int) -> dict[str, Any]:
    met = reached is not None and reached <= declared
    return {"declared_minutes": declared, "reached_minutes": _rounded(reached), "met": met}


def _part(part: Any) -> dict[str, Any]:
    return {"what": part.what, "minutes": part.minutes, "how": part.how, "assumed": part.assumed}


def _seconds(started: str, ended: str | None) -> float | None:
    """Return the time between two times of a journal, which are whole seconds."""
    if ended is None:
        return None
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds()
