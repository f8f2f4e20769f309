"""The loopback addresses on which the monitoring programs of stand-in nodes listen, because all nodes share the host's network."""

from __future__ import annotations

import hashlib


def monitoring_address(endpoint: str, instance_id: str) -> str:
    """Return the address of a node. `endpoint` is the address of the stand-in cloud, so that rehearsals at the same time have different addresses."""
    digest = hashlib.sha256(f"monitoring {endpoint} {instance_id}".encode()).digest()
    return f"127.{128 + digest[0] % 64}.{digest[1]}.{1 + digest[2] % 254}"
