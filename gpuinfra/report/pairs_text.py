"""Formats the measurements of node pairs as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuinfra.base.safe_text import one_line
from gpuinfra.base.words import counted


def text(document: Mapping[str, Any], titles: Mapping[str, str]) -> Iterator[str]:
    """Format a `gpuinfra.pairs/1` document as text: slow nodes and paths, each with the action to take. `titles` contains
    the displayed name of each host, keyed by host name."""
    for name, reason in document["slow"].items():
        yield one_line(f"{titles[name]} is slow with every partner: {reason}")
        yield (
            "  -> drain the node, compare its fabric checks with those of a good node (gpuinfra check), reboot the node, "
            "and measure again; if the node is still slow, replace it"
        )
    for first, second in document["slow_paths"]:
        yield f"{titles[first]} and {titles[second]} are slow with each other, but each is fast with another node"
        yield "  -> check the path between them (a switch, a cable, the placement); report both nodes to the cloud's support"
    if document["unknown"]:
        yield f"paired only with unverified nodes: {', '.join(titles[name] for name in document['unknown'])}"
        yield "  -> no node is identified as slow; check the fabric, the NCCL plugin and the floor of the machine type (gpuinfra explain B3)"
    for name, reason in document["absent"].items():
        yield one_line(f"{titles[name]} was not measured: {reason}")
    nodes = sum(len(document[key]) for key in ("good", "slow", "unknown", "absent"))
    count = len(document["pairs"])
    yield f"{len(document['good'])} of {nodes} nodes reach the bandwidth of their machine type, in {counted(count, 'pair')}"
