"""`gpuinfra ssh`: runs the OpenSSH client with the host keys from the handover or from a hosts file."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import UsageError
from gpuinfra.base.private_files import private_folder
from gpuinfra.base.safe_text import printable
from gpuinfra.base.words import counted
from gpuinfra.cli.openssh import host_of, in_folder, opened, program
from gpuinfra.cli.options import FILE, RemoteCommand, stack_options
from gpuinfra.cli.stacks import Stacks, short_name

if TYPE_CHECKING:
    from gpuinfra.remote.hosts import Hosts

CONFIGURATIONS = Path("~/.ssh/gpuinfra")
"""Folder of the OpenSSH configurations that `--config` writes."""
WRITTEN = {"config", "known_hosts", "login", "login.pub"}
"""The files that `--config` and a cloud's login write."""


class _SshCommand(RemoteCommand):
    def check_rest(self, ctx: click.Context, before: list[str], rest: list[str]) -> None:
        """Raise `UsageError` for an option of this command between the node and the command for it."""
        own = {name for one in self.params if isinstance(one, click.Option) for name in one.opts if len(name) > 2}
        option = rest[0].partition("=")[0] if rest else ""
        if option in own:
            raise click.UsageError(
                f"{option} stands after {before[-1]} and would be part of the command on the node; put it before {before[0]}, "
                "or put -- before it if the command on the node needs it",
                ctx,
            )


@click.command("ssh", cls=_SshCommand, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[STACK] NODE [COMMAND]...")
@click.option("--hosts", "hosts_file", type=FILE, metavar="FILE", help="Find NODE in this hosts file (docs/guides/remote.md). Omit STACK.")  # fmt: skip
@click.option("--direct", is_flag=True, help="Connect to the private address instead of through the cloud's tunnel.")
@click.option(
    "--config",
    "config",
    is_flag=True,
    help="Write an OpenSSH configuration that ssh, rsync and editors can use to reach all nodes. Omit NODE.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help=f"Folder for --config. Default: {CONFIGURATIONS}/STACK.",
)
@stack_options
def command(
    words: tuple[str, ...], hosts_file: Path | None, direct: bool, config: bool, output: Path | None, stacks: Stacks
) -> int:
    """Log in to NODE of STACK, or run COMMAND on it.

    NODE is a label (gpu-1) or an instance ID. The host key is always verified and never added. The exit code is the exit code of
    COMMAND, or 255 if the connection fails.

    With --config, no connection is made. Run the command again after nodes are replaced.
    """
    if config:
        return _config(words, hosts_file, direct, output, stacks)
    if output is not None:
        raise UsageError("--output is the folder for --config; add --config or omit --output")
    ssh = program("ssh")
    stack = words[0] if words and hosts_file is None else None
    rest = words if stack is None else words[1:]
    if not rest:
        form = "gpuinfra ssh STACK NODE, such as gpuinfra ssh aws-p4d gpu-1"
        raise UsageError(f"no node is specified; run: {'gpuinfra ssh --hosts FILE NODE' if hosts_file else form}")
    with (
        opened(stack, hosts_file, direct, stacks) as hosts,
        in_folder(hosts, [host := host_of(hosts, rest[0])]) as file,
    ):
        return subprocess.call([ssh, "-F", str(file), host.name, *rest[1:]])


def _config(words: tuple[str, ...], hosts_file: Path | None, direct: bool, output: Path | None, stacks: Stacks) -> int:
    if not stacks.lasting:
        raise UsageError(
            "--config is for later connections, but stand-in nodes run only during a command; omit --config"
        )
    if len(words) != (0 if hosts_file else 1):
        form = "gpuinfra ssh --config --hosts FILE" if hosts_file else "gpuinfra ssh --config STACK"
        raise UsageError(f"--config writes an entry for every node; run: {form}")
    if hosts_file and output is None:
        raise UsageError("--config with --hosts requires a folder; add --output DIR")
    name = "" if hosts_file else short_name(words[0])
    folder = (output or CONFIGURATIONS / name).expanduser().absolute()
    stack = None if hosts_file else words[0]
    with _replaced(folder), opened(stack, hosts_file, direct, stacks, keys=folder) as hosts:
        file, names = _write(hosts, name, folder)
        click.echo(f"wrote {printable(file)} with {counted(len(hosts.hosts), 'host')}")
        click.echo(f"to connect: ssh -F {shlex.quote(str(file))} {names[0]}")
        click.echo(f'to connect without -F, add this line at the top of ~/.ssh/config: Include "{file}"')
        if hosts.key_lifetime:
            click.echo(f"the cloud accepts the key for {hosts.key_lifetime}; for a new key, run this command again")
    return 0


@contextmanager
def _replaced(folder: Path) -> Iterator[None]:
    """Replace the files of an earlier run during a `with` block; if the block fails, they remain. Refuses a folder with other files."""
    if folder.is_dir() and (others := sorted({one.name for one in folder.iterdir()} - WRITTEN)):
        raise UsageError(
            f"{folder} contains {others[0]}, which gpuinfra did not write; specify a different folder with --output"
        )
    private_folder(folder)
    folder.chmod(0o700)
    with tempfile.TemporaryDirectory(prefix=".gpuinfra-", dir=folder.parent) as earlier:
        for file in folder.iterdir():
            file.rename(Path(earlier, file.name))
        try:
            yield
        except BaseException:
            for file in [*folder.iterdir()]:
                file.unlink()
            for file in Path(earlier).iterdir():
                file.rename(folder / file.name)
            raise


def _write(hosts: Hosts, stack: str, folder: Path) -> tuple[Path, list[str]]:
    """Write the configuration. Returns its path and the name of each host: `aws-p4d-gpu-1`, or the host's own name."""
    from gpuinfra.remote.openssh import write_config

    names = {host.name: [f"{stack}-{host.label}"] for host in hosts.hosts if stack and host.label}
    return write_config(hosts, hosts.hosts, folder, names), [names.get(one.name, [one.name])[0] for one in hosts.hosts]
