"""SSH to nodes on AWS through Systems Manager Session Manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuinfra.inventory import Node


def proxy_command(node: Node, region: str, resources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the `aws ssm start-session` arguments for a node."""
    words = ["aws", "ssm", "start-session", "--target", node.id]
    words += ["--document-name", "AWS-StartSSHSession", "--parameters", "portNumber=22"]
    return [*words, "--region", region] if region else words
