"""`gpuinfra ssh`: runs the OpenSSH client with the host keys from the handover or from a hosts file."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.cli.options import FILE, some, stack_options
from gpuinfra.cli.stack_context import active_stack, plan_of
from gpuinfra.cli.stacks import Stacks
from gpuinfra.errors import EnvironmentMissing, UsageError

if TYPE_CHECKING:
    from gpuinfra.remote.hosts import Host, Hosts


@click.command("ssh", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[STACK] NODE [COMMAND]...")
@click.option("--hosts", "hosts_file", type=FILE, metavar="FILE", help="Find NODE in this hosts file (docs/remote.md). Omit STACK.")  # fmt: skip
@click.option("--direct", is_flag=True, help="Connect to the private address instead of through the cloud's tunnel.")
@stack_options
def command(words: tuple[str, ...], hosts_file: Path | None, direct: bool, stacks: Stacks) -> int:
    """Log in to NODE of STACK, or run COMMAND on it.

    NODE is a label (gpu-1) or an instance ID. The host key is always verified and never added. The exit code is the exit code of
    COMMAND, or 255 if the connection fails.
    """
    if shutil.which("ssh") is None:
        raise EnvironmentMissing("ssh is not installed; on Debian and Ubuntu: apt install openssh-client")
    if hosts_file is not None:
        from gpuinfra.remote.hosts import read_hosts

        if not stacks.hosts_files:
            raise UsageError("--rehearsal uses the stand-in nodes of STACK; omit --hosts")
        if not words:
            raise UsageError("no node is specified; run: gpuinfra ssh --hosts FILE NODE")
        return _connect(read_hosts(hosts_file), words[0], words[1:])
    if len(words) < 2:
        raise UsageError("no node is specified; run: gpuinfra ssh STACK NODE, such as gpuinfra ssh aws-p4d gpu-1")
    stack, node, *rest = words
    with active_stack(stack, stacks) as active:
        if stacks.notice:
            click.echo(stacks.notice, err=True)
        hosts = active.hosts(plan_of(stack), direct)
        # The names of hosts are instance IDs. Accept labels as well.
        names = {other: name for one in active.nodes for other, name in ((one.name, one.id), (one.id, one.name))}
        return _connect(hosts, node, rest, names)


def client_config(hosts: Hosts, host: Host, folder: Path) -> Path:
    """Return the OpenSSH configuration for one host. The user's own configuration files are not read."""
    lines: list[str] = []
    known = folder / "known_hosts"
    keys: list[str] = []
    at: Host | None = host
    while at is not None:
        files = [str(known)] if at.host_keys else [str(file) for file in hosts.known_hosts]
        keys += [f"{at.name} {key}\n" for key in at.host_keys]
        lines += [f"Host {at.name}", f"  HostName {at.address}", f"  Port {at.port}", f"  User {at.user}"]
        lines += ["  StrictHostKeyChecking yes", "  UpdateHostKeys no", "  ServerAliveInterval 15"]
        if at.host_keys:
            lines.append(f"  HostKeyAlias {at.name}")
        if files:
            lines += ["  GlobalKnownHostsFile none", "  UserKnownHostsFile " + " ".join(f'"{file}"' for file in files)]
        lines += [f'  IdentityFile "{key}"' for key in at.identity] + (["  IdentitiesOnly yes"] if at.identity else [])
        if at.jump:
            lines.append(f"  ProxyJump {at.jump}")
        if at.proxy_command:
            # A shell interprets this line, so each word is quoted.
            lines.append("  ProxyCommand " + shlex.join(at.proxy_words()).replace("%", "%%"))
        at = hosts.jumps[at.jump] if at.jump else None
    known.write_text("".join(keys), encoding="utf-8")
    config = folder / "config"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return config


def _connect(hosts: Hosts, node: str, words: Sequence[str], names: Mapping[str, str] | None = None) -> int:
    names = names or {}
    wanted = {node, names.get(node, node)}
    host = next((one for one in hosts.hosts if wanted & {one.name, one.address}), None)
    if host is None:
        known = list(
            dict.fromkeys([*(names.get(one.name, one.name) for one in hosts.hosts), *(one.name for one in hosts.hosts)])
        )
        near = get_close_matches(node, known, n=1)
        raise UsageError(
            f"the node is {node!r}, which does not exist; {f'did you mean {near[0]}?' if near else f'allowed: {some(known)}'}"
        )
    with tempfile.TemporaryDirectory(prefix="gpuinfra-ssh-") as folder:
        config = client_config(hosts, host, Path(folder))
        return subprocess.call(["ssh", "-F", str(config), host.name, *words])
