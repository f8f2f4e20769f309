"""The nodes of a stack that is up, and the tunnel of their cloud: no port 22 is open anywhere.

Each tunnel is the cloud's own program as a proxy command. It authenticates the person to the cloud and vouches for nothing
behind it: the host key inside is verified against the handover like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.errors import UsageError
from gpuinfra.remote.hosts import Host, Hosts

PORT = "22"


@dataclass(frozen=True, kw_only=True)
class Bastion:
    """Azure's way in, as the stack made it."""

    name: str
    resource_group: str
    subscription: str


def ssm(node: Mapping[str, Any], region: str, _: Bastion | None) -> list[str]:
    """AWS Systems Manager; by instance id."""
    words = ["aws", "ssm", "start-session", "--target", str(node["instanceId"])]
    words += ["--document-name", "AWS-StartSSHSession", "--parameters", f"portNumber={PORT}"]
    return [*words, "--region", region] if region else words


def iap(node: Mapping[str, Any], region: str, _: Bastion | None) -> list[str]:
    """Google's Identity-Aware Proxy; it knows a machine by project, zone and name, and not by its number."""
    parts = str(node.get("resource") or "").split("/")
    names = dict(zip(parts[::2], parts[1::2], strict=False))
    name, zone = names.get("instances") or str(node["instanceId"]), names.get("zones") or str(node.get("zone") or "")
    words = ["gcloud", "compute", "start-iap-tunnel", name, PORT, "--listen-on-stdin", "--verbosity=warning"]
    words += ["--zone", zone] if zone else []
    return words + (["--project", names["projects"]] if "projects" in names else [])


def bastion(node: Mapping[str, Any], region: str, door: Bastion | None) -> list[str]:
    """Azure Bastion, through `bastion.py`; by the machine's resource id."""
    if door is None:
        raise UsageError(
            "the stack made no Bastion; give --direct where the nodes' addresses are reachable, "
            "or --hosts FILE with a way of yours (docs/remote.md)"
        )
    if not node.get("resource"):
        raise UsageError(f"the state does not know the resource id of {node['instanceId']}; run `pulumi refresh` first")
    words = [
        sys.executable,
        "-m",
        "gpuinfra.remote.bastion",
        "--name",
        door.name,
        "--resource-group",
        door.resource_group,
    ]
    words += ["--subscription", door.subscription] if door.subscription else []
    return [*words, "--target", str(node["resource"]), PORT]


TUNNELS: dict[str, Callable[[Mapping[str, Any], str, Bastion | None], list[str]]] = {
    "aws": ssm,
    "gcp": iap,
    "azure": bastion,
}
"""Cloud -> words of the proxy command for one node."""


def from_outputs(
    outputs: Mapping[str, Any], *, cloud: str, region: str, direct: bool, user: str, door: Bastion | None = None
) -> Hosts:
    """The nodes that a stack's outputs list, with the host keys that their verified evidence carried.

    Without `direct` the cloud's own tunnel is used, because no port 22 is open.
    """
    hosts = []
    for node in outputs.get("nodes") or []:
        if not isinstance(node, Mapping) or not node.get("instanceId"):
            continue
        name = str(node["instanceId"])
        address = str(node.get("privateIp") or "") if direct else name
        if not address:
            continue
        # Nothing in it is a token of a proxy command.
        words = [] if direct else [word.replace("%", "%%") for word in TUNNELS[cloud](node, region, door)]
        hosts.append(
            Host(
                name=name,
                address=address,
                user=user,
                proxy_command=tuple(words) or None,
                host_keys=tuple(str(key) for key in node.get("sshHostKeys") or ()),
                pool=str(node.get("pool") or "") or None,
                sudo=user != "root",
            )
        )
    if not hosts:
        raise UsageError(
            "the stack's outputs list no node that can be reached; bring it up first, or give --hosts FILE"
        )
    return Hosts(hosts=tuple(hosts), jumps={host.name: host for host in hosts})


def bastion_of(resources: Sequence[Mapping[str, Any]]) -> Bastion | None:
    """The Bastion that a stack's state holds; the first one, where there are several."""
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
