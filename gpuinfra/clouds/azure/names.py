"""What things are called on Azure, and the ids that follow from the names. Pure: no SDK.

Where a name may be anything, it is the cluster's name, the purpose and the stack's token (`gpuinfra.naming.unique_name`).
Storage accounts and key vaults share one space of names with all customers of Azure and have odd limits, so theirs are made here:
the token is mixed with the subscription, and the readable part gives way.
An id of Azure is a path of names; with names that are known, what a destroy kept is found again without anybody having written ids down.
"""

from __future__ import annotations

import hashlib
import re
import uuid

GLOBAL_TOKEN_LENGTH = 10
"""Hex digits that tell two customers' things of the same readable name apart: 40 bits, and a clash is an error at creation, never a mix-up."""
ACCOUNT_LIMIT = 24
"""Storage accounts: 3-24 lower-case letters and digits. pulumi/pulumi-azure-native#3665; azure.md 12 rule 43."""
VAULT_LIMIT = 24
"""Key vaults: 3-24 letters, digits and single hyphens, from a letter to a letter or digit. azure.md 12 rule 43."""
_NAMESPACE = uuid.UUID("5f1c2f0e-6a0e-5c1b-9a54-0b8f6d0f7e11")


def storage_account(cluster: str, purpose: str, subscription: str, token: str) -> str:
    """A storage account's name: `trainevidence0a1b2c3d4e`."""
    rest = _letters(purpose)[:8] + _global_token("storage", cluster, purpose, subscription, token)
    return _letters(cluster)[: ACCOUNT_LIMIT - len(rest)] + rest


def vault(cluster: str, subscription: str, token: str) -> str:
    """A key vault's name: `train-0a1b2c3d4e`."""
    rest = "-" + _global_token("vault", cluster, "", subscription, token)
    readable = re.sub(r"-+", "-", re.sub(r"[^a-z0-9]+", "-", cluster.lower()))
    readable = ("v" + readable if not readable[:1].isalpha() else readable)[: VAULT_LIMIT - len(rest)]
    return readable.rstrip("-") + rest


def role_assignment(scope: str, principal: str, role: str) -> str:
    """The name of a role assignment, which has to be a GUID: the same for the same scope, principal and role."""
    return str(uuid.uuid5(_NAMESPACE, "|".join((scope.lower(), principal.lower(), role.lower()))))


def computer_prefix(cluster: str, pool: str) -> str:
    """What host names of a group begin with: at most nine characters, because the instance's six follow and NetBIOS ends at 15."""
    text = re.sub(r"[^a-z0-9-]+", "-", f"{cluster}-{pool}".lower()).strip("-")
    return text[:9].rstrip("-") or "node"


def group_id(subscription: str, group: str) -> str:
    """The id of a resource group."""
    return f"/subscriptions/{subscription}/resourceGroups/{group}"


def resource_id(subscription: str, group: str, provider: str, *path: str) -> str:
    """The id of a resource: provider, then kinds and names in turn."""
    return "/".join((group_id(subscription, group), "providers", provider, *path))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _global_token(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:GLOBAL_TOKEN_LENGTH]
