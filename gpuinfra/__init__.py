"""gpuinfra deploys a GPU cluster from one declaration with Pulumi on AWS, Azure, or Google Cloud, and verifies every GPU.

`GpuCluster` is the component, and `ClusterSpec` is the declaration.
Public names are imported on first use. `gpuinfra plan` therefore does not import Pulumi, and a program for AWS does not import the Azure SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.base.lazy import lazy_exports

if TYPE_CHECKING:
    from gpuinfra.checked_plan import make_plan as make_plan
    from gpuinfra.cluster import GpuCluster as GpuCluster
    from gpuinfra.rules import check as check
    from gpuinfra.rules import load_stack as load_stack
    from gpuinfra.spec import Aws as Aws
    from gpuinfra.spec import Azure as Azure
    from gpuinfra.spec import Block as Block
    from gpuinfra.spec import Candidate as Candidate
    from gpuinfra.spec import ClusterSpec as ClusterSpec
    from gpuinfra.spec import Flex as Flex
    from gpuinfra.spec import Gcp as Gcp
    from gpuinfra.spec import Home as Home
    from gpuinfra.spec import Lustre as Lustre
    from gpuinfra.spec import ObjectMount as ObjectMount
    from gpuinfra.spec import OnDemand as OnDemand
    from gpuinfra.spec import Pool as Pool
    from gpuinfra.spec import Reserved as Reserved
    from gpuinfra.spec import Spot as Spot

__getattr__, __all__ = lazy_exports(__name__, __file__)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
