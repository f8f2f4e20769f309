"""gpuinfra deploys a GPU cluster from one declaration with Pulumi on AWS, Azure, or Google Cloud, and verifies every GPU.

`GpuCluster` is the component, and `ClusterSpec` is the declaration.
Public names are imported on first use. `gpuinfra plan` therefore does not import Pulumi, and a program for AWS does not import the Azure SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.base.lazy import lazy_exports

if TYPE_CHECKING:
    from gpuinfra.checked_plan import make_plan
    from gpuinfra.cluster import GpuCluster
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

__getattr__ = lazy_exports(__name__, __file__, __all__)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
