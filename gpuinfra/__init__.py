"""gpuinfra: one declaration of a GPU cluster, deployed by Pulumi on AWS, Azure or Google Cloud, and proven GPU by GPU.

`GpuCluster` is the whole; `ClusterSpec` and its parts are what a person declares.
Names are imported when they are asked for, so that `gpuinfra plan` never waits for Pulumi and an AWS program never loads Azure.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinfra.cluster import GpuCluster
    from gpuinfra.planning import make_plan
    from gpuinfra.rules import check, load_stack
    from gpuinfra.spec import (
        Aws,
        Azure,
        Block,
        Candidate,
        ClusterSpec,
        Flex,
        Gcp,
        Home,
        Lustre,
        ObjectMount,
        OnDemand,
        Pool,
        Reserved,
        Spot,
    )

_HOMES = {
    "GpuCluster": "gpuinfra.cluster",
    "check": "gpuinfra.rules",
    "load_stack": "gpuinfra.rules",
    "make_plan": "gpuinfra.planning",
    **dict.fromkeys(
        (
            "Aws",
            "Azure",
            "Block",
            "Candidate",
            "ClusterSpec",
            "Flex",
            "Gcp",
            "Home",
            "Lustre",
            "ObjectMount",
            "OnDemand",
            "Pool",
            "Reserved",
            "Spot",
        ),
        "gpuinfra.spec",
    ),
}

__all__ = [
    "Aws",
    "Azure",
    "Block",
    "Candidate",
    "ClusterSpec",
    "Flex",
    "Gcp",
    "GpuCluster",
    "Home",
    "Lustre",
    "ObjectMount",
    "OnDemand",
    "Pool",
    "Reserved",
    "Spot",
    "check",
    "load_stack",
    "make_plan",
]


def __getattr__(name: str) -> object:
    """Import a public name from its home."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gpuinfra' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
