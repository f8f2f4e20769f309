"""Google Cloud: what it sells (`catalog`), what is decided differently there (`profile`), and the components that translate a plan.

`profile` and `catalog` are pure. The components are imported when they are asked for, so that a plan never waits for an SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.lazy import lazy_exports

if TYPE_CHECKING:
    from gpuinfra.clouds.gcp.components.audit import (
        AuditTrail,
        AuditTrailArgs,
        Budget,
        BudgetArgs,
        Evidence,
        EvidenceArgs,
        Foundation,
        FoundationArgs,
    )
    from gpuinfra.clouds.gcp.components.buckets import Lock, PrivateBucket, PrivateBucketArgs
    from gpuinfra.clouds.gcp.components.firewall import Neighbours, NeighboursArgs, Walls, WallsArgs
    from gpuinfra.clouds.gcp.components.keys import Key, KeyArgs
    from gpuinfra.clouds.gcp.components.network import Network, NetworkArgs, RdmaNetwork, RdmaNetworkArgs
    from gpuinfra.clouds.gcp.components.nodes import NodePool, NodePoolArgs
    from gpuinfra.clouds.gcp.components.refs import Existing
    from gpuinfra.clouds.gcp.components.roles import NodeRole, NodeRoleArgs
    from gpuinfra.clouds.gcp.components.scope import Scope
    from gpuinfra.clouds.gcp.components.services import Services, ServicesArgs
    from gpuinfra.clouds.gcp.components.storage import SharedFilesystem, SharedFilesystemArgs

_MODULES = {
    "audit": (
        "AuditTrail",
        "AuditTrailArgs",
        "Budget",
        "BudgetArgs",
        "Evidence",
        "EvidenceArgs",
        "Foundation",
        "FoundationArgs",
    ),
    "buckets": ("Lock", "PrivateBucket", "PrivateBucketArgs"),
    "firewall": ("Neighbours", "NeighboursArgs", "Walls", "WallsArgs"),
    "keys": ("Key", "KeyArgs"),
    "network": ("Network", "NetworkArgs", "RdmaNetwork", "RdmaNetworkArgs"),
    "nodes": ("NodePool", "NodePoolArgs"),
    "refs": ("Existing",),
    "roles": ("NodeRole", "NodeRoleArgs"),
    "scope": ("Scope",),
    "services": ("Services", "ServicesArgs"),
    "storage": ("SharedFilesystem", "SharedFilesystemArgs"),
}
__all__ = [
    "AuditTrail",
    "AuditTrailArgs",
    "Budget",
    "BudgetArgs",
    "Evidence",
    "EvidenceArgs",
    "Existing",
    "Foundation",
    "FoundationArgs",
    "Key",
    "KeyArgs",
    "Lock",
    "Neighbours",
    "NeighboursArgs",
    "Network",
    "NetworkArgs",
    "NodePool",
    "NodePoolArgs",
    "NodeRole",
    "NodeRoleArgs",
    "PrivateBucket",
    "PrivateBucketArgs",
    "RdmaNetwork",
    "RdmaNetworkArgs",
    "Scope",
    "Services",
    "ServicesArgs",
    "SharedFilesystem",
    "SharedFilesystemArgs",
    "Walls",
    "WallsArgs",
]

__getattr__ = lazy_exports(
    __name__, {name: f"{__name__}.components.{module}" for module, names in _MODULES.items() for name in names}
)
