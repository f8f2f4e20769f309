"""`gpuinfra run`: one command on all nodes at once, what is alike told once."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.cli.options import ssh_options
from gpuinfra.cli.stack_context import plan_of, rehearsal_options, standing
from gpuinfra.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinfra.remote.connection import Answer
    from gpuinfra.remote.fleet import Outcome
    from gpuinfra.remote.hosts import Host, Hosts

SCHEMA = "gpuinfra.run/1"
SHOWN_LINES = 200
"""Of each different output; a flood of one node may not push the others off the screen."""


@click.command("run", short_help="one command on all nodes at once", context_settings={"ignore_unknown_options": True})
@click.argument("stack", required=False)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@ssh_options(
    hosts="Run on the hosts of this file (docs/remote.md); the first word is then the command's.",
    pool="Only the hosts of this pool.",
    timeout_s=300,
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@rehearsal_options
def command(
    stack: str | None,
    words: tuple[str, ...],
    hosts_file: Path | None,
    pool: str | None,
    direct: bool,
    rehearsal: bool,
    folder: Path,
    **options: Any,
) -> int:
    """Run COMMAND on the nodes of STACK, or on the hosts of a file.

    A shell on the node reads it. Nodes that say the same are told together. Exit code 0 when it ended with 0 on every node.
    A command that stops half-way is not tried again: nobody knows what it did.
    """
    if hosts_file is not None:
        from gpuinfra.remote.hosts import read_hosts

        given = ([stack] if stack else []) + list(words)
        return _run(read_hosts(hosts_file).of_pool(pool), given, options)
    if stack is None:
        raise UsageError("say where: STACK, or --hosts FILE")
    _need(words)
    with standing(stack, folder if rehearsal else None) as up:
        if rehearsal:
            click.echo("rehearsal: these are stand-in nodes on this machine", err=True)
        return _run(up.hosts(plan_of(stack), direct).of_pool(pool), list(words), options)


def _need(words: Sequence[str]) -> None:
    if not words:
        raise UsageError("say what to run: gpuinfra run STACK -- COMMAND")


def _run(hosts: Hosts, words: list[str], options: dict[str, Any]) -> int:
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.fleet import Fleet
    from gpuinfra.remote.known import Known, default_files
    from gpuinfra.remote.problem import HostProblem, Kind

    _need(words)
    text = words[0] if len(words) == 1 else shlex.join(words)
    connector = Connector(Known(options["known_hosts"] or hosts.known_hosts or default_files()), hosts.jumps)

    def task(host: Host) -> Answer:
        line = f"sudo -n -- sh -c {shlex.quote(text)}" if host.sudo else text
        with connector.connect(host) as connection:
            try:
                return connection.run(line, limit_s=options["timeout_s"])
            except HostProblem as problem:
                # The connection was there: the command may have begun, and twice is not once.
                raise HostProblem(Kind.STEP, problem.reason, problem.hint) from None

    try:
        ended = Fleet(hosts.hosts, task, parallel=options["parallel"], leave=connector.close).run()
    finally:
        connector.close()
    if options["as_json"]:
        click.echo(json.dumps({"schema": SCHEMA, "hosts": [_entry(one) for one in ended.outcomes]}, indent=2))
    else:
        _tell(ended.outcomes)
    if ended.interrupted:
        return INTERRUPTED
    return 0 if all(one.value is not None and one.value.exit == 0 for one in ended.outcomes) else 1


def _entry(outcome: Outcome[Answer]) -> dict[str, Any]:
    answer, problem = outcome.value, outcome.problem
    return {
        "name": outcome.host.name,
        "exit": answer.exit if answer else None,
        "output": answer.output.decode("utf-8", "replace") if answer else None,
        "dropped_bytes": answer.dropped_bytes if answer else 0,
        "problem": problem.kind.value if problem else None,
        "reason": problem.reason if problem else None,
        "hint": problem.hint if problem else None,
        "seconds": round(outcome.seconds, 1),
    }


def _tell(outcomes: list[Outcome[Answer]]) -> None:
    alike: dict[tuple[int, bytes], list[str]] = {}
    for outcome in outcomes:
        if outcome.value is not None:
            alike.setdefault((outcome.value.exit, outcome.value.output), []).append(outcome.host.name)
    for (code, output), names in sorted(alike.items(), key=lambda pair: -len(pair[1])):
        click.echo(f"{_some(names)}{f' ended with {code}' if code else ''}:")
        lines = output.decode("utf-8", "replace").splitlines()
        for line in lines[-SHOWN_LINES:]:
            click.echo("  " + "".join(c if c.isprintable() or c == "\t" else "?" for c in line))
        if len(lines) > SHOWN_LINES:
            click.echo(f"  (the last {SHOWN_LINES} of {len(lines)} lines)")
    for outcome in outcomes:
        if outcome.problem is not None:
            click.echo(f"gpuinfra: {outcome.problem.reason}; {outcome.problem.hint}", err=True)
    good = sum(one.value is not None and one.value.exit == 0 for one in outcomes)
    click.echo(f"{good} of {len(outcomes)} hosts ended with 0", err=True)


def _some(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
