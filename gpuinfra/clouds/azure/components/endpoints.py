"""Private endpoints, which give services private addresses in the network, and their DNS names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi
from pulumi_azure_native import network, privatedns

from gpuinfra.base import naming
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.instances import DNS_ZONES
from gpuinfra.clouds.ready_after import ready_after


@dataclass(frozen=True, kw_only=True)
class EndpointsArgs:
    """Arguments for the private endpoints of a network."""

    scope: Scope
    network_id: pulumi.Input[str]
    """Virtual network in which the private names are resolved (`Network.network_id`)."""
    subnet_id: pulumi.Input[str]
    """Subnet for the addresses of the endpoints."""
    services: Mapping[str, pulumi.Input[str]]
    """Maps a service to a resource ID, for example `{"blob": <storage account>, "vault": <key vault>}`."""
    dns_zones: Mapping[str, str] = field(default_factory=dict)
    """Existing private DNS zones that are linked to the network, as IDs by name. Other zones are created."""


class Endpoints(pulumi.ComponentResource):
    """The private endpoints of a network, and their private DNS zones."""

    zone_ids: dict[str, pulumi.Output[str]]
    """IDs of the DNS zones by service. Each resolves after the zone is linked to the network."""
    ready: list[pulumi.Resource]
    """Resources that must exist before nodes resolve private names."""

    def __init__(self, name: str, args: EndpointsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Endpoints", name, None, args.scope.options(opts))
        self.zone_ids = {kind: _zone(name, kind, args, self) for kind in args.services}
        self.ready = [
            private_endpoint(
                naming.logical(name, kind),
                args.scope,
                kind=kind,
                service_id=service_id,
                subnet_id=args.subnet_id,
                zone_id=self.zone_ids[kind],
                parent=self,
            )
            for kind, service_id in args.services.items()
        ]
        self.register_outputs({"zone_ids": self.zone_ids})

    def after(self, value: pulumi.Input[str]) -> pulumi.Output[str]:
        """Return a value that resolves after the private names exist. With a subnet ID from it, nodes start after that."""
        return ready_after(value, self.ready)


def _zone(name: str, kind: str, args: EndpointsArgs, parent: pulumi.Resource) -> pulumi.Output[str]:
    scope, zone = args.scope, DNS_ZONES[kind]
    if existing := args.dns_zones.get(zone):
        return pulumi.Output.from_input(existing)
    created = privatedns.PrivateZone(
        rows.DNS_ZONE.logical(name, purpose=kind),
        private_zone_name=zone,
        resource_group_name=scope.group,
        location="Global",
        opts=child(parent, rows.DNS_ZONE),
    )
    link = privatedns.VirtualNetworkLink(
        rows.DNS_LINK.logical(name, purpose=kind),
        virtual_network_link_name=scope.unique_name(f"{kind}-link", 80),
        private_zone_name=created.name,
        resource_group_name=scope.group,
        location="Global",
        virtual_network=privatedns.SubResourceArgs(id=args.network_id),
        registration_enabled=False,
        # Names without a record in this zone are resolved publicly. Otherwise, names of other private endpoints do not resolve in the network
        # (https://learn.microsoft.com/azure/dns/private-dns-fallback, retrieved 2026-11-22).
        resolution_policy=privatedns.ResolutionPolicy.NX_DOMAIN_REDIRECT,
        opts=child(parent, rows.DNS_LINK),
    )
    return ready_after(created.id, [link])


def private_endpoint(
    name: str,
    scope: Scope,
    *,
    kind: str,
    service_id: pulumi.Input[str],
    subnet_id: pulumi.Input[str],
    zone_id: pulumi.Input[str],
    parent: pulumi.Resource,
) -> pulumi.Resource:
    """Create an endpoint and its DNS names. Returns the resource to wait for before the names resolve."""
    endpoint = network.PrivateEndpoint(
        rows.PRIVATE_ENDPOINT.logical(name),
        private_endpoint_name=naming.short(f"{name}-{scope.token}", 64),
        resource_group_name=scope.group,
        subnet=network.SubnetArgs(id=subnet_id),
        private_link_service_connections=[
            network.PrivateLinkServiceConnectionArgs(name=kind, private_link_service_id=service_id, group_ids=[kind])
        ],
        opts=child(parent, rows.PRIVATE_ENDPOINT),
    )
    return network.PrivateDnsZoneGroup(
        rows.ENDPOINT_NAMES.logical(name),
        private_dns_zone_group_name="default",
        private_endpoint_name=endpoint.name,
        resource_group_name=scope.group,
        private_dns_zone_configs=[network.PrivateDnsZoneConfigArgs(name=kind, private_dns_zone_id=zone_id)],
        opts=child(parent, rows.ENDPOINT_NAMES),
    )
