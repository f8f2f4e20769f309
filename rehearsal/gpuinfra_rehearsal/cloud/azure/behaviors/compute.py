"""Scale sets and resource groups. `groups.py` and `upgrade.py` run the scale sets."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.azure import stores
from gpuinfra_rehearsal.cloud.azure.errors import AzureCreatedButFailed, AzureError
from gpuinfra_rehearsal.cloud.azure.groups import KIND
from gpuinfra_rehearsal.cloud.azure.identity import IDENTITY, uses_key
from gpuinfra_rehearsal.cloud.azure.ids import SUBSCRIPTION
from gpuinfra_rehearsal.cloud.azure.model import GROUP, above_single_limit, desired, extension, profile_of
from gpuinfra_rehearsal.cloud.core import behaviors, wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.core.ids import last

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

RESOURCE_GROUP = "azure-native:resources:ResourceGroup"
KEY = "azure-native:keyvault:Key"
CUSTOM_DATA = 65535
"""Bytes before base64 encoding. VirtualMachineScaleSetOSProfile in the ARM reference, retrieved 2026-11-21."""
_SCRIPT = 256 * 1024
"""Maximum bytes of an inline script for the Linux CustomScript extension.
https://learn.microsoft.com/azure/virtual-machines/extensions/custom-script-linux, retrieved 2026-11-21."""


def need(cloud: Cloud, token: str, id: str, kind: str) -> None:
    """Raise AzureError if a referenced resource does not exist. Resources that predate the rehearsal are assumed to
    exist."""
    exists = cloud.external(id) is not None or any(one.id.lower() == id.lower() for one in cloud.store.list(token))
    if not exists and id.lower().startswith(f"/subscriptions/{SUBSCRIPTION}/"):
        text = f"The Resource '{kind}/{last(id)}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix"
        raise AzureError("ResourceNotFound", text, status=404)


@behaves
class ScaleSet(Behavior):
    """A scale set, whose machines use one model."""

    types = (GROUP,)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        profile = profile_of(call.plain)
        yield from _encoded(
            profile.get("osProfile") or {}, "customData", CUSTOM_DATA, "virtualMachineProfile.osProfile.customData"
        )
        settings = (extension(profile, "CustomScript") or {}).get("settings") or {}
        if isinstance(settings, dict):
            yield from _encoded(settings, "script", _SCRIPT, "virtualMachineProfile.extensionProfile")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        self._validate(cloud, call)

    def before_update(self, cloud: Cloud, call: Call) -> None:
        assert call.old is not None
        before = call.old.plain
        if before.get("singlePlacementGroup") is False and call.plain.get("singlePlacementGroup") is True:
            raise AzureError("PropertyChangeNotAllowed", "Changing property 'singlePlacementGroup' from false to true is not allowed.", status=409)  # fmt: skip
        self._validate(cloud, call)

    @staticmethod
    def _validate(cloud: Cloud, call: Call) -> None:
        plain = call.plain
        profile = profile_of(plain)
        if text := above_single_limit(plain, desired(plain)):
            raise AzureError("InvalidParameter", text)
        if plain.get("orchestrationMode") == "Flexible" and plain.get("singlePlacementGroup"):
            raise AzureError("InvalidParameter", "singlePlacementGroup cannot be true with Flexible orchestration.")
        rolling = (plain.get("upgradePolicy") or {}).get("mode") == "Rolling"
        if rolling and extension(profile, "ApplicationHealthLinux") is None and not _probe(profile):
            text = "Rolling Upgrade mode is not supported for this Virtual Machine Scale Set because a health probe or health extension was not provided."
            raise AzureError("InvalidParameter", text, status=409)
        for token, id, kind in _named(plain):
            need(cloud, token, id, kind)

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {"provisioningState": "Succeeded", "uniqueId": call.outputs.get("uniqueId")}

    def after(self, cloud: Cloud, call: Call) -> None:
        """The operation completes when the machines exist, and fails without capacity."""
        plain = call.plain
        wanted = desired(plain)
        have = len(cloud.fleet.of_group(call.resource()))
        if have >= wanted:
            return
        if shortage := KIND.shortage(cloud, call.resource(), have, wanted):
            raise AzureCreatedButFailed(shortage.code, shortage.message, status=shortage.status)

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        cloud.store.drop("azure-upgrade", resource.id)
        cloud.fleet.abandon(resource)


