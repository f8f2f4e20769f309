"""`gpuinfra doctor`: checks what a deployment and a rehearsal require, on this machine and in your account."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gpuinfra.cli.options import folder_option

SCHEMA = "gpuinfra.doctor/1"


@click.command("doctor")
@click.argument("stack", metavar="[STACK|FILE]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/doctor.md).")
@folder_option
def command(stack: str | None, as_json: bool, folder: Path) -> int:
    """Check what deployments and rehearsals require, and print the command that fixes each problem.

    The command checks Python, the engine, the SDKs and plugins of the clouds, the tools and disk space of rehearsals, the state backend, its
    passphrase, and your credentials. It changes nothing and never prints a credential. With STACK, it checks only what STACK requires.

    The exit code is 1 if there is a problem (error). Warnings and skipped items do not change the exit code.
    """
    from gpuinfra.clouds.preflight import Question, State, lines, totals
    from gpuinfra.doctor.machine import space
    from gpuinfra.doctor.run import rows_of
    from gpuinfra.rehearsal import prerequisites
    from gpuinfra.words import counted

    fix = "use --folder with a folder on another disk"
    disk = Question(topic="disk", where="rehearsals", ask=lambda: space("rehearsals", folder, fix))
    rows = rows_of(stack, [disk, *prerequisites.questions()])
    count = totals(rows)
    healthy = not count[State.ERROR]
    if as_json:
        document = {
            "schema": SCHEMA,
            "stack": stack,
            "ok": healthy,
            "totals": count,
            "rows": [one.as_dict() for one in rows],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        for line in lines(rows):
            click.echo(line)
        click.echo(
            f"\n{counted(count['error'], 'problem')}, {counted(count['warn'], 'warning')}, {count['skipped']} skipped, {count['ok']} ok"
        )
    return 0 if healthy else 1
