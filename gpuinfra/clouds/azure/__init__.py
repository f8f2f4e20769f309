"""Azure support: machine types (`catalog`), decisions (`profile`), and components that create the resources of a plan.

`profile`, `catalog`, `names` and `resources` are pure. Components are imported on first use, so that planning does not import the SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.base.lazy import lazy_exports

if TYPE_CHECKING:
    from gpuinfra.clouds.azure.components.audit import AuditTrail as AuditTrail
    from gpuinfra.clouds.azure.components.audit import AuditTrailArgs as AuditTrailArgs
    from gpuinfra.clouds.azure.components.audit import Budget as Budget
    from gpuinfra.clouds.azure.components.audit import BudgetArgs as BudgetArgs
    from gpuinfra.clouds.azure.components.audit import Evidence as Evidence
    from gpuinfra.clouds.azure.components.audit import EvidenceArgs as EvidenceArgs
    from gpuinfra.clouds.azure.components.audit import Foundation as Foundation
    from gpuinfra.clouds.azure.components.audit import FoundationArgs as FoundationArgs
    from gpuinfra.clouds.azure.components.endpoints import Endpoints as Endpoints
    from gpuinfra.clouds.azure.components.endpoints import EndpointsArgs as EndpointsArgs
    from gpuinfra.clouds.azure.components.homes import HomeDirectories as HomeDirectories
    from gpuinfra.clouds.azure.components.homes import HomeDirectoriesArgs as HomeDirectoriesArgs
    from gpuinfra.clouds.azure.components.keys import Key as Key
    from gpuinfra.clouds.azure.components.keys import KeyArgs as KeyArgs
    from gpuinfra.clouds.azure.components.keys import Vault as Vault
    from gpuinfra.clouds.azure.components.keys import VaultArgs as VaultArgs
    from gpuinfra.clouds.azure.components.netapp import NetAppHomeDirectories as NetAppHomeDirectories
    from gpuinfra.clouds.azure.components.netapp import NetAppHomeDirectoriesArgs as NetAppHomeDirectoriesArgs
    from gpuinfra.clouds.azure.components.network import Network as Network
    from gpuinfra.clouds.azure.components.network import NetworkArgs as NetworkArgs
    from gpuinfra.clouds.azure.components.nodes import NodePool as NodePool
    from gpuinfra.clouds.azure.components.nodes import NodePoolArgs as NodePoolArgs
    from gpuinfra.clouds.azure.components.ready import NodesReady as NodesReady
    from gpuinfra.clouds.azure.components.ready import NodesReadyArgs as NodesReadyArgs
    from gpuinfra.clouds.azure.components.recovery import RegionClone as RegionClone
    from gpuinfra.clouds.azure.components.recovery import RegionCloneArgs as RegionCloneArgs
    from gpuinfra.clouds.azure.components.refs import Existing as Existing
    from gpuinfra.clouds.azure.components.roles import MountedContainer as MountedContainer
    from gpuinfra.clouds.azure.components.roles import NodeRole as NodeRole
    from gpuinfra.clouds.azure.components.roles import NodeRoleArgs as NodeRoleArgs
    from gpuinfra.clouds.azure.components.scope import Scope as Scope
    from gpuinfra.clouds.azure.components.security import SecurityGroups as SecurityGroups
    from gpuinfra.clouds.azure.components.security import SecurityGroupsArgs as SecurityGroupsArgs
    from gpuinfra.clouds.azure.components.storage import DataEndpoint as DataEndpoint
    from gpuinfra.clouds.azure.components.storage import FileSystemKey as FileSystemKey
    from gpuinfra.clouds.azure.components.storage import SharedFilesystem as SharedFilesystem
    from gpuinfra.clouds.azure.components.storage import SharedFilesystemArgs as SharedFilesystemArgs
    from gpuinfra.clouds.azure.components.stores import EncryptionKey as EncryptionKey
    from gpuinfra.clouds.azure.components.stores import ImmutabilityLock as ImmutabilityLock
    from gpuinfra.clouds.azure.components.stores import PrivateStore as PrivateStore
    from gpuinfra.clouds.azure.components.stores import PrivateStoreArgs as PrivateStoreArgs

__getattr__, __all__ = lazy_exports(__name__, __file__)
