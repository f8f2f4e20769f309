"""Role assignments: built-in roles for a principal at a scope, with a condition if the role is too broad."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_azure_native import authorization

from gpuinfra.clouds.azure import names
from gpuinfra.clouds.azure.components.scope import Scope

CRYPTO_USER = "e147488a-f6f5-4113-8e2d-b22465e65bf6"
"""Key Vault Crypto Service Encryption User: reads key metadata, and wraps and unwraps keys."""
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
"""Storage Blob Data Contributor: reads, writes and deletes blobs."""
ACCOUNT_CONTRIBUTOR = "17d1049b-9a84-46fb-8f53-869881c3d3ab"
"""Storage Account Contributor: manages an account, without data access through roles."""
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
    """Assign a role to a principal at a scope. With `principal_type`, Azure does not look up the identity, which can fail while a new identity replicates."""
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


def folder_condition(*, reads: Sequence[str] | None, writes: Sequence[str], deletes: Sequence[str] = ()) -> str:
    """Return a condition that restricts Storage Blob Data Contributor to the folders to read (`None` for all), write and delete.

    Each line has the form: the request is a different action, or the blob is in one of the folders. Listing is a read without a path, so a principal
    restricted to folders cannot list blobs.
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
