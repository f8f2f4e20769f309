"""AWS support: machine types (`catalog`), decisions (`profile`), and components that create the resources of a plan.

`catalog` and `profile` are pure. Components are imported on first use, so that planning does not import the SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.base.lazy import lazy_exports

if TYPE_CHECKING:
    from gpuinfra.clouds.aws.components.audit import (
        AuditTrail,
        AuditTrailArgs,
        Budget,
        BudgetArgs,
        Evidence,
        EvidenceArgs,
        Foundation,
        FoundationArgs,
        Key,
        KeyArgs,
    )
    from gpuinfra.clouds.aws.components.buckets import ObjectLock, PrivateBucket, PrivateBucketArgs
    from gpuinfra.clouds.aws.components.homes import HomeDirectories, HomeDirectoriesArgs
    from gpuinfra.clouds.aws.components.network import Network, NetworkArgs
    from gpuinfra.clouds.aws.components.nodes import NodePool, NodePoolArgs
    from gpuinfra.clouds.aws.components.openzfs import OpenZfsHomeDirectories, OpenZfsHomeDirectoriesArgs
    from gpuinfra.clouds.aws.components.policies import MountedBucket
    from gpuinfra.clouds.aws.components.ready import NodesReady, NodesReadyArgs
    from gpuinfra.clouds.aws.components.recovery import RegionClone, RegionCloneArgs, ReplicationSource
    from gpuinfra.clouds.aws.components.refs import Existing
    from gpuinfra.clouds.aws.components.roles import NodeRole, NodeRoleArgs
    from gpuinfra.clouds.aws.components.scope import Scope
    from gpuinfra.clouds.aws.components.security import SecurityGroups, SecurityGroupsArgs
    from gpuinfra.clouds.aws.components.storage import SharedFilesystem, SharedFilesystemArgs

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
    "HomeDirectories",
    "HomeDirectoriesArgs",
    "Key",
    "KeyArgs",
    "MountedBucket",
    "Network",
    "NetworkArgs",
    "NodePool",
    "NodePoolArgs",
    "NodeRole",
    "NodeRoleArgs",
    "NodesReady",
    "NodesReadyArgs",
    "ObjectLock",
    "OpenZfsHomeDirectories",
    "OpenZfsHomeDirectoriesArgs",
    "PrivateBucket",
    "PrivateBucketArgs",
    "RegionClone",
    "RegionCloneArgs",
    "ReplicationSource",
    "Scope",
    "SecurityGroups",
    "SecurityGroupsArgs",
    "SharedFilesystem",
    "SharedFilesystemArgs",
]

__getattr__ = lazy_exports(__name__, __file__, __all__)
