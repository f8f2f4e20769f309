"""The network of a site: private subnets, one NAT gateway, no ingress, and flow logs.

Subnets have no default outbound access: depending on the plan, egress uses a NAT gateway or private endpoints. Subnets span zones.
For security groups, see `security.py`. For private endpoints, see `endpoints.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity, network

from gpuinfra.base import naming
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.grants import grant
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.components.stores import EncryptionKey, PrivateStore, PrivateStoreArgs
from gpuinfra.clouds.azure.instances import BASTION_SUBNET, NETAPP, retains_nat_gateway, uses_nat_gateway
from gpuinfra.plan.model import Plan, Subnet
from gpuinfra.plan.planned import retained_subnets


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """Arguments for a network."""

    scope: Scope
    plan: Plan
    """Plan that contains the network and the file systems. `destroy` retains the network, the subnets that hold retained file systems,
    and the NAT gateway if one of them uses it."""
    group_ids: Mapping[str, pulumi.Input[str]]
    """Security groups by subnet role (`SecurityGroups.group_ids`)."""
    encryption_key: EncryptionKey | None = None
    """Key that encrypts the flow log. If unset, Azure uses a Microsoft-managed key."""
    workspace_id: pulumi.Input[str] | None = None
    """Log Analytics workspace for the flow log. If unset, the flow log is written only to the storage account."""


class Network(pulumi.ComponentResource):
    """A virtual network with private subnets, one NAT gateway, and flow logs."""

    network_id: pulumi.Output[str]
    """ID of the network."""
    cidr: str
    """Address range of the network."""
    subnet_ids: dict[str, pulumi.Output[str]]
    """Subnet IDs, keyed by the subnet's name in the plan."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Network", name, None, args.scope.options(opts))
        self._name, self._args, self._plan = name, args, args.plan.site_network
        self._data_subnets = retained_subnets(args.plan)
        self.cidr = self._plan.cidr
        self._network = network.VirtualNetwork(
            rows.NETWORK.logical(name),
            virtual_network_name=args.scope.unique_name("network"),
            resource_group_name=args.scope.group,
            address_space=network.AddressSpaceArgs(address_prefixes=[self._plan.cidr]),
            # Subnets are separate resources, because an inline list of subnets in the network would remove them (pulumi/pulumi-azure-native#611).
            opts=child(self, rows.NETWORK, data=bool(self._data_subnets), ignore_changes=["subnets"]),
        )
        has_nat = any(uses_nat_gateway(subnet, self._plan) for subnet in self._plan.subnets)
        subnets = self._subnets(self._nat_gateway() if has_nat else None)
        self._flow_log()
        if BASTION_SUBNET in subnets:
            self._bastion(subnets[BASTION_SUBNET])
        self.network_id = self._network.id
        self.subnet_ids = {subnet: created.id for subnet, created in subnets.items()}
        self.register_outputs({"network_id": self.network_id, "subnet_ids": self.subnet_ids})

    def _nat_gateway(self) -> network.NatGateway:
        # Without a zone: Azure cannot change the zone of a gateway, and the nodes change their zone in a search for capacity.
        scope = self._args.scope
        data = retains_nat_gateway(self._plan, self._data_subnets)
        address = network.PublicIPAddress(
            rows.NAT_ADDRESS.logical(self._name),
            public_ip_address_name=scope.unique_name("nat-address", 80),
            resource_group_name=scope.group,
            sku=network.PublicIPAddressSkuArgs(name="Standard"),
            public_ip_allocation_method="Static",
            opts=child(self, rows.NAT_ADDRESS, data=data),
        )
        return network.NatGateway(
            rows.NAT_GATEWAY.logical(self._name),
            nat_gateway_name=scope.unique_name("nat-gateway", 80),
            resource_group_name=scope.group,
            sku=network.NatGatewaySkuArgs(name="Standard"),
            idle_timeout_in_minutes=10,
            public_ip_addresses=[network.SubResourceArgs(id=address.id)],
            opts=child(self, rows.NAT_GATEWAY, data=data),
        )

    def _subnets(self, gateway: network.NatGateway | None) -> dict[str, network.Subnet]:
        """Create subnets sequentially, because Azure accepts only one change to a network at a time."""
        created: dict[str, network.Subnet] = {}
        for subnet in self._plan.subnets:
            created[subnet.name] = self._subnet(subnet, gateway, list(created.values())[-1:])
        return created

    def _subnet(
        self, subnet: Subnet, gateway: network.NatGateway | None, previous: list[network.Subnet]
    ) -> network.Subnet:
        args = self._args
        nat = gateway if uses_nat_gateway(subnet, self._plan) else None
        return network.Subnet(
            rows.SUBNET.logical(self._name, part=subnet.name),
            subnet_name=subnet.name,
            virtual_network_name=self._network.name,
            resource_group_name=args.scope.group,
            address_prefix=subnet.cidr,
            # Defaults to true in network API 2024-05-01 and cannot be changed later (docstring of `network.Subnet`, pulumi-azure-native 3.29.0).
            default_outbound_access=False,
            nat_gateway=network.SubResourceArgs(id=nat.id) if nat else None,
            network_security_group=network.NetworkSecurityGroupArgs(id=args.group_ids[subnet.role]),
            private_endpoint_network_policies="NetworkSecurityGroupEnabled",
            delegations=[network.DelegationArgs(name=NETAPP, service_name="Microsoft.Netapp/volumes")]
            if subnet.role == NETAPP
            else None,
            opts=child(self, rows.SUBNET, data=subnet.name in self._data_subnets, depends_on=previous),
        )

    def _flow_log(self) -> None:
        args, scope = self._args, self._args.scope
        store = PrivateStore(
            naming.logical(self._name, "flow"),
            PrivateStoreArgs(
                scope=scope,
                purpose="flow",
                containers=(),
                encryption_key=args.encryption_key,
                services=True,
                expire_days=self._plan.flow_log_retention_days,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        writer = managedidentity.UserAssignedIdentity(
            rows.FLOW_IDENTITY.logical(self._name),
            resource_name_=scope.unique_name("flow", 128),
            resource_group_name=scope.group,
            opts=child(self, rows.FLOW_IDENTITY),
        )
        role = grant(
            rows.FLOW_GRANT.logical(self._name),
            scope,
            role=rows.BLOB_CONTRIBUTOR,
            at=store.account_id,
            principal=writer.principal_id,
            why="writes the flow log of one network",
            opts=child(self, rows.FLOW_GRANT),
        )
        search = None
        if args.workspace_id is not None:
            search = network.TrafficAnalyticsPropertiesArgs(
                network_watcher_flow_analytics_configuration=network.TrafficAnalyticsConfigurationPropertiesArgs(
                    enabled=True, workspace_resource_id=args.workspace_id, traffic_analytics_interval=10
                )
            )
        network.FlowLog(
            rows.FLOW_LOG.logical(self._name),
            flow_log_name=scope.unique_name("flow", 80),
            network_watcher_name=f"NetworkWatcher_{scope.region}",
            resource_group_name=rows.WATCHER_GROUP,
            target_resource_id=self._network.id,
            storage_id=store.account_id,
            enabled=True,
            format=network.FlowLogFormatParametersArgs(type="JSON", version=2),
            retention_policy=network.RetentionPolicyParametersArgs(
                enabled=True, days=min(self._plan.flow_log_retention_days, 365)
            ),
            identity=network.ManagedServiceIdentityArgs(
                type=network.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[writer.id]
            ),
            flow_analytics_configuration=search,
            opts=child(self, rows.FLOW_LOG, depends_on=[role]),
        )

    def _bastion(self, subnet: network.Subnet) -> None:
        scope = self._args.scope
        address = network.PublicIPAddress(
            rows.BASTION_ADDRESS.logical(self._name),
            public_ip_address_name=scope.unique_name("bastion-address", 80),
            resource_group_name=scope.group,
            sku=network.PublicIPAddressSkuArgs(name="Standard"),
            public_ip_allocation_method="Static",
            opts=child(self, rows.BASTION_ADDRESS),
        )
        network.BastionHost(
            rows.BASTION.logical(self._name),
            bastion_host_name=scope.unique_name("bastion", 80),
            resource_group_name=scope.group,
            sku=network.SkuArgs(name="Standard"),
            # `az network bastion tunnel` requires tunneling. Shareable links are not needed.
            enable_tunneling=True,
            enable_shareable_link=False,
            disable_copy_paste=False,
            ip_configurations=[
                network.BastionHostIPConfigurationArgs(
                    name="bastion",
                    subnet=network.SubResourceArgs(id=subnet.id),
                    public_ip_address=network.SubResourceArgs(id=address.id),
                    private_ip_allocation_method="Dynamic",
                )
            ],
            opts=child(self, rows.BASTION),
        )
