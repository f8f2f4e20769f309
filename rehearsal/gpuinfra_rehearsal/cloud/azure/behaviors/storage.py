"""Storage accounts, containers, blobs, their immutability, file shares, and Managed Lustre."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.azure import identity, stores
from gpuinfra_rehearsal.cloud.azure.behaviors.compute import RESOURCE_GROUP, may_use_key, need
from gpuinfra_rehearsal.cloud.azure.errors import AzureCreatedButFailed, AzureError
from gpuinfra_rehearsal.cloud.azure.ids import SUBSCRIPTION
from gpuinfra_rehearsal.cloud.azure.stores import ACCOUNT, CONTAINER, LOCK, SHARE
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

LUSTRE = "azure-native:storagecache:AmlFilesystem"
_STEPS = {
    # Step and maximum, in TiB. https://learn.microsoft.com/azure/azure-managed-lustre/create-file-system-resource-manager, retrieved 2026-11-21.
    "AMLFS-Durable-Premium-40": (48, 768),
    "AMLFS-Durable-Premium-125": (16, 128),
    "AMLFS-Durable-Premium-250": (8, 128),
    "AMLFS-Durable-Premium-500": (4, 128),
}
_YAML = "e30K"
"""A base64-encoded document that contains an empty object."""
_IMPORTER_ROLES = ("17d1049b-9a84-46fb-8f53-869881c3d3ab", "ba92f5b4-2d11-453d-a403-e96b0029c9fe")
"""Storage Account Contributor and Storage Blob Data Contributor, which the service needs to import data."""


@behaves
class StorageAccount(Behavior):
    """A storage account. Its name is globally unique. It is deleted with its content, unless a policy retains a blob."""

    types = (ACCOUNT,)
    shapes = {
        "accountName": (
            r"^[a-z0-9]{3,24}\Z",
            (
                "{value} is not a valid storage account name. Storage account name must be between 3 and 24 characters in length and "
                "use numbers and lower-case letters only."
            ),
        )
    }
    unique = (("accountName", "global"),)
    taken = AzureError(
        "StorageAccountAlreadyTaken", "The storage account named {inputs[accountName]} is already taken.", status=409
    )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        """An account with a customer-managed key requires a role on the key. Error text from Azure/bicep#16601."""
        encryption = call.plain.get("encryption") or {}
        properties = encryption.get("keyVaultProperties") or {}
        if encryption.get("keySource") != "Microsoft.Keyvault":
            return
        vault = str(properties.get("keyVaultUri")).removeprefix("https://").partition(".")[0]
        user = str((encryption.get("encryptionIdentity") or {}).get("encryptionUserAssignedIdentity") or "")
        if not may_use_key(cloud, [user], vault, str(properties.get("keyName"))):
            raise AzureError("KeyVaultAuthenticationFailure", "The operation failed because of authentication issue on the keyvault.", status=403)  # fmt: skip

    def created(self, cloud: Cloud, call: Call) -> None:
        name = call.id.rsplit("/", 1)[-1]
        services = ("blob", "dfs", "file", "queue", "table", "web")
        made = {service: f"https://{name}.{service}.core.windows.net/" for service in services}
        call.outputs |= {"primaryEndpoints": {**(call.outputs.get("primaryEndpoints") or {}), **made}}

    updated = created

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        for container in _containers(cloud.store, resource):
            account, name = stores.names_of(container)
            if stores.protected(cloud.store, account, name):
                raise AzureError(
                    "AccountHasImmutableBlobs",
                    f"The account {account} cannot be deleted: container {name} holds blobs that a policy makes immutable.",
                    status=409,
                )

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        for container in _containers(cloud.store, resource):
            stores.empty(cloud.store, container)
            cloud.store.remove(container)
        for container in _inside(cloud.store, resource, SHARE):
            cloud.store.remove(container)


def _inside(store: Store, account: Resource, token: str) -> list[Resource]:
    return [one for one in store.list(token) if one.id.lower().startswith(account.id.lower() + "/")]


def _containers(store: Store, account: Resource) -> list[Resource]:
    return _inside(store, account, CONTAINER)


