"""One rehearsal while it runs: folder, engine, stand-in cloud, and what is shown.

Opening a session ends what a killed one left, makes state and cloud agree, and starts the stand-in; closing it suspends
the nodes. What is done in between is in `run` (one action) and `life` (a whole life).
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from gpuinfra.clouds import why_not_built, why_not_here
from gpuinfra.day import VARIABLE as DAY
from gpuinfra.day import today
from gpuinfra.engine import find_engine
from gpuinfra.errors import DeploymentError, EnvironmentMissing, SpecError, UsageError
from gpuinfra.handover import wire
from gpuinfra.handover.names import Names
from gpuinfra.plan.model import Plan
from gpuinfra.planning import make_plan
from gpuinfra.rehearsal import applied_environment as private
from gpuinfra.rehearsal import faults as fault_list
from gpuinfra.rehearsal import least_privilege as least
from gpuinfra.rehearsal import processes, recover
from gpuinfra.rehearsal.engine import Operation, Pulumi
from gpuinfra.rehearsal.events import Progress
from gpuinfra.rehearsal.folder import Folder, Program, find_program, write_project
from gpuinfra.rehearsal.retained import import_file, remember, remembered
from gpuinfra.rehearsal.standin import Cloud, running
from gpuinfra.rehearsal.view import View
from gpuinfra.rules import load_stack
from gpuinfra.spec.load import LoadedStack, find_stack, stack_name

DEFAULT_DEADLINE = "240s"
"""Stand-in nodes take seconds, so a rehearsal does not wait for an hour as a deployment does."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a person typed."""

    stack: str
    faults: tuple[str, ...] = ()
    deadline: str | None = None
    folder: Path = Path(".rehearsal")
    parallel: int | None = None
    least: bool = False
    """Rehearse with what `gpuinfra permissions` allows, and no more."""
    on: date | None = None
    """Rehearse as of this day in place of today."""

    @property
    def day(self) -> date:
        """The day that rules, windows and prices go by."""
        return self.on or today()


