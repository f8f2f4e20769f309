"""Networks, subnets, routers, addresses and private services access: required resources, overlaps, and dependencies
that block deletion."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, unquote_plus

from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError, in_use, invalid, missing
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT, last, link, path_of

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

NETWORK = "gcp:compute/network:Network"
SUBNET = "gcp:compute/subnetwork:Subnetwork"
FIREWALL = "gcp:compute/firewall:Firewall"
ROUTER = "gcp:compute/router:Router"
NAT = "gcp:compute/routerNat:RouterNat"
ADDRESS = "gcp:compute/globalAddress:GlobalAddress"
CONNECTION = "gcp:servicenetworking/connection:Connection"
LUSTRE = "gcp:lustre/instance:Instance"
FILESTORE = "gcp:filestore/instance:Instance"
QUOTA = "quota:NETWORKS"
"""The ID that the control interface uses for the network quota. Google shows the quota only in the console."""


def exists(store: Store, token: str, path: str) -> bool:
    """Return whether a resource exists. Resources in other projects are assumed to exist."""
    return store.find(token, path) is not None or f"projects/{PROJECT}/" not in f"{path}/"


def network_of(store: Store, value: Any) -> Resource | None:
    """Return the network for a link, a path or a bare name."""
    text = str(value or "")
    return store.find(NETWORK, path_of(text)) or next(
        (one for one in store.list(NETWORK) if last(one.id) == text), None
    )


def with_profile(network: Resource | None) -> bool:
    """Return whether a network has an RDMA profile."""
    return bool(network and network.plain.get("networkProfile"))


def _in(store: Store, kind: str, network: str) -> list[Resource]:
    """Return the resources of a type in a network."""
    resources = []
    for resource in store.list(kind):
        own = network_of(store, resource.plain.get("network"))
        if own is not None and own.id == network:
            resources.append(resource)
    return resources


def _needs_network(store: Store, call: Call) -> Resource | None:
    """Return the network that a call refers to. Raises GoogleError if it does not exist."""
    text = str(call.plain.get("network") or "")
    network = network_of(store, text)
    if network is None and text and not exists(store, NETWORK, path_of(text)):
        raise missing(path_of(text))
    return network


@behaves
class Network(Behavior):
    types = (NETWORK,)
    importer_sets = {"deleteDefaultRoutesOnCreate": False}

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        mtu = call.plain.get("mtu")
        if isinstance(mtu, int) and not 1300 <= mtu <= 8896:
            yield RejectedInput("mtu", f"must be 1300 to 8896, got {mtu}")
        profile = call.plain.get("networkProfile")
        if not isinstance(profile, str) or wire.is_unknown(profile):
            return
        if not re.search(r"networkProfiles/[a-z0-9-]+-[a-z]-vpc-roce(-metal)?$", profile):
            yield RejectedInput("networkProfile", f"must end in networkProfiles/<zone>-vpc-roce, got '{profile}'")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        limit = (cloud.external(QUOTA) or {}).get("count")
        held = len(cloud.store.list(NETWORK))
        if limit is not None and held >= int(limit):
            raise GoogleError(
                "quotaExceeded", f"Quota 'NETWORKS' exceeded. Limit: {float(limit)} globally.", status=403
            )

    def created(self, cloud: Cloud, call: Call) -> None:
        number = str(3_000_000_000_000_000_000 + cloud.store.next("network"))
        call.outputs |= {"selfLink": link(call.id), "numericId": number, "networkId": number}

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        for kind in (SUBNET, FIREWALL, ROUTER, ADDRESS, CONNECTION, LUSTRE):
            if held := _in(cloud.store, kind, resource.id):
                raise in_use("network", resource.id, held[0].id)
        for store_record in cloud.store.list(FILESTORE):
            for place in store_record.plain.get("networks") or []:
                named = network_of(cloud.store, place.get("network"))
                if named is not None and named.id == resource.id:
                    raise in_use("network", resource.id, store_record.id)


@behaves
class Subnetwork(Behavior):
    types = (SUBNET,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        network = _needs_network(cloud.store, call)
        wanted = call.plain.get("ipCidrRange")
        if network is None or not wanted:
            return
        try:
            own = ipaddress.ip_network(str(wanted))
        except ValueError:
            raise invalid(
                f"Invalid value for field 'resource.ipCidrRange': '{wanted}'. Invalid IPv4 CIDR range."
            ) from None
        for other in _in(cloud.store, SUBNET, network.id):
            theirs = other.plain
            if own.overlaps(ipaddress.ip_network(str(theirs.get("ipCidrRange")))):
                raise invalid(
                    f"Invalid IPCidrRange: {wanted} conflicts with existing subnetwork '{last(other.id)}' in region "
                    f"'{last(str(theirs.get('region')))}'."
                )

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {"selfLink": link(call.id)}
        if call.plain.get("ipCidrRange"):
            call.outputs["gatewayAddress"] = str(ipaddress.ip_network(call.plain["ipCidrRange"], strict=False)[1])

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        for instance in cloud.fleet.instances().values():
            if instance["state"] == "terminated" or instance.get("cloud") != "gcp":
                continue
            for interface in instance["interfaces"]:
                if path_of(str(interface.get("subnetwork") or "")) == resource.id:
                    by = f"projects/{resource.id.split('/')[1]}/zones/{instance['zone']}/instances/{instance['vm']}"
                    raise in_use("subnetwork", resource.id, by)


@behaves
class OnNetworks(Behavior):
    """Resources that a network with an RDMA profile does not accept."""

    types = (FIREWALL, ROUTER)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        network = _needs_network(cloud.store, call)
        if with_profile(network):
            assert network is not None
            what = "Firewall rules" if call.token == FIREWALL else "Cloud Routers"
            raise invalid(f"{what} are not supported on network '{network.id}' by its network profile.")

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs["selfLink"] = link(call.id)

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        """Delete the router's gateways with it."""
        for nat in cloud.store.list(NAT) if resource.type == ROUTER else []:
            plain = nat.plain
            if last(str(plain.get("router"))) == last(resource.id):
                cloud.store.remove(nat)