@behaves
class Container(Behavior):
    types = (CONTAINER,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        name, group = str(call.plain.get("accountName")), str(call.plain.get("resourceGroupName"))
        # Accounts in groups that predate the rehearsal are assumed to exist.
        own = any(
            one.id.lower().endswith(f"/resourcegroups/{group}".lower()) for one in cloud.store.list(RESOURCE_GROUP)
        )
        if own and stores.account(cloud.store, name) is None:
            raise AzureError("ResourceNotFound", f"The Resource 'Microsoft.Storage/storageAccounts/{name}' was not found.", status=404)  # fmt: skip

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        account, name = stores.names_of(resource)
        if stores.protected(cloud.store, account, name):
            raise AzureError(
                "ContainerProtectedFromDeletion",
                f"The container {name} has blobs that an immutability policy protects from deletion.",
                status=409,
            )

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        stores.empty(cloud.store, resource)


@behaves
class FileShare(Behavior):
    """A file share of the provisioned v1 model. NFS requires an account for SSD file shares.

    Sizes: https://learn.microsoft.com/azure/storage/files/storage-files-scale-targets, retrieved 2026-11-26. The message about the protocol is not recorded.
    """

    types = (SHARE,)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        size = call.plain.get("shareQuota")
        if isinstance(size, int | float) and not 100 <= size <= 102_400:
            yield RejectedInput("shareQuota", f"must be 100 to 102400 for an SSD file share, got {size:g}")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        name = str(call.plain.get("accountName"))
        account = stores.account(cloud.store, name)
        if account is None:
            raise AzureError("ResourceNotFound", f"The Resource 'Microsoft.Storage/storageAccounts/{name}' was not found.", status=404)  # fmt: skip
        if call.plain.get("enabledProtocols") == "NFS" and account.plain.get("kind") != "FileStorage":
            raise AzureError("FeatureNotSupportedForAccount", "File share protocol NFS is not supported for the account.", status=409)  # fmt: skip


@behaves
class Lock(Behavior):
    """An immutability policy. An unlocked policy can be removed. It protects blobs while it exists."""

    types = (LOCK,)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        days = call.plain.get("immutabilityPeriodSinceCreationInDays")
        if isinstance(days, int | float) and not 1 <= days <= 146000:
            yield RejectedInput("immutabilityPeriodSinceCreationInDays", f"must be 1 to 146000, got {days:g}")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        if stores.container_id(cloud.store, str(plain.get("accountName")), str(plain.get("containerName"))) is None:
            raise AzureError("ContainerNotFound", "The specified container does not exist.", status=404)

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {"state": "Unlocked"}


@behaves
class ManagedLustre(Behavior):
    types = (LUSTRE,)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        size, sku = call.plain.get("storageCapacityTiB"), str((call.plain.get("sku") or {}).get("name"))
        step, most = _STEPS.get(sku, (0, 0))
        if step and isinstance(size, int | float) and (size % step or not 0 < size <= most):
            yield RejectedInput(
                "storageCapacityTiB", f"must be a multiple of {step} up to {most} for {sku}, got {size:g}"
            )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        subnet = str(plain.get("filesystemSubnet") or "")
        need(cloud, "azure-native:network:Subnet", subnet, "Microsoft.Network/virtualNetworks/subnets")
        for other in cloud.store.list(LUSTRE):
            if str(other.plain.get("filesystemSubnet")).lower() == subnet.lower():
                raise AzureError("InvalidParameter", f"The subnet {subnet} is used by the file system {other.id.rsplit('/', 1)[-1]}.", status=409)  # fmt: skip

    def created(self, cloud: Cloud, call: Call) -> None:
        number = cloud.store.next("amlfs")
        address = f"10.127.{number // 250}.{4 + number % 250}"
        call.outputs["clientInfo"] = {
            "mgsAddress": address,
            "mountCommand": f"mount -t lustre -o noatime,flock {address}@tcp:/lustrefs <mount>",
            "lustreVersion": "2.15.5",
            "containerStorageInterface": dict.fromkeys(
                ("persistentVolume", "persistentVolumeClaim", "storageClass"), _YAML
            ),
        }
        speed = str((call.plain.get("sku") or {}).get("name")).rpartition("-")[2]
        call.outputs["throughputProvisionedMBps"] = int(speed) * int(call.plain.get("storageCapacityTiB") or 0)

    def after(self, cloud: Cloud, call: Call) -> None:
        """A problem with the import container is reported late, as a failed creation."""
        settings = (call.plain.get("hsm") or {}).get("settings") or {}
        if settings and call.old is None and (problem := import_problem(cloud, settings)):
            raise AzureCreatedButFailed("AmlFilesystemHsmValidationFailed", problem)


def import_problem(cloud: Cloud, settings: dict[str, Any]) -> str:
    """Return why Managed Lustre cannot import from a container, or an empty string."""
    data, log = str(settings.get("container")), str(settings.get("loggingContainer"))
    account_id = data.split("/blobServices/")[0]
    if data.lower() == log.lower() or log.split("/blobServices/")[0].lower() != account_id.lower():
        return "The container and the logging container must be two containers of one storage account."
    account = stores.account(cloud.store, account_id.rsplit("/", 1)[-1])
    if account is None:
        foreign = cloud.external(account_id) is not None or not account_id.lower().startswith(
            f"/subscriptions/{SUBSCRIPTION}/"
        )
        return "" if foreign else f"The storage account {account_id} was not found."
    if account.plain.get("allowSharedKeyAccess") is False:
        return f"Shared key access is disabled on the storage account {account_id}."
    given: dict[str, set[str]] = {}
    for resource in cloud.store.list(identity.ASSIGNMENT):
        inputs = resource.plain
        if (account_id.lower() + "/").startswith(str(inputs.get("scope")).lower().rstrip("/") + "/"):
            given.setdefault(str(inputs.get("principalId")), set()).add(
                str(inputs.get("roleDefinitionId")).rsplit("/", 1)[-1]
            )
    if not any(set(_IMPORTER_ROLES) <= roles for roles in given.values()):
        return f"The HPC Cache Resource Provider needs Storage Account Contributor and Storage Blob Data Contributor on {account_id}."
    return ""
