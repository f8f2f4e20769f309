"""Google Cloud support: machine types (`catalog`), decisions (`profile`), and components that create the resources of a plan.

`profile` and `catalog` are pure. Components are imported on first use, so that planning does not import the SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.base.lazy import lazy_exports

if TYPE_CHECKING:
    from gpuinfra.clouds.gcp.components.audit import AuditTrail as AuditTrail
    from gpuinfra.clouds.gcp.components.audit import AuditTrailArgs as AuditTrailArgs
    from gpuinfra.clouds.gcp.components.audit import Budget as Budget
    from gpuinfra.clouds.gcp.components.audit import BudgetArgs as BudgetArgs
    from gpuinfra.clouds.gcp.components.audit import Evidence as Evidence
    from gpuinfra.clouds.gcp.components.audit import EvidenceArgs as EvidenceArgs
    from gpuinfra.clouds.gcp.components.audit import Foundation as Foundation
    from gpuinfra.clouds.gcp.components.audit import FoundationArgs as FoundationArgs
    from gpuinfra.clouds.gcp.components.buckets import PrivateBucket as PrivateBucket
    from gpuinfra.clouds.gcp.components.buckets import PrivateBucketArgs as PrivateBucketArgs
    from gpuinfra.clouds.gcp.components.buckets import RetentionLock as RetentionLock
    from gpuinfra.clouds.gcp.components.firewall import FirewallRules as FirewallRules
    from gpuinfra.clouds.gcp.components.firewall import FirewallRulesArgs as FirewallRulesArgs
    from gpuinfra.clouds.gcp.components.firewall import NodeFirewallRule as NodeFirewallRule
    from gpuinfra.clouds.gcp.components.firewall import NodeFirewallRuleArgs as NodeFirewallRuleArgs
    from gpuinfra.clouds.gcp.components.health import NodeHealth as NodeHealth
    from gpuinfra.clouds.gcp.components.health import NodeHealthArgs as NodeHealthArgs
    from gpuinfra.clouds.gcp.components.keys import Key as Key
    from gpuinfra.clouds.gcp.components.keys import KeyArgs as KeyArgs
    from gpuinfra.clouds.gcp.components.network import Network as Network
    from gpuinfra.clouds.gcp.components.network import NetworkArgs as NetworkArgs
    from gpuinfra.clouds.gcp.components.network import RdmaNetwork as RdmaNetwork
    from gpuinfra.clouds.gcp.components.network import RdmaNetworkArgs as RdmaNetworkArgs
    from gpuinfra.clouds.gcp.components.nodes import NodePool as NodePool
    from gpuinfra.clouds.gcp.components.nodes import NodePoolArgs as NodePoolArgs
    from gpuinfra.clouds.gcp.components.ready import NodesReady as NodesReady
    from gpuinfra.clouds.gcp.components.ready import NodesReadyArgs as NodesReadyArgs
    from gpuinfra.clouds.gcp.components.recovery import RegionClone as RegionClone
    from gpuinfra.clouds.gcp.components.recovery import RegionCloneArgs as RegionCloneArgs
    from gpuinfra.clouds.gcp.components.refs import Existing as Existing
    from gpuinfra.clouds.gcp.components.roles import MountedBucket as MountedBucket
    from gpuinfra.clouds.gcp.components.roles import NodeRole as NodeRole
    from gpuinfra.clouds.gcp.components.roles import NodeRoleArgs as NodeRoleArgs
    from gpuinfra.clouds.gcp.components.scope import Scope as Scope
    from gpuinfra.clouds.gcp.components.services import Services as Services
    from gpuinfra.clouds.gcp.components.services import ServicesArgs as ServicesArgs
    from gpuinfra.clouds.gcp.components.services import apis as apis
    from gpuinfra.clouds.gcp.components.storage import SharedFilesystem as SharedFilesystem
    from gpuinfra.clouds.gcp.components.storage import SharedFilesystemArgs as SharedFilesystemArgs

__getattr__, __all__ = lazy_exports(__name__, __file__)
