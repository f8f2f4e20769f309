"""The network of a site: private subnets, one way out, nothing in, and a record of what flows.

No subnet has Azure's default way out, which nobody declared and nobody sees; what leaves goes through a NAT gateway or through private endpoints, as the plan says.
Subnets span zones here. Who may talk to whom is the business of `security.py`; private endpoints are in `endpoints.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity, network

from gpuinfra import naming
from gpuinfra.clouds.azure.components.grants import BLOB_CONTRIBUTOR, grant
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.components.stores import PrivateStore, PrivateStoreArgs, Sealed
from gpuinfra.clouds.azure.fixed import ZONAL
from gpuinfra.clouds.azure.resources import BASTION_SUBNET, has_way_out, uses_way_out, way_out_name
from gpuinfra.plan.model import NetworkPlan, Subnet

WATCHER_GROUP = "NetworkWatcherRG"
"""Where Azure puts the watcher of a region, one for each subscription, by itself."""


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What the network is to be."""

    scope: Scope
    plan: NetworkPlan
    group_ids: Mapping[str, pulumi.Input[str]]
    """Security groups by the role of subnets (`Security.group_ids`)."""
    zone: str | None = None
    """Zone of the NAT gateway, where all nodes are in one; left out, it belongs to none."""
    sealed: Sealed | None = None
    """Key of the flow log; left out, Azure's own."""
    workspace_id: pulumi.Input[str] | None = None
    """Workspace that the flow log can be searched in; left out, it is in the storage account only."""
    keep_subnets: frozenset[str] = frozenset()
    """Subnets that a destroy leaves, and with them the network and its way out, because something that is kept lies in them."""


