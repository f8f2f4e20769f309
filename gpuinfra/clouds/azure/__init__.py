"""Azure support: machine types (`catalog`), decisions (`profile`), and components that create the resources of a plan.

`profile`, `catalog`, `names` and `resources` are pure. Components are imported on first use, so that planning does not import the SDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.base.lazy import lazy_exports

if TYPE_CHECKING:
    from gpuinfra.clouds.azure.components.audit import (
        AuditTrail,
        AuditTrailArgs,
        Budget,
        BudgetArgs,
        Evidence,
        EvidenceArgs,
        Foundation,
        FoundationArgs,
    )
    from gpuinfra.clouds.azure.components.endpoints import Endpoints, EndpointsArgs
    from gpuinfra.clouds.azure.components.homes import HomeDirectories, HomeDirectoriesArgs
    from gpuinfra.clouds.azure.components.keys import Key, KeyArgs, Vault, VaultArgs
    from gpuinfra.clouds.azure.components.netapp import NetAppHomeDirectories, NetAppHomeDirectoriesArgs
    from gpuinfra.clouds.azure.components.network import Network, NetworkArgs
    from gpuinfra.clouds.azure.components.nodes import NodePool, NodePoolArgs
    from gpuinfra.clouds.azure.components.ready import NodesReady, NodesReadyArgs
    from gpuinfra.clouds.azure.components.recovery import RegionClone, RegionCloneArgs
    from gpuinfra.clouds.azure.components.refs import Existing
    from gpuinfra.clouds.azure.components.roles import MountedContainer, NodeRole, NodeRoleArgs
    from gpuinfra.clouds.azure.components.scope import Scope
    from gpuinfra.clouds.azure.components.security import SecurityGroups, SecurityGroupsArgs
    from gpuinfra.clouds.azure.components.storage import (
        DataEndpoint,
        FileSystemKey,
        SharedFilesystem,
        SharedFilesystemArgs,
    )
    from gpuinfra.clouds.azure.components.stores import EncryptionKey, ImmutabilityLock, PrivateStore, PrivateStoreArgs

__all__ = [
    "AuditTrail",
    "AuditTrailArgs",
    "Budget",
    "BudgetArgs",
    "DataEndpoint",
    "EncryptionKey",
    "Endpoints",
    "EndpointsArgs",
    "Evidence",
    "EvidenceArgs",
    "Existing",
    "FileSystemKey",
    "Foundation",
    "FoundationArgs",
    "HomeDirectories",
    "HomeDirectoriesArgs",
    "ImmutabilityLock",
    "Key",
    "KeyArgs",
    "MountedContainer",
    "NetAppHomeDirectories",
    "NetAppHomeDirectoriesArgs",
    "Network",
    "NetworkArgs",
    "NodePool",
    "NodePoolArgs",
    "NodeRole",
    "NodeRoleArgs",
    "NodesReady",
    "NodesReadyArgs",
    "PrivateStore",
    "PrivateStoreArgs",
    "RegionClone",
    "RegionCloneArgs",
    "Scope",
    "SecurityGroups",
    "SecurityGroupsArgs",
    "SharedFilesystem",
    "SharedFilesystemArgs",
    "Vault",
    "VaultArgs",
]

__getattr__ = lazy_exports(__name__, __file__, __all__)
