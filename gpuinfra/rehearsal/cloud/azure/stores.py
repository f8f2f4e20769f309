"""Storage accounts and containers as requests meet them: who reaches an account, where a container is, and what may not be changed.

An account without public access is reached by nodes through a private endpoint only, and by nobody else. The operator's own address is not
known here: where an account lets some addresses in, the operator is taken to be at one of them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpuinfra.rehearsal.cloud.azure.errors import AzureError
from gpuinfra.rehearsal.cloud.core import wire

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.azure.identity import Principal
    from gpuinfra.rehearsal.cloud.core.store import Resource, Store, StoredObject

ACCOUNT = "azure-native:storage:StorageAccount"
CONTAINER = "azure-native:storage:BlobContainer"
LOCK = "azure-native:storage:BlobContainerImmutabilityPolicy"
ENDPOINT = "azure-native:network:PrivateEndpoint"
_DAY_S = 86400.0


def account(store: Store, name: str) -> Resource | None:
    """The storage account of that name; names are unique among all of Azure's customers."""
    return next((one for one in store.list(ACCOUNT) if one.id.rsplit("/", 1)[-1] == name), None)


def account_id(store: Store, name: str) -> str:
    """Its ARM id, or what it would be."""
    found = account(store, name)
    return found.id if found else f"/subscriptions/unknown/storageAccounts/{name}"


def container_id(store: Store, account_name: str, name: str) -> str | None:
    """The ARM id of a container; None where there is none."""
    found = account(store, account_name)
    wanted = f"{found.id}/blobServices/default/containers/{name}".lower() if found else ""
    return next((one.id for one in store.list(CONTAINER) if one.id.lower() == wanted), None)


def names_of(container: Resource) -> tuple[str, str]:
    """(account, container) of a container's resource."""
    parts = container.id.split("/")
    return parts[-5], parts[-1]


def bucket(account_name: str, container: str) -> str:
    """Where the store keeps a container's blobs."""
    return f"azure:{account_name}/{container}"


def reachable(store: Store, name: str, who: Principal) -> None:
    """Raises where the account's network rules let the caller not in, or there is no such account."""
    found = account(store, name)
    if found is None:
        raise AzureError("ResourceNotFound", f"The host {name}.blob.core.windows.net is not known: there is no such account.", status=404)  # fmt: skip
    inputs = wire.plain(found.inputs)
    rules = inputs.get("networkRuleSet") or {}
    public = inputs.get("publicNetworkAccess", "Enabled") == "Enabled"
    if public and (rules.get("defaultAction", "Allow") == "Allow" or (who.operator and rules.get("ipRules"))):
        return
    if not who.operator and any(found.id.lower() in (text.lower() for text in wire.strings(one.inputs)) for one in store.list(ENDPOINT)):  # fmt: skip
        return
    raise AzureError("AuthorizationFailure", "This request is not authorized to perform this operation.", status=403)


def locks(store: Store, account_name: str, container: str) -> tuple[float, bool] | None:
    """(seconds from creation, whether appending is allowed) of a container's immutability policy."""
    for one in store.list(LOCK):
        inputs = wire.plain(one.inputs)
        if inputs.get("accountName") == account_name and inputs.get("containerName") == container:
            days = float(inputs.get("immutabilityPeriodSinceCreationInDays") or 0)
            return days * _DAY_S, bool(inputs.get("allowProtectedAppendWrites"))
    return None


def immutable(store: Store, account_name: str, container: str, held: StoredObject) -> None:
    """Raises where a policy still holds a blob."""
    lock = locks(store, account_name, container)
    if lock and time.time() < held.modified + lock[0]:
        raise AzureError("BlobImmutableDueToPolicy", "This operation is not permitted as the blob is immutable due to a policy.", status=409)  # fmt: skip


def protected(store: Store, account_name: str, container: str) -> bool:
    """Whether a container holds a blob that may not be deleted yet."""
    lock = locks(store, account_name, container)
    blobs = store.objects(bucket(account_name, container))
    return bool(lock) and any(time.time() < modified + lock[0] for *_, modified in blobs) if lock else False
