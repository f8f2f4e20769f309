"""Google Cloud support: machine types (`catalog`), decisions (`profile`), and components that create the resources of a plan.

`profile` and `catalog` are pure. Components are imported on first use, so that planning does not import the SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.base.lazy import lazy_exports

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
    from gpuinfra.clouds.gcp.components.buckets import PrivateBucket, PrivateBucketArgs, RetentionLock
    from gpuinfra.clouds.gcp.components.firewall import (
        FirewallRules,
        FirewallRulesArgs,
        NodeFirewallRule,
        NodeFirewallRuleArgs,
    )
    from gpuinfra.clouds.gcp.components.health import NodeHealth, NodeHealthArgs
    from gpuinfra.clouds.gcp.components.keys import Key, KeyArgs
    from gpuinfra.clouds.gcp.components.network import Network, NetworkArgs, RdmaNetwork, RdmaNetworkArgs
    from gpuinfra.clouds.gcp.components.nodes import NodePool, NodePoolArgs
    from gpuinfra.clouds.gcp.components.ready import NodesReady, NodesReadyArgs
    from gpuinfra.clouds.gcp.components.recovery import RegionClone, RegionCloneArgs
    from gpuinfra.clouds.gcp.components.refs import Existing
    from gpuinfra.clouds.gcp.components.roles import MountedBucket, NodeRole, NodeRoleArgs
    from gpuinfra.clouds.gcp.components.scope import Scope
    from gpuinfra.clouds.gcp.components.services import Services, ServicesArgs, apis
    from gpuinfra.clouds.gcp.components.storage import SharedFilesystem, SharedFilesystemArgs

__all__ = [
    "AuditTrail",
    "AuditTrailArgs",
    "Budget",
    "BudgetArgs",
    "Evidence",
    "EvidenceArgs",
    "Existing",
    "FirewallRules",
    "FirewallRulesArgs",
    "Foundation",
    "FoundationArgs",
    "Key",
    "KeyArgs",
    "MountedBucket",
    "Network",
    "NetworkArgs",
    "NodeFirewallRule",
    "NodeFirewallRuleArgs",
    "NodeHealth",
    "NodeHealthArgs",
    "NodePool",
    "NodePoolArgs",
    "NodeRole",
    "NodeRoleArgs",
    "NodesReady",
    "NodesReadyArgs",
    "PrivateBucket",
    "PrivateBucketArgs",
    "RdmaNetwork",
    "RdmaNetworkArgs",
    "RegionClone",
    "RegionCloneArgs",
    "RetentionLock",
    "Scope",
    "Services",
    "ServicesArgs",
    "SharedFilesystem",
    "SharedFilesystemArgs",
    "apis",
]

__getattr__ = lazy_exports(__name__, __file__, __all__)
