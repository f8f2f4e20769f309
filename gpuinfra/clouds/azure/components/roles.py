"""What a node is allowed to do: fetch its bundle, write evidence of its cluster. Nothing else.

All nodes of a cluster share one identity, so that no rule of Azure's can hold a node to its own folder as AWS's does;
whose evidence it is, the attested document says, and a blob that was replaced is still there as a version.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity

from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.grants import BLOB_CONTRIBUTOR, grant, held_to
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.instances import BUNDLES, EVIDENCE_CONTAINER
from gpuinfra.clouds.ready_after import ready_after


@dataclass(frozen=True, kw_only=True)
class NodeRoleArgs:
    """What the nodes of a cluster work with."""

    scope: Scope
    evidence_account_id: pulumi.Input[str]
    """Storage account of evidence and bundles."""
    evidence_prefix: str
    """Where the cluster's nodes write."""
    container: str = EVIDENCE_CONTAINER
    """Container of evidence and bundles."""


class NodeRole(pulumi.ComponentResource):
    """The identity of nodes."""

    identity_id: pulumi.Output[str]
    """Id of the identity, once it may do what it must."""
    client_id: pulumi.Output[str]
    """By which a node asks for a token of this identity."""
    principal_id: pulumi.Output[str]
    """By which roles are given to it."""

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:NodeRole", name, None, opts)
        scope = args.scope
        identity = managedidentity.UserAssignedIdentity(
            rows.NODE_IDENTITY.logical(name),
            resource_name_=scope.unique_name("node", 128),
            resource_group_name=scope.group,
            opts=child(self, rows.NODE_IDENTITY),
        )
        may = grant(
            rows.NODE_GRANT.logical(name),
            scope,
            role=BLOB_CONTRIBUTOR,
            at=pulumi.Output.concat(args.evidence_account_id, "/blobServices/default/containers/", args.container),
            principal=identity.principal_id,
            why=f"nodes of {scope.cluster}: fetch their bundle, write their evidence",
            condition=held_to(
                reads=(f"{BUNDLES}/{scope.cluster}", args.evidence_prefix), writes=(args.evidence_prefix,)
            ),
            opts=child(self, rows.NODE_GRANT),
        )
        self.identity_id = ready_after(identity.id, [may])
        self.client_id, self.principal_id = identity.client_id, identity.principal_id
        self.register_outputs(
            {"identity_id": self.identity_id, "client_id": self.client_id, "principal_id": self.principal_id}
        )
