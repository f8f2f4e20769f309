"""The permissions of a node: reading its bundle, writing evidence to the folder of its cluster, and reading or writing the containers that
it mounts. The control node has an identity of its own, which also finds the nodes and reads declared secrets.

A node creates evidence, and can neither replace nor delete any. Put Blob needs `blobs/add/action` for a new blob, and `blobs/write` to replace one
(https://learn.microsoft.com/rest/api/storageservices/authorize-with-azure-active-directory, retrieved 2026-11-28).

All nodes of a cluster share one identity, so Azure cannot restrict a node to its own folder. The attested document proves which node wrote
the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_azure_native import authorization, managedidentity

from gpuinfra.base import naming
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.grants import data_role, folder_condition, grant, own_role
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.instances import BUNDLES, EVIDENCE_CONTAINER
from gpuinfra.clouds.azure.names import group_id
from gpuinfra.clouds.instances import CONTROL_ROLE
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import MonitoringPlan, Plan
from gpuinfra.plan.planned import ResourceKind

DISCOVERS = (
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachineScaleSets/read",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read",
)
"""The requests of `azure_sd_configs` for scale sets (prometheus/prometheus: discovery/azure/azure.go at 3.13), and their actions
(https://learn.microsoft.com/azure/role-based-access-control/permissions/compute; both retrieved 2026-11-29)."""

REDEPLOYS = ("Microsoft.Compute/virtualMachineScaleSets/virtualMachines/redeploy/action",)
"""The request with which the control node replaces a node (https://learn.microsoft.com/azure/role-based-access-control/permissions/compute, retrieved
2026-11-29). It reads the machine with `DISCOVERS`."""


ATTACHES = ("Microsoft.Compute/virtualMachineScaleSets/virtualMachines/attachDetachDataDisks/action",)
"""The request with which the control node attaches its data disk to a machine (https://learn.microsoft.com/azure/role-based-access-control/permissions/compute,
retrieved 2026-11-30)."""

USES_DISK = ("Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write")
"""Azure also checks the disk of a request that attaches it. No page lists these actions. Public roles that attach disks to machines of scale sets have them:
upwindsecurity/terraform-azurerm-onboarding: modules/tenant/cloudscanner_iam.tf (retrieved 2026-11-30)."""


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
    monitoring: MonitoringPlan | None = None
    """Set for the identity of the control node, which finds the nodes and reads the secrets of the receivers of alerts. It has no declared roles."""
    data_disk_id: pulumi.Input[str] = ""
    """Disk that the control node attaches."""


class NodeRole(pulumi.ComponentResource):
    """The managed identity of the nodes, or of the control node."""

    identity_id: pulumi.Output[str]
    """ID of the identity. Resolves after its role is assigned."""
    client_id: pulumi.Output[str]
    """Client ID, which nodes use to request tokens."""
    principal_id: pulumi.Output[str]
    """Principal ID, to which roles are assigned."""

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:NodeRole", name, None, args.scope.options(opts))
        scope, self._args = args.scope, args
        folder = args.evidence_prefix or naming.evidence_prefix(scope.cluster)
        control = args.monitoring
        purpose, whose = (CONTROL_ROLE, "control node") if control else ("node", "nodes")
        identity = managedidentity.UserAssignedIdentity(
            rows.NODE_IDENTITY.logical(name),
            resource_name_=scope.unique_name(purpose, 128),
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
                purpose=purpose,
                verbs=("read", "add/action"),
                account_id=args.evidence_account_id,
                parent=self,
            ),
            at=pulumi.Output.concat(args.evidence_account_id, "/blobServices/default/containers/", args.container),
            principal=identity.principal_id,
            why=f"{whose} of {scope.cluster}: read bundles and write evidence",
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
            for one in (() if control else args.plan.roles.node_roles)
            if one.scope is not None
        ]
        mounts = [self._mount(name, scope, one, identity.principal_id) for one in args.mounts]
        own = list(self._control(name, scope, control, identity.principal_id)) if control else []
        self.identity_id = ready_after(identity.id, [role, *declared, *mounts, *own])
        self.client_id, self.principal_id = identity.client_id, identity.principal_id
        self.register_outputs(
            {"identity_id": self.identity_id, "client_id": self.client_id, "principal_id": self.principal_id}
        )

    def _control(
        self, name: str, scope: Scope, monitoring: MonitoringPlan, principal: pulumi.Input[str]
    ) -> Iterator[pulumi.Resource]:
        """Allow the control node to read the machines in the resource group of the nodes, and the secrets of the receivers of alerts."""
        group = pulumi.Output.all(scope.subscription, scope.group).apply(lambda known: group_id(known[0], known[1]))

        def manage(
            role: ResourceKind[Any], row: ResourceKind[Any], purpose: str, actions: Sequence[str], what: str, why: str,
            at: pulumi.Input[str] = group,
        ) -> pulumi.Resource:  # fmt: skip
            rights = authorization.PermissionArgs(
                actions=list(actions), not_actions=[], data_actions=[], not_data_actions=[]
            )
            return grant(
                row.logical(name),
                scope,
                role=own_role(name, scope, role, purpose=purpose, rights=rights, group=group, parent=self, what=what),
                at=at,
                principal=principal,
                why=f"control node of {scope.cluster}: {why}",
                opts=child(self, row),
            )

        what = f"Reads the nodes of {scope.cluster} and their addresses."
        yield manage(rows.DISCOVERY_ROLE, rows.DISCOVERY_GRANT, "discovery", DISCOVERS, what, "find the nodes")
        what = f"Attaches disks to nodes of {scope.cluster}."
        yield manage(rows.ATTACH_ROLE, rows.ATTACH_GRANT, "attach", ATTACHES, what, "attach its data disk")
        what = f"Uses the data disk of {scope.cluster}."
        disk = self._args.data_disk_id
        yield manage(rows.DISK_ROLE, rows.DISK_GRANT, "disk", USES_DISK, what, "attach its data disk", disk)
        if monitoring.repair:
            yield self._orders(name, scope, principal)
        if monitoring.repair and monitoring.repair.replaces:
            what = f"Redeploys faulty nodes of {scope.cluster}."
            yield manage(rows.REPAIR_ROLE, rows.REPAIR_GRANT, "repair", REDEPLOYS, what, "redeploy faulty nodes")
        for secret in dict.fromkeys(monitoring.secrets):
            yield grant(
                rows.SECRET_GRANT.logical(name, secret=naming.text_token(secret)),
                scope,
                role=rows.SECRETS_USER,
                at=secret,
                principal=principal,
                why=f"control node of {scope.cluster}: read the secret of a receiver of alerts",
                opts=child(self, rows.SECRET_GRANT),
            )

    def _orders(self, name: str, scope: Scope, principal: pulumi.Input[str]) -> pulumi.Resource:
        """Allow the control node to write its orders to the nodes. The role of the nodes can add blobs to their folder, and replace none."""
        args = self._args
        return grant(
            rows.ORDERS_GRANT.logical(name),
            scope,
            role=data_role(
                name,
                scope,
                rows.ORDERS_ROLE,
                purpose="orders",
                verbs=("write",),
                account_id=args.evidence_account_id,
                parent=self,
                what="the orders of the control node",
            ),
            at=pulumi.Output.concat(args.evidence_account_id, "/blobServices/default/containers/", args.container),
            principal=principal,
            why=f"control node of {scope.cluster}: give orders to the nodes",
            condition=folder_condition(reads=(), writes=(naming.repair_folder(scope.cluster),)),
            opts=child(self, rows.ORDERS_GRANT),
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
