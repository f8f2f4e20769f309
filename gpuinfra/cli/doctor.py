"""`gpuinfra doctor`: checks what a deployment and a rehearsal require, on this machine and in your account."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gpuinfra.cli.options import folder_option

SCHEMA = "gpuinfra.doctor/1"


@click.command("doctor")
@click.argument("stack", metavar="[STACK|FILE]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/guides/doctor.md).")
@folder_option
def command(stack: str | None, as_json: bool, folder: Path) -> int:
    """Check what deployments and rehearsals require, and print the command that fixes each problem.

    The command checks Python, the engine, the cloud SDKs and plugins, the tools and disk space for rehearsals, the state backend, its
    passphrase, and your credentials. With STACK, it checks only what STACK requires, including permissions, quotas, capacity and images in
    your account. It changes no resources and never prints a credential.

    The exit code is 1 if there is an error. Warnings and skipped items do not change the exit code.
    """
    from gpuinfra.cli.rehearsals import KIND, install_command, installed
    from gpuinfra.clouds.preflight import PreflightQuestion, PreflightRows, skipped
    from gpuinfra.doctor.machine import size, space
    from gpuinfra.doctor.run import rows_of
    from gpuinfra.engine.entries import size_limit
    from gpuinfra.engine.keep import cache_folder

    size_limit()  # A wrong limit is a usage error, not a row.
    rehearsal = installed()
    stored = rehearsal.size(folder) if rehearsal else 0
    questions = [PreflightQuestion(topic="disk", where="size", ask=lambda: size(cache_folder(), folder, stored))]
    if rehearsal:
        fix = "use --folder with a folder on another disk"
        disk = PreflightQuestion(topic="disk", where="rehearsals", ask=lambda: space("rehearsals", folder, fix))
        questions = [disk, *questions, *rehearsal.questions()]
    else:
        absent = skipped(KIND, "package", "not installed", install_command())
        questions.append(PreflightQuestion(topic=KIND, where="package", ask=lambda: [absent]))
    answers = PreflightRows(rows=tuple(rows_of(stack, questions)))
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "stack": stack, **answers.as_dict()}, indent=2))
    else:
        click.echo("\n".join(answers.lines()))
    return 0 if answers.ok else 1