class Network(pulumi.ComponentResource):
    """A virtual network with private subnets, one way out, and flow logs."""

    network_id: pulumi.Output[str]
    """Id of the network."""
    cidr: str
    """Addresses of the network."""
    subnet_ids: dict[str, pulumi.Output[str]]
    """Subnet ids by the plan's names."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Network", name, None, opts)
        self._name, self._args = name, args
        self.cidr = args.plan.cidr
        scope = args.scope
        self._network = network.VirtualNetwork(
            self._logical("network"),
            virtual_network_name=scope.unique_name("network"),
            resource_group_name=scope.group,
            location=scope.region,
            address_space=network.AddressSpaceArgs(address_prefixes=[args.plan.cidr]),
            tags=scope.tagged(name),
            # Subnets are resources of their own; the list inside the network would undo them (azure.md 10.1).
            opts=child(self, keep=bool(args.keep_subnets), ignore_changes=["subnets"]),
        )
        way_out = self._way_out() if has_way_out(args.plan) else None
        subnets = self._subnets(way_out)
        self._flow_log()
        if BASTION_SUBNET in subnets:
            self._bastion(subnets[BASTION_SUBNET])
        self.network_id = self._network.id
        self.subnet_ids = {subnet: made.id for subnet, made in subnets.items()}
        self.register_outputs({"network_id": self.network_id, "subnet_ids": self.subnet_ids})

    def _logical(self, *parts: str | int) -> str:
        return naming.logical(self._name, *parts)

    def _way_out(self) -> network.NatGateway:
        scope, keep, zone = self._args.scope, self._stays_open(), self._args.zone
        called = way_out_name(zone)
        return network.NatGateway(
            self._logical("way-out"),
            nat_gateway_name=scope.unique_name(called, 80),
            resource_group_name=scope.group,
            location=scope.region,
            sku=network.NatGatewaySkuArgs(name="Standard"),
            idle_timeout_in_minutes=10,
            zones=[zone] if zone else None,
            public_ip_addresses=[network.SubResourceArgs(id=self._address("way-out", called, zone=zone, keep=keep).id)],
            tags=scope.tagged(self._logical("way-out")),
            opts=child(self, keep=keep, fixed=ZONAL, old_first=False),
        )

    def _stays_open(self) -> bool:
        """A gateway cannot go while a kept subnet uses it."""
        args = self._args
        return any(uses_way_out(one, args.plan) for one in args.plan.subnets if one.name in args.keep_subnets)

    def _address(
        self, what: str, called: str, *, zone: str | None = None, keep: bool = False
    ) -> network.PublicIPAddress:
        scope = self._args.scope
        return network.PublicIPAddress(
            self._logical(what, "address"),
            public_ip_address_name=scope.unique_name(f"{called}-address", 80),
            resource_group_name=scope.group,
            location=scope.region,
            sku=network.PublicIPAddressSkuArgs(name="Standard"),
            public_ip_allocation_method="Static",
            zones=[zone] if zone else None,
            tags=scope.tagged(self._logical(what, "address")),
            opts=child(self, keep=keep, fixed=ZONAL, old_first=False),
        )

    def _subnets(self, way_out: network.NatGateway | None) -> dict[str, network.Subnet]:
        """One after the other: Azure takes one change of a network at a time."""
        args = self._args
        made: dict[str, network.Subnet] = {}
        for subnet in args.plan.subnets:
            made[subnet.name] = self._subnet(subnet, way_out, list(made.values())[-1:])
        return made

    def _subnet(
        self, subnet: Subnet, way_out: network.NatGateway | None, before: list[network.Subnet]
    ) -> network.Subnet:
        args, scope = self._args, self._args.scope
        out = way_out is not None and uses_way_out(subnet, args.plan)
        return network.Subnet(
            self._logical(subnet.name),
            subnet_name=subnet.name,
            virtual_network_name=self._network.name,
            resource_group_name=scope.group,
            address_prefix=subnet.cidr,
            # Network API 2024-05-01 gives a way out by default and cannot take it back later (azure.md 5.1).
            default_outbound_access=False,
            nat_gateway=network.SubResourceArgs(id=way_out.id) if way_out is not None and out else None,
            network_security_group=network.NetworkSecurityGroupArgs(id=args.group_ids[subnet.role]),
            private_endpoint_network_policies="NetworkSecurityGroupEnabled",
            opts=child(self, keep=subnet.name in args.keep_subnets, depends_on=before),
        )

    def _flow_log(self) -> None:
        args, scope = self._args, self._args.scope
        store = PrivateStore(
            self._logical("flow"),
            PrivateStoreArgs(
                scope=scope,
                purpose="flow",
                containers=(),
                keep=True,
                sealed=args.sealed,
                services=True,
                expire_days=args.plan.flow_log_retention_days,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        writer = managedidentity.UserAssignedIdentity(
            self._logical("flow"),
            resource_name_=scope.unique_name("flow", 128),
            resource_group_name=scope.group,
            location=scope.region,
            tags=scope.tagged(self._logical("flow")),
            opts=child(self),
        )
        may = grant(
            self._logical("flow"),
            scope,
            role=BLOB_CONTRIBUTOR,
            at=store.account_id,
            principal=writer.principal_id,
            why="writes the flow log of one network",
            opts=child(self),
        )
        search = None
        if args.workspace_id is not None:
            search = network.TrafficAnalyticsPropertiesArgs(
                network_watcher_flow_analytics_configuration=network.TrafficAnalyticsConfigurationPropertiesArgs(
                    enabled=True, workspace_resource_id=args.workspace_id, traffic_analytics_interval=10
                )
            )
        network.FlowLog(
            self._logical("flow"),
            flow_log_name=scope.unique_name("flow", 80),
            network_watcher_name=f"NetworkWatcher_{scope.region}",
            resource_group_name=WATCHER_GROUP,
            location=scope.region,
            target_resource_id=self._network.id,
            storage_id=store.account_id,
            enabled=True,
            format=network.FlowLogFormatParametersArgs(type="JSON", version=2),
            retention_policy=network.RetentionPolicyParametersArgs(
                enabled=True, days=min(args.plan.flow_log_retention_days, 365)
            ),
            identity=network.ManagedServiceIdentityArgs(
                type=network.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[writer.id]
            ),
            flow_analytics_configuration=search,
            tags=scope.tagged(self._logical("flow")),
            opts=child(self, depends_on=[may]),
        )

    def _bastion(self, subnet: network.Subnet) -> None:
        scope = self._args.scope
        network.BastionHost(
            self._logical("bastion"),
            bastion_host_name=scope.unique_name("bastion", 80),
            resource_group_name=scope.group,
            location=scope.region,
            sku=network.SkuArgs(name="Standard"),
            # The command line of Azure opens a tunnel to port 22; nothing else is offered.
            enable_tunneling=True,
            enable_shareable_link=False,
            disable_copy_paste=False,
            ip_configurations=[
                network.BastionHostIPConfigurationArgs(
                    name="bastion",
                    subnet=network.SubResourceArgs(id=subnet.id),
                    public_ip_address=network.SubResourceArgs(id=self._address("bastion", "bastion").id),
                    private_ip_allocation_method="Dynamic",
                )
            ],
            tags=scope.tagged(self._logical("bastion")),
            opts=child(self),
        )
