"""Runs one job on several nodes at the same time, with environment variables that identify each node.

| variable | value |
| --- | --- |
| `NNODES`, `NODE_RANK` | number of nodes, and the rank of this node, starting at 0 |
| `MASTER_ADDR`, `MASTER_PORT` | private address of node 0, and a port on it |
| `GPUS_PER_NODE` | number of GPUs on each node |
| `GPUINFRA_NODES` | private addresses of all nodes, separated by commas |
| `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `LOCAL_WORLD_SIZE` | only with one process for each GPU:
rank and world size of the process, with the same meaning as in torchrun |

`supervisor.py` runs on each node. If a process fails on one node, the job stops on all nodes.
"""

from __future__ import annotations

import json
import shlex
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gpuinfra.node.measure import MANAGERS
from gpuinfra.node.probes import NOTICES
from gpuinfra.remote import supervisor
from gpuinfra.remote.connect import Connector
from gpuinfra.remote.connection import Connection, RunningCommand
from gpuinfra.remote.container import JobContainer
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, ProblemKind

_SOURCE = Path(supervisor.__file__).read_bytes()
# Unbuffered, because the supervisor reads the rest of standard input itself.
_LOADER = (
    "import sys;i=sys.stdin.buffer.raw;n=int(i.readline());b=b'';"
    "exec('while len(b)<n:b+=i.read(n-len(b))');exec(compile(b,'gpuinfra-supervisor','exec'))"
)
GRACE_S = 10.0
"""Time between SIGTERM and SIGKILL, in seconds."""
PORT = 29500
"""The default port of torchrun."""


class NoticeSignal(StrEnum):
    """What the processes of a job receive when a notice becomes imminent."""

    USR1 = "USR1"
    USR2 = "USR2"
    HUP = "HUP"
    INT = "INT"
    TERM = "TERM"
    NONE = "none"

    @property
    def number(self) -> int:
        """The number of the signal, or 0."""
        return 0 if self is NoticeSignal.NONE else int(signal.Signals[f"SIG{self.value}"])


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command to run on several nodes."""

    command: str
    """A bash command line."""
    gpus: int
    """Number of GPUs on each node, or 0."""
    per_gpu: bool = False
    """Whether to start one process for each GPU. Otherwise, one for each node."""
    port: int = PORT
    container: JobContainer | None = None
    """The container in which the command runs. If None, the command runs on the node itself."""
    notice_signal: NoticeSignal = NoticeSignal.USR1
    """Signal for the processes that handle it, when the cloud announces that a node ends soon."""

    def order(self, hosts: Sequence[Host], rank: int) -> dict[str, object]:
        """Return the order for the supervisor of one node."""
        addresses = [host.private_address or host.address for host in hosts]
        return {
            "command": self.command,
            "environment": environment(addresses, self.gpus, self.port) | {"NODE_RANK": str(rank)},
            "processes": self.gpus if self.per_gpu else 1,
            "per_gpu": self.per_gpu,
            "grace_s": GRACE_S,
            "managers": MANAGERS,
            "container": self.container.order(rank, self.gpus) if self.container else None,
            "notices": {"path": NOTICES, "signal": self.notice_signal.number},
        }


def environment(addresses: Sequence[str], gpus: int, port: int = PORT) -> dict[str, str]:
    """Return the variables that all nodes of a job share."""
    return {
        "NNODES": str(len(addresses)),
        "GPUS_PER_NODE": str(gpus),
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(port),
        "GPUINFRA_NODES": ",".join(addresses),
    }


@dataclass
class JobEnd:
    """How a job ended on one node."""

    host: Host
    exit: int | None = None
    problem: HostProblem | None = None


@dataclass
class JobResult:
    """How a job ended on all nodes, in the order of their ranks."""

    nodes: list[JobEnd] = field(default_factory=list)
    first: JobEnd | None = None
    """The node on which the job failed first."""
    interrupted: bool = False
    error: BaseException | None = None
    """The exception that the caller's `on_output` raised."""

    @property
    def exit(self) -> int:
        """0 if the job succeeded, otherwise the exit code of the first failure, or 255 without an exit code, as with ssh."""
        if self.first is None:
            return 0
        return 255 if self.first.exit is None else self.first.exit


def run(connector: Connector, hosts: Sequence[Host], job: Job, on_output: Callable[[int, bytes], None]) -> JobResult:
    """Run a job on hosts, in the order of their ranks. `on_output` receives the rank and the output, from one thread per host.

    The job starts after all hosts are connected. An exception in `on_output` stops the job and is raised again. An interrupt stops the job on all hosts.
    After a second interrupt, the function does not wait for the job to stop.
    """
    result = JobResult([JobEnd(host) for host in hosts])
    changed = threading.Condition()
    running: dict[int, RunningCommand] = {}

    def follow(rank: int, running_command: RunningCommand) -> None:
        ended = result.nodes[rank]
        try:
            ended.exit = running_command.wait(lambda chunk: on_output(rank, chunk))
        except HostProblem as problem:
            ended.problem = problem
        except BaseException as error:
            result.error = error
        finally:
            with changed:
                running.pop(rank)
                if ended.exit != 0 and result.first is None and not result.interrupted:
                    result.first = ended
                changed.notify_all()

    with ExitStack() as stack:
        opened = _connect(connector, hosts, stack, result)
        if result.first is not None:
            return result
        for rank, connection in enumerate(opened):
            try:
                running[rank] = _start(connection, job.order(hosts, rank))
            except HostProblem as problem:
                result.nodes[rank].problem = problem
                result.first = result.nodes[rank]
                break
        threads = [
            threading.Thread(target=follow, args=item, daemon=True, name=f"job-{item[0]}")
            for item in [*running.items()]
        ]
        for thread in threads:
            thread.start()
        stopped = False
        while True:
            try:
                with changed:
                    while running and (stopped or (result.first is None and not result.interrupted)):
                        changed.wait(0.5)
                    left = [*running.values()]
                if not left:
                    break
                stopped = True
                for process in left:
                    process.stop()
            except KeyboardInterrupt:
                if result.interrupted:
                    connector.close()
                    break
                result.interrupted = True
        for thread in threads:
            thread.join(2)
    if result.error is not None:
        raise result.error
    return result


def _connect(connector: Connector, hosts: Sequence[Host], stack: ExitStack, result: JobResult) -> list[Connection]:
    """Connect to all hosts in parallel. If one fails, `result.first` is set."""
    guard = threading.Lock()

    def connect(ended: JobEnd) -> Connection | None:
        opened = connector.connect(ended.host)
        try:
            connection = opened.__enter__()
        except HostProblem as problem:
            ended.problem = problem
            return None
        with guard:
            stack.push(opened)
        return connection

    with ThreadPoolExecutor(max_workers=min(64, len(hosts))) as pool:
        try:
            connections = list(pool.map(connect, result.nodes))
        except KeyboardInterrupt:
            result.interrupted = True
            connector.close()
            connections = []
    if result.interrupted:
        interrupted = HostProblem(
            ProblemKind.INTERRUPTED, "the job was interrupted before it started", "run the command again"
        )
        result.first = JobEnd(hosts[0], problem=interrupted)
    else:
        result.first = next((one for one in result.nodes if one.problem), None)
    return [one for one in connections if one is not None]


def _start(connection: Connection, order: dict[str, object]) -> RunningCommand:
    line = json.dumps(order).encode() + b"\n"
    return connection.start(f"python3 -I -u -c {shlex.quote(_LOADER)}", b"%d\n%s%s" % (len(_SOURCE), _SOURCE, line))
