"""The `gpuinfra` command.

This module owns the command group, the exit codes and the display of errors. Each subcommand is a module in this package with a click
command named `command`, imported on first use, so `gpuinfra plan` does not load an engine.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
import traceback

import click

from gpuinfra.base.errors import ERROR_PREFIX, INTERRUPTED, EnvironmentMissing, GpuinfraError, SpecError, UsageError
from gpuinfra.base.safe_text import one_line, printable

GROUPS = {
    "Before you buy": {
        "size": "Find machines, time and price for a model",
        "init": "Write the stack file of a new cluster",
        "plan": "Validate a stack; show its topology, software and price",
        "catalog": "List machine types with GPUs, fabric, prices and regions",
        "prices": "List prices with their dates and sources",
        "images": "Show the image of each pool, newer releases and their changes",
        "clone": "Write the stack file for a second region",
        "permissions": "Print the minimum permissions to deploy a stack",
        "rehearse": "Run a stack against a local simulation of its cloud and nodes",
    },
    "Deploy": {
        "up": "Check a stack, deploy it, and search for capacity",
        "doctor": "Check this machine and your account; print the fix for each problem",
        "adopt": "Write the import file for resources that destroy retained",
        "bootstrap": "Install software on existing machines over SSH",
    },
    "Operate": {
        "verify": "Evaluate the evidence that nodes uploaded",
        "nodes": "List the nodes: state, verified since, price per hour",
        "calendar": "List when nodes start and are removed, and what is due",
        "alerts": "Print the alert rules for GPU metrics as a file for Prometheus",
        "dashboards": "Write the Grafana dashboards of a stack, or store them in Grafana",
        "metrics": "Open Prometheus and Alertmanager of a stack on this machine",
        "logs": "Print the logs of the nodes, also of nodes that no longer exist",
        "drift": "Compare cloud resources and nodes with what was deployed",
        "replace": "Replace faulty nodes, with evidence for the provider",
        "maintenance": "Silence alerts and repair of a node for planned work",
        "ready": "Check whether the second region is ready",
        "drill": "Test the second region with cheap nodes, and remove them",
        "failover": "Move a stack to its second region",
        "failback": "Move a stack back to its first region",
        "names": "Point the DNS names of a stack to one of its regions",
        "check": "Run the checks on the nodes now",
        "pairs": "Measure pairs of nodes to find a slow node",
        "run": "Run a command on all nodes, or a job on several nodes",
        "env": "Print addresses, GPUs and mounts of the nodes for a launcher",
        "ssh": "Log in to a node, or write an OpenSSH configuration",
        "cp": "Copy files to and from nodes",
    },
    "Reference": {
        "explain": "Explain a field, rule, check, bootstrap step, Xid or alert",
        "schema": "Print the JSON schema of a stack file",
        "cache": "Show the data that gpuinfra stores on this machine; remove unused data",
        "completion": "Print or install the completion for bash, zsh or fish",
    },
}
"""One-line help texts, keyed by group and command name. `gpuinfra.cli.<name>` defines the command."""

VARIABLE = "_GPUINFRA_COMPLETE"
"""A shell's completion script sets this variable to request completions. Click derives its name from the command name."""

COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}


class _LazyGroup(click.Group):
    """A command group that imports the module of a subcommand on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"gpuinfra.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        if VARIABLE in os.environ:
            from gpuinfra.cli.complete import attach

            attach(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in COMMANDS)
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(COMMANDS)}"
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback if an error occurs.")
@click.version_option(package_name="gpuinfra", message="gpuinfra %(version)s")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Declare one GPU cluster and deploy it on AWS, Azure or Google Cloud.

    STACK is the name of a stack (aws-p4d) or the path to its file.

    Exit codes: 0 success, 1 findings or failures, 2 usage error, 3 missing prerequisite, 130 interrupted.
    """
    ctx.obj = {"debug": debug}
    if debug:
        os.environ["GPUINFRA_DEBUG"] = "1"


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code. Errors are shown without a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    if VARIABLE in os.environ:
        from gpuinfra.cli import bash

        bash.use()
    try:
        result = cli.main(args=arguments, prog_name="gpuinfra", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as problem:
        _show_usage(problem)
        return problem.exit_code
    except GpuinfraError as problem:
        _show(problem)
        return problem.exit_code
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`gpuinfra catalog | head`). This is not an error, but no further output can be written.
        _discard_output()
        return 0
    except SystemExit:
        # Without standalone mode, click exits by itself only if the reader closes the pipe during the command.
        return 0
    except OSError as problem:
        what = _missing(problem)
        if what is None:
            return _internal_error(problem)
        _show(EnvironmentMissing(what))
        return EnvironmentMissing.exit_code
    except RuntimeError as problem:
        # From `Path.resolve` in Python 3.11 and 3.12. Later versions raise an `OSError`.
        if not str(problem).startswith("Symlink loop from "):
            return _internal_error(problem)
        path = str(problem).removeprefix("Symlink loop from ").strip("'\"")
        _show(UsageError(f"{path} is a symbolic link to itself; specify a different path"))
        return UsageError.exit_code
    except Exception as problem:
        return _internal_error(problem)
    return result if isinstance(result, int) else 0


