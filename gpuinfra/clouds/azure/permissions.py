"""The least-privilege Azure role definitions for operators of a plan. Pure.

The resource table lists the actions. The stack creates its resource groups, so a role at subscription scope creates, changes and reads. Actions that
delete are in roles for the resource groups of the stack, and permissions to assign roles are in a role whose assignment has a condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuinfra.base.naming import TOKEN_LENGTH, unique_name
from gpuinfra.clouds.azure.instances import scheduled
from gpuinfra.clouds.azure.resources import (
    ACTIVITY_LOG,
    ASSIGNED,
    BUDGET,
    CLUSTER_GROUP,
    FLOW_LOG,
    NODE_ROLE,
    RESOURCES,
    SITE_GROUP,
    WATCHER_GROUP,
    resources,
)
from gpuinfra.clouds.permissions import Permissions, collect, preflight_requests, reads_of, uses_of
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import PlannedResource

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
    "gpuinfra failover: export the files of the file systems": (
        "Microsoft.StorageCache/amlFilesystems/read",
        "Microsoft.StorageCache/amlFilesystems/archive/action",
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

SCHEDULE: dict[str, tuple[str, ...]] = {
    "gpuinfra failover and failback: pause and resume the scheduled exports": (
        "Microsoft.Logic/workflows/read",
        "Microsoft.Logic/workflows/disable/action",
        "Microsoft.Logic/workflows/enable/action",
    ),
}
"""Requests for a plan with `recovery` and scheduled exports. Resource provider operations of Microsoft.Logic, retrieved 2026-11-29."""

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


def permissions(plan: Plan, *, read_only: bool = False) -> Permissions:
    """Return the role definition for operators of the plan, with the reason for each action. With `read_only`, it allows no changes."""
    requests = {**preflight_requests(plan, PREFLIGHT), **({**ASKED, **REPLACE} if plan.pools else {})}
    if plan.recovery:
        requests |= {**READY, **FAILOVER, **(SCHEDULE if any(scheduled(plan)) else {})}
    if plan.recovery and plan.recovery.names:
        requests |= NAMES
    # Quotas are read only of services that the plan uses. The preflight also derives from them which resource providers must be registered.
    own = {action.partition("/")[0] for action in uses_of(resources(plan), ACTIONS, {})}
    requests = {
        purpose: tuple(one for one in actions if not one.endswith("/usages/read") or one.partition("/")[0] in own)
        for purpose, actions in requests.items()
    }
    uses = uses_of(resources(plan), ACTIONS, requests)
    if read_only:
        uses = reads_of(uses, frozenset((*REPLACE, *FAILOVER, *SCHEDULE, MOVE_NAMES)))
    documents = [_role(plan, " read", "read", uses, SUBSCRIPTION_SCOPE)] if read_only else list(_roles(plan, uses))
    notes = [
        "replace SUBSCRIPTION with the ID of your subscription, then run `az role definition create --role-definition FILE` for each role",
        "bundles and evidence require no data action: the stack that contains the evidence container assigns a role on that container to access.operators",
    ]
    if not read_only:
        notes.insert(1, "an owner of the subscription must register the resource providers once")
        notes.insert(
            1,
            "roles whose AssignableScopes contain TOKEN: create and assign them after the first `pulumi up`, on the resource groups that it created; "
            "the suffix of their names is TOKEN. Until then, the operator cannot delete. Then also assign `grants` and `account keys` on these groups "
            "instead of the subscription",
        )
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
            "the roles do not allow the deletion of resources that `destroy` retains; to delete them later, you need additional permissions"
        )
        notes.append(
            "docs/reference/retained-data.md lists the ways to lose retained data that Azure cannot deny to an operator"
        )
    if not read_only and _ASSIGN in uses:
        notes.append(
            f"assign the role `gpuinfra {plan.name} grants` with this condition, version 2.0. `pulumi preview` shows the GUIDs of the custom roles: "
            f"{grant_condition(plan)}"
        )
    return Permissions(
        cloud="azure", needs=collect(uses), documents=tuple(documents), notes=tuple(notes), source=SOURCE
    )


SUBSCRIPTION_SCOPE = ("/subscriptions/SUBSCRIPTION",)
_ASSIGN = "Microsoft.Authorization/roleAssignments/write"
_DELETE_GROUP = "Microsoft.Resources/subscriptions/resourceGroups/delete"
_DELETE_CONTAINER = "Microsoft.Storage/storageAccounts/blobServices/containers/delete"
_GRANTS = frozenset(
    f"Microsoft.Authorization/{kind}/{verb}"
    for kind in ("roleAssignments", "roleDefinitions")
    for verb in ("write", "delete")
)
_KEYS = frozenset(
    f"Microsoft.Storage/storageAccounts/{call}/action" for call in ("listKeys", "listAccountSas", "listServiceSas")
)
_IN_SUBSCRIPTION = {
    ACTIVITY_LOG.type: "Microsoft.Insights/diagnosticSettings/delete",
    BUDGET.type: "Microsoft.Consumption/budgets/delete",
}
"""Resources outside of a resource group, and the action that deletes them."""


def _roles(plan: Plan, uses: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the roles: for the subscription, for grants, for account keys, and for deletions in the stack's own resource groups."""
    planned = resources(plan)
    deletes = {action for action in uses if action.endswith("/delete")} - _GRANTS - {_DELETE_GROUP, _DELETE_CONTAINER}
    everywhere = {_IN_SUBSCRIPTION[one.type] for one in planned if one.type in _IN_SUBSCRIPTION} & deletes
    apart = deletes | _GRANTS | _KEYS | {_DELETE_GROUP, _DELETE_CONTAINER}
    yield _role(plan, "", "operate", (set(uses) - apart) | everywhere, SUBSCRIPTION_SCOPE)
    groups = [one for one in planned if one.type == SITE_GROUP.type]
    if grants := _GRANTS & set(uses):
        yield _role(plan, " grants", "assign the roles of", grants, SUBSCRIPTION_SCOPE)
    if keys := _KEYS & set(uses):
        yield _role(plan, " account keys", "create the flow logs and the activity log of", keys, SUBSCRIPTION_SCOPE)
    watchers = (
        [f"{SUBSCRIPTION_SCOPE[0]}/resourceGroups/{WATCHER_GROUP}"]
        if any(one.kind is FLOW_LOG for one in planned)
        else []
    )
    if deletes and (scopes := [*groups_of(plan), *watchers]):
        yield _role(plan, " deletions", "delete resources of", deletes, scopes)
    if nodes := [group_of(plan, one) for one in groups if one.kind is CLUSTER_GROUP]:
        yield _role(plan, " nodes", "delete the resource group of the nodes of", {_DELETE_GROUP}, nodes)
    if _DELETE_CONTAINER in uses:
        accounts = [one.bucket for one in plan.file_systems if one.bucket and one.bucket.startswith("/")]
        scopes = dict.fromkeys(account.partition("/providers/")[0] for account in accounts)
        yield _role(plan, " import log", "delete the log of imports of", {_DELETE_CONTAINER}, scopes)


