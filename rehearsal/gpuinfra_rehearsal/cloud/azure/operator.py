"""Lists the actions that Azure requires for an operation, from the generated role definitions' table, with the scope at which
Azure checks them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.azure.permissions import ACTIONS
from gpuinfra_rehearsal.cloud.azure import identity
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.azure.ids import SUBSCRIPTION, new_id
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from gpuinfra_rehearsal.cloud.core.operator import actions_of, listed

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

OPERATOR = identity.OPERATOR

_SETS = "Microsoft.Compute/virtualMachineScaleSets"
_ARM: tuple[tuple[str, str], ...] = (
    (r".*/artifacttypes/vmimage/offers/[^/]+/skus/[^/]+/versions", "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read"),
    (r".*/Microsoft\.Insights/eventtypes/management/values", "Microsoft.Insights/eventtypes/values/read"),
    (r".*/Microsoft\.Insights/metrics", "Microsoft.Insights/metrics/read"),
    (r"/subscriptions/[^/]+", "Microsoft.Resources/subscriptions/read"),
    (r".*/artifacttypes/vmimage/offers/[^/]+/skus/[^/]+/versions/[^/]+", "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read"),
    (r".*/Microsoft\.Compute/locations/[^/]+/usages", "Microsoft.Compute/locations/usages/read"),
    (r".*/Microsoft\.StorageCache/locations/[^/]+/usages", "Microsoft.StorageCache/locations/usages/read"),
    (r".*/Microsoft\.NetApp/locations/[^/]+/usages", "Microsoft.NetApp/locations/usages/read"),
    (r".*/Microsoft\.Storage/checkNameAvailability", "Microsoft.Storage/checknameavailability/read"),
    (r".*/Microsoft\.KeyVault/checkNameAvailability", "Microsoft.KeyVault/checkNameAvailability/read"),
    (r".*/Microsoft\.Compute/skus", "Microsoft.Compute/skus/read"),
    (r".*/capacityReservationGroups/[^/]+/capacityReservations", "Microsoft.Compute/capacityReservationGroups/capacityReservations/read"),
    (r".*/virtualMachineScaleSets/[^/]+", f"{_SETS}/read"),
    (r".*/virtualMachineScaleSets/[^/]+/instanceView", f"{_SETS}/instanceView/read"),
    (r".*/virtualMachineScaleSets/[^/]+/virtualMachines", f"{_SETS}/virtualMachines/read"),
    (r".*/virtualMachineScaleSets/[^/]+/networkInterfaces", f"{_SETS}/networkInterfaces/read"),
    (r".*/virtualMachines/[^/]+/retrieveBootDiagnosticsData", f"{_SETS}/virtualMachines/retrieveBootDiagnosticsData/action"),
    (r".*/virtualMachines/[^/]+/redeploy", f"{_SETS}/virtualMachines/redeploy/action"),
    (r".*/virtualMachines/[^/]+/simulateEviction", f"{_SETS}/virtualMachines/simulateEviction/action"),
)  # fmt: skip
"""Maps the path of an Azure Resource Manager request to its action. Resource provider operations, retrieved 2026-11-21."""
_CHANGES: tuple[tuple[str, str, str], ...] = (
    ("PATCH", r".*/virtualMachineScaleSets/[^/]+", f"{_SETS}/write"),
    ("PATCH", r".*/storageAccounts/[^/]+", "Microsoft.Storage/storageAccounts/write"),
    ("DELETE", r".*/objectReplicationPolicies/[^/]+", "Microsoft.Storage/storageAccounts/objectReplicationPolicies/delete"),
    *(
        ("POST", rf".*/Microsoft\.Logic/workflows/[^/]+/{verb}", f"Microsoft.Logic/workflows/{verb}/action")
        for verb in ("disable", "enable")
    ),
    ("GET", r".*/Microsoft\.Logic/workflows/[^/]+", "Microsoft.Logic/workflows/read"),
    ("POST", r".*/amlFilesystems/[^/]+/archive", "Microsoft.StorageCache/amlFilesystems/archive/action"),
    ("GET", r".*/amlFilesystems/[^/]+", "Microsoft.StorageCache/amlFilesystems/read"),
    ("PUT", r".*/amlFilesystems/[^/]+/importJobs/[^/]+", "Microsoft.StorageCache/amlFilesystems/importJobs/write"),
    ("GET", r".*/amlFilesystems/[^/]+/importJobs(/[^/]+)?", "Microsoft.StorageCache/amlFilesystems/importJobs/read"),
    *(
        (verb, rf".*/privateDnsZones/[^/]+/{kind}/[^/]+", f"Microsoft.Network/privateDnsZones/{kind}/{action}")
        for kind in ("A", "TXT")
        for verb, action in (("GET", "read"), ("PUT", "write"))
    ),
    ("GET", r".*/privateDnsZones/[^/]+", "Microsoft.Network/privateDnsZones/read"),
    ("GET", r"/subscriptions/[^/]+/resourceGroups/[^/]+", "Microsoft.Resources/subscriptions/resourceGroups/read"),
    ("GET", r".*/objectReplicationPolicies", "Microsoft.Storage/storageAccounts/objectReplicationPolicies/read"),
)  # fmt: skip
"""Maps the method and the path of other requests to their action. Resource provider operations, retrieved 2026-11-26."""


def required(
    store: Store, operation: str, token: str, inputs: Mapping[str, Any], region: str, old: Resource | None
) -> Iterator[AccessRequest]:
    """Return the actions of an operation."""
    before = old.plain if old else {}
    scope = old.id if old else new_id(token, "new", inputs)
    listed_ = actions_of(ACTIONS, token, operation, before, inputs)
    for action in dict.fromkeys((*listed_, *_checked(scope, operation, inputs))):
        yield AccessRequest(OPERATOR, action, scope)


_LINKED = {
    "Microsoft.Network/virtualNetworks/subnets": "join/action",
    "Microsoft.Network/networkSecurityGroups": "join/action",
    "Microsoft.Network/publicIPAddresses": "join/action",
    "Microsoft.Network/natGateways": "join/action",
    "Microsoft.Network/privateDnsZones": "join/action",
    "Microsoft.ManagedIdentity/userAssignedIdentities": "assign/action",
}
"""Maps the type of a resource that a request refers to, to the action that Azure checks on it. Resource provider operations of Microsoft.Network and
Microsoft.ManagedIdentity (MicrosoftDocs/azure-docs, articles/role-based-access-control/permissions), retrieved 2026-11-28."""


def _checked(place: str, operation: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the actions that follow from the path of a resource and from the resources that it refers to, without the table of the role definitions.

    The provider reads a resource before and after it writes it (pulumi-azure-native, provider/pkg/provider/provider.go)."""
    kind = _kind(place)
    verbs = {"read": ("read",), "delete": ("delete",)}.get(operation, ("write", "read"))
    yield from (f"{kind}/{verb}" for verb in verbs)
    if operation in ("create", "update"):
        for text in wire.strings(dict(inputs)):
            if text.startswith("/subscriptions/") and "/providers/" in text and (linked := _LINKED.get(_kind(text))):
                yield f"{_kind(text)}/{linked}"