_AGAIN = "and run the command again"
_FIXES = {
    errno.ENOSPC: f"free space on the disk, {_AGAIN}",
    errno.EDQUOT: f"free space in your quota, {_AGAIN}",
    errno.EROFS: f"choose a folder on a file system that you can write to, {_AGAIN}",
    errno.EACCES: f"change the permissions or choose a different folder, {_AGAIN}",
    errno.EPERM: f"change the permissions or choose a different folder, {_AGAIN}",
    errno.ENAMETOOLONG: f"choose a shorter path, {_AGAIN}",
    errno.EMFILE: f"raise the limit on open files (`ulimit -n`), {_AGAIN}",
    errno.ENFILE: f"close other programs, {_AGAIN}",
    errno.EIO: f"check the disk, {_AGAIN}",
    errno.ENOEXEC: f"install the program for this machine, {_AGAIN}",
}
"""The action that resolves an operating system error, keyed by error number."""


def _missing(problem: OSError) -> str | None:
    """Return the message about an error of this machine, or None if the error is a bug in gpuinfra."""
    if problem.errno == errno.ENOENT and problem.filename is None and "temporary directory" in str(problem.strerror):
        # From Python's `tempfile`, which tries to write to each folder.
        return f"no folder for temporary files can be written to; set TMPDIR to a writable folder with free space, {_AGAIN}"
    if problem.errno not in _FIXES:
        return None
    where = problem.filename
    if where is None:
        where = "a file or the output"
        if _is_about_output(problem):
            where = "the output"
            _discard_output()
    return f"{where} cannot be used: {problem.strerror}; {_FIXES[problem.errno]}"


def _is_about_output(problem: OSError) -> bool:
    """Return whether click or `main` could not write the output."""
    *_, (frame, _line) = traceback.walk_tb(problem.__traceback__)
    return frame.f_globals.get("__name__") in (click.echo.__module__, __name__)


def _discard_output() -> None:
    """Send later output to the null device. Without this, the interpreter reports the same error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _internal_error(problem: Exception) -> int:
    """Report a bug in gpuinfra in one line that explains how to print the traceback."""
    if os.environ.get("GPUINFRA_DEBUG"):
        traceback.print_exception(problem)
    what = one_line(f"{type(problem).__name__}: {problem}")
    click.echo(f"{ERROR_PREFIX}internal error: {what}; run `gpuinfra --debug ...` for the traceback", err=True)
    return 1


def _show(problem: GpuinfraError) -> None:
    if os.environ.get("GPUINFRA_DEBUG"):
        traceback.print_exception(problem)
    else:
        # A finding contains its severity and, if it has one, its place in front of it.
        for line in prefixed(printable(problem), "gpuinfra: " if isinstance(problem, SpecError) else ERROR_PREFIX):
            click.echo(line, err=True)


def _show_usage(problem: click.ClickException) -> None:
    """Print an error about arguments in the form of all errors, followed by the usage of the command."""
    for line in prefixed(printable(problem.format_message()), ERROR_PREFIX):
        click.echo(line, err=True)
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    if context is not None:
        usage = " ".join(context.get_usage().split()).removeprefix("Usage: ")
        click.echo(f"  usage: {usage} (`{context.command_path} --help` describes the options)", err=True)


def prefixed(text: str, prefix: str) -> list[str]:
    """Put a prefix in front of each line. An indented line continues the previous line."""
    return [line if line[:1].isspace() else f"{prefix}{line}" for line in text.splitlines() if line.strip()]


def run() -> None:
    """Entry point of the installed script."""
    # A command imports modules with many objects that it never frees. With the default threshold of 700, Python searches them for garbage a hundred times.
    gc.set_threshold(200_000)
    code = main()
    # At exit, Python searches all objects for garbage several times. This takes longer than most commands, and the process ends anyway.
    gc.freeze()
    sys.exit(code)
