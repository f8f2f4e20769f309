"""AWS support: machine types (`catalog`), decisions (`profile`), and components that create the resources of a plan.

`catalog` and `profile` are pure. Components are imported on first use, so that planning does not import the SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.base.lazy import lazy_exports

if TYPE_CHECKING:
    from gpuinfra.clouds.aws.components.audit import AuditTrail as AuditTrail
    from gpuinfra.clouds.aws.components.audit import AuditTrailArgs as AuditTrailArgs
    from gpuinfra.clouds.aws.components.audit import Budget as Budget
    from gpuinfra.clouds.aws.components.audit import BudgetArgs as BudgetArgs
    from gpuinfra.clouds.aws.components.audit import Evidence as Evidence
    from gpuinfra.clouds.aws.components.audit import EvidenceArgs as EvidenceArgs
    from gpuinfra.clouds.aws.components.audit import Foundation as Foundation
    from gpuinfra.clouds.aws.components.audit import FoundationArgs as FoundationArgs
    from gpuinfra.clouds.aws.components.audit import Key as Key
    from gpuinfra.clouds.aws.components.audit import KeyArgs as KeyArgs
    from gpuinfra.clouds.aws.components.buckets import ObjectLock as ObjectLock
    from gpuinfra.clouds.aws.components.buckets import PrivateBucket as PrivateBucket
    from gpuinfra.clouds.aws.components.buckets import PrivateBucketArgs as PrivateBucketArgs
    from gpuinfra.clouds.aws.components.home_replicas import HomeSource as HomeSource
    from gpuinfra.clouds.aws.components.homes import HomeDirectories as HomeDirectories
    from gpuinfra.clouds.aws.components.homes import HomeDirectoriesArgs as HomeDirectoriesArgs
    from gpuinfra.clouds.aws.components.network import Network as Network
    from gpuinfra.clouds.aws.components.network import NetworkArgs as NetworkArgs
    from gpuinfra.clouds.aws.components.nodes import NodePool as NodePool
    from gpuinfra.clouds.aws.components.nodes import NodePoolArgs as NodePoolArgs
    from gpuinfra.clouds.aws.components.openzfs import OpenZfsHomeDirectories as OpenZfsHomeDirectories
    from gpuinfra.clouds.aws.components.openzfs import OpenZfsHomeDirectoriesArgs as OpenZfsHomeDirectoriesArgs
    from gpuinfra.clouds.aws.components.policies import MountedBucket as MountedBucket
    from gpuinfra.clouds.aws.components.ready import NodesReady as NodesReady
    from gpuinfra.clouds.aws.components.ready import NodesReadyArgs as NodesReadyArgs
    from gpuinfra.clouds.aws.components.recovery import RegionClone as RegionClone
    from gpuinfra.clouds.aws.components.recovery import RegionCloneArgs as RegionCloneArgs
    from gpuinfra.clouds.aws.components.recovery import ReplicationSource as ReplicationSource
    from gpuinfra.clouds.aws.components.refs import Existing as Existing
    from gpuinfra.clouds.aws.components.roles import NodeRole as NodeRole
    from gpuinfra.clouds.aws.components.roles import NodeRoleArgs as NodeRoleArgs
    from gpuinfra.clouds.aws.components.scope import Scope as Scope
    from gpuinfra.clouds.aws.components.security import SecurityGroups as SecurityGroups
    from gpuinfra.clouds.aws.components.security import SecurityGroupsArgs as SecurityGroupsArgs
    from gpuinfra.clouds.aws.components.storage import SharedFilesystem as SharedFilesystem
    from gpuinfra.clouds.aws.components.storage import SharedFilesystemArgs as SharedFilesystemArgs

__getattr__, __all__ = lazy_exports(__name__, __file__)
