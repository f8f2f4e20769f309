"""The permissions of a node: reading its bundle, writing evidence to the folder of its cluster, and reading or writing the containers that
it mounts.

A node creates evidence, and can neither replace nor delete any. Put Blob needs `blobs/add/action` for a new blob, and `blobs/write` to replace one
(https://learn.microsoft.com/rest/api/storageservices/authorize-with-azure-active-directory, retrieved 2026-11-28).

All nodes of a cluster share one identity, so Azure cannot restrict a node to its own folder. The attested document proves which node wrote
the evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity

from gpuinfra.base import naming
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.grants import data_role, folder_condition, grant
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.instances import BUNDLES, EVIDENCE_CONTAINER
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import Plan


@dataclass(frozen=True, kw_only=True)
class MountedContainer:
    """A container that the nodes mount."""

    name: str
    """Name of the mount in the plan, for example `data-0`."""
    container_id: pulumi.Input[str]
    """Resource ID of the container."""
    read_only: bool = True
    """If true, nodes can list and read blobs. If false, they can also create, replace, rename and delete blobs."""


@dataclass(frozen=True, kw_only=True)
class NodeRoleArgs:
    """Arguments for the node identity."""

    scope: Scope
    plan: Plan
    """Plan of the nodes. It contains additional roles, and determines whether the nodes list the folder of the fabric test."""
    evidence_account_id: pulumi.Input[str]
    """Storage account for evidence and bundles."""
    evidence_prefix: str = ""
    """Evidence folder of the cluster. If unset, `evidence/<cluster>`."""
    container: str = EVIDENCE_CONTAINER
    """Container for evidence and bundles."""
    mounts: Sequence[MountedContainer] = ()
    """Containers that the nodes mount."""


class NodeRole(pulumi.ComponentResource):
    """The managed identity of the nodes."""

    identity_id: pulumi.Output[str]
    """ID of the identity. Resolves after its role is assigned."""
    client_id: pulumi.Output[str]
    """Client ID, which nodes use to request tokens."""
    principal_id: pulumi.Output[str]
    """Principal ID, to which roles are assigned."""

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:NodeRole", name, None, args.scope.options(opts))
        scope = args.scope
        folder = args.evidence_prefix or naming.evidence_prefix(scope.cluster)
        identity = managedidentity.UserAssignedIdentity(
            rows.NODE_IDENTITY.logical(name),
            resource_name_=scope.unique_name("node", 128),
            resource_group_name=scope.group,
            opts=child(self, rows.NODE_IDENTITY),
        )
        role = grant(
            rows.NODE_GRANT.logical(name),
            scope,
            role=data_role(
                name,
                scope,
                rows.NODE_ROLE,
                purpose="node",
                verbs=("read", "add/action"),
                account_id=args.evidence_account_id,
                parent=self,
            ),
            at=pulumi.Output.concat(args.evidence_account_id, "/blobServices/default/containers/", args.container),
            principal=identity.principal_id,
            why=f"nodes of {scope.cluster}: read bundles and write evidence",
            condition=folder_condition(reads=(f"{BUNDLES}/{scope.cluster}", folder), writes=(folder,)),
            opts=child(self, rows.NODE_GRANT),
        )
        declared = [
            grant(
                rows.DECLARED_GRANT.logical(name, role=one.name),
                scope,
                role=one.role,
                at=one.scope,
                principal=identity.principal_id,
                why=f"nodes of {scope.cluster}: declared in access.node_roles",
                opts=child(self, rows.DECLARED_GRANT),
            )
            for one in args.plan.roles.node_roles
            if one.scope is not None
        ]
        mounts = [self._mount(name, scope, one, identity.principal_id) for one in args.mounts]
        self.identity_id = ready_after(identity.id, [role, *declared, *mounts])
        self.client_id, self.principal_id = identity.client_id, identity.principal_id
        self.register_outputs(
            {"identity_id": self.identity_id, "client_id": self.client_id, "principal_id": self.principal_id}
        )

    def _mount(
        self, name: str, scope: Scope, mounted: MountedContainer, principal: pulumi.Input[str]
    ) -> pulumi.Resource:
        """Assign a role for the blobs of a mounted container. The built-in roles also allow a principal to delete the container."""
        own = naming.logical(name, mounted.name)
        return grant(
            rows.MOUNT_GRANT.logical(own),
            scope,
            role=data_role(
                own,
                scope,
                rows.MOUNT_ROLE,
                purpose=f"mount-{mounted.name}",
                verbs=("read",) if mounted.read_only else ("read", "write", "add/action", "move/action", "delete"),
                account_id=mounted.container_id,
                parent=self,
                what=f"the mounted container {mounted.name}",
            ),
            at=mounted.container_id,
            principal=principal,
            why=f"nodes of {scope.cluster}: mount {mounted.name}",
            opts=child(self, rows.MOUNT_GRANT),
        )
