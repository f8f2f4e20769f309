"""`gpuinfra ssh`: OpenSSH's own client into one node, with the host keys that the handover or the file vouches for."""

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

from gpuinfra.cli.stack_context import Standing, plan_of, rehearsal_options, standing
from gpuinfra.errors import EnvironmentMissing, UsageError

if TYPE_CHECKING:
    from gpuinfra.remote.hosts import Host, Hosts


@click.command("ssh", short_help="log in to one node", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[STACK] NODE [COMMAND]...")
@click.option("--hosts", "hosts_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Take NODE from this file (docs/remote.md); STACK is left out then.")  # fmt: skip
@click.option("--direct", is_flag=True, help="Connect to the node's private address, not through the cloud's tunnel.")
@rehearsal_options
def command(words: tuple[str, ...], hosts_file: Path | None, direct: bool, rehearsal: bool, folder: Path) -> int:
    """Log in to NODE of STACK (its label, `gpu-1`, or its instance id), or run COMMAND there.

    The host key is always verified, and none is ever accepted and added. The exit code is the command's, 255 where there
    is no connection.
    """
    if shutil.which("ssh") is None:
        raise EnvironmentMissing("ssh is not installed; on Debian and Ubuntu: apt install openssh-client")
    if hosts_file is not None:
        from gpuinfra.remote.hosts import read_hosts

        if not words:
            raise UsageError("say where: gpuinfra ssh --hosts FILE NODE")
        return _connect(read_hosts(hosts_file), words[0], words[1:])
    if len(words) < 2:
        raise UsageError("say where: gpuinfra ssh STACK NODE, such as gpuinfra ssh aws-p4d gpu-1")
    stack, node, *rest = words
    with standing(stack, folder if rehearsal else None) as up:
        if rehearsal:
            click.echo("rehearsal: this is a stand-in node on this machine", err=True)
        return _connect(up.hosts(plan_of(stack), direct), node, rest, _labels(up))


def client_config(hosts: Hosts, host: Host, folder: Path) -> Path:
    """OpenSSH's settings for the way to one host; files of the person's own configuration are not read."""
    lines: list[str] = []
    known = folder / "known_hosts"
    vouched: list[str] = []
    at: Host | None = host
    while at is not None:
        files = [str(known)] if at.host_keys else [str(file) for file in hosts.known_hosts]
        vouched += [f"{at.name} {key}\n" for key in at.host_keys]
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
            # A shell reads this one; quoted words stay the words that they are.
            lines.append("  ProxyCommand " + shlex.join(at.proxy_words()).replace("%", "%%"))
        at = hosts.jumps[at.jump] if at.jump else None
    known.write_text("".join(vouched), encoding="utf-8")
    config = folder / "config"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return config


def _connect(hosts: Hosts, node: str, words: Sequence[str], labels: Mapping[str, str] | None = None) -> int:
    wanted = (labels or {}).get(node, node)
    host = next((one for one in hosts.hosts if wanted in (one.name, one.address)), None)
    if host is None:
        names = [*(labels or {}), *(one.name for one in hosts.hosts)]
        near = get_close_matches(node, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(dict.fromkeys(names[:12]))}"
        raise UsageError(f"there is no node {node!r}; {hint}")
    with tempfile.TemporaryDirectory(prefix="gpuinfra-ssh-") as folder:
        config = client_config(hosts, host, Path(folder))
        return subprocess.call(["ssh", "-F", str(config), host.name, *words])


def _labels(up: Standing) -> dict[str, str]:
    """Label -> instance id, as the handover has it."""
    nodes = [node for gate in up.gates for node in (gate.get("outputs") or {}).get("nodes") or []]
    return {str(node.get("label")): str(node.get("instanceId")) for node in nodes} if up.session is None else {}
