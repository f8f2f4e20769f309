"""A stack as it stands: its state, and how its nodes are reached. Commands that work on what is up begin here.

A deployed stack is asked through Pulumi's own state; a rehearsed one through its folder, with its stand-in cloud and its
stand-in nodes running meanwhile.
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
    from gpuinfra.plan.model import Plan
    from gpuinfra.rehearsal.session import Session
    from gpuinfra.remote.hosts import Host, Hosts


COME_BACK_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What is known of a stack that is up."""

    name: str
    gates: Sequence[Mapping[str, Any]]
    """The `NodesReady` of its state."""
    resources: Sequence[Mapping[str, Any]] = ()
    """All that its state holds."""
    session: Session | None = None
    """The rehearsal, where it is one."""

    def found(self) -> Any:
        """Its evidence and what each node should show; see `gpuinfra.verification.store`."""
        from gpuinfra.handover.ports import PortUnavailable
        from gpuinfra.rehearsal import applied_environment as private
        from gpuinfra.verification.store import found_of

        with private.worn(self.session.pulumi.env) if self.session else nullcontext():
            try:
                return found_of(self.gates)
            except PortUnavailable as error:
                raise DeploymentError(f"the nodes of {self.name} cannot be looked at: {error}") from None

    def hosts(self, plan: Plan, direct: bool) -> Hosts:
        """Its nodes as SSH hosts, with the host keys that their verified evidence carried."""
        from gpuinfra.remote.tunnels import bastion_of, from_outputs

        nodes = [node for gate in self.gates for node in (gate.get("outputs") or {}).get("nodes") or []]
        if self.session is not None:
            return _stand_ins(self.session, nodes)
        user = "ubuntu" if any(pool.image.os.startswith("ubuntu") for pool in plan.pools) else "root"
        return from_outputs(
            {"nodes": nodes},
            cloud=plan.cloud,
            region=plan.region,
            direct=direct,
            user=user,
            door=bastion_of(self.resources),
        )


@contextmanager
def standing(name: str, rehearsal: Path | None) -> Iterator[Standing]:
    """The stack, for the length of a `with`; `rehearsal` is the folder of rehearsals, None for a deployed stack."""
    from gpuinfra.verification.store import gates_of

    if rehearsal is None:
        resources = _resources(name)
        gates = _gates(name, gates_of(resources), f"pulumi up --stack {_short(name)}")
        yield Standing(name=name, gates=gates, resources=resources)
        return
    from gpuinfra.rehearsal.session import Order, opened
    from gpuinfra.rehearsal.view import view_for

    with opened(Order(stack=name, folder=rehearsal), view_for(sys.stderr)) as session:
        gates = gates_of(session.pulumi.resources())
        yield Standing(name=name, gates=_gates(name, gates, f"gpuinfra rehearse up {name}"), session=session)


def plan_of(name: str) -> Plan:
    """The plan of a stack's declaration, as of today."""
    from datetime import UTC, datetime

    from gpuinfra.planning import make_plan
    from gpuinfra.rules import load_stack

    today = datetime.now(UTC).date()
    return make_plan(load_stack(name, today).spec, today)


def pool_of(host: Host, hosts: Hosts, plan: Plan, pool: str | None) -> str:
    """Which pool a host is of: its own word, the file's, the command line's, or the only one there is."""
    names = [one.name for one in plan.pools]
    found = host.pool or hosts.pool or pool or (names[0] if len(names) == 1 else "")
    if not found:
        raise UsageError(
            f"{plan.name} has the pools {', '.join(names)}; give --pool, or write pool with the hosts of the file"
        )
    if found not in names:
        raise UsageError(f"{plan.name} has no pool {found!r}; its pools are {', '.join(names) or 'none'}")
    return found


def rehearsal_options(command: Any) -> Any:
    """`--rehearsal` and `--folder`, the same on each command that has them."""
    command = click.option(
        "--folder",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(".rehearsal"),
        help="Where rehearsals are kept. Default .rehearsal here.",
    )(command)
    return click.option("--rehearsal", is_flag=True, help="Work on the stand-ins of STACK's rehearsal.")(command)


def _gates(name: str, gates: Sequence[Mapping[str, Any]], how: str) -> Sequence[Mapping[str, Any]]:
    if not gates:
        raise DeploymentError(
            f"{name} has no nodes that were waited for; bring it up first ({how}), or give --hosts FILE"
        )
    return gates


def _resources(name: str) -> list[dict[str, Any]]:
    """The resources of a deployed stack, from the state's own backend."""
    from gpuinfra.engine import find_engine

    engine = find_engine(lambda line: click.echo(line, err=True))
    words = [str(engine.path), "stack", "export", "--stack", _short(name), "--non-interactive"]
    done = subprocess.run(words, env=engine.environ(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise DeploymentError(
            f"`pulumi stack export` says for {name}: {said}; log in to the state's backend and bring the stack up, "
            "or give --hosts FILE"
        )
    try:
        found = json.loads(done.stdout)["deployment"].get("resources") or []
    except (ValueError, KeyError, AttributeError):
        raise DeploymentError(
            f"`pulumi stack export` of {name} is no state that is understood; update pulumi"
        ) from None
    return [one for one in found if isinstance(one, dict)]


def _stand_ins(session: Session, nodes: Sequence[Mapping[str, Any]]) -> Hosts:
    """Stand-in nodes on loopback. Their keys are those of the handover, as on a deployed machine."""
    from gpuinfra.remote.hosts import Host, Hosts

    answer = session.cloud.ask("ssh")
    if not answer.get("available"):
        raise DeploymentError(f"the stand-in nodes answer no SSH: {answer.get('reason')}")
    _let_them_come_back(session)
    keys = {str(node.get("instanceId")): tuple(map(str, node.get("sshHostKeys") or ())) for node in nodes}
    names = {str(node.get("instanceId")): str(node.get("label")) for node in nodes}
    hosts = [
        Host(
            name=names.get(str(node["instance_id"]), str(node["label"])),
            address=str(answer["address"]),
            port=int(answer["ports"][node["instance_id"]]),
            user=str(answer["user"]),
            identity=(Path(str(answer["identity"])),),
            host_keys=keys.get(str(node["instance_id"]), ()),
            pool=str(node["pool"]),
        )
        for node in session.cloud.nodes()
        if node.get("state") == "running" and node.get("instance_id") in answer["ports"]
    ]
    if not hosts:
        raise DeploymentError(f"no stand-in node of {session.folder.stack} runs; bring it up first")
    return Hosts(hosts=tuple(hosts), jumps={host.name: host for host in hosts})


def _let_them_come_back(session: Session) -> None:
    """Between two commands nodes are suspended, and only a few of them go on at the same time."""
    until = time.monotonic() + COME_BACK_S
    while time.monotonic() < until:
        stages = {node.get("stage") for node in session.cloud.nodes() if node.get("state") == "running"}
        if not stages & {"pending", "suspended", "booting"}:
            return
        time.sleep(0.2)


def _short(name: str) -> str:
    """`aws-p4d` of `stacks/Pulumi.aws-p4d.yaml`."""
    return Path(name).stem.removeprefix("Pulumi.")
