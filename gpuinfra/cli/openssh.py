"""Code that the commands that run OpenSSH programs share: the hosts, the node lookup, and the configuration for one run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import EnvironmentMissing, UsageError
from gpuinfra.cli.options import some
from gpuinfra.cli.stack_context import active_stack, plan_of
from gpuinfra.cli.stacks import Stacks

if TYPE_CHECKING:
    from gpuinfra.remote.hosts import Host, Hosts


def program(name: str) -> str:
    """Return a program of the OpenSSH client."""
    if shutil.which(name) is None:
        raise EnvironmentMissing(f"{name} is not installed; on Debian and Ubuntu: apt install openssh-client")
    return name


@contextmanager
def opened(
    stack: str | None, hosts_file: Path | None, direct: bool, stacks: Stacks, keys: Path | None = None
) -> Iterator[Hosts]:
    """Open the nodes of a stack or the hosts of a file for a `with` block. `keys` is the folder for a new SSH key; default: a temporary one."""
    if hosts_file is not None:
        from gpuinfra.remote.hosts import read_hosts

        if not stacks.hosts_files:
            raise UsageError("--rehearsal uses the stand-in nodes of STACK; omit --hosts")
        yield read_hosts(hosts_file)
        return
    assert stack is not None
    with active_stack(stack, stacks, keys) as active:
        if stacks.notice:
            click.echo(stacks.notice, err=True)
        yield active.hosts(plan_of(stack), direct)


def host_of(hosts: Hosts, node: str) -> Host:
    """Return the host with this label, ID or address."""
    for host in hosts.hosts:
        if node in (host.label, host.name, host.address):
            return host
    names = list(dict.fromkeys([*(one.label or one.name for one in hosts.hosts), *(one.name for one in hosts.hosts)]))
    near = get_close_matches(node, names, n=1)
    raise UsageError(
        f"node {node!r} does not exist; {f'did you mean {near[0]}?' if near else f'allowed: {some(names)}'}"
    )


@contextmanager
def in_folder(hosts: Hosts, chosen: Sequence[Host]) -> Iterator[Path]:
    """Write an OpenSSH configuration to a temporary folder, which is removed at the end of the `with` block."""
    from gpuinfra.remote.openssh import write_config

    with tempfile.TemporaryDirectory(prefix="gpuinfra-ssh-") as folder:
        yield write_config(hosts, chosen, Path(folder))
