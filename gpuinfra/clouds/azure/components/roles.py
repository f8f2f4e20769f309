"""The permissions of a node: reading its bundle and writing evidence to the folder of its cluster.

A node can delete neither a blob nor the container.

All nodes of a cluster share one identity, so Azure cannot restrict a node to its own folder. The attested document proves which node wrote
the evidence, and the account retains old versions of replaced blobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity

from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.grants import data_role, folder_condition, grant
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.instances import BUNDLES, EVIDENCE_CONTAINER
from gpuinfra.clouds.ready_after import ready_after


@dataclass(frozen=True, kw_only=True)
class NodeRoleArgs:
    """Arguments of the node identity."""

    scope: Scope
    evidence_account_id: pulumi.Input[str]
    """Storage account for evidence and bundles."""
    evidence_prefix: str
    """Evidence folder of the cluster."""
    container: str = EVIDENCE_CONTAINER
    """Container for evidence and bundles."""


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
                verbs=("read", "write", "add/action"),
                account_id=args.evidence_account_id,
                parent=self,
            ),
            at=pulumi.Output.concat(args.evidence_account_id, "/blobServices/default/containers/", args.container),
            principal=identity.principal_id,
            why=f"nodes of {scope.cluster}: read bundles and write evidence",
            condition=folder_condition(
                reads=(f"{BUNDLES}/{scope.cluster}", args.evidence_prefix), writes=(args.evidence_prefix,)
            ),
            opts=child(self, rows.NODE_GRANT),
        )
        self.identity_id = ready_after(identity.id, [role])
        self.client_id, self.principal_id = identity.client_id, identity.principal_id
        self.register_outputs(
            {"identity_id": self.identity_id, "client_id": self.client_id, "principal_id": self.principal_id}
        )
