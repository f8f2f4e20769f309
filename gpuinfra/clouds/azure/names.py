"""Names and resource IDs on Azure. Pure.

Most names consist of the cluster name, the purpose and the stack token (`gpuinfra.naming.unique_name`).
Names of storage accounts and key vaults are global and have short limits. They contain a token derived from the subscription and stack, and the readable part
is shortened. An Azure resource ID is a path that consists of names, so `gpuinfra adopt` finds retained resources without stored IDs.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass

GLOBAL_TOKEN_LENGTH = 10
"""Hexadecimal digits of the token in global names (40 bits). A collision causes an error at creation."""
ACCOUNT_LIMIT = 24
"""Storage accounts: 3-24 lower-case letters and digits. pulumi/pulumi-azure-native#3665."""
VAULT_LIMIT = 24
"""Key vaults: 3-24 letters, digits and single hyphens, starting with a letter and ending with a letter or digit. pulumi/pulumi-azure-native#2532."""
_CONTAINER_ID = re.compile(
    r"(?P<account_id>/subscriptions/[^/]+/resourceGroups/(?P<group>[^/]+)/providers/Microsoft\.Storage/storageAccounts/(?P<account>[^/]+))"
    r"/blobServices/default/containers/(?P<name>[^/]+)",
    re.IGNORECASE,
)
_NAMESPACE = uuid.UUID("5f1c2f0e-6a0e-5c1b-9a54-0b8f6d0f7e11")


def storage_account(cluster: str, purpose: str, subscription: str, token: str) -> str:
    """Return the name of a storage account, such as `trainevidence0a1b2c3d4e`."""
    rest = _letters(purpose)[:8] + _global_token("storage", cluster, purpose, subscription, token)
    return _letters(cluster)[: ACCOUNT_LIMIT - len(rest)] + rest


def vault(cluster: str, subscription: str, token: str, region: str = "") -> str:
    """Return the name of a key vault, such as `train-0a1b2c3d4e`. `region` is the region of a vault in the second region, or empty."""
    rest = "-" + _global_token("vault", cluster, region, subscription, token)
    readable = re.sub(r"-+", "-", re.sub(r"[^a-z0-9]+", "-", cluster.lower()))
    readable = ("v" + readable if not readable[:1].isalpha() else readable)[: VAULT_LIMIT - len(rest)]
    return readable.rstrip("-") + rest


def role_assignment(scope: str, principal: str, role: str) -> str:
    """Return the name of a role assignment: a GUID derived from the scope, principal and role."""
    return str(uuid.uuid5(_NAMESPACE, "|".join((scope.lower(), principal.lower(), role.lower()))))


def role_definition(scope: str, guid: str) -> str:
    """Return the ID of a role definition in the subscription of a scope."""
    return f"{'/'.join(scope.split('/')[:3])}/providers/Microsoft.Authorization/roleDefinitions/{guid}"


def custom_role(cluster: str, purpose: str, subscription: str, token: str) -> tuple[str, str]:
    """Return the GUID and the display name of a custom role. Both are unique in the tenant, which can have many subscriptions."""
    guid = str(uuid.uuid5(_NAMESPACE, "|".join(("role", cluster, purpose, subscription.lower(), token))))
    return guid, f"gpuinfra {cluster} {purpose} {_global_token('role', cluster, purpose, subscription, token)}"


def computer_prefix(cluster: str, pool: str) -> str:
    """Return the prefix of host names. It has at most nine characters, because Azure appends six and NetBIOS names are limited to 15."""
    text = re.sub(r"[^a-z0-9-]+", "-", f"{cluster}-{pool}".lower()).strip("-")
    return text[:9].rstrip("-") or "node"


def group_id(subscription: str, group: str) -> str:
    """Return the ID of a resource group."""
    return f"/subscriptions/{subscription}/resourceGroups/{group}"


@dataclass(frozen=True, kw_only=True)
class ContainerId:
    """The parts of a container's resource ID."""

    group: str
    account_id: str
    account: str
    name: str


def container_parts(container_id: str) -> ContainerId:
    """Split a container's resource ID into its parts. Raises ValueError if it has a different format."""
    found = _CONTAINER_ID.fullmatch(container_id)
    if found is None:
        raise ValueError(f"{container_id} is not the resource ID of a container of a storage account")
    return ContainerId(**found.groupdict())


def resource_id(subscription: str, group: str, provider: str, *path: str) -> str:
    """Return the ID of a resource, given the provider and pairs of type and name."""
    return "/".join((group_id(subscription, group), "providers", provider, *path))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _global_token(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:GLOBAL_TOKEN_LENGTH]
