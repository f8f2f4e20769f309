"""Options that several commands share, so that names, help texts and behavior are consistent."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from gpuinfra.base.errors import SpecError, UsageError
from gpuinfra.cli.rehearsals import DEFAULT_FOLDER
from gpuinfra.cli.stacks import Stacks, stacks_of

FILE = click.Path(dir_okay=False, path_type=Path)
SHOWN_NAMES = 12


@dataclass(frozen=True, kw_only=True)
class HostTarget:
    """The hosts that a command operates on, and how the command connects to them."""

    stack: str | None
    hosts_file: Path | None
    pool: str | None
    parallel: int
    direct: bool
    known_hosts: tuple[Path, ...]
    stacks: Stacks
    timeout_s: float = 0.0


TARGET = [one.name for one in fields(HostTarget)]


class RemoteCommand(click.Command):
    """A command whose last arguments run on a node. As with ssh, options after the first of these arguments belong to the remote command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `--` after STACK and the next word, or after the first word with --hosts."""
        valued = {name for one in self.params if isinstance(one, click.Option) and not one.is_flag for name in one.opts}
        at, words, first = 0, 0, 2
        while at < len(args) and args[at] != "--":
            word = args[at]
            at += 1
            if word.startswith("-") and word != "-":
                first = 1 if word.partition("=")[0] == "--hosts" else first
                at += word in valued
                continue
            words += 1
            if words >= first:
                self.check_rest(ctx, args[:at], args[at:])
                args = [*args[:at], "--", *args[at:]]
                break
        return super().parse_args(ctx, args)

    def check_rest(self, ctx: click.Context, before: list[str], rest: list[str]) -> None:
        """Check the words for the node, given the words before them. Raises `UsageError`."""


def some(names: list[str]) -> str:
    """Return the first few names and the number of remaining names."""
    return ", ".join(names[:SHOWN_NAMES]) + (
        f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    )


def stack_choice(command: Any) -> Any:
    """Add `--rehearsal` and `--folder`. With `ssh_options`, both become part of the `HostTarget`."""
    return _with(
        command,
        click.option("--rehearsal", is_flag=True, help="Use the stand-in nodes of STACK's rehearsal."),
        folder_option,
    )


def stack_options(command: Any) -> Any:
    """Add `--rehearsal` and `--folder`. The command gets them as one `Stacks`."""

    @functools.wraps(command)
    def chosen(**given: Any) -> int:
        return int(command(stacks=stacks_of(given), **given))

    return stack_choice(chosen)


folder_option = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="Folder that contains the rehearsals.",
)


def ssh_options(*, pool: str = "Use only the hosts in this pool.", timeout_s: int | None = None) -> Any:
    """Add `--hosts`, `--pool`, `--parallel`, `--direct`, `--known-hosts`, and `--timeout` with a default.

    Together with the argument STACK and `stack_choice`, they are passed to the command as one `HostTarget`.
    """
    options = [
        click.option("--hosts", "hosts_file", type=FILE, metavar="FILE", help="Use the hosts in this file (docs/guides/remote.md) "
            "instead of the nodes of STACK."),
        click.option("--pool", metavar="POOL", help=pool),
        click.option("--parallel", type=click.IntRange(1, 512), default=64, show_default=True, help="Maximum number of simultaneous connections."),
        click.option("--direct", is_flag=True, help="Connect to private addresses instead of through the cloud's tunnel."),
        click.option("--known-hosts", type=FILE, multiple=True, metavar="FILE", help="Trusted host keys and host CAs, "
            "instead of ~/.ssh/known_hosts. Repeatable."),
    ]  # fmt: skip
    if timeout_s is not None:
        limit = click.FloatRange(1)
        help_ = "Time limit for each host, in seconds."
        options.append(
            click.option("--timeout", "timeout_s", type=limit, default=timeout_s, show_default=True, help=help_)
        )

    def collected(function: Callable[..., int]) -> Any:
        @functools.wraps(function)
        def command(**given: Any) -> int:
            target = HostTarget(stacks=stacks_of(given), **{name: given.pop(name) for name in TARGET if name in given})
            return function(target, **given)

        return _with(command, *options)

    return collected


def expectation_option(command: Any) -> Any:
    """Add `--expectation`."""
    return _with(
        command,
        click.option("--expectation", type=FILE, metavar="FILE", help="Evaluate the evidence against this expectation.json instead of the plan of STACK."),
    )  # fmt: skip


def judgement_options(command: Any) -> Any:
    """Add the options of `verify` and `check` that control the judgement and its output."""
    return expectation_option(_with(
        command,
        click.option("--baseline", type=click.Path(path_type=Path), metavar="DIR", help="Report results that are worse than in this earlier evidence."),
        click.option("--save", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
            help="Save the evidence in this folder for a later --baseline."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option("--junit", type=FILE, metavar="FILE", help="Write JUnit XML."),
        click.option("--html", type=FILE, metavar="FILE", help="Write a self-contained HTML page."),
    ))  # fmt: skip


def set_value(text: str) -> tuple[str, object]:
    """Parse `PATH=VALUE` of `--set`, with the value in YAML."""
    from gpuinfra.spec.document import parse

    path, equals, value = text.partition("=")
    if not equals:
        from gpuinfra.spec.shown import shown

        raise UsageError(f"--set is {shown(text)}; allowed: PATH=VALUE, such as pools[0].capacity[0].id=ID")
    try:
        return path, parse(value, "--set").value
    except SpecError as problem:
        raise SpecError([replace(one, path="--set", file="", line=None) for one in problem.findings]) from None


def _with(command: Any, *options: Any) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


def job_options(where: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator with the options of a command that stops the jobs in a region. `where` names the region in the help text."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        direct = click.option(
            "--direct",
            is_flag=True,
            help="Connect to private addresses of the nodes instead of through the cloud's tunnel.",
        )
        grace = click.option(
            "--grace",
            type=click.IntRange(0, 1440),
            default=5,
            show_default=True,
            metavar="MINUTES",
            help=f"Time that jobs in {where} have to save a checkpoint, after their signal and before they are ended.",
        )
        return grace(direct(command))

    return decorated
