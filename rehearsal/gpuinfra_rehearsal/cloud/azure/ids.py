"""Paths of Azure resources, built from the inputs that form their segments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from gpuinfra_rehearsal.cloud.core.ids import class_name, module, plural
from gpuinfra_rehearsal.cloud.core.sdk import NotDeclared, sdk

SUBSCRIPTION = os.environ.get("GPUINFRA_STAND_IN_SUBSCRIPTION") or "00000000-0000-0000-0000-000000000000"
"""The subscription of the operator. A stack that declares its subscription is rehearsed in a subscription with this ID."""

# ARM namespaces and collections whose spelling cannot be derived from the SDK's names. ARM template reference,
# retrieved 2026-11-21.
_NAMESPACES = {
    "monitor": "Insights",
    "keyvault": "KeyVault",
    "storagecache": "StorageCache",
    "managedidentity": "ManagedIdentity",
    "operationalinsights": "OperationalInsights",
    "containerservice": "ContainerService",
    "recoveryservices": "RecoveryServices",
    "privatedns": "Network",
    "netapp": "NetApp",
}
_COLLECTIONS = {
    ("storage", "account"): "storageAccounts",
    ("storage", "BlobContainer"): "blobServices/default/containers",
    ("storage", "container"): "blobServices/default/containers",
    ("storage", "BlobContainerImmutabilityPolicy"): "immutabilityPolicies",
    ("storage", "BlobServiceProperties"): "blobServices",
    ("storage", "FileServiceProperties"): "fileServices",
    ("storage", "FileShare"): "fileServices/default/shares",
    ("monitor", "SubscriptionDiagnosticSetting"): "diagnosticSettings",
    ("netapp", "Account"): "netAppAccounts",
    ("netapp", "account"): "netAppAccounts",
    ("netapp", "pool"): "capacityPools",
    ("netapp", "CapacityPoolVolume"): "volumes",
    ("privatedns", "PrivateZone"): "privateDnsZones",
    ("privatedns", "privateZone"): "privateDnsZones",
}


def new_id(token: str, name: str, inputs: Mapping[str, Any]) -> str:
    """Return the path of a new Azure resource, as ARM writes it."""
    service, kind = module(token), class_name(token)
    parents, own_key = path_inputs(token)
    own = str(inputs.get(own_key) or name)
    base = f"/subscriptions/{inputs.get('subscriptionId') or SUBSCRIPTION}"
    if token == "azure-native:resources:ResourceGroup":
        return f"{base}/resourceGroups/{own}"
    scope = next((str(inputs[key]) for key in _SCOPES if inputs.get(key)), None)
    if scope is not None:
        base = "/" + scope.strip("/")
    elif group := inputs.get("resourceGroupName"):
        base += f"/resourceGroups/{group}"
    segments = [f"Microsoft.{_NAMESPACES.get(service, service[0].upper() + service[1:])}"]
    for key in parents:
        what = key.removesuffix("Name")
        segments += [_COLLECTIONS.get((service, what)) or plural(what), str(inputs.get(key) or "default")]
    segments += [_COLLECTIONS.get((service, kind)) or plural(kind[0].lower() + kind[1:]), own]
    return f"{base}/providers/{'/'.join(segments)}"


_SCOPES = ("scope", "resourceUri", "resourceScope", "resourceId")


@cache
def path_inputs(token: str) -> tuple[tuple[str, ...], str]:
    """Return the inputs that form the segments of the path: the inputs of the parents, and the input that names the
    resource itself.

    A resource's `get` function takes exactly these segments. Pulumi can generate only the resource's own
    segment.
    """
    azure, kind = sdk("azure-native"), class_name(token)
    inputs = azure.resource(token).inputs
    try:
        taken = azure.function(token.replace(f":{kind}", f":get{kind}")).inputs
        names = [key for key, prop in taken.items() if prop.required and key in inputs and key not in _SCOPES]
    except NotDeclared:
        names = [key for key in inputs if key.endswith("Name") and inputs[key].type.kind == "str"]
    own = [key for key in names if not inputs[key].required and inputs[key].type.kind == "str"]
    parents = tuple(
        key for key in names if key not in own and key != "resourceGroupName" and inputs[key].type.kind == "str"
    )
    return parents, own[-1] if own else ""
