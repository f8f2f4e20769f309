"""The least-privilege Azure role definition for operators of a plan. Pure.

The resource table lists the actions. The stack creates its resource groups, so the role is assigned at subscription scope.
"""

from __future__ import annotations

from typing import Any

from gpuinfra.clouds.azure.resources import RESOURCES, resources
from gpuinfra.clouds.permissions import Permissions, collect, preflight_requests, reads_of, uses_of
from gpuinfra.plan.model import Plan

SOURCE = "Azure's resource provider operations, retrieved 2026-11-21; a test compares the types with the paths in the azure-mgmt models"
ACTIONS = {row.type: row.actions for row in RESOURCES}
"""Maps a resource type to its actions by operation."""

ASKED: dict[str, tuple[str, ...]] = {
    "resolve the version of an image": (
        "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read",
    ),
    "handover: list the nodes": (
        "Microsoft.Compute/virtualMachineScaleSets/read",
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
        "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
    ),
    "handover: find out why nodes are missing": (
        "Microsoft.Compute/virtualMachineScaleSets/instanceView/read",
        "Microsoft.Insights/eventtypes/values/read",
    ),
    "handover: read the console output of a node without evidence": (
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/retrieveBootDiagnosticsData/action",
    ),
}
"""Requests that gpuinfra makes in addition to those for resources."""

REPLACE: dict[str, tuple[str, ...]] = {
    "gpuinfra replace: move a node to a different host": (
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/redeploy/action",
    ),
}
"""Requests of `gpuinfra replace` in addition to those of the handover."""

PREFLIGHT: dict[str, tuple[str, ...]] = {
    "identity": ("Microsoft.Resources/subscriptions/read",),
    "permissions": ("Microsoft.Authorization/permissions/read",),
    "registration": ("Microsoft.Resources/subscriptions/providers/read", "Microsoft.Features/providers/features/read"),
    "quota": (
        "Microsoft.Compute/locations/usages/read",
        "Microsoft.StorageCache/locations/usages/read",
        "Microsoft.NetApp/locations/usages/read",
    ),
    "machine": ("Microsoft.Compute/skus/read",),
    "reservation": ("Microsoft.Compute/capacityReservationGroups/capacityReservations/read",),
    "image": (
        "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read",
        "Microsoft.Compute/images/read",
    ),
    "names": (
        "Microsoft.Storage/storageAccounts/read",
        "Microsoft.KeyVault/vaults/read",
        "Microsoft.Storage/checknameavailability/read",
        "Microsoft.KeyVault/checkNameAvailability/read",
    ),
}
"""Maps a topic of the preflight to the permissions that its requests require. The built-in role Reader (`*/read`) contains them."""

READY: dict[str, tuple[str, ...]] = {
    "gpuinfra ready: read the subscription": ("Microsoft.Resources/subscriptions/read",),
    "gpuinfra ready: read the replication lag": ("Microsoft.Insights/metrics/read",),
    "gpuinfra ready: find the vaults of the secrets providers": ("Microsoft.KeyVault/vaults/read",),
    "gpuinfra ready: read the quotas": PREFLIGHT["quota"],
    "gpuinfra ready: find the sizes": PREFLIGHT["machine"],
    "gpuinfra ready: read the reservations": PREFLIGHT["reservation"],
    "gpuinfra ready: find the images": PREFLIGHT["image"],
}
"""Requests of `gpuinfra ready` for a plan with `recovery`, in addition to reading the resources of the second region."""

