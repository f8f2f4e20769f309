"""The least role definition for an operator of one plan on Azure. Pure.

An action on Azure is a resource type and a verb, so most rows follow from the type; what is added are the linked actions: who joins a subnet to a security group
or gives a machine an identity is asked for both. A role definition is assigned at a scope; the resource groups of a stack are made by it, so that scope is the subscription.
"""

from __future__ import annotations

from typing import Any

from gpuinfra.clouds.azure.resources import RESOURCES, resources
from gpuinfra.clouds.permissions import Permissions, collect, uses_of
from gpuinfra.plan.model import Plan

SOURCE = "Azure's resource provider operations, read 2026-11-21; types held against the azure-mgmt models' own paths"
ACTIONS = {row.type: row.actions for row in RESOURCES}
"""Type -> actions by operation."""

ASKED: dict[str, tuple[str, ...]] = {
    "finding an image's version": ("Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read",),
    "the handover: who should be there": (
        "Microsoft.Compute/virtualMachineScaleSets/read",
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
        "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
    ),
    "the handover: why machines are missing": (
        "Microsoft.Compute/virtualMachineScaleSets/instanceView/read",
        "Microsoft.Insights/eventtypes/values/read",
    ),
    "the handover: why a node is silent": (
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/retrieveBootDiagnosticsData/action",
    ),
}
"""What the program itself asks, beside resources."""

FUNCTIONS: dict[str, str] = {}
"""Functions of the SDK -> action. Who one is needs none."""


def permissions(plan: Plan) -> Permissions:
    """The role definition of a plan's operator, with every action's reason."""
    uses = uses_of(resources(plan), ACTIONS, ASKED if plan.pools else {})
    document: dict[str, Any] = {
        "Name": f"gpuinfra {plan.name}",
        "IsCustom": True,
        "Description": f"The least that an operator of the cluster {plan.name} needs.",
        "Actions": sorted(uses),
        "NotActions": [],
        "DataActions": [],
        "NotDataActions": [],
        "AssignableScopes": ["/subscriptions/SUBSCRIPTION"],
    }
    notes = [
        "put your subscription's id in place of SUBSCRIPTION, then: az role definition create --role-definition FILE",
        "providers have to be registered once in a subscription, which an owner does",
        "bundles and evidence need no data action here: the stack that holds the evidence gives access.operators a role on that container alone",
    ]
    if any(one.retained for one in resources(plan)):
        notes.append("what a destroy keeps may not be deleted with it; whoever deletes it later needs more")
    if "Microsoft.Authorization/roleAssignments/write" in uses:
        notes.append(
            "who may assign roles can give himself more; a condition on the assignment names the roles that he may give (Azure ABAC)"
        )
    return Permissions(cloud="azure", needs=collect(uses), documents=(document,), notes=tuple(notes), source=SOURCE)
