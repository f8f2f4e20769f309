"""The active stack of a command: its state, its nodes, and how to reach them over SSH.

The state of a deployed stack comes from `pulumi stack export`. A rehearsed stack is read from its folder. Its
stand-in cloud and nodes run for the duration of the command.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.errors import DeploymentError, UsageError

if TYPE_CHECKING:
    from gpuinfra.cli.options import Target
    from gpuinfra.inventory import Node
    from gpuinfra.plan.model import Plan
    from gpuinfra.rehearsal.session import Session
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.hosts import Host, Hosts
    from gpuinfra.verification.read import Found

RESUME_LIMIT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class ActiveStack:
    """A stack that is deployed or rehearsed."""

    name: str
    resources: Sequence[Mapping[str, Any]]
    """The resources of its state."""
    session: Session | None = None
    """Its rehearsal, or None for a deployed stack."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that its state lists."""
        from gpuinfra.inventory import nodes_of

        return nodes_of(self.resources)

    def found(self) -> tuple[Found, dict[str, Mapping[str, Any]]]:
        """Return its evidence and the expectation of each node; see `gpuinfra.verification.store`."""
        from gpuinfra.handover.ports import PortUnavailable
        from gpuinfra.rehearsal.applied_environment import applied
        from gpuinfra.verification.store import found_of

        with applied(self.session.pulumi.env) if self.session else nullcontext():
            try:
                return found_of(self.resources)
            except PortUnavailable as error:
                raise DeploymentError(f"the nodes of {self.name} cannot be read: {error}") from None

    def hosts(self, plan: Plan, direct: bool) -> Hosts:
        """Return its nodes as SSH hosts, with the host keys from their verified evidence."""
        from gpuinfra.remote.tunnels import hosts_of

        if self.session is not None:
            return _stand_ins(self.session, self.nodes)
        return hosts_of(
            self.nodes,
            cloud=plan.cloud,
            region=plan.region,
            direct=direct,
            user="ubuntu" if any(pool.image.os.startswith("ubuntu") for pool in plan.pools) else "root",
            resources=self.resources,
        )


@contextmanager
def active_stack(name: str, rehearsals: Path | None) -> Iterator[ActiveStack]:
    """Open a stack for the duration of a `with` block. `rehearsals` is the folder of rehearsals, None for a deployed stack."""
    if rehearsals is None:
        resources = _exported(name)
        _require_handover(name, resources, f"pulumi up --stack {short_name(name)}")
        yield ActiveStack(name=name, resources=resources)
        return
    from gpuinfra.rehearsal.session import Options, open_session
    from gpuinfra.report.progress import view_for

    with open_session(Options(stack=name, folder=rehearsals), view_for(sys.stderr)) as session:
        resources = session.pulumi.resources()
        _require_handover(name, resources, f"gpuinfra rehearse up {name}")
        yield ActiveStack(name=name, resources=resources, session=session)


@contextmanager
def hosts_for(target: Target, *, announce: bool = True) -> Iterator[Hosts]:
    """Open the hosts of a file or the nodes of a stack for a `with` block. Announces stand-in nodes."""
    if target.rehearsals and target.hosts_file:
        raise UsageError("--rehearsal uses the stand-in nodes of STACK; leave --hosts out")
    if target.hosts_file is not None:
        from gpuinfra.remote.hosts import read_hosts

        yield read_hosts(target.hosts_file).of_pool(target.pool)
        return
    if target.stack is None:
        raise UsageError("no hosts are named; give STACK or --hosts FILE")
    with active_stack(target.stack, target.rehearsals) as active:
        if active.session is not None and announce:
            click.echo("rehearsal: these are stand-in nodes on this machine", err=True)
        yield active.hosts(plan_of(target.stack), target.direct).of_pool(target.pool)


@contextmanager
def connector_to(hosts: Hosts, known_hosts: tuple[Path, ...]) -> Iterator[Connector]:
    """Open a connector for a `with` block. `known_hosts` takes precedence over the hosts file and OpenSSH's files."""
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.known import KnownHosts, default_files

    connector = Connector(KnownHosts(known_hosts or hosts.known_hosts or default_files()), hosts.jumps)
    try:
        yield connector
    finally:
        connector.close()


