"""Names and resource IDs on Azure. Pure.

Most names consist of the cluster name, the purpose and the stack token (`gpuinfra.base.naming.unique_name`).
Names of storage accounts and key vaults are global and have short limits. They contain a token derived from the subscription and stack, and the readable part
is shortened. An Azure resource ID is a path that consists of names, so `gpuinfra adopt` finds retained resources without stored IDs.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass

from gpuinfra.base import naming

GLOBAL_TOKEN_LENGTH = 10
"""Hexadecimal digits of the token in global names (40 bits). A collision causes an error at creation."""
ACCOUNT_LIMIT = 24
"""Storage accounts: 3-24 lower-case letters and digits. pulumi/pulumi-azure-native#3665."""
VAULT_LIMIT = 24
"""Key vaults: 3-24 letters, digits and single hyphens, starting with a letter and ending with a letter or digit. pulumi/pulumi-azure-native#2532."""
SHARE_LIMIT = 63
"""File shares: 3-63 lower-case letters, digits and single hyphens (https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules)."""
_CONTAINER_ID = re.compile(
    r"(?P<account_id>/subscriptions/[^/]+/resourceGroups/(?P<group>[^/]+)/providers/Microsoft\.Storage/storageAccounts/(?P<account>[^/]+))"
    r"/blobServices/default/containers/(?P<name>[^/]+)",
    re.IGNORECASE,
)
_SHARE_ID = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Storage/storageAccounts/(?P<account>[a-z0-9]{3,24})"
    r"/fileServices/default/shares/(?P<name>[a-z0-9-]{3,63})",
    re.IGNORECASE,
)
_VOLUME_ID = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.NetApp/netAppAccounts/[^/]+/capacityPools/[^/]+/volumes/[^/]+",
    re.IGNORECASE,
)
SECRET_ID = re.compile(
    r"(?i:/subscriptions/[0-9a-f-]{36}/resourceGroups/[\w.()-]{1,90}/providers/Microsoft\.KeyVault/vaults/)[A-Za-z0-9-]{3,24}(?i:/secrets/)[A-Za-z0-9-]{1,127}"
)
"""ID of a Key Vault secret, to which a role can be assigned (https://learn.microsoft.com/azure/key-vault/general/rbac-guide, retrieved 2026-11-29)."""
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
    match = _CONTAINER_ID.fullmatch(container_id)
    if match is None:
        raise ValueError(f"{container_id} is not the resource ID of a container of a storage account")
    return ContainerId(**match.groupdict())


@dataclass(frozen=True, kw_only=True)
class ShareId:
    """The parts of the resource ID of a file share."""

    account: str
    name: str

    @property
    def address(self) -> str:
        """Name of the file servers. In a network with a private endpoint, it resolves to the private address."""
        return file_server(self.account)

    @property
    def path(self) -> str:
        """Exported path."""
        return f"/{self.account}/{self.name}"


def share_parts(share_id: str) -> ShareId | None:
    """Split the resource ID of a file share into its parts. Returns None if it has a different format."""
    match = _SHARE_ID.fullmatch(share_id)
    return ShareId(**{key: text.lower() for key, text in match.groupdict().items()}) if match else None


def is_netapp_volume(id: str) -> bool:
    """Return whether a resource ID is the ID of a volume of Azure NetApp Files."""
    return _VOLUME_ID.fullmatch(id) is not None


def file_server(account: str) -> str:
    """Return the name of the file servers of a storage account, for which their certificate is issued."""
    return f"{account}.file.core.windows.net"


def share(file_system: str) -> str:
    """Return the name of the file share, or of the capacity pool and the volume, of a file system.
    The name of a file system consists of lower-case letters, digits and single hyphens."""
    if len(file_system) <= SHARE_LIMIT:
        return file_system
    return f"{naming.short(file_system, SHARE_LIMIT - 7)}-{naming.text_token(file_system, 6)}"


def resource_id(subscription: str, group: str, provider: str, *path: str) -> str:
    """Return the ID of a resource, given the provider and pairs of type and name."""
    return "/".join((group_id(subscription, group), "providers", provider, *path))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _global_token(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:GLOBAL_TOKEN_LENGTH]