def groups_of(plan: Plan) -> list[str]:
    """Return the IDs of the resource groups that the stack creates."""
    return [group_of(plan, one) for one in resources(plan) if one.type == SITE_GROUP.type]


def group_of(plan: Plan, group: PlannedResource[Any]) -> str:
    """Return the ID of a resource group. SUBSCRIPTION and TOKEN stand for the subscription and the token of the stack."""
    layer = group.lookup.layer if group.lookup else "nodes"
    name = unique_name(plan.name, layer, "?" * TOKEN_LENGTH, 90).replace("?" * TOKEN_LENGTH, "TOKEN")
    return f"{SUBSCRIPTION_SCOPE[0]}/resourceGroups/{name}"


def _role(plan: Plan, purpose: str, to: str, actions: Iterable[str], scopes: Iterable[str]) -> dict[str, Any]:
    return {
        "Name": f"gpuinfra {plan.name}{purpose}",
        "IsCustom": True,
        "Description": f"Minimum permissions to {to} the cluster {plan.name}.",
        "Actions": sorted(actions),
        "NotActions": [],
        "DataActions": [],
        "NotDataActions": [],
        "AssignableScopes": list(scopes),
    }


def grant_condition(plan: Plan) -> str:
    """Return the condition for the assignment of the role with grants: only the roles that the stack assigns.

    The form is that of the example "Constrain roles" (https://learn.microsoft.com/azure/role-based-access-control/delegate-role-assignments-examples,
    retrieved 2026-11-28).
    """
    planned = resources(plan)
    roles = [guid for guid, rows in ASSIGNED.items() if any(one.kind in rows for one in planned)]
    roles += dict.fromkeys(one.role.rpartition("/")[2] for one in plan.roles.node_roles)
    roles += [f"GUID of {one.name}" for one in planned if one.type == NODE_ROLE.type]
    listed = "{" + ", ".join(roles) + "}"
    assignments = "Microsoft.Authorization/roleAssignments"

    def only(verb: str, source: str) -> str:
        attribute = f"@{source}[{assignments}:RoleDefinitionId]"
        return f"((!(ActionMatches{{'{assignments}/{verb}'}})) OR ({attribute} ForAnyOfAnyValues:GuidEquals {listed}))"

    return f"{only('write', 'Request')} AND {only('delete', 'Resource')}"