def _probe(profile: dict[str, Any]) -> bool:
    return bool((profile.get("networkProfile") or {}).get("healthProbe"))


def _named(plain: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Return (type, ID, ARM's name of the type) for each resource that a scale set refers to."""
    profile = profile_of(plain)
    for identity in (plain.get("identity") or {}).get("userAssignedIdentities") or []:
        yield IDENTITY, str(identity), "Microsoft.ManagedIdentity/userAssignedIdentities"
    for card in (profile.get("networkProfile") or {}).get("networkInterfaceConfigurations") or []:
        if guard := (card.get("networkSecurityGroup") or {}).get("id"):
            yield "azure-native:network:NetworkSecurityGroup", str(guard), "Microsoft.Network/networkSecurityGroups"
        for ip_configuration in card.get("ipConfigurations") or []:
            if subnet := (ip_configuration.get("subnet") or {}).get("id"):
                yield "azure-native:network:Subnet", str(subnet), "Microsoft.Network/virtualNetworks/subnets"
    disk = ((profile.get("storageProfile") or {}).get("osDisk") or {}).get("managedDisk") or {}
    if encryption := (disk.get("diskEncryptionSet") or {}).get("id"):
        yield "azure-native:compute:DiskEncryptionSet", str(encryption), "Microsoft.Compute/diskEncryptionSets"


def may_use_key(cloud: Cloud, identities: list[str], vault: str, key: str) -> bool:
    """Return whether an identity has access to a key. Vaults that this rehearsal did not create are assumed to grant it."""
    held = next((one for one in cloud.store.list(KEY) if one.id.lower().endswith(f"/vaults/{vault}/keys/{key}".lower())), None)  # fmt: skip
    return held is None or uses_key(cloud, identities, held.id)


@behaves
class DiskEncryptionSet(Behavior):
    """A disk encryption set that uses its key through an identity. Error text from ansible-collections/azure#1676."""

    types = ("azure-native:compute:DiskEncryptionSet",)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        users = [str(one) for one in (call.plain.get("identity") or {}).get("userAssignedIdentities") or []]
        url = str((call.plain.get("activeKey") or {}).get("keyUrl") or "")
        match = re.match(r"https://([^.]+)\.[^/]+/keys/([^/]+)/", url)
        if match and users and not may_use_key(cloud, users, match[1], match[2]):
            text = (
                f"Unable to access key vault resource '{url}' to enable encryption at rest. Please grant get, wrap and unwrap key permissions "
                f"to user-assigned identity '{users[0]}'. Please visit https://aka.ms/keyvaultaccessssecmk for more information."
            )
            raise AzureError("KeyVaultAccessForbidden", text)


def _encoded(held: dict[str, Any], key: str, limit: int, path: str) -> Iterator[RejectedInput]:
    data = held.get(key)
    if not isinstance(data, str) or wire.is_unknown(data):
        return
    try:
        if len(base64.b64decode(data, validate=True)) > limit:
            yield RejectedInput(path, f"{key} is limited to {limit} bytes before it is encoded")
    except (binascii.Error, ValueError):
        yield RejectedInput(path, f"{key} must be encoded in base64")


@behaves
class ResourceGroup(Behavior):
    """Deleting a resource group deletes everything in it."""

    types = (RESOURCE_GROUP,)

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        for resource_inside in inside(cloud.store, resource):
            if resource_inside.type == stores.CONTAINER:
                account, name = stores.names_of(resource_inside)
                if stores.protected(cloud.store, account, name):
                    text = (
                        f"Deletion of resource group '{resource.id.rsplit('/', 1)[-1]}' failed as resources with identifiers "
                        f"'{resource_inside.id}' could not be deleted: its blobs are immutable due to a policy."
                    )
                    raise AzureError("ResourceGroupDeletionBlocked", text, status=409)

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        for resource_inside in inside(cloud.store, resource):
            cloud.store.remove(resource_inside)
            behaviors.of(resource_inside.type).deleted(cloud, resource_inside)


def inside(store: Store, group: Resource) -> list[Resource]:
    """Return all resources in a resource group."""
    return [one for one in store.list() if one.id.lower().startswith(group.id.lower() + "/")]
