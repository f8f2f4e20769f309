"""The stack that a command operates on: its state, its nodes, and how to reach them over SSH."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import DeploymentError, EnvironmentMissing, GpuinfraError, UsageError
from gpuinfra.cli.stacks import Resources, Stacks, as_argument, short_name
from gpuinfra.inventory import handovers_of

if TYPE_CHECKING:
    from gpuinfra.cli.options import HostTarget
    from gpuinfra.inventory import Node
    from gpuinfra.plan.model import Plan
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.drain import JobStop, PlannedStop
    from gpuinfra.remote.hosts import Host, Hosts
    from gpuinfra.verification.drift import Difference, FixCommands
    from gpuinfra.verification.read import FoundEvidence


@dataclass(frozen=True, kw_only=True)
class ActiveStack:
    """A deployed stack."""

    name: str
    resources: Sequence[Mapping[str, Any]]
    """The resources in the state."""
    folder: Path
    """A folder for the SSH key that the login creates."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that the state lists."""
        from gpuinfra.inventory import nodes_of

        return nodes_of(self.resources)

    def found(self) -> tuple[FoundEvidence, dict[str, Mapping[str, Any]]]:
        """Return the stack's evidence and the expectation for each node. See `gpuinfra.verification.store`."""
        from gpuinfra.handover.ports import PortUnavailable
        from gpuinfra.verification.store import found_of

        try:
            return found_of(self.resources)
        except PortUnavailable as error:
            raise DeploymentError(f"the nodes of {self.name} cannot be read: {error}") from None

    def hosts(self, plan: Plan, direct: bool) -> Hosts:
        """Return the nodes as SSH hosts, with the host keys from their verified evidence."""
        from gpuinfra.remote.tunnels import hosts_of

        return hosts_of(
            self.nodes,
            cloud=plan.cloud,
            region=plan.region,
            direct=direct,
            folder=self.folder,
            resources=self.resources,
        )

    def stop_jobs(
        self, plan: Plan, direct: bool, instance_ids: Sequence[str], planned: PlannedStop | None = None
    ) -> dict[str, JobStop]:
        """Stop the jobs on nodes, after a notice if `planned` is set. Returns the result of each node, which is the error for all nodes if the login fails."""
        from gpuinfra.remote.drain import drain_all, not_stopped

        try:
            hosts = self.hosts(plan, direct)
            with connector_to(hosts, ()) as connector:
                return drain_all(connector, hosts.hosts, instance_ids, planned)
        except GpuinfraError as problem:
            return dict.fromkeys(instance_ids, not_stopped(problem))


@contextmanager
def active_stack(name: str, stacks: Stacks, keys: Path | None = None, *, logs_in: bool = True) -> Iterator[ActiveStack]:
    """Open a stack for the duration of a `with` block. `keys` is the folder for a new SSH key; default: a temporary folder.

    With `logs_in=False`, only the cloud and the evidence are read, so a rehearsal does not start its nodes and needs no SSH server.

    Raises `EnvironmentMissing` if the state of a deployed stack cannot be read, or if a state has no nodes.
    """
    opened = stacks.open if logs_in else stacks.open_cloud or stacks.open
    with opened(name) as resources, tempfile.TemporaryDirectory(prefix="gpuinfra-login-") as folder:
        if not handovers_of(resources):
            raise EnvironmentMissing(_without_nodes(name, stacks))
        yield ActiveStack(name=name, resources=resources, folder=keys or Path(folder))


def _without_nodes(name: str, stacks: Stacks) -> str:
    """Return the reason why a state has no nodes, and what to do. `up` does not help if the stack file declares no pools."""
    if _declares_no_pools(name):
        return f"{name} declares no nodes, because it has no pools; specify the stack that declares the node pools (`layers` contains `cluster`)"
    first = [f"run `{stacks.to_deploy(name)}` first", *stacks.other]
    return f"{name} has no nodes in its state; {', or '.join(first)}"


def _declares_no_pools(name: str) -> bool:
    """Return whether the stack file declares no pools. A stack in the state does not need a stack file, and the file can contain errors."""
    from gpuinfra.spec.load import read_stack

    try:
        return not read_stack(name).spec.pools
    except GpuinfraError:
        return False


@contextmanager
def hosts_for(target: HostTarget, *, announce: bool = True) -> Iterator[Hosts]:
    """Open the hosts in a hosts file or the nodes of a stack for a `with` block. Prints the notice of `Stacks`."""
    if target.hosts_file is not None:
        from gpuinfra.remote.hosts import read_hosts

        if not target.stacks.hosts_files:
            raise UsageError("--rehearsal uses the stand-in nodes of STACK; omit --hosts")
        yield read_hosts(target.hosts_file).of_pool(target.pool)
        return
    if target.stack is None:
        raise UsageError("no hosts are specified; specify STACK or --hosts FILE")
    with active_stack(target.stack, target.stacks) as active:
        if target.stacks.notice and announce:
            click.echo(target.stacks.notice, err=True)
        yield active.hosts(plan_of(target.stack), target.direct).of_pool(target.pool)


