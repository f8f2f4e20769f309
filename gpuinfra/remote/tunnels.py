"""The nodes of a deployed stack, reached through the tunnel of their cloud, because port 22 is not open.

Each tunnel is a program of the cloud that runs as a proxy command. It authenticates you to the cloud. The host key of the node is
verified inside the tunnel, as on any other connection.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.errors import UsageError
from gpuinfra.inventory import Node
from gpuinfra.remote.hosts import Host, Hosts

PORT = "22"


@dataclass(frozen=True, kw_only=True)
class Bastion:
    """The Azure Bastion of a stack."""

    name: str
    resource_group: str
    subscription: str


def ssm(node: Node, region: str, _: Bastion | None) -> list[str]:
    """AWS Systems Manager Session Manager, by instance ID."""
    words = ["aws", "ssm", "start-session", "--target", node.id]
    words += ["--document-name", "AWS-StartSSHSession", "--parameters", f"portNumber={PORT}"]
    return [*words, "--region", region] if region else words


def iap(node: Node, region: str, _: Bastion | None) -> list[str]:
    """Google's Identity-Aware Proxy, by project, zone and instance name. It does not accept instance numbers."""
    parts = node.resource.split("/")
    names = dict(zip(parts[::2], parts[1::2], strict=False))
    name, zone = names.get("instances") or node.id, names.get("zones") or node.zone
    words = ["gcloud", "compute", "start-iap-tunnel", name, PORT, "--listen-on-stdin", "--verbosity=warning"]
    words += ["--zone", zone] if zone else []
    return words + (["--project", names["projects"]] if "projects" in names else [])


def bastion(node: Node, region: str, through: Bastion | None) -> list[str]:
    """Azure Bastion, through `bastion.py`, by the resource ID of the machine."""
    if through is None:
        raise UsageError(
            "the stack has no Bastion; use --direct if the private addresses of the nodes are reachable, "
            "or --hosts FILE (docs/remote.md)"
        )
    if not node.resource:
        raise UsageError(f"the state has no resource ID of {node.id}; run `pulumi refresh` first")
    words = [
        sys.executable,
        "-m",
        "gpuinfra.remote.bastion",
        "--name",
        through.name,
        "--resource-group",
        through.resource_group,
    ]
    words += ["--subscription", through.subscription] if through.subscription else []
    return [*words, "--target", node.resource, PORT]


TUNNELS: dict[str, Callable[[Node, str, Bastion | None], list[str]]] = {
    "aws": ssm,
    "gcp": iap,
    "azure": bastion,
}
"""The proxy command of a node for each cloud."""


def hosts_of(
    nodes: Sequence[Node], *, cloud: str, region: str, direct: bool, user: str, through: Bastion | None = None
) -> Hosts:
    """The nodes of a stack as SSH hosts, with the host keys from their verified evidence.

    Port 22 is closed, so without `direct` each connection goes through the cloud's own tunnel.
    """
    hosts = []
    for node in nodes:
        address = node.address if direct else node.id
        if not address:
            continue
        # Escape %, which starts a token of a proxy command.
        words = [] if direct else [word.replace("%", "%%") for word in TUNNELS[cloud](node, region, through)]
        hosts.append(
            Host(
                name=node.id,
                address=address,
                user=user,
                proxy_command=tuple(words) or None,
                host_keys=node.host_keys,
                pool=node.pool or None,
                sudo=user != "root",
            )
        )
    if not hosts:
        raise UsageError("the stack has no node with an address; deploy it first, or give --hosts FILE")
    return Hosts(hosts=tuple(hosts), jumps={host.name: host for host in hosts})


def bastion_of(resources: Sequence[Mapping[str, Any]]) -> Bastion | None:
    """The first Bastion in the state of a stack."""
    for one in resources:
        if str(one.get("type", "")).partition("/")[0].startswith("azure-native:network") and str(one["type"]).endswith(
            ":BastionHost"
        ):
            parts = str(one.get("id") or "").strip("/").split("/")
            names = dict(zip(parts[::2], parts[1::2], strict=False))
            if names.get("bastionHosts"):
                return Bastion(
                    name=names["bastionHosts"],
                    resource_group=names.get("resourceGroups", ""),
                    subscription=names.get("subscriptions", ""),
                )
    return None
