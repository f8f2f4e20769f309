"""The configuration that the OpenSSH programs (`ssh`, `scp`, `sftp`, `rsync`) use to reach hosts: user, keys, tunnel and trusted host keys."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuinfra.base.private_files import write_private
from gpuinfra.remote.hosts import Host, Hosts


def write_config(
    hosts: Hosts, chosen: Sequence[Host], folder: Path, names: Mapping[str, Sequence[str]] | None = None
) -> Path:
    """Write `config` and `known_hosts` to a folder for some hosts and their jump hosts. Returns the path of `config`.

    `names` contains additional host names, which precede the host's own name. Host keys are always verified and never added.
    The file has an entry for each host and no options for other hosts, so you can include it in your own configuration.
    """
    known_hosts = folder.absolute() / "known_hosts"
    entries: dict[str, list[str]] = {}
    keys: list[str] = []
    for host in chosen:
        at: Host | None = host
        while at is not None and at.name not in entries:
            entries[at.name] = _entry(hosts, at, known_hosts, (names or {}).get(at.name, ()))
            keys += [f"{at.name} {key}\n" for key in at.host_keys]
            at = hosts.jumps[at.jump] if at.jump else None
    write_private(known_hosts, "".join(keys))
    config = folder / "config"
    write_private(config, "".join(f"{line}\n" for lines in entries.values() for line in lines))
    return config


def _entry(hosts: Hosts, host: Host, known_hosts: Path, names: Sequence[str]) -> list[str]:
    files = [known_hosts] if host.host_keys else [file.absolute() for file in hosts.known_hosts]
    lines = [f"Host {' '.join((*names, host.name))}", f"  HostName {host.address}", f"  Port {host.port}"]
    lines += [f"  User {host.user}", "  StrictHostKeyChecking yes", "  UpdateHostKeys no", "  ServerAliveInterval 15"]
    # Without an alias, a host that is reached by another name would be looked up under that name.
    lines += [f"  HostKeyAlias {host.name}"] if host.host_keys else []
    if files:
        lines += ["  GlobalKnownHostsFile none", "  UserKnownHostsFile " + " ".join(f'"{file}"' for file in files)]
    lines += [f'  IdentityFile "{key.absolute()}"' for key in host.identity] + (
        ["  IdentitiesOnly yes"] if host.identity else []
    )
    lines += [f"  ProxyJump {host.jump}"] if host.jump else []
    if host.proxy_command:
        # A shell interprets this line, so each word is quoted.
        lines.append("  ProxyCommand " + shlex.join(host.proxy_words()).replace("%", "%%"))
    return lines