@contextmanager
def connector_to(hosts: Hosts, known_hosts: tuple[Path, ...]) -> Iterator[Connector]:
    """Open a connector for a `with` block. `known_hosts` takes precedence over the hosts file and the OpenSSH files."""
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.known import KnownHosts, default_files

    connector = Connector(KnownHosts(known_hosts or hosts.known_hosts or default_files()), hosts.jumps)
    try:
        yield connector
    finally:
        connector.close()


def commands_of(name: str, stacks: Stacks) -> FixCommands:
    """Return the commands that fix differences of a stack."""
    from gpuinfra.verification.drift import FixCommands

    stack = as_argument(name).replace("{", "{{").replace("}", "}}")
    return FixCommands(
        restore=stacks.to_restore(name),
        on_node=f"gpuinfra ssh{stacks.options} {stack} {{node}} '{{command}}'",
    )


def compared(name: str, stacks: Stacks) -> tuple[list[Difference], list[str]]:
    """Compare a stack with what was deployed. Returns the differences, and the parts that could not be read with the reason.

    Raises `EnvironmentMissing` if the state cannot be read.
    """
    from gpuinfra.engine import find_engine
    from gpuinfra.engine.refresh import preview_refresh
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.handover.wire import TYPE
    from gpuinfra.verification.drift import of_cloud, of_nodes
    from gpuinfra.verification.judged import judge_all
    from gpuinfra.verification.store import found_of

    engine = find_engine(lambda line: click.echo(line, err=True))
    short, commands = short_name(name), commands_of(name, stacks)
    differences: list[Difference] = []
    unread: list[str] = []
    with readable_stack(name, stacks) as resources:
        commands = replace(commands, restore=_failback(name, resources) or commands.restore)
        try:
            changes = preview_refresh(engine, short, stacks.project(name))
            # The nodes are compared below, with a reason for each node.
            differences += of_cloud(changes, commands, except_types=[TYPE])
        except EnvironmentMissing as problem:
            unread.append(str(problem))
        try:
            read, expected = found_of(resources)
            nodes = judge_all(read, lambda one: expected[one.instance_id])
            differences += of_nodes(nodes, read.absent, commands)
        except PortUnavailable as problem:
            unread.append(
                f"the nodes of {short} cannot be read: {problem}; log in to the cloud, then run the command again"
            )
    return differences, unread


def _failback(name: str, resources: Resources) -> str:
    """Return the command that returns a stack to its first region, or an empty string if it did not fail over."""
    from gpuinfra.cli.active import active_elsewhere
    from gpuinfra.spec.load import read_stack

    try:
        loaded = read_stack(name)
    except GpuinfraError:  # A stack in the state does not need a stack file, and the file can contain errors.
        return ""
    record = active_elsewhere(loaded, resources)
    if record is None:
        return ""
    click.echo(
        f"{loaded.name} does not run in {loaded.spec.where.region}, so its differences are expected until a failback: {record}",
        err=True,
    )
    return f"gpuinfra failback {as_argument(name)}"


@contextmanager
def readable_stack(name: str, stacks: Stacks, *, nodes: bool = True) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Open the resources of a deployed stack, and its nodes if `nodes` is set. Raises `EnvironmentMissing` if its state cannot be read or is empty."""
    with ExitStack() as opened:
        try:
            open_stack = stacks.open if nodes else stacks.open_cloud or stacks.open
            resources = opened.enter_context(open_stack(name))
        except DeploymentError as problem:
            raise EnvironmentMissing(str(problem)) from None
        if not any(one.get("custom") for one in resources):
            raise EnvironmentMissing(f"{name} has no resources in its state; run `{stacks.to_deploy(name)}` first")
        yield resources


def plan_of(name: str) -> Plan:
    """Return the plan for a stack, as of today."""
    from gpuinfra.base.day import now, today
    from gpuinfra.plan.make import build_plan
    from gpuinfra.rules import load_stack

    day = today()
    return build_plan(load_stack(name, day).spec, day, now())


def pool_of(host: Host, hosts: Hosts, plan: Plan, pool: str | None) -> str:
    """Return the pool of a host, from the field of the host, the field of the file, `--pool`, or the only pool in the plan."""
    names = [one.name for one in plan.pools]
    name = host.pool or hosts.pool or pool or (names[0] if len(names) == 1 else "")
    if not name:
        raise UsageError(
            f"the pool of {host.title} is not known; {plan.name} has {', '.join(names)}; specify --pool, or set `pool` in the hosts file"
        )
    if name not in names:
        raise UsageError(f"{plan.name} has no pool {name!r}; its pools are {', '.join(names) or 'none'}")
    return name