@behaves
class RouterNat(Behavior):
    types = (NAT,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        router = last(str(plain.get("router")))
        region = last(str(plain.get("region") or ""))
        if not any(last(one.id) == router and f"/regions/{region}/" in one.id for one in cloud.store.list(ROUTER)):
            raise missing(f"projects/{plain.get('project')}/regions/{region}/routers/{router}")
        if plain.get("enableDynamicPortAllocation") and plain.get("enableEndpointIndependentMapping"):
            raise invalid("Dynamic Port Allocation and Endpoint Independent Mapping cannot be enabled together.")


@behaves
class GlobalAddress(Behavior):
    """A reserved range, here for private services access."""

    types = (ADDRESS,)
    not_returned = ("labels",)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        network = _needs_network(cloud.store, call)
        if network is None or not call.plain.get("address"):
            return
        own = _range(call.plain)
        taken = [(one, one.plain.get("ipCidrRange")) for one in _in(cloud.store, SUBNET, network.id)]
        taken += [(one, str(_range(one.plain))) for one in _in(cloud.store, ADDRESS, network.id)]
        for other, text in taken:
            if text and own is not None and own.overlaps(ipaddress.ip_network(str(text), strict=False)):
                raise invalid(
                    f"Invalid value for field 'resource.address': '{own}'. The range overlaps with '{other.id}'."
                )

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs["selfLink"] = link(call.id)
        if not call.plain.get("address"):
            call.outputs["address"] = f"10.{200 + cloud.store.next('google range')}.0.0"

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        for connection in cloud.store.list(CONNECTION):
            if last(resource.id) in [last(str(name)) for name in connection.plain.get("reservedPeeringRanges") or []]:
                raise in_use("global address", resource.id, connection.id)


def _range(plain: dict[str, Any]) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(f"{plain.get('address')}/{plain.get('prefixLength') or 32}", strict=False)
    except ValueError:
        return None


@behaves
class Connection(Behavior):
    """Private services access, which Lustre and Filestore require.

    The ID and the import follow `resource_service_networking_connection.go` (GoogleCloudPlatform/magic-modules at
    d577844, Mozilla Public License 2.0, retrieved 2026-11-22).
    """

    types = (CONNECTION,)
    importer_sets = {"deletionPolicy": "DELETE"}

    def identify(self, cloud: Cloud, call: Call) -> str:
        return f"{quote_plus(str(call.plain.get('network')))}:{quote_plus(str(call.plain.get('service')))}"

    def by_import_id(self, cloud: Cloud, token: str, id: str, region: str) -> Resource | None:
        network, _, service = unquote_plus(id).partition(":")
        held = (
            _in(cloud.store, CONNECTION, network_record.id)
            if (network_record := network_of(cloud.store, network))
            else []
        )
        return next((one for one in held if one.plain.get("service") == service), None)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _needs_network(cloud.store, call)
        held = {last(one.id) for one in cloud.store.list(ADDRESS)}
        for name in call.plain.get("reservedPeeringRanges") or []:
            if last(str(name)) not in held:
                raise invalid(f"The peering range '{name}' does not exist in the network.")

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs["peering"] = "servicenetworking-googleapis-com"

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        if resource.plain.get("deletionPolicy") == "ABANDON":
            return
        used = network_of(cloud.store, resource.plain.get("network"))
        if used is None:
            return
        network = used.id
        private = [
            one
            for one in cloud.store.list(FILESTORE)
            for place in one.plain.get("networks") or []
            if place.get("connectMode") == "PRIVATE_SERVICE_ACCESS"
            and (named := network_of(cloud.store, place.get("network")))
            and named.id == network
        ]
        if _in(cloud.store, LUSTRE, network) or private:
            raise GoogleError("failedPrecondition", "Failed to delete connection; Producer services (e.g. CloudSQL, Cloud Memstore, etc.) "
                          "are still using this connection.")  # fmt: skip


def connected(store: Store, network: Any) -> bool:
    """Return whether a network has private services access. Networks in other projects are assumed to have it."""
    network_record = network_of(store, network)
    if network_record is None:
        return exists(store, NETWORK, path_of(str(network or "")))
    return bool(_in(store, CONNECTION, network_record.id))
