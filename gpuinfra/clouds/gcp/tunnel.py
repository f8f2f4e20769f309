"""SSH to nodes on Google Cloud through Identity-Aware Proxy (IAP)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuinfra.inventory import Node


def proxy_command(node: Node, region: str, resources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the `gcloud compute start-iap-tunnel` arguments for a node, which IAP identifies by project, zone and name."""
    parts = node.resource.split("/")
    names = dict(zip(parts[::2], parts[1::2], strict=False))
    name, zone = names.get("instances") or node.id, names.get("zones") or node.zone
    words = ["gcloud", "compute", "start-iap-tunnel", name, "22", "--listen-on-stdin", "--verbosity=warning"]
    words += ["--zone", zone] if zone else []
    return words + (["--project", names["projects"]] if "projects" in names else [])