def plan_of(name: str) -> Plan:
    """Return the plan of a stack, as of today."""
    from gpuinfra.day import today
    from gpuinfra.planning import make_plan
    from gpuinfra.rules import load_stack

    day = today()
    return make_plan(load_stack(name, day).spec, day)


def pool_of(host: Host, hosts: Hosts, plan: Plan, pool: str | None) -> str:
    """Return the pool of a host: from its own field, the file's field, `--pool`, or the plan's only pool."""
    names = [one.name for one in plan.pools]
    found = host.pool or hosts.pool or pool or (names[0] if len(names) == 1 else "")
    if not found:
        raise UsageError(
            f"the pool of {host.name} is not known; {plan.name} has {', '.join(names)}; give --pool, or set `pool` in the hosts file"
        )
    if found not in names:
        raise UsageError(f"{plan.name} has no pool {found!r}; its pools are {', '.join(names) or 'none'}")
    return found


def _require_handover(name: str, resources: Sequence[Mapping[str, Any]], command: str) -> None:
    from gpuinfra.inventory import handovers_of

    if not handovers_of(resources):
        raise DeploymentError(f"{name} has no verified nodes in its state; run `{command}` first, or give --hosts FILE")


def _exported(name: str) -> list[dict[str, Any]]:
    """Return the resources of a deployed stack, from its state backend."""
    from gpuinfra.engine import find_engine

    engine = find_engine(lambda line: click.echo(line, err=True))
    words = [str(engine.path), "stack", "export", "--stack", short_name(name), "--non-interactive"]
    done = subprocess.run(words, env=engine.environ(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no error message").splitlines()[-1]
        raise DeploymentError(
            f"`pulumi stack export` failed for {name}: {reason}; log in to the state backend (`pulumi login`) and deploy "
            "the stack, or give --hosts FILE"
        )
    try:
        found = json.loads(done.stdout)["deployment"].get("resources") or []
    except (ValueError, KeyError, AttributeError):
        raise DeploymentError(f"`pulumi stack export` printed an unknown format for {name}; update pulumi") from None
    return [one for one in found if isinstance(one, dict)]


def _stand_ins(session: Session, nodes: Sequence[Node]) -> Hosts:
    """Return stand-in nodes on loopback addresses, with the host keys from the handover as for a deployed node."""
    from gpuinfra.remote.hosts import Host, Hosts

    answer = session.cloud.ask("ssh")
    if not answer.get("available"):
        raise DeploymentError(f"the stand-in nodes have no SSH server: {answer.get('reason')}")
    _wait_for_resumed(session)
    known = {node.id: node for node in nodes}
    hosts = []
    for stand_in in session.cloud.nodes():
        id = str(stand_in.get("instance_id"))
        if stand_in.get("state") != "running" or id not in answer["ports"]:
            continue
        node = known.get(id)
        hosts.append(
            Host(
                name=node.name if node else str(stand_in["label"]),
                address=str(answer["address"]),
                port=int(answer["ports"][id]),
                user=str(answer["user"]),
                identity=(Path(str(answer["identity"])),),
                host_keys=node.host_keys if node else (),
                pool=str(stand_in["pool"]),
            )
        )
    if not hosts:
        raise DeploymentError(
            f"no stand-in node of {session.folder.stack} is running; run `gpuinfra rehearse up` first"
        )
    return Hosts(hosts=tuple(hosts), jumps={host.name: host for host in hosts})


def _wait_for_resumed(session: Session) -> None:
    """Wait until the nodes resume. They are suspended between commands, and only a few resume at the same time."""
    until = time.monotonic() + RESUME_LIMIT_S
    while time.monotonic() < until:
        stages = {node.get("stage") for node in session.cloud.nodes() if node.get("state") == "running"}
        if not stages & {"pending", "suspended", "booting"}:
            return
        time.sleep(0.2)


def short_name(name: str) -> str:
    """Return the short name: `aws-p4d` for `stacks/Pulumi.aws-p4d.yaml`."""
    return Path(name).stem.removeprefix("Pulumi.")
