"""Who may do what: Azure's own roles, given to one principal at one place, and narrowed by conditions where a role is wider than its need."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_azure_native import authorization

from gpuinfra.clouds.azure import names
from gpuinfra.clouds.azure.components.scope import Scope

CRYPTO_USER = "e147488a-f6f5-4113-8e2d-b22465e65bf6"
"""Key Vault Crypto Service Encryption User: reads a key's metadata, wraps and unwraps."""
BLOB_READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
"""Storage Blob Data Reader."""
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
"""Storage Blob Data Contributor: reads, writes and deletes blobs."""
ACCOUNT_CONTRIBUTOR = "17d1049b-9a84-46fb-8f53-869881c3d3ab"
"""Storage Account Contributor: all of an account but its data."""
_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"


def grant(
    name: str,
    scope: Scope,
    *,
    role: str,
    at: pulumi.Input[str],
    principal: pulumi.Input[str],
    why: str,
    opts: pulumi.ResourceOptions,
    condition: str | None = None,
    principal_type: str | None = "ServicePrincipal",
) -> authorization.RoleAssignment:
    """One role for one principal at one place. A new identity is known everywhere only after a while; its kind is said, so that nobody looks it up."""
    definition = scope.role_definition(role)
    return authorization.RoleAssignment(
        name,
        role_assignment_name=pulumi.Output.all(at, principal).apply(
            lambda known: names.role_assignment(str(known[0]), str(known[1]), role)
        ),
        scope=at,
        role_definition_id=definition,
        principal_id=principal,
        principal_type=principal_type,
        description=why,
        condition=condition,
        condition_version="2.0" if condition else None,
        opts=opts,
    )


def held_to(*, reads: Sequence[str] | None, writes: Sequence[str], deletes: Sequence[str] = ()) -> str:
    """Condition that holds Storage Blob Data Contributor to folders: what it may read (None for everything), write and delete.

    Each line reads: another action is meant, or the blob lies in one of the folders. Listing is reading without a path, so who reads
    folders only cannot list.
    """
    verbs = [(("write", "add/action"), writes), (("delete",), deletes), (("move/action",), ())]
    if reads is not None:
        verbs.append((("read",), reads))
    return " AND ".join(f"({_other(names)}{_inside(folders)})" for names, folders in verbs)


def _other(verbs: Sequence[str]) -> str:
    return "(" + " AND ".join(f"!(ActionMatches{{'{_BLOBS}/{verb}'}})" for verb in verbs) + ")"


def _inside(folders: Sequence[str]) -> str:
    path = f"@Resource[{_BLOBS}:path]"
    return "".join(f" OR ({path} StringStartsWith '{folder}/')" for folder in folders)
