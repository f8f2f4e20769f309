"""AWS: what it sells (`catalog`), what is decided differently there (`profile`), and the components that translate a plan.

`profile` and `catalog` are pure. The components are imported when they are asked for, so that a plan never waits for an SDK.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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
    from gpuinfra.clouds.aws.components.buckets import Lock, PrivateBucket, PrivateBucketArgs
    from gpuinfra.clouds.aws.components.network import Network, NetworkArgs
    from gpuinfra.clouds.aws.components.nodes import NodePool, NodePoolArgs
    from gpuinfra.clouds.aws.components.refs import Existing
    from gpuinfra.clouds.aws.components.roles import NodeRole, NodeRoleArgs
    from gpuinfra.clouds.aws.components.scope import Scope
    from gpuinfra.clouds.aws.components.security import SecurityGroups, SecurityGroupsArgs
    from gpuinfra.clouds.aws.components.storage import SharedFilesystem, SharedFilesystemArgs

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
        "Key",
        "KeyArgs",
    ),
    "buckets": ("Lock", "PrivateBucket", "PrivateBucketArgs"),
    "network": ("Network", "NetworkArgs"),
    "nodes": ("NodePool", "NodePoolArgs"),
    "refs": ("Existing",),
    "roles": ("NodeRole", "NodeRoleArgs"),
    "scope": ("Scope",),
    "security": ("SecurityGroups", "SecurityGroupsArgs"),
    "storage": ("SharedFilesystem", "SharedFilesystemArgs"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

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
    "Network",
    "NetworkArgs",
    "NodePool",
    "NodePoolArgs",
    "NodeRole",
    "NodeRoleArgs",
    "PrivateBucket",
    "PrivateBucketArgs",
    "Scope",
    "SecurityGroups",
    "SecurityGroupsArgs",
    "SharedFilesystem",
    "SharedFilesystemArgs",
]


def __getattr__(name: str) -> object:
    """Import a component from its home."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"gpuinfra.clouds.aws.components.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gpuinfra.clouds.aws' has no attribute {name!r}")
