"""A running rehearsal: folder, engine and stand-in cloud.

Opening a session terminates leftover processes, recovers from an interrupted run, and starts the stand-in cloud. Closing
it suspends the nodes. `actions` runs one action in a session, and `life` runs a whole life cycle.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from gpuinfra.base.day import VARIABLE as DAY
from gpuinfra.base.day import today
from gpuinfra.base.errors import DeploymentError, EnvironmentMissing, SpecError, UsageError
from gpuinfra.base.shipped import shipped
from gpuinfra.cli.rehearsals import DEFAULT_FOLDER
from gpuinfra.clouds import why_not_built, why_not_here
from gpuinfra.clouds.adopt import import_file, urns_in
from gpuinfra.clouds.region.dns import CLUSTER
from gpuinfra.engine import Engine, find_engine
from gpuinfra.engine.hosts import find_host
from gpuinfra.engine.state_files import make_readable
from gpuinfra.handover import wire
from gpuinfra.handover.names import NodeNames
from gpuinfra.inventory import handovers_of
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.rules import load_stack
from gpuinfra.search.interrupted import continue_killed_run
from gpuinfra.spec.load import LoadedStack, find_stack, read_stack, stack_name
from gpuinfra_rehearsal import applied_environment, faults, least_privilege, processes, retained
from gpuinfra_rehearsal.endpoints import declared_account
from gpuinfra_rehearsal.engine import OperationResult, Pulumi
from gpuinfra_rehearsal.events import RunProgress
from gpuinfra_rehearsal.folder import (
    Folder,
    Program,
    copy_files,
    find_program,
    mapping_in,
    read_yaml,
    write_json,
    write_project,
)
from gpuinfra_rehearsal.progress import View
from gpuinfra_rehearsal.standin import StandInCloud, running_cloud

DEFAULT_DEADLINE = "240s"
"""Maximum wait. Stand-in nodes boot in seconds, so a rehearsal does not have to wait as long as a deployment."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command-line options of a rehearsal."""

    stack: str
    faults: tuple[str, ...] = ()
    deadline: str | None = None
    folder: Path = DEFAULT_FOLDER
    least_privilege: bool = False
    """Grant the operator only the permissions that `gpuinfra permissions` prints."""
    without_nodes: bool = False
    """Rehearse only the cloud. No node starts, and `up` does not wait for nodes."""
    reads: bool = False
    """A command reads the cloud and the evidence. It does not expect nodes to run, so their absence is no note."""
    every_stack: bool = False
    """A fault can concern each stack of the rehearsal, such as those of the second region, instead of `stack` only."""
    on: date | None = None
    """Rehearse as if today were this date."""

    @property
    def day(self) -> date:
        """The date that rules, windows and prices use."""
        return self.on or today()


