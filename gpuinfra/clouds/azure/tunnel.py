"""SSH to nodes on Azure through the Bastion host of the stack."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gpuinfra.errors import UsageError
from gpuinfra.inventory import Node


def proxy_command(node: Node, region: str, resources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the arguments of `gpuinfra.remote.bastion` for a node, which Bastion identifies by resource ID."""
    bastion = _bastion(resources)
    if bastion is None:
        raise UsageError(
            "the stack has no Bastion; use --direct if the private addresses of the nodes are reachable, or --hosts FILE (docs/remote.md)"
        )
    if not node.resource:
        raise UsageError(f"the state has no resource ID of {node.id}; run `pulumi refresh` first")
    words = [sys.executable, "-m", "gpuinfra.remote.bastion", "--name", bastion["bastionHosts"]]
    words += ["--resource-group", bastion.get("resourceGroups", "")]
    words += ["--subscription", bastion["subscriptions"]] if bastion.get("subscriptions") else []
    return [*words, "--target", node.resource, "22"]


def _bastion(resources: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Return the parts of the resource ID of the stack's first Bastion host."""
    for one in resources:
        module, _, kind = str(one.get("type", "")).rpartition(":")
        if module.partition("/")[0].startswith("azure-native:network") and kind == "BastionHost":
            parts = str(one.get("id") or "").strip("/").split("/")
            names = dict(zip(parts[::2], parts[1::2], strict=False))
            if names.get("bastionHosts"):
                return names
    return None