@dataclass
class Session:
    """A rehearsal that is ready to work."""

    order: Order
    folder: Folder
    program: Program
    loaded: LoadedStack | None
    pulumi: Pulumi
    cloud: Cloud
    view: View
    operations: list[tuple[str, Operation]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def operate(self, name: str, *arguments: str, title: str, label: str = "") -> Operation:
        """One operation of the engine, shown while it runs and remembered for the report."""
        self.cloud.ask("operation", {"operation": f"{label or name}-{self.folder.operations()}"})
        plan = self.plan()
        total = sum(plan.resources.values()) if plan and plan.resources else None
        nodes = _Nodes(self.cloud, self.names())
        self.view.begin(title, total, plan.nodes if plan else None)
        try:
            with nodes:
                operation = self.pulumi.operate(
                    name, *arguments, watch=lambda progress, kind: self._watch(nodes, progress, kind)
                )
        finally:
            self.view.end()
        self.operations.append((label or name, operation))
        return operation

    def _watch(self, nodes: _Nodes, progress: Progress, kind: str | None) -> None:
        if kind == "error" and progress.diagnostics:
            return  # Errors are told at the end, in order; the log has them in time.
        self.view.show(progress, nodes.seen)

    def plan(self) -> Plan | None:
        """The plan of the declaration as it is now, if the stack file holds it."""
        if self.loaded is None:
            return None
        return make_plan(self.loaded.spec, self.order.day)

    def names(self) -> dict[str, Names]:
        """Cluster -> what the handover calls its machines, from the state."""
        gates = [r.get("outputs") or {} for r in self.pulumi.resources() if r.get("type") == wire.TYPE]
        return {str(gate.get("cluster")): wire.names_of(gate) for gate in gates}

    def reload(self) -> None:
        """Read the copy of the stack file again, after an edit."""
        if self.loaded is not None:
            self.loaded = load_stack(self.folder.stack_file, self.order.day)

    def adopt_kept(self) -> int:
        """Import what an earlier destroy kept; returns how many."""
        things = remembered(self.folder)
        held = {(str(r.get("type")), str(r.get("id"))) for r in self.cloud.resources()}
        things = [t for t in things if (t.type, t.id) in held]
        known = [str(r.get("urn")) for r in self.pulumi.resources()]
        document = import_file(things, known)
        wanted = [row for row in document["resources"] if not row.get("component")]
        if not wanted:
            remember(self.folder, [])
            return 0
        from gpuinfra.rehearsal.folder import write_json

        path = self.folder.root / "import.json"
        write_json(path, document)
        operation = self.operate(
            "import", "--file", str(path), "--yes", "--skip-preview", "--protect=false", "--generate-code=false",
            title=f"taking back {len(wanted)} things that the last destroy kept", label="import",
        )  # fmt: skip
        if not operation.ok:
            raise DeploymentError(
                "what the last destroy kept could not be imported:\n"
                + "\n".join(operation.progress.errors or [operation.output[-2000:]])
            )
        remember(self.folder, [])
        return len(wanted)


class _Nodes:
    """Asks the stand-in cloud for its nodes beside the engine's work, so that a slow answer holds up nothing."""

    def __init__(self, cloud: Cloud, names: dict[str, Names]) -> None:
        self._cloud, self._names = cloud, names
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen: list[dict[str, Any]] = []

    def _run(self) -> None:
        while not self._stop.wait(0.3):
            with suppress(DeploymentError):
                self.seen = self._called([n for n in self._cloud.nodes() if n.get("stage") != "terminated"])

    def _called(self, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The nodes under the handover's names, so that a node is called the same while it boots and in the report."""
        for cluster, pool in sorted({(str(n["cluster"]), str(n["pool"])) for n in nodes}):
            own = sorted((n for n in nodes if (n["cluster"], n["pool"]) == (cluster, pool)), key=_launch)
            names = self._names[cluster] = self._names.get(cluster, Names()).assign(
                pool, [n["instance_id"] for n in own]
            )
            for node in own:
                node["label"] = names.labels[node["instance_id"]]
        return nodes

    def __enter__(self) -> _Nodes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)


def _launch(node: Mapping[str, Any]) -> tuple[int, str]:
    """Launch order as the handover has it: by whole seconds, then by id."""
    return int(node.get("launched") or 0), str(node["instance_id"])


def read_order(order: Order) -> tuple[Path, Program, LoadedStack | None]:
    """The stack file, its program and its declaration; every mistake in them is found here, before anything starts."""
    path = find_stack(order.stack)
    program = find_program(path)
    try:
        loaded: LoadedStack | None = load_stack(path, order.day)
    except SpecError:
        if _declares(path):
            raise
        loaded = None  # A program of the person's own, with the declaration in Python: it tells at its run.
    if order.deadline is not None:
        try:
            wire.seconds(order.deadline)
        except ValueError as error:
            raise UsageError(f"--deadline {error}") from None
    pools = {pool.name: _count(pool) for pool in loaded.spec.pools} if loaded else None
    faults = fault_list.parse(order.faults, pools)
    if loaded is not None:
        if reason := why_not_built(loaded.spec.cloud):
            raise DeploymentError(f"{path}: {reason}")
        ours = program.virtualenv is None or program.virtualenv.resolve() == Path(sys.prefix).resolve()
        if ours and (reason := why_not_here(loaded.spec.cloud)):
            raise EnvironmentMissing(f"{path}: {reason}")
        fault_list.against_plan(faults, make_plan(loaded.spec, order.day))
    return path, program, loaded


def _count(pool: object) -> int:
    capacity = getattr(pool, "capacity", ())
    return sum(getattr(entry, "count", 0) or 0 for entry in capacity) if isinstance(capacity, list | tuple) else 0


def _declares(path: Path) -> bool:
    """Whether this file is meant to hold the declaration: no program of its own beside it reads anything else."""
    from gpuinfra.rehearsal.folder import _load
    from gpuinfra.shipped import shipped

    try:
        document = _load(path)
    except UsageError:
        return True
    config = document.get("config")
    ours = find_program(path).main == shipped("stacks").resolve()
    return ours or (isinstance(config, dict) and "gpuinfra:cluster" in config) or "where" in document


@contextmanager
def opened(order: Order, view: View) -> Iterator[Session]:
    """A session, from stack file to running stand-in cloud; ends what it started, whatever happens."""
    path, program, loaded = read_order(order)
    engine = find_engine(view.line)
    folder = _folder(order, stack_name(path), loaded)
    with folder.locked(), _terminated_as_interrupted():
        folder.make()
        left = processes.sweep(folder)
        if left:
            view.line(f"ended what an interrupted run left: {', '.join(left)}")
        notes = write_project(folder, program, path)
        base = private.environment(folder)
        base["GPUINFRA_DEADLINE"] = order.deadline or DEFAULT_DEADLINE
        base[DAY] = order.day.isoformat()
        env = engine.environ(base)
        where = (loaded.spec.cloud, loaded.spec.where.region) if loaded else ("aws", str(_region(path)))
        operator = least.write(folder, loaded, order.day) if order.least else None
        with running(folder, base, sys.executable, order.faults, operator) as cloud:
            env = private.with_cloud(env, cloud.ready, *where)
            available, why = cloud.nodes_available()
            if not available:
                env["GPUINFRA_WAIT"] = "none"
                notes.append(f"the nodes are not rehearsed: {why}")
            pulumi = Pulumi(
                path=engine.path, version=engine.version, folder=folder, env=env, others={"stand-in cloud": cloud.pid}
            )
            recover.mend(pulumi, cloud, [t.id for t in remembered(folder)], view.line)
            pulumi.ensure_stack()
            for note in notes:
                view.line(note)
            session = Session(
                order=order,
                folder=folder,
                program=program,
                loaded=loaded,
                pulumi=pulumi,
                cloud=cloud,
                view=view,
                notes=notes,
            )
            yield session
        with suppress(FileNotFoundError):
            folder.processes.unlink()


def _folder(order: Order, stack: str, loaded: LoadedStack | None) -> Folder:
    """The rehearsal's folder. A stack that uses others shares state and account with them, and they have to be up."""
    root = (order.folder / stack).resolve()
    use = loaded.spec.use if loaded else None
    used = [name.rpartition("/")[2] for name in (use.foundation, use.site) if name] if use else []
    if not used:
        return Folder(root=root, stack=stack)
    folder = Folder(root=root, stack=stack, shared=(order.folder / used[0]).resolve())
    for name in used:
        if not any(folder.state.glob(f".pulumi/stacks/*/{name}.json")):
            raise DeploymentError(
                f"{stack} uses the stack {name}, which is not up in {order.folder}; first: gpuinfra rehearse up {name}"
            )
    return folder


def _region(path: Path) -> object:
    from gpuinfra.rehearsal.folder import _load

    config: Mapping[str, Any] = _load(path).get("config") or {}
    return config.get("aws:region") or ""


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a rehearsal as Ctrl-C does: in order."""

    def stop(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Callable[..., Any] | int | None = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def titles(stack: str, faults: Sequence[str]) -> str:
    """`aws-p4d, with fault node:gpu-1:xid-79`."""
    return f"{stack}{', with fault ' + ', '.join(faults) if faults else ''}"
