"""`gpuinfra run -N COUNT`: runs one job on several nodes at the same time."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from gpuinfra.base.errors import ERROR_PREFIX, INTERRUPTED, UsageError
from gpuinfra.base.private_files import private_folder
from gpuinfra.cli.options import HostTarget, some
from gpuinfra.cli.stack_context import connector_to, hosts_for, plan_of, pool_of
from gpuinfra.cli.stacks import short_name

if TYPE_CHECKING:
    from gpuinfra.plan.model import PoolPlan
    from gpuinfra.remote.container import JobContainer
    from gpuinfra.remote.hosts import Host, Hosts
    from gpuinfra.remote.job import Job, JobResult

SCHEMA = "gpuinfra.job/1"
LINE_BYTES = 64 * 1024
"""Output without a line break is shown in parts of this size."""


def run_job(
    target: HostTarget,
    words: Sequence[str],
    *,
    nodes: int,
    per_gpu: bool,
    port: int,
    image: str | None,
    notice_signal: str,
    logs: Path | None,
    as_json: bool,
) -> int:
    """Run a job on the first `nodes` hosts. Returns the exit code of the command."""
    from gpuinfra.remote.job import Job, NoticeSignal

    with hosts_for(target) as hosts:
        chosen = [host for host in hosts.hosts if host.verified][:nodes]
        if len(chosen) < nodes:
            what = "these hosts are available" if target.hosts_file else "these nodes are verified"
            names = some([one.label or one.name for one in chosen]) or "none"
            raise UsageError(f"-N is {nodes}, but only {what}: {names}; specify at most {len(chosen)}")
        pool = _pool(target, hosts, chosen)
        gpus = pool.expectation["gpus"] if pool else 0
        if per_gpu and not gpus:
            raise UsageError("--per-gpu requires a stack, because a hosts file does not contain the number of GPUs")
        container = container_of(image, pool, per_gpu=per_gpu) if image else None
        line = words[0] if len(words) == 1 else shlex.join(words)
        job = Job(
            command=line,
            gpus=gpus,
            per_gpu=per_gpu,
            port=port,
            container=container,
            notice_signal=NoticeSignal(notice_signal),
        )
        folder = _new_folder(target) if logs is None else logs
        private_folder(folder)
        result = _run(target, hosts, chosen, job, folder, quiet=as_json)
    if as_json:
        click.echo(json.dumps(_document(result, folder), indent=2))
    for node in result.nodes:
        if node.problem:
            click.echo(f"{ERROR_PREFIX}{node.problem.reason}; {node.problem.hint}", err=True)
    if result.first and result.first.problem is None:
        click.echo(
            f"{ERROR_PREFIX}{result.first.host.title} failed first, with exit code {result.first.exit}; the other nodes were stopped",
            err=True,
        )
    click.echo(f"logs: {folder}", err=True)
    return INTERRUPTED if result.interrupted else result.exit


def _pool(target: HostTarget, hosts: Hosts, chosen: Sequence[Host]) -> PoolPlan | None:
    """Return the pool of the nodes, or None if it is unknown. Refuses nodes from several pools."""
    if target.stack is None or target.hosts_file is not None:
        return None
    plan = plan_of(target.stack)
    pools = {pool_of(host, hosts, plan, target.pool) for host in chosen}
    if len(pools) > 1:
        raise UsageError(f"the nodes are in the pools {', '.join(sorted(pools))}; select one with --pool")
    return next(pool for pool in plan.pools if pool.name in pools)


def container_of(image: str, pool: PoolPlan | None, *, per_gpu: bool) -> JobContainer:
    """Return the container of the job. Refuses a job that cannot run in a container."""
    from gpuinfra.cli.env import mounts
    from gpuinfra.remote.container import FABRICS, WITHOUT_CONTAINER, JobContainer

    if image.startswith("-") or not image.strip():
        raise UsageError(
            f"--container is {image!r}, which is not the name of an image; specify an image such as nvcr.io/nvidia/pytorch:25.06-py3"
        )
    if per_gpu:
        raise UsageError(
            "--container cannot be combined with --per-gpu; omit --per-gpu, and start the processes with torchrun"
        )
    if pool is None:
        raise UsageError(
            "--container requires a stack, because a hosts file does not specify the container runtime; omit --hosts and specify STACK"
        )
    listed = pool.expectation.get("containers", [])
    if "docker" not in listed:
        instead = ", or omit --container and start enroot in COMMAND" if "enroot" in listed else ""
        raise UsageError(
            f"--container requires Docker, but software.containers is [{', '.join(listed)}]; add docker to software.containers, and deploy the stack{instead}"
        )
    fabric = pool.expectation["fabric_provider"] if pool.expectation["fabric_devices"] else None
    if fabric not in FABRICS:
        why = WITHOUT_CONTAINER[str(fabric)]
        raise UsageError(
            f"--container does not support {fabric}, the fabric of {pool.machine}, because {why}; omit --container"
        )
    return JobContainer(image=image, mounts=tuple(mounts(pool)))


def _new_folder(target: HostTarget) -> Path:
    from gpuinfra.remote.record import state_folder

    runs = (target.stacks.records or state_folder()) / "runs"
    private_folder(runs)
    # With --hosts, the first word of the command is in `stack`.
    name = target.hosts_file.stem if target.hosts_file else short_name(target.stack or "")
    return Path(tempfile.mkdtemp(prefix=f"{name}-{time.strftime('%Y%m%dT%H%M%SZ-', time.gmtime())}", dir=runs))


class _Output:
    """Writes the output of each node to its log, and to the terminal line by line with the node name."""

    def __init__(self, names: Sequence[str], files: Sequence[BinaryIO], *, quiet: bool) -> None:
        self._names = names
        self._files = files
        self._quiet = quiet
        self._width = max(len(name) for name in names)
        self._rest = [b""] * len(names)
        self._guard = threading.Lock()

    def add(self, rank: int, chunk: bytes) -> None:
        """Process output from one node. Carriage returns also separate lines, because progress bars use them."""
        self._files[rank].write(chunk)
        self._files[rank].flush()
        with self._guard:
            *lines, rest = (self._rest[rank] + chunk.replace(b"\r", b"\n")).split(b"\n")
            if len(rest) > LINE_BYTES:
                lines, rest = [*lines, rest], b""
            self._rest[rank] = rest
            self._print(rank, lines)

    def finish(self) -> None:
        """Print the last line of each node, if it does not end with a line break."""
        for rank, rest in enumerate(self._rest):
            self._print(rank, [rest] if rest else [])

    def _print(self, rank: int, lines: Sequence[bytes]) -> None:
        from gpuinfra.base.safe_text import printable

        for line in lines if not self._quiet else ():
            click.echo(f"{self._names[rank]:{self._width}} | {printable(line.decode('utf-8', 'replace'))}")


def _run(target: HostTarget, hosts: Hosts, chosen: Sequence[Host], job: Job, folder: Path, *, quiet: bool) -> JobResult:
    from gpuinfra.remote.job import run

    names = [host.label or host.name for host in chosen]
    with ExitStack() as stack:
        files = [stack.enter_context(_new_log(folder / f"{name}.log")) for name in names]
        output = _Output(names, files, quiet=quiet)
        connector = stack.enter_context(connector_to(hosts, target.known_hosts))
        result = run(connector, chosen, job, output.add)
        output.finish()
    return result


def _new_log(path: Path) -> BinaryIO:
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        raise UsageError(f"{path} already exists; specify a different folder with --logs") from None


def _document(result: JobResult, folder: Path) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "exit": INTERRUPTED if result.interrupted else result.exit,
        "logs": str(folder),
        "nodes": [
            {
                "name": one.host.name,
                "label": one.host.label,
                "rank": rank,
                "exit": one.exit,
                "problem": one.problem.kind.value if one.problem else None,
                "reason": one.problem.reason if one.problem else None,
                "hint": one.problem.hint if one.problem else None,
            }
            for rank, one in enumerate(result.nodes)
        ],
    }
