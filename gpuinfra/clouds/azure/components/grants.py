"""Role assignments for a principal at a scope, with a condition if the role is too broad.

Nodes and operators have a custom role with data actions only. The built-in blob roles also allow principals to delete or change containers, and a condition
restricts data actions only (https://learn.microsoft.com/azure/role-based-access-control/conditions-overview, retrieved 2026-11-22).
Services have the built-in roles that their guides require.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_azure_native import authorization

from gpuinfra.clouds.azure import names
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.planned import ResourceKind

_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"


@dataclass(frozen=True, kw_only=True)
class OwnRole:
    """A custom role of this stack."""

    guid: pulumi.Output[str]
    """GUID of the role definition. Resolves after the role exists."""


def data_role(
    name: str,
    scope: Scope,
    row: ResourceKind[Any],
    *,
    purpose: str,
    verbs: Sequence[str],
    account_id: pulumi.Input[str],
    parent: pulumi.Resource,
    what: str = "the evidence container",
) -> OwnRole:
    """Create a custom role with data actions on the blobs of an account and no other rights. It can be assigned only in the account's resource group.
    Its description contains `what`."""
    return own_role(
        name,
        scope,
        row,
        purpose=purpose,
        rights=authorization.PermissionArgs(
            actions=[], not_actions=[], data_actions=[f"{_BLOBS}/{verb}" for verb in verbs], not_data_actions=[]
        ),
        group=pulumi.Output.from_input(account_id).apply(lambda known: "/".join(known.split("/")[:5])),
        parent=parent,
        what=f"Blobs of {what} of {scope.cluster}, without rights on containers.",
    )


def own_role(
    name: str,
    scope: Scope,
    row: ResourceKind[Any],
    *,
    purpose: str,
    rights: authorization.PermissionArgs,
    group: pulumi.Input[str],
    parent: pulumi.Resource,
    what: str,
) -> OwnRole:
    """Create a custom role that can be assigned only in a resource group, with the description `what`."""
    naming = pulumi.Output.from_input(scope.subscription).apply(
        lambda known: names.custom_role(scope.cluster, purpose, known, scope.token)
    )
    guid = naming.apply(lambda known: known[0])
    made = authorization.RoleDefinition(
        row.logical(name),
        role_definition_id=guid,
        role_name=naming.apply(lambda known: known[1]),
        role_type="CustomRole",
        description=what,
        scope=group,
        assignable_scopes=[group],
        permissions=[rights],
        opts=child(parent, row),
    )
    return OwnRole(guid=ready_after(guid, [made]))


def grant(
    name: str,
    scope: Scope,
    *,
    role: str | OwnRole,
    at: pulumi.Input[str],
    principal: pulumi.Input[str],
    why: str,
    opts: pulumi.ResourceOptions,
    condition: str | None = None,
    principal_type: str | None = "ServicePrincipal",
) -> authorization.RoleAssignment:
    """Assign a role to a principal at a scope. With `principal_type`, Azure does not look up the identity.
    The lookup can fail while a new identity replicates."""
    guid = role.guid if isinstance(role, OwnRole) else role
    return authorization.RoleAssignment(
        name,
        role_assignment_name=pulumi.Output.all(at, principal, guid).apply(
            lambda known: names.role_assignment(str(known[0]), str(known[1]), str(known[2]))
        ),
        scope=at,
        # Azure returns the definition with the subscription of the scope, which can differ from the subscription of this stack.
        role_definition_id=pulumi.Output.all(at, guid).apply(
            lambda known: names.role_definition(str(known[0]), str(known[1]))
        ),
        principal_id=principal,
        principal_type=principal_type,
        description=why,
        condition=condition,
        condition_version="2.0" if condition else None,
        opts=opts,
    )


def folder_condition(*, reads: Sequence[str] | None, writes: Sequence[str], deletes: Sequence[str] = ()) -> str:
    """Return a condition that restricts a blob role to folders for reading (`None` for all), writing and deleting.

    Each line has the form: the request is a different action, or the blob is in one of the folders. Listing is a read without a path, so a principal
    restricted to folders cannot list blobs (https://learn.microsoft.com/azure/storage/blobs/storage-auth-abac-examples, retrieved 2026-11-27).
    """
    verbs = [(("write", "add/action"), writes), (("delete",), deletes), (("move/action",), ())]
    if reads is not None:
        verbs.append((("read",), reads))
    return " AND ".join(f"({_other(names)}{_inside(folders)})" for names, folders in verbs)


def _other(verbs: Sequence[str]) -> str:
    return "(" + " AND ".join(f"!(ActionMatches{{'{_BLOBS}/{verb}'}})" for verb in verbs) + ")"


def _inside(folders: Sequence[str]) -> str:
    return "".join(f" OR (@Resource[{_BLOBS}:path] StringStartsWith '{folder}/')" for folder in folders)