FAILOVER: dict[str, tuple[str, ...]] = {
    "gpuinfra failover: stop the nodes of the first region": (
        "Microsoft.Compute/virtualMachineScaleSets/read",
        "Microsoft.Compute/virtualMachineScaleSets/write",
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
    ),
    "gpuinfra failover: stop the replication": (
        "Microsoft.Storage/storageAccounts/objectReplicationPolicies/read",
        "Microsoft.Storage/storageAccounts/objectReplicationPolicies/delete",
    ),
    "gpuinfra failover: record when the second region starts to write to a replica": (
        "Microsoft.Storage/storageAccounts/read",
        "Microsoft.Storage/storageAccounts/write",
    ),
    "gpuinfra failover: import a replica into a file system": (
        "Microsoft.StorageCache/amlFilesystems/read",
        "Microsoft.StorageCache/amlFilesystems/importJobs/read",
        "Microsoft.StorageCache/amlFilesystems/importJobs/write",
    ),
}
"""Requests of `gpuinfra failover` in addition to the permissions to deploy the stack of the second region.

Resource provider operations of Microsoft.Compute, Microsoft.Storage and Microsoft.StorageCache (MicrosoftDocs/azure-docs,
articles/role-based-access-control/permissions), retrieved 2026-11-26."""

_ZONE = "Microsoft.Network/privateDnsZones"
READ_NAMES = "gpuinfra ready and names: read the DNS names"
MOVE_NAMES = "gpuinfra failover, failback and names: change the DNS names"
NAMES: dict[str, tuple[str, ...]] = {
    READ_NAMES: (
        f"{_ZONE}/read",
        f"{_ZONE}/A/read",
        f"{_ZONE}/TXT/read",
        "Microsoft.Resources/subscriptions/resourceGroups/read",
    ),
    MOVE_NAMES: (f"{_ZONE}/A/write", f"{_ZONE}/TXT/write"),
}
"""Requests for a plan with `recovery.names`. Resource provider operations of Microsoft.Network, retrieved 2026-11-27."""

FUNCTIONS: dict[str, str] = {}
"""Maps an SDK function to its action. `getClientConfig` requires none."""


def permissions(plan: Plan, *, read_only: bool = False) -> Permissions:
    """Return the role definition for operators of the plan, with the reason for each action. With `read_only`, it allows no changes."""
    requests = {**preflight_requests(plan, PREFLIGHT), **({**ASKED, **REPLACE} if plan.pools else {})}
    if plan.recovery:
        requests |= {**READY, **FAILOVER}
    if plan.recovery and plan.recovery.names:
        requests |= NAMES
    uses = uses_of(resources(plan), ACTIONS, requests)
    if read_only:
        uses = reads_of(uses, frozenset((*REPLACE, *FAILOVER, MOVE_NAMES)))
    document: dict[str, Any] = {
        "Name": f"gpuinfra {plan.name}{' read' if read_only else ''}",
        "IsCustom": True,
        "Description": f"Minimum permissions to {'read' if read_only else 'operate'} the cluster {plan.name}.",
        "Actions": sorted(uses),
        "NotActions": [],
        "DataActions": [],
        "NotDataActions": [],
        "AssignableScopes": ["/subscriptions/SUBSCRIPTION"],
    }
    notes = [
        "replace SUBSCRIPTION with the ID of your subscription, then run `az role definition create --role-definition FILE`",
        "bundles and evidence require no data action: the stack that contains the evidence container assigns a role on that container to access.operators",
    ]
    if not read_only:
        notes.insert(1, "an owner of the subscription must register the resource providers once")
    if plan.recovery and not read_only:
        notes.append(
            "to compare the blobs of a container with its replica, `gpuinfra failover` requires a role that can read blobs, "
            "such as Storage Blob Data Reader, on the account of the container and on the account of its replica"
        )
    if plan.recovery and plan.recovery.names:
        notes.append(
            f"if the zone {plan.recovery.names.zone} is in a different subscription, also assign the role in that subscription"
        )
    if not read_only and any(one.retained for one in resources(plan)):
        notes.append(
            "the role does not allow the deletion of resources that `destroy` retains; to delete them later, you need additional permissions"
        )
    if "Microsoft.Authorization/roleAssignments/write" in uses:
        notes.append(
            "an operator who can assign roles can extend their own permissions; "
            "restrict the roles that they can assign with a condition on the role assignment (Azure ABAC)"
        )
    return Permissions(cloud="azure", needs=collect(uses), documents=(document,), notes=tuple(notes), source=SOURCE)
