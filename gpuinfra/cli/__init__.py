"""The `gpuinfra` command.

This module owns the group, the exit codes and the way errors are shown; each subcommand is a module beside it
with a click command named `command`, imported only when it is called, so that `gpuinfra plan` never loads an engine.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback

import click

from gpuinfra.errors import INTERRUPTED, GpuinfraError

COMMANDS = {
    "plan": "what a stack will be and cost, and what is wrong with it",
    "rehearse": "bring a stack up on Pulumi's engine with stand-ins for cloud and nodes",
    "catalog": "machine types: GPUs, fabric, prices, where they are",
    "schema": "the JSON schema of a stack's declaration",
    "explain": "any field, finding, check, bootstrap step or Xid",
    "bootstrap": "run the steps of a stack's nodes over SSH, on hundreds of hosts at once",
    "permissions": "the least that an operator of a stack must be allowed",
    "adopt": "write the Pulumi import file for resources that a destroy retained",
    "verify": "what nodes show now or in their evidence: which to drain, reset, reboot or replace",
    "run": "one command on all nodes of a stack at once, what is alike told once",
    "ssh": "log in to one node of a stack, with the host keys of the handover",
}
"""Name -> one line of help; `gpuinfra.cli.<name>` holds the command."""


class _Lazy(click.Group):
    """A group that imports a subcommand's module when it is called for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"gpuinfra.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; commands are {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback behind an error.")
@click.version_option(package_name="gpuinfra", message="gpuinfra %(version)s")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Write down one GPU cluster and get the same thing on AWS, Azure or Google Cloud.

    Exit codes: 0 done, 1 findings of level error or a failed deployment, 2 wrong use,
    3 the environment is missing something, 130 interrupted.
    """
    ctx.obj = {"debug": debug}
    if debug:
        os.environ["GPUINFRA_DEBUG"] = "1"


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit code and shows errors without a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        result = cli.main(args=arguments, prog_name="gpuinfra", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except GpuinfraError as problem:
        _show(problem)
        return problem.exit_code
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe left (`gpuinfra catalog | head`): not an error, and nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as problem:
        # Whatever reaches this line was not foreseen: people get one line that says so, and the way to see more.
        if os.environ.get("GPUINFRA_DEBUG"):
            traceback.print_exception(problem)
        what = f"{type(problem).__name__}: {problem}".splitlines()[0]
        click.echo(f"gpuinfra: a defect in gpuinfra itself: {what}; `gpuinfra --debug ...` shows where", err=True)
        return 1
    return result if isinstance(result, int) else 0


def _show(problem: GpuinfraError) -> None:
    if os.environ.get("GPUINFRA_DEBUG"):
        traceback.print_exception(problem)
    else:
        for line in prefixed(str(problem)):
            click.echo(line, err=True)


def prefixed(text: str) -> list[str]:
    """Several findings are several lines, and each says whose it is; what is indented goes on with the one above."""
    return [line if line[:1].isspace() else f"gpuinfra: {line}" for line in text.splitlines() if line.strip()]


def run() -> None:
    """Entry point of the installed script."""
    sys.exit(main())
