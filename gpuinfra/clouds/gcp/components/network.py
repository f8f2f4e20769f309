"""The networks of a site: the main network for management and internet access, and a data network for each additional node interface.

Each gVNIC of an instance requires its own network (https://cloud.google.com/compute/docs/instances/create-instance-multiple-nics).
Data networks have no routes to the internet. All clusters of a site share
them, because the network quota of a project is small. Each RDMA network belongs to one zone and one cluster (`RdmaNetwork`).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra.base import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.audit import FLOW_LOGS
from gpuinfra.clouds.gcp.components.firewall import PRIVATE_APIS, FirewallRules, FirewallRulesArgs
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.instances import PRIVATE_DOMAINS, retains_network
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import ExtraNetwork, NetworkPlan, OwnNetwork, Plan, Subnet

PRIVATE_ADDRESSES = tuple(str(one) for one in ipaddress.ip_network(PRIVATE_APIS))
NAT_PORTS_MIN, NAT_PORTS_MAX = 64, 8192
"""Minimum and maximum Cloud NAT ports per node. Ports are allocated dynamically, so that two addresses can serve many nodes."""


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """Arguments for the networks of a site."""

    scope: Scope
    plan: Plan
    """Plan that contains the networks and the file systems. If it retains a file system, `destroy` retains the main network, its reserved
    addresses and its peering."""


class Network(pulumi.ComponentResource):
    """Networks, subnets, firewall rules, Cloud NAT or private API access, the peering for file systems, and flow logs."""

    network_id: pulumi.Output[str]
    """The main network, `projects/P/global/networks/N`. Resolves after its peering exists."""
    subnet_ids: dict[str, pulumi.Output[str]]
    """Subnets, keyed by name in the plan, `projects/P/regions/R/subnetworks/S`. Each resolves after firewall rules and egress exist."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:Network", name, None, args.scope.options(opts))
        self._name, self._args, self._plan = name, args, args.plan.site_network
        self._holds_data, plan = retains_network(args.plan), self._plan
        project = pulumi.Output.from_input(args.scope.project)
        self.subnet_ids = {one.name: self._existing(one.existing_id) for one in plan.subnets if one.existing_id}
        for extra in plan.extra:
            self._data_network(extra)
        existing = plan.existing_id
        self.network_id = project.apply(lambda p: names.network_path(existing, p)) if existing else self._main()
        self.register_outputs({"network_id": self.network_id, "subnet_ids": self.subnet_ids})

    def _existing(self, subnet: str) -> pulumi.Output[str]:
        scope = self._args.scope
        return pulumi.Output.from_input(scope.project).apply(
            lambda project: names.subnet_path(subnet, project, scope.region)
        )

    def _main(self) -> pulumi.Output[str]:
        plan = self._plan
        network = self._network(
            rows.MAIN_NETWORK.logical(self._name),
            plan.mtu,
            routed=True,
            opts=child(self, rows.MAIN_NETWORK, data=self._holds_data),
        )
        planned = [subnet for subnet in plan.subnets if subnet.network == "main"]
        subnets = {subnet.name: self._subnet(network, subnet, logged=True) for subnet in planned}
        firewall = FirewallRules(
            naming.logical(self._name, "firewall"),
            FirewallRulesArgs(
                scope=self._args.scope,
                network_id=network.id,
                internal_ranges=tuple(subnet.cidr for subnet in planned),
                services_range=plan.service_range,
                file_systems=frozenset(one.kind for one in self._args.plan.file_systems),
                egress=plan.egress,
                ssh_from=plan.ssh_from,
                ingress=plan.ingress,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        logical = rows.DNS_POLICY.logical(self._name)
        gcp.dns.Policy(
            logical,
            name=self._args.scope.physical_name(logical),
            # Log DNS queries of the nodes (CIS 2.12).
            enable_logging=True,
            enable_inbound_forwarding=False,
            networks=[gcp.dns.PolicyNetworkArgs(network_url=network.self_link)],
            opts=child(self, rows.DNS_POLICY),
        )
        egress = self._nat(network, [*subnets.values()]) if plan.egress == "nat" else []
        if plan.egress == "endpoints":
            egress = self._private_apis(network)
        self._flow_logs([*subnets.values()])
        for name, subnet in subnets.items():
            self.subnet_ids[name] = ready_after(subnet.id, [*firewall.rules, *egress])
        return ready_after(network.id, [self._peering(network, plan.service_range)] if plan.service_range else [])

    def _data_network(self, extra: ExtraNetwork) -> None:
        """Create a network for one interface of each node. Flows are not logged, because the nodes exchange terabits per second,
        and all traffic is between nodes."""
        network = self._network(
            rows.DATA_NETWORK.logical(self._name, network=extra.name),
            extra.mtu,
            routed=False,
            opts=child(self, rows.DATA_NETWORK),
        )
        for subnet in self._plan.subnets:
            if subnet.network != extra.name or subnet.existing_id:
                continue
            created = self._subnet(network, subnet, logged=False)
            firewall = FirewallRules(
                naming.logical(self._name, extra.name, "firewall"),
                FirewallRulesArgs(scope=self._args.scope, network_id=network.id, internal_ranges=(subnet.cidr,)),
                pulumi.ResourceOptions(parent=self),
            )
            self.subnet_ids[subnet.name] = ready_after(created.id, firewall.rules)

    def _network(
        self, logical: str, mtu: int | None, *, routed: bool, opts: pulumi.ResourceOptions
    ) -> gcp.compute.Network:
        return gcp.compute.Network(
            logical,
            name=self._args.scope.physical_name(logical),
            auto_create_subnetworks=False,
            delete_default_routes_on_create=not routed,
            routing_mode="REGIONAL",
            mtu=mtu,
            opts=opts,
        )

    def _subnet(self, network: gcp.compute.Network, subnet: Subnet, *, logged: bool) -> gcp.compute.Subnetwork:
        scope, logical = self._args.scope, rows.SUBNET.logical(self._name, subnet=subnet.name)
        return gcp.compute.Subnetwork(
            logical,
            name=scope.physical_name(logical),
            region=scope.region,
            network=network.id,
            ip_cidr_range=subnet.cidr,
            private_ip_google_access=True,
            stack_type="IPV4_ONLY",
            log_config=_log_config(self._plan) if logged else None,
            opts=child(self, rows.SUBNET),
        )

    def _nat(self, network: gcp.compute.Network, subnets: list[gcp.compute.Subnetwork]) -> list[pulumi.Resource]:
        scope = self._args.scope
        router = gcp.compute.Router(
            rows.ROUTER.logical(self._name),
            name=scope.physical_name(rows.ROUTER.logical(self._name)),
            region=scope.region,
            network=network.id,
            opts=child(self, rows.ROUTER),
        )
        nat = gcp.compute.RouterNat(
            rows.NAT.logical(self._name),
            name=scope.physical_name(rows.NAT.logical(self._name)),
            region=scope.region,
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
            subnetworks=[
                gcp.compute.RouterNatSubnetworkArgs(name=subnet.id, source_ip_ranges_to_nats=["PRIMARY_IP_RANGE"])
                for subnet in subnets
            ],
            enable_dynamic_port_allocation=True,
            enable_endpoint_independent_mapping=False,
            min_ports_per_vm=NAT_PORTS_MIN,
            max_ports_per_vm=NAT_PORTS_MAX,
            log_config=gcp.compute.RouterNatLogConfigArgs(enable=True, filter="ERRORS_ONLY"),
            opts=child(self, rows.NAT),
        )
        return [nat]

    def _private_apis(self, network: gcp.compute.Network) -> list[pulumi.Resource]:
        """Create DNS zones that resolve Google's APIs and registries to private addresses, the only destinations for a network without internet access."""
        records: list[pulumi.Resource] = []
        for domain in PRIVATE_DOMAINS:
            label = domain.replace(".", "-")
            logical = rows.DNS_ZONE.logical(self._name, domain=label)
            zone = gcp.dns.ManagedZone(
                logical,
                name=self._args.scope.physical_name(logical),
                dns_name=f"{domain}.",
                description=f"{domain} in the network of {self._args.scope.cluster}",
                visibility="private",
                private_visibility_config=gcp.dns.ManagedZonePrivateVisibilityConfigArgs(
                    networks=[gcp.dns.ManagedZonePrivateVisibilityConfigNetworkArgs(network_url=network.self_link)]
                ),
                opts=child(self, rows.DNS_ZONE),
            )
            for record, name, type_, data in (
                ("apex", f"{domain}.", "A", list(PRIVATE_ADDRESSES)),
                ("wildcard", f"*.{domain}.", "CNAME", [f"{domain}."]),
            ):
                records.append(
                    gcp.dns.RecordSet(
                        rows.DNS_RECORD.logical(self._name, domain=label, record=record),
                        managed_zone=zone.name,
                        name=name,
                        type=type_,
                        ttl=300,
                        rrdatas=data,
                        opts=child(self, rows.DNS_RECORD),
                    )
                )
        return records

    def _flow_logs(self, subnets: list[gcp.compute.Subnetwork]) -> None:
        """Route the flow logs of the main network to a separate log bucket with the retention period in the plan."""
        scope = self._args.scope
        bucket = gcp.logging.ProjectBucketConfig(
            rows.FLOW_LOG_BUCKET.logical(self._name),
            # The provider requires the project here.
            project=scope.project,
            location=scope.region,
            bucket_id=scope.unique_name("flow"),
            description=f"Flow logs of {scope.cluster}",
            retention_days=self._plan.flow_log_retention_days,
            opts=child(self, rows.FLOW_LOG_BUCKET),
        )
        quoted = pulumi.Output.all(*(subnet.name for subnet in subnets)).apply(
            lambda known: " OR ".join(f'"{one}"' for one in known)
        )
        gcp.logging.ProjectSink(
            rows.FLOW_LOG_SINK.logical(self._name),
            name=scope.unique_name("flow"),
            destination=pulumi.Output.concat("logging.googleapis.com/", bucket.id),
            filter=pulumi.Output.concat(FLOW_LOGS, " AND resource.labels.subnetwork_name=(", quoted, ")"),
            unique_writer_identity=True,
            opts=child(self, rows.FLOW_LOG_SINK),
        )

    def _peering(self, network: gcp.compute.Network, services_range: str) -> pulumi.Resource:
        """Reserve the addresses for Google's file systems and create the peering through which nodes reach them
        (GoogleCloudPlatform/cluster-toolkit: modules/network/private-service-access)."""
        data, logical = self._holds_data, rows.SERVICES_RANGE.logical(self._name)
        addresses = ipaddress.ip_network(services_range)
        reserved = gcp.compute.GlobalAddress(
            logical,
            name=self._args.scope.physical_name(logical),
            purpose="VPC_PEERING",
            address_type="INTERNAL",
            address=str(addresses.network_address),
            prefix_length=addresses.prefixlen,
            network=network.id,
            opts=child(self, rows.SERVICES_RANGE, data=data),
        )
        return gcp.servicenetworking.Connection(
            rows.SERVICES_PEERING.logical(self._name),
            network=network.id,
            service="servicenetworking.googleapis.com",
            reserved_peering_ranges=[reserved.name],
            # The service blocks deletion of its side of the peering for days after the last file system is deleted (hashicorp/terraform-provider-google#19908).
            deletion_policy="REMOVE_PEERING",
            opts=child(self, rows.SERVICES_PEERING, data=data),
        )


@dataclass(frozen=True, kw_only=True)
class RdmaNetworkArgs:
    """One RDMA network."""

    scope: Scope
    plan: OwnNetwork


class RdmaNetwork(pulumi.ComponentResource):
    """A network with the RDMA profile of a zone, and a subnet per rail. It does not support firewall rules, routers or flow logs (https://docs.cloud.google.com/vpc/docs/rdma-network-profiles)."""

    subnet_ids: dict[str, pulumi.Output[str]]
    """Subnets, keyed by name in the plan."""

    def __init__(self, name: str, args: RdmaNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:RdmaNetwork", name, None, args.scope.options(opts))
        scope, plan = args.scope, args.plan
        network = gcp.compute.Network(
            rows.RDMA_NETWORK.logical(name),
            name=scope.physical_name(name),
            auto_create_subnetworks=False,
            mtu=plan.mtu,
            network_profile=pulumi.Output.concat("projects/", scope.project, f"/global/networkProfiles/{plan.profile}"),
            opts=child(self, rows.RDMA_NETWORK),
        )
        self.subnet_ids = {}
        for index, subnet in enumerate(plan.subnets):
            logical = rows.RDMA_SUBNET.logical(name, index=index)
            self.subnet_ids[subnet.name] = gcp.compute.Subnetwork(
                logical,
                name=scope.physical_name(logical),
                region=scope.region,
                network=network.id,
                ip_cidr_range=subnet.cidr,
                opts=child(self, rows.RDMA_SUBNET),
            ).id
        self.register_outputs({"subnet_ids": self.subnet_ids})


def _log_config(plan: NetworkPlan) -> gcp.compute.SubnetworkLogConfigArgs:
    intervals = {
        5: "INTERVAL_5_SEC",
        30: "INTERVAL_30_SEC",
        60: "INTERVAL_1_MIN",
        300: "INTERVAL_5_MIN",
        600: "INTERVAL_10_MIN",
    }
    return gcp.compute.SubnetworkLogConfigArgs(
        aggregation_interval=intervals[plan.flow_log_interval_s], flow_sampling=1.0, metadata="INCLUDE_ALL_METADATA"
    )