@dataclass
class Session:
    """A rehearsal with its stand-in cloud running."""

    options: Options
    folder: Folder
    program: Program
    loaded: LoadedStack | None
    pulumi: Pulumi
    cloud: StandInCloud
    view: View
    operations: list[tuple[str, OperationResult]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def python(self) -> Path:
        """The interpreter of the stack's program, with which commands of gpuinfra run."""
        return self.program.virtualenv / "bin" / "python" if self.program.virtualenv else Path(sys.executable)

    @property
    def journals(self) -> Path:
        """The state folder of commands that run in this rehearsal, with the journals of failovers and the results of drills."""
        return self.folder.root / "journals"

    def operate(self, name: str, *arguments: str, title: str, resources: int | None = None) -> OperationResult:
        """Run one engine operation, show its progress, and record it for the report. `resources` is the resource count of an
        operation that does not process the whole plan or the whole state."""
        self.cloud.ask("operation", {"operation": f"{name}-{self.folder.operations()}"})
        plan = self.plan()
        if resources is None and name in ("refresh", "destroy"):
            resources = len(self.pulumi.counted())
        elif resources is None and plan and plan.resources:
            resources = sum(plan.resources.values())
        nodes = _NodePoller(self.cloud, self.names())

        def watch(progress: RunProgress, kind: str | None) -> None:
            if kind != "error" or not progress.diagnostics:  # errors are printed in order at the end
                self.view.show(progress, nodes.latest)

        self.view.begin(title, resources, plan.nodes if plan else None)
        try:
            with nodes:
                operation = self.pulumi.operate(name, *arguments, watch=watch)
        finally:
            self.view.end()
        self.operations.append((name, operation))
        return operation

    def plan(self) -> Plan | None:
        """The plan of the current declaration, if the stack file contains one."""
        return build_plan(self.loaded.spec, self.options.day) if self.loaded else None

    def names(self) -> dict[str, NodeNames]:
        """Return the machine names that the handover assigned, keyed by cluster, from the state."""
        outputs = [one.get("outputs") or {} for one in handovers_of(self.pulumi.resources())]
        return {str(one.get("cluster")): wire.names_of(one) for one in outputs}

    def reload(self) -> None:
        """Reload the copy of the stack file after an edit."""
        if self.loaded is not None:
            self.loaded = load_stack(self.folder.stack_file, self.options.day)

    def adopt(self) -> int:
        """Import the resources that an earlier destroy retained, with the file that `gpuinfra adopt` writes. Returns
        their number."""
        if not self._record_missing():
            return 0
        path = self.folder.root / "adopt.json"
        path.unlink(missing_ok=True)
        self._write_import_file(path)
        rows = json.loads(path.read_text(encoding="utf-8"))["resources"] if path.exists() else []
        count = sum(not row.get("component") for row in rows)
        if count:
            operation = self.operate(
                "import", "--file", str(path), "--yes", "--skip-preview", "--generate-code=false",
                title=f"import of {count} resources that the last destroy retained", resources=count,
            )  # fmt: skip
            if not operation.ok:
                errors = "\n".join(operation.progress.errors or [operation.output[-2000:]])
                raise DeploymentError(f"resources that the last destroy retained cannot be imported:\n{errors}")
        self._record_missing()
        return count

    def _record_missing(self) -> bool:
        """Keep the record of retained resources that are not in the state. Return whether there are any such resources.

        A resource that is recreated instead of imported stays in the record until `up` creates it, so recovery does not
        delete it.
        """
        urns = urns_in({"deployment": self.pulumi.deployment()})
        missing = [one for one in retained.recorded(self.folder) if (one.type, one.name) not in urns]
        retained.record(self.folder, missing)
        return bool(missing)

    def _write_import_file(self, path: Path) -> None:
        """Run the real command. It cannot read a declaration in Python, and it imports into `GpuCluster`. For other programs,
        the retained resources are read from the record."""
        export = {"version": 3, "deployment": self.pulumi.deployment()}
        in_cluster = any(parent[0] == CLUSTER for one in retained.recorded(self.folder) for parent in one.parents)
        if self.loaded is None or not in_cluster:
            held = {(str(one.get("type")), str(one.get("id"))) for one in self.cloud.resources()}
            retained_resources = [
                one
                for one in retained.recorded(self.folder)
                if (one.type, one.id) in held and retained.is_imported(one.type)
            ]
            write_json(path, import_file(retained_resources, urns_in(export)))
            return
        state = self.folder.root / "state.json"
        write_json(state, export)
        words = [
            str(self.python),
            "-m",
            "gpuinfra",
            "adopt",
            str(self.folder.stack_file),
            "--project",
            self.program.project,
        ]
        process = processes.start(
            [*words, "--state", str(state), "--out", str(path)],
            env=self.pulumi.env, cwd=self.folder.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        output, _ = process.communicate()
        state.unlink()
        if process.returncode:
            raise DeploymentError(f"gpuinfra adopt {self.folder.stack} failed: {output.strip()}")


class _NodePoller:
    """Polls the stand-in cloud for its nodes in a separate thread, so that a slow response does not delay the engine."""

    def __init__(self, cloud: StandInCloud, names: dict[str, NodeNames]) -> None:
        self._cloud, self._names = cloud, names
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.latest: list[dict[str, Any]] = []

    def _run(self) -> None:
        while not self._stop.wait(0.3):
            with suppress(DeploymentError):
                self.latest = self._labeled([n for n in self._cloud.nodes() if n.get("stage") != "terminated"])

    def _labeled(self, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the nodes with the names that the handover assigns, so that a node has the same name during boot and in the report."""
        for cluster, pool in sorted({(str(n["cluster"]), str(n["pool"])) for n in nodes}):
            own = sorted((n for n in nodes if (n["cluster"], n["pool"]) == (cluster, pool)), key=_launch_order)
            names = self._names[cluster] = self._names.get(cluster, NodeNames()).assign(
                pool, [n["instance_id"] for n in own]
            )
            for node in own:
                node["label"] = names.labels[node["instance_id"]]
        return nodes

    def __enter__(self) -> _NodePoller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)


def _launch_order(node: Mapping[str, Any]) -> tuple[int, str]:
    """Return the sort key for the launch order that the handover uses: by whole seconds, then by ID."""
    return int(node.get("launched") or 0), str(node["instance_id"])


def read_options(options: Options) -> tuple[Path, Program, LoadedStack | None]:
    """Return the stack file, its program and its declaration. Errors in them are reported before anything starts."""
    path = find_stack(options.stack)
    program = find_program(path)
    try:
        loaded: LoadedStack | None = load_stack(path, options.day)
    except SpecError:
        if _has_declaration(path):
            raise
        loaded = None  # The declaration is in a Python program, which reports its own errors.
    if options.deadline is not None:
        try:
            wire.seconds(options.deadline)
        except ValueError as error:
            raise UsageError(f"--deadline {error}") from None
    pools = {pool.name: _count(pool) for pool in loaded.spec.pools} if loaded else None
    ordered = faults.parse(options.faults, pools)
    if loaded is not None:
        if reason := why_not_built(loaded.spec.cloud):
            raise DeploymentError(f"{path}: {reason}")
        ours = program.virtualenv is None or program.virtualenv.resolve() == Path(sys.prefix).resolve()
        if ours and (reason := why_not_here(loaded.spec.cloud)):
            raise EnvironmentMissing(f"{path}: {reason}")
        folder = _folder(options, stack_name(path), loaded)
        files = sorted(folder.project.glob("Pulumi.*.yaml")) if options.every_stack else []
        others = [read_stack(file) for file in files if file.name != path.name]
        plans = [build_plan(one.spec, options.day) for one in (loaded, *others)]
        faults.check_against_plans(ordered, plans, replaces=(folder.root / "cloud.sqlite").exists())
    return path, program, loaded


def _count(pool: object) -> int:
    capacity = getattr(pool, "capacity", ())
    return sum(getattr(entry, "count", 0) or 0 for entry in capacity) if isinstance(capacity, list | tuple) else 0


def _has_declaration(path: Path) -> bool:
    """Return whether this file must contain the declaration, because it already has one or uses gpuinfra's built-in program."""
    try:
        document = read_yaml(path)
    except UsageError:
        return True
    config = document.get("config")
    ours = find_program(path).main == shipped("stacks").resolve()
    return ours or (isinstance(config, dict) and "gpuinfra:cluster" in config) or "where" in document


@contextmanager
def open_session(options: Options, view: View) -> Iterator[Session]:
    """Open a session within a `with` block. On exit, it terminates every process that it started."""
    view.phase("preparation of the engine and the stand-in cloud")
    path, program, loaded = read_options(options)
    engine = find_engine(view.line)
    folder = _folder(options, stack_name(path), loaded)
    with folder.locked(), _sigterm_as_interrupt():
        folder.make()
        left = processes.sweep(folder)
        if left:
            view.line(f"stopped leftover processes of an interrupted run: {', '.join(left)}")
        host = find_host(program.runtime, engine, view.line)
        notes = write_project(folder, program, path, {program.runtime: host} if host else None)
        if loaded is not None:
            copy_files(folder, loaded.spec.software)
        base = applied_environment.environment(folder)
        base["GPUINFRA_DEADLINE"] = options.deadline or DEFAULT_DEADLINE
        base[DAY] = options.day.isoformat()
        base |= declared_account(loaded.settings) if loaded else {}
        env = engine.environ(base)
        where = (loaded.spec.cloud, loaded.spec.where.region) if loaded else ("aws", _aws_region(path))
        operator = least_privilege.write_policy(folder, loaded, options.day) if options.least_privilege else None
        with running_cloud(
            folder, base, sys.executable, options.faults, operator, nodes=not options.without_nodes
        ) as cloud:
            env = applied_environment.with_stand_in_cloud(env, cloud.ready, *where)
            env = applied_environment.with_profile(env, folder, loaded.settings.get("aws:profile") if loaded else None)
            available, reason = cloud.nodes_available()
            if not available:
                env["GPUINFRA_WAIT"] = "none"
                if not options.reads:
                    notes.append(f"nodes are not rehearsed: {reason}")
            pulumi = Pulumi(
                path=engine.path, version=engine.version, folder=folder, env=env, others={"stand-in cloud": cloud.pid}
            )
            pulumi.ensure_stack()
            continue_interrupted(engine, pulumi, loaded, view)
            for note in notes:
                view.line(note)
            yield Session(
                options=options,
                folder=folder,
                program=program,
                loaded=loaded,
                pulumi=pulumi,
                cloud=cloud,
                view=view,
                notes=notes,
            )
        folder.processes.unlink(missing_ok=True)


def continue_interrupted(engine: Engine, pulumi: Pulumi, loaded: LoadedStack | None, view: View) -> None:
    """Continue an interrupted run as `gpuinfra up --resume` does, and remove its lock."""
    folder = pulumi.folder
    with applied_environment.applied(pulumi.env):
        make_readable(engine, folder.stack, folder.project, lambda: pulumi.env["PULUMI_BACKEND_URL"], view.line)
        if any(folder.state.glob(f".pulumi/locks/**/{folder.stack}/*.json")):
            pulumi.quick("cancel", "--yes", "--stack", folder.stack)
            view.line("an earlier run was interrupted; removed its lock")
        with folder.log.open("a", encoding="utf-8") as log:
            continue_killed_run(
                engine, folder.stack, folder.project, clusters=[loaded.spec.name] if loaded else [],
                settings=loaded.settings if loaded else {}, output=log, say=view.line,
            )  # fmt: skip


def _folder(options: Options, stack: str, loaded: LoadedStack | None) -> Folder:
    """Return the rehearsal's folder. A stack that uses other stacks shares their state and account, so those stacks must be deployed."""
    root = (options.folder / stack).resolve()
    use = loaded.spec.use if loaded else None
    used = [name.rpartition("/")[2] for name in (use.foundation, use.site) if name] if use else []
    if not used:
        return Folder(root=root, stack=stack)
    folder = Folder(root=root, stack=stack, shared=(options.folder / used[0]).resolve())
    for name in used:
        if not any(folder.state.glob(f".pulumi/stacks/*/{name}.json")):
            raise DeploymentError(
                f"{stack} uses the stack {name}, which is not deployed in {options.folder}; run: gpuinfra rehearse up {name}"
            )
    return folder


def _aws_region(path: Path) -> str:
    return str(mapping_in(read_yaml(path), "config", path).get("aws:region") or "")


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that a rehearsal shuts down cleanly."""

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