def _kind(place: str) -> str:
    """Return the type of a resource from its path. A resource group is a type of Microsoft.Resources."""
    _, separator, tail = place.rpartition("/providers/")
    if not separator:
        return "Microsoft.Resources/subscriptions/resourceGroups"
    namespace, *rest = tail.split("/")
    return "/".join([namespace, *rest[::2]])


def required_by_function(token: str, args: Mapping[str, Any], region: str) -> Iterator[AccessRequest]:
    """Return the action of an SDK function. Reading the caller's identity requires no action."""
    if "getClient" not in token:
        yield AccessRequest(OPERATOR, f"{token} is not in any table", f"/subscriptions/{SUBSCRIPTION}")


def http(place: str, method: str = "GET") -> list[AccessRequest]:
    """Check a request that gpuinfra itself makes to Azure Resource Manager."""
    for verb, path, action in _CHANGES:
        if verb == method and re.fullmatch(path, place, re.IGNORECASE):
            return [AccessRequest(OPERATOR, action, place)]
    return [AccessRequest(OPERATOR, action, place) for path, action in _ARM if re.fullmatch(path, place, re.IGNORECASE)]


def tolerated(operation: str, token: str) -> tuple[AccessRequest, ...]:
    """Return nothing: no denial is known that the provider ignores."""
    return ()


def allows(documents: tuple[str, ...], request: AccessRequest) -> tuple[bool, str]:
    """Return whether a role definition for the scope lists the action. Azure ignores case."""
    wanted = request.action.lower()
    return any(
        wanted in {one.lower() for one in listed(text, "Actions", "DataActions")} and _covers(text, request.resource)
        for text in documents
    ), ""


def _covers(document: str, place: str) -> bool:
    """Return whether a role that is assigned at each of its assignable scopes applies to a resource. TOKEN stands for the token of the stack."""
    scopes = (re.escape(one) for one in listed(document, "AssignableScopes"))
    patterns = [one.replace("SUBSCRIPTION", "[^/]+").replace("TOKEN", "[0-9a-z]+") for one in scopes]
    return any(re.match(rf"{one}(/|\Z)", place, re.IGNORECASE) for one in patterns)


def denial(request: AccessRequest, reason: str) -> ApiRejected:
    """Return the denial in Azure's wording."""
    text = (
        f"The client 'standin-operator@example.com' with object id '{request.principal}' does not have authorization to perform action '{request.action}' "
        f"over scope '{request.resource}' or the scope is invalid. If access was recently granted, please refresh your credentials."
    )
    return AzureError("AuthorizationFailed", text, status=403)
