"""Storage accounts and containers: network rules, container IDs, and immutability.

Nodes can reach an account without public access only through a private endpoint. The operator's address is unknown
here: if an account allows certain addresses, the operator is assumed to have one of them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.azure import identity
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.core import wire

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.azure.identity import Principal
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store, StoredObject

ACCOUNT = "azure-native:storage:StorageAccount"
CONTAINER = "azure-native:storage:BlobContainer"
LOCK = "azure-native:storage:BlobContainerImmutabilityPolicy"
SETTINGS = "azure-native:storage:BlobServiceProperties"
SHARE = "azure-native:storage:FileShare"
POLICY = "azure-native:storage:ObjectReplicationPolicy"
ENDPOINT = "azure-native:network:PrivateEndpoint"
_DAY_S = 86400.0


def account(store: Store, name: str) -> Resource | None:
    """Return the storage account with that name. Names are globally unique."""
    return next((one for one in store.list(ACCOUNT) if one.id.rsplit("/", 1)[-1] == name), None)


def account_id(store: Store, name: str) -> str:
    """Return the ARM ID of an account, or a placeholder if it does not exist."""
    account_record = account(store, name)
    return account_record.id if account_record else f"/subscriptions/unknown/storageAccounts/{name}"


def container_id(store: Store, account_name: str, name: str) -> str | None:
    """Return the ARM ID of a container, or None if it does not exist.

    A container that has a role assignment is your existing container, unless the account was created in the rehearsal.
    """
    account_record = account(store, account_name)
    if account_record is None:
        return _existing(store, account_name, f"/containers/{name}")
    wanted = f"{account_record.id}/blobServices/default/containers/{name}".lower()
    return next((one.id for one in store.list(CONTAINER) if one.id.lower() == wanted), None)


def _existing(store: Store, account_name: str, end: str = "") -> str | None:
    """Return the scope of a role assignment on a container in an account that the rehearsal did not create."""
    scopes = (str(one.plain.get("scope") or "") for one in store.list(identity.ASSIGNMENT))
    part = f"/storageAccounts/{account_name}/blobServices/default/containers/".lower()
    return next((one for one in scopes if part in one.lower() and one.lower().endswith(end.lower())), None)


def settings(store: Store, account_name: str) -> dict[str, Any]:
    """Return the settings of an account's blobs, or an empty object if they are not set."""
    return next((one.plain for one in store.list(SETTINGS) if one.plain.get("accountName") == account_name), {})


def writable(store: Store, account_name: str, container: str) -> None:
    """Raise AzureError if the container is the destination of a replication policy. Blobs in it can be read and deleted.

    https://learn.microsoft.com/azure/storage/blobs/object-replication-overview, retrieved 2026-11-22; message from Azure/azure-cli issue 32600.
    """
    for resource in store.list(POLICY):
        inputs = resource.plain
        destination = str(inputs.get("destinationAccount")).rsplit("/", 1)[-1]
        if inputs.get("accountName") == destination == account_name and any(
            rule.get("destinationContainer") == container for rule in inputs.get("rules") or []
        ):
            raise AzureError("ObjectReplicationPolicyConflict", "The request is rejected because of object replication policy.", status=409)  # fmt: skip


def names_of(container: Resource) -> tuple[str, str]:
    """Return (account, container) of a container."""
    parts = container.id.split("/")
    return parts[-5], parts[-1]


def bucket(account_name: str, container: str) -> str:
    """Return the store's bucket for a container's blobs."""
    return f"azure:{account_name}/{container}"


def reachable(store: Store, name: str, who: Principal) -> None:
    """Raise AzureError if the account does not exist or its network rules deny the caller."""
    account_record = account(store, name)
    if account_record is None:
        if _existing(store, name):
            return
        raise AzureError("ResourceNotFound", f"The host {name}.blob.core.windows.net is not known: there is no such account.", status=404)  # fmt: skip
    inputs = account_record.plain
    rules = inputs.get("networkRuleSet") or {}
    public = inputs.get("publicNetworkAccess", "Enabled") == "Enabled"
    if public and (rules.get("defaultAction", "Allow") == "Allow" or (who.operator and rules.get("ipRules"))):
        return
    if (not who.operator or is_private(store)) and any(
        account_record.id.lower() in (text.lower() for text in wire.strings(one.inputs)) for one in store.list(ENDPOINT)
    ):
        return
    raise AzureError("AuthorizationFailure", "This request is not authorized to perform this operation.", status=403)


def set_private(store: Store, *, operator: bool) -> None:
    """Set whether the operator's machine reaches accounts through private endpoints, as nodes do."""
    store.put("azure", "private", {"operator": operator})


def is_private(store: Store) -> bool:
    """Return whether the operator's machine reaches accounts through private endpoints."""
    return bool((store.get("azure", "private") or {}).get("operator"))


def locks(store: Store, account_name: str, container: str) -> tuple[float, bool] | None:
    """Return (seconds from creation, whether appending is allowed) of a container's immutability policy, or None."""
    for resource in store.list(LOCK):
        inputs = resource.plain
        if inputs.get("accountName") == account_name and inputs.get("containerName") == container:
            days = float(inputs.get("immutabilityPeriodSinceCreationInDays") or 0)
            return days * _DAY_S, bool(inputs.get("allowProtectedAppendWrites"))
    return None


def immutable(store: Store, account_name: str, container: str, held: StoredObject) -> None:
    """Raise AzureError while an immutability policy protects a blob."""
    lock = locks(store, account_name, container)
    if lock and time.time() < held.modified + lock[0]:
        raise AzureError("BlobImmutableDueToPolicy", "This operation is not permitted as the blob is immutable due to a policy.", status=409)  # fmt: skip


def protected(store: Store, account_name: str, container: str) -> bool:
    """Return whether a container has a blob that cannot be deleted yet."""
    lock = locks(store, account_name, container)
    blobs = store.objects(bucket(account_name, container))
    return bool(lock) and any(time.time() < modified + lock[0] for *_, modified in blobs) if lock else False


def delete_container(store: Store, place: str) -> None:
    """Delete a container with its blobs. Raises AzureError while a policy protects one of them."""
    held = next(one for one in store.list(CONTAINER) if one.id.lower() == place.lower())
    account_name, name = names_of(held)
    if protected(store, account_name, name):
        raise AzureError(
            "ContainerProtectedFromDeletion",
            f"The container {name} has blobs that an immutability policy protects from deletion.",
            status=409,
        )
    empty(store, held)
    store.remove(held)


def empty(store: Store, container: Resource) -> None:
    """Delete all blobs of a container."""
    own = bucket(*names_of(container))
    for key, *_ in store.objects(own):
        store.remove_object(own, key)
