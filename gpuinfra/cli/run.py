"""`gpuinfra run`: runs a command on all nodes and groups identical output."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuinfra.base.errors import ERROR_PREFIX, INTERRUPTED, UsageError
from gpuinfra.cli.options import HostTarget, RemoteCommand, some, ssh_options, stack_choice
from gpuinfra.cli.stack_context import connector_to, hosts_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinfra.remote.connection import CommandResult
    from gpuinfra.remote.fleet import FleetResult, HostOutcome
    from gpuinfra.remote.hosts import Host, Hosts

SCHEMA = "gpuinfra.run/1"
SHOWN_LINES = 200
"""Maximum number of lines shown for each distinct output, so that one node cannot flood the terminal."""


@click.command("run", cls=RemoteCommand, context_settings={"ignore_unknown_options": True})
@click.argument("stack", required=False)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@ssh_options(timeout_s=300)
@click.option(
    "-N",
    "--nodes",
    type=click.IntRange(1),
    metavar="COUNT",
    help="Run COMMAND as one job on the first COUNT nodes, as the login user.",
)
@click.option("--per-gpu", is_flag=True, help="With -N: start one process for each GPU instead of one for each node.")
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    default=29500,
    show_default=True,
    help="With -N: port on node 0, passed to COMMAND as MASTER_PORT.",
)
@click.option(
    "--container",
    "image",
    metavar="IMAGE",
    help="With -N: run COMMAND in a container of this image on each node, with the node's GPUs, fabric and mounts.",
)
@click.option(
    "--notice-signal",
    type=click.Choice(["USR1", "USR2", "HUP", "INT", "TERM", "none"]),
    default="USR1",
    show_default=True,
    help="With -N: signal for the processes of COMMAND that handle it, when the cloud announces that a node ends or reboots.",
)
@click.option(
    "--logs",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="With -N: folder for the output of each node. Default: a new folder in ~/.local/state/gpuinfra/runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@stack_choice
def command(
    target: HostTarget,
    words: tuple[str, ...],
    nodes: int | None,
    per_gpu: bool,
    port: int,
    image: str | None,
    notice_signal: str,
    logs: Path | None,
    as_json: bool,
) -> int:
    """Run COMMAND on all nodes of STACK, or on the hosts in a hosts file.

    A shell on each node interprets COMMAND. Without -N, COMMAND runs as root, and nodes with identical output are grouped. If the
    connection is lost, the command is not repeated, because it may already have run. With --hosts, omit STACK. The exit code
    is 0 if COMMAND exits with 0 on every node, and 1 otherwise.

    With -N, COMMAND runs at the same time on COUNT nodes, with variables such as NODE_RANK and MASTER_ADDR (docs/guides/jobs.md). It
    stops on all nodes if it fails on one node, if you press Ctrl-C, or if the connection is lost. The exit code is the exit
    code of the first failure.
    """
    given = ([target.stack] if target.hosts_file and target.stack else []) + list(words)
    if not given:
        raise UsageError("no command is specified; run: gpuinfra run STACK -- COMMAND")
    _refuse_unused(nodes is not None)
    if nodes is not None:
        from gpuinfra.cli.job import run_job

        return run_job(
            target,
            given,
            nodes=nodes,
            per_gpu=per_gpu,
            port=port,
            image=image,
            notice_signal=notice_signal,
            logs=logs,
            as_json=as_json,
        )
    with hosts_for(target) as hosts:
        ended = _run(target, hosts, given)
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "hosts": [_entry(one) for one in ended.outcomes]}, indent=2))
    else:
        _print(ended.outcomes)
    if ended.interrupted:
        return INTERRUPTED
    return 0 if all(one.value is not None and one.value.exit == 0 for one in ended.outcomes) else 1


def _refuse_unused(job: bool) -> None:
    """Refuse options that have no effect: those of a job without -N, and the limits of single commands with -N."""
    context = click.get_current_context()
    unused = (
        {"timeout_s": "--timeout", "parallel": "--parallel"}
        if job
        else {
            "per_gpu": "--per-gpu",
            "port": "--port",
            "image": "--container",
            "notice_signal": "--notice-signal",
            "logs": "--logs",
        }
    )
    for name, option in unused.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{option} has no effect {'with' if job else 'without'} -N; omit {option}")


def _run(target: HostTarget, hosts: Hosts, words: Sequence[str]) -> FleetResult[CommandResult]:
    from gpuinfra.remote.fleet import HostFleet
    from gpuinfra.remote.problem import HostProblem, ProblemKind

    text = words[0] if len(words) == 1 else shlex.join(words)

    def task(host: Host) -> CommandResult:
        line = f"sudo -n -- sh -c {shlex.quote(text)}" if host.sudo else text
        with connector.connect(host) as connection:
            try:
                return connection.run(line, limit_s=target.timeout_s)
            except HostProblem as problem:
                # The connection was open, so the command may have started. The kind STEP is not retried.
                raise HostProblem(ProblemKind.STEP, problem.reason, problem.hint) from None

    with connector_to(hosts, target.known_hosts) as connector:
        return HostFleet(hosts.hosts, task, parallel=target.parallel, on_stop=connector.close).run()


def _entry(outcome: HostOutcome[CommandResult]) -> dict[str, Any]:
    from gpuinfra.base.safe_text import printable

    answer, problem = outcome.value, outcome.problem
    return {
        "name": outcome.host.name,
        "label": outcome.host.label,
        "exit": answer.exit if answer else None,
        "output": printable(answer.output.decode("utf-8", "replace")) if answer else None,
        "dropped_bytes": answer.dropped_bytes if answer else 0,
        "problem": problem.kind.value if problem else None,
        "reason": problem.reason if problem else None,
        "hint": problem.hint if problem else None,
        "seconds": round(outcome.seconds, 1),
    }


def _print(outcomes: list[HostOutcome[CommandResult]]) -> None:
    from gpuinfra.base.safe_text import printable

    groups: dict[tuple[int, bytes], list[str]] = {}
    for outcome in outcomes:
        if outcome.value is not None:
            groups.setdefault((outcome.value.exit, outcome.value.output), []).append(outcome.host.title)
    for (code, output), names in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        click.echo(f"{some(names)}{f' (exit code {code})' if code else ''}:")
        lines = output.decode("utf-8", "replace").splitlines()
        for line in lines[-SHOWN_LINES:]:
            click.echo(f"  {printable(line)}")
        if len(lines) > SHOWN_LINES:
            click.echo(f"  (the last {SHOWN_LINES} of {len(lines)} lines)")
    for outcome in outcomes:
        if outcome.problem is not None:
            click.echo(f"{ERROR_PREFIX}{outcome.problem.reason}; {outcome.problem.hint}", err=True)
    good = sum(one.value is not None and one.value.exit == 0 for one in outcomes)
    click.echo(f"{good} of {len(outcomes)} hosts succeeded", err=True)
