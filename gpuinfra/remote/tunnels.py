"""The nodes of a deployed stack as SSH hosts, reached through their cloud's tunnel.

A cloud's `tunnel` module creates the login and runs the cloud's CLI as a proxy command. The CLI authenticates you to the
cloud. The host key inside the tunnel is verified against the keys from the handover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import UsageError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.inventory import Node
from gpuinfra.remote.hosts import Host, Hosts


def hosts_of(
    nodes: Sequence[Node],
    *,
    cloud: str,
    region: str,
    direct: bool,
    folder: Path,
    resources: Sequence[Mapping[str, Any]] = (),
) -> Hosts:
    """Return the nodes of a stack as SSH hosts, with the login for their cloud and the host keys from their verified evidence.

    Port 22 is closed, so connections use the cloud's tunnel unless `direct` is set. `resources` come from the stack's state.
    `folder` receives the SSH key for this command and must exist as long as the hosts are used.
    """
    tunnel = cloud_of(cloud).tunnel
    if tunnel is None:
        raise UsageError(f"gpuinfra has no login for the cloud {cloud}; use --hosts FILE (docs/guides/remote.md)")
    nodes = [node for node in nodes if node.address or not direct]
    if not nodes:
        raise UsageError("the stack has no node with an address; deploy the stack first, or specify --hosts FILE")
    login = tunnel.login(folder, resources)
    hosts = []
    labels = [node.name for node in nodes]  # Clusters of one stack can have nodes of the same name.
    for node in nodes:
        command = tunnel.proxy_command(node, login, region, resources, direct=direct)
        hosts.append(
            Host(
                name=node.id,
                label=node.name if labels.count(node.name) == 1 else "",
                address=node.address if direct else node.id,
                private_address=node.address,
                verified=node.verified,
                user=login.user,
                identity=login.identity,
                # Escape %, which starts a token of a proxy command.
                proxy_command=tuple(word.replace("%", "%%") for word in command) or None,
                host_keys=node.host_keys,
                pool=node.pool or None,
                sudo=login.user != "root",
            )
        )
    return Hosts(hosts=tuple(hosts), jumps={host.name: host for host in hosts}, key_lifetime=login.key_lifetime)
