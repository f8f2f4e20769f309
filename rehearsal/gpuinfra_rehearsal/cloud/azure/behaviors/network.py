"""Networks: resources in use cannot be deleted, and address ranges within a network must not overlap."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.azure.behaviors.compute import need
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

NETWORK = "azure-native:network:VirtualNetwork"
SUBNET = "azure-native:network:Subnet"
GUARD = "azure-native:network:NetworkSecurityGroup"
NAT = "azure-native:network:NatGateway"
ADDRESS = "azure-native:network:PublicIPAddress"


def _users(store: Store, id: str) -> list[Resource]:
    """Return the resources whose inputs contain an ID, without the resource itself and its children."""
    return [
        one
        for one in store.list()
        if one.type.startswith("azure-native:")
        and not one.id.lower().startswith(id.lower())
        and any(id.lower() == text.lower() for text in wire.strings(one.inputs))
    ]


_IN_USE = {
    SUBNET: ("InUseSubnetCannotBeDeleted", "Subnet"),
    GUARD: ("InUseNetworkSecurityGroupCannotBeDeleted", "Network security group"),
    NAT: ("InUseNatGatewayCannotBeDeleted", "NAT gateway"),
    ADDRESS: ("PublicIPAddressCannotBeDeleted", "Public IP address"),
}
"""Maps a type to the error code that applies while it is in use, and to its name in the message."""


def _in_use(resource: Resource, user: Resource) -> AzureError:
    code, kind = _IN_USE[resource.type]
    text = f"{kind} {resource.id.rsplit('/', 1)[-1]} is in use by {user.id} and cannot be deleted."
    return AzureError(code, text, status=409)


_PARTS = {
    GUARD: ("securityRules", "defaultSecurityRules"),
    "azure-native:network:BastionHost": ("ipConfigurations",),
    "azure-native:network:PrivateEndpoint": ("privateLinkServiceConnections",),
}
"""Maps a type to the lists whose items have IDs below the resource."""


def _identify_parts(call: Call) -> None:
    """Set the ID and the state of each list item."""
    for field in _PARTS[call.token]:
        for number, item in enumerate(call.outputs.get(field) or []):
            item["id"] = f"{call.id}/{field}/{item.get('name') or number}"
            item["provisioningState"] = "Succeeded"


@behaves
class WithParts(Behavior):
    types = tuple(token for token in _PARTS if token != GUARD)

    def created(self, cloud: Cloud, call: Call) -> None:
        _identify_parts(call)
        if call.token == "azure-native:network:PrivateEndpoint":
            group = call.id.partition("/privateEndpoints/")[0]
            call.outputs["networkInterfaces"] = [{"id": f"{group}/networkInterfaces/{call.name}.nic"}]

    updated = created


@behaves
class Used(Behavior):
    """A resource that cannot be deleted while another resource refers to it."""

    types = (NAT,)

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        if users := _users(cloud.store, resource.id):
            raise _in_use(resource, users[0])


@behaves
class SecurityGroup(Used):
    types = (GUARD,)

    def created(self, cloud: Cloud, call: Call) -> None:
        _identify_parts(call)

    updated = created


@behaves
class Network(Behavior):
    types = (NETWORK,)

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        for subnet in cloud.store.list(SUBNET):
            if subnet.id.lower().startswith(resource.id.lower() + "/") and (users := _users(cloud.store, subnet.id)):
                raise _in_use(subnet, users[0])

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        for subnet in cloud.store.list(SUBNET):
            if subnet.id.lower().startswith(resource.id.lower() + "/"):
                cloud.store.remove(subnet)


@behaves
class Subnet(Used):
    types = (SUBNET,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        name, group = str(plain.get("virtualNetworkName")), str(plain.get("resourceGroupName"))
        network = next(
            (
                one
                for one in cloud.store.list(NETWORK)
                if one.id.lower().endswith(
                    f"/resourcegroups/{group}/providers/microsoft.network/virtualnetworks/{name}".lower()
                )
            ),
            None,
        )
        if network is None:
            if cloud.external(name) is None:
                raise AzureError(
                    "ResourceNotFound",
                    f"The Resource 'Microsoft.Network/virtualNetworks/{name}' under resource group '{group}' was not found.",
                    status=404,
                )
            return
        whole = [
            ipaddress.ip_network(one) for one in (network.plain.get("addressSpace") or {}).get("addressPrefixes") or []
        ]
        own = ipaddress.ip_network(
            str(plain.get("addressPrefix") or (plain.get("addressPrefixes") or ["0.0.0.0/0"])[0])
        )
        if not any(own.version == one.version and own.subnet_of(one) for one in whole):  # pyright: ignore[reportArgumentType]
            raise AzureError(
                "NetcfgInvalidSubnet",
                f"Subnet '{call.name}' is not valid because its IP address range is outside the IP address range of virtual network '{name}'.",
            )
        for other in cloud.store.list(SUBNET):
            given = other.plain
            inside = other.id.lower().startswith(network.id.lower() + "/") and other.id != call.id
            prefix = given.get("addressPrefix") or (given.get("addressPrefixes") or [""])[0]
            mine = call.old is not None and other.id == call.old.id
            if inside and not mine and prefix and own.overlaps(ipaddress.ip_network(str(prefix))):
                raise AzureError(
                    "NetcfgSubnetRangesOverlap",
                    f"Subnet '{call.name}' is not valid because its IP address range overlaps with that of an existing subnet in virtual network '{name}'.",
                )
        for token, key, kind in (
            (GUARD, "networkSecurityGroup", "networkSecurityGroups"),
            (NAT, "natGateway", "natGateways"),
        ):
            id = (plain.get(key) or {}).get("id")
            if id:
                need(cloud, token, str(id), f"Microsoft.Network/{kind}")

    before_update = before_create


@behaves
class Address(Used):
    types = (ADDRESS,)

    def created(self, cloud: Cloud, call: Call) -> None:
        """Only a static address is assigned before a resource uses it."""
        static = call.plain.get("publicIPAllocationMethod") == "Static"
        call.outputs["ipAddress"] = f"203.0.113.{1 + cloud.store.next('azure-address') % 250}" if static else None

    def updated(self, cloud: Cloud, call: Call) -> None:
        assert call.old is not None
        call.outputs["ipAddress"] = call.old.outputs.get("ipAddress")
