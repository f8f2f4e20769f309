"""The nodes of a deployed stack as SSH hosts, through their cloud's tunnel.

A cloud's `tunnel` module runs the cloud's CLI as a proxy command. The CLI authenticates you to the cloud. The host
key inside the tunnel is verified against the handover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuinfra.errors import UsageError
from gpuinfra.inventory import Node
from gpuinfra.registry import has_module, module_of
from gpuinfra.remote.hosts import Host, Hosts


def hosts_of(
    nodes: Sequence[Node],
    *,
    cloud: str,
    region: str,
    direct: bool,
    user: str,
    resources: Sequence[Mapping[str, Any]] = (),
) -> Hosts:
    """Return the nodes of a stack as SSH hosts, with the host keys from their verified evidence.

    Port 22 is closed, so connections use the cloud's tunnel unless `direct` is set. `resources` come from the stack's state.
    """
    if not direct and not has_module(cloud, "tunnel"):
        raise UsageError(f"gpuinfra has no tunnel for the cloud {cloud}; use --direct or --hosts FILE (docs/remote.md)")
    hosts = []
    for node in nodes:
        address = node.address if direct else node.id
        if not address:
            continue
        command = [] if direct else module_of(cloud, "tunnel").proxy_command(node, region, resources)
        hosts.append(
            Host(
                name=node.id,
                address=address,
                user=user,
                # Escape %, which starts a token of a proxy command.
                proxy_command=tuple(word.replace("%", "%%") for word in command) or None,
                host_keys=node.host_keys,
                pool=node.pool or None,
                sudo=user != "root",
            )
        )
    if not hosts:
        raise UsageError("the stack has no node with an address; deploy it first, or give --hosts FILE")
    return Hosts(hosts=tuple(hosts), jumps={host.name: host for host in hosts})
