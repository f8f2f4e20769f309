"""The networks of a site: one for management and the way out, one for each further interface that may not share it, nothing in from outside.

A machine's gVNICs are each in a network of their own (gcp.md 0.1, 1.2); those networks have no route out and no neighbours, and every cluster of the
site uses the same ones, because a project has few. RDMA networks belong to one zone and are the cluster's (`RdmaNetwork`).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.components.audit import FLOW_LOGS
from gpuinfra.clouds.gcp.components.firewall import PRIVATE_APIS, Walls, WallsArgs
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.resources import PRIVATE_DOMAINS
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.clouds.resource_group import Part
from gpuinfra.plan.model import ExtraNetwork, NetworkPlan, OwnNetwork, Subnet

PRIVATE_ADDRESSES = tuple(str(one) for one in ipaddress.ip_network(PRIVATE_APIS))
NAT_PORTS_MIN, NAT_PORTS_MAX = 64, 8192
"""Ports of one node at the gateway: it starts with few and gets more while it installs, so that two addresses serve many nodes."""


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What the networks are to be."""

    scope: Scope
    plan: NetworkPlan
    file_systems: frozenset[str] = frozenset()
    """Kinds of file systems behind the peering: `lustre`, `home`."""
    keep: bool = False
    """True where a kept file system lies behind the main network: it, its addresses and its peering stay with it."""


class Network(pulumi.ComponentResource):
    """Networks, subnets, walls, the one way out, addresses of Google's file systems, and flow logs."""

    network_id: pulumi.Output[str]
    """`projects/P/global/networks/N` of the main network, once file systems can be reached from it."""
    subnet_ids: dict[str, pulumi.Output[str]]
    """Subnets by the plan's names, as `projects/P/regions/R/subnetworks/S`; each is ready once its walls and its way out are there."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:Network", name, None, opts)
        self._name, self._args = name, args
        plan = args.plan
        project = pulumi.Output.from_input(args.scope.project)
        self.subnet_ids = {one.name: self._given(one.existing_id) for one in plan.subnets if one.existing_id}
        for extra in plan.extra:
            self._fabric(extra)
        given = plan.existing_id
        self.network_id = project.apply(lambda p: names.network_path(given, p)) if given else self._main()
        self.register_outputs({"network_id": self.network_id, "subnet_ids": self.subnet_ids})

    def _logical(self, *parts: str | int) -> str:
        return naming.logical(self._name, *parts)

    def _given(self, subnet: str) -> pulumi.Output[str]:
        scope = self._args.scope
        return pulumi.Output.from_input(scope.project).apply(
            lambda project: names.subnet_path(subnet, project, scope.region)
        )

    def _network(self, what: str, mtu: int | None, *, routed: bool, keep: bool = False) -> gcp.compute.Network:
        scope, logical = self._args.scope, self._logical(what)
        return gcp.compute.Network(
            logical,
            name=scope.named(logical),
            project=scope.project,
            auto_create_subnetworks=False,
            delete_default_routes_on_create=not routed,
            routing_mode="REGIONAL",
            mtu=mtu,
            opts=child(self, keep=keep),
        )

    def _subnet(self, network: gcp.compute.Network, subnet: Subnet, *, logged: bool) -> gcp.compute.Subnetwork:
        scope, logical = self._args.scope, self._logical(subnet.name)
        return gcp.compute.Subnetwork(
            logical,
            name=scope.named(logical),
            project=scope.project,
            region=scope.region,
            network=network.id,
            ip_cidr_range=subnet.cidr,
            private_ip_google_access=True,
            stack_type="IPV4_ONLY",
            log_config=_flows(self._args.plan) if logged else None,
            opts=child(self),
        )

    def _fabric(self, extra: ExtraNetwork) -> None:
        """A network of one interface of each node. Its flows are not logged: they are terabits, and all of them are between nodes."""
        network = self._network(extra.name, extra.mtu, routed=False)
        for subnet in self._args.plan.subnets:
            if subnet.network != extra.name or subnet.existing_id:
                continue
            made = self._subnet(network, subnet, logged=False)
            walls = Walls(
                self._logical(extra.name, "walls"),
                WallsArgs(scope=self._args.scope, network_id=network.id, inside=(subnet.cidr,)),
                pulumi.ResourceOptions(parent=self),
            )
            self.subnet_ids[subnet.name] = ready_after(made.id, [walls.last])

    def _main(self) -> pulumi.Output[str]:
        plan, keep = self._args.plan, self._args.keep
        network = self._network("main", plan.mtu, routed=True, keep=keep)
        subnets = [subnet for subnet in plan.subnets if subnet.network == "main"]
        made = {subnet.name: self._subnet(network, subnet, logged=True) for subnet in subnets}
        way_out = self._way_out(network, list(made.values())) if plan.egress == "nat" else []
        walls = Walls(
            self._logical("walls"),
            WallsArgs(
                scope=self._args.scope,
                network_id=network.id,
                inside=tuple(subnet.cidr for subnet in subnets),
                services=plan.service_range,
                file_systems=self._args.file_systems,
                out=plan.egress,
                ssh_from=plan.ssh_from,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self._names(network)
        if plan.egress == "endpoints":
            way_out = self._private_apis(network)
        self._flow_logs(list(made.values()))
        for name, subnet in made.items():
            self.subnet_ids[name] = ready_after(subnet.id, [walls.last, *way_out])
        return ready_after(network.id, [self._peering(network, plan.service_range)] if plan.service_range else [])

    def _way_out(self, network: gcp.compute.Network, subnets: list[gcp.compute.Subnetwork]) -> list[pulumi.Resource]:
        scope = self._args.scope
        router = gcp.compute.Router(
            self._logical("router"),
            name=scope.named(self._logical("router")),
            project=scope.project,
            region=scope.region,
            network=network.id,
            opts=child(self),
        )
        nat = gcp.compute.RouterNat(
            self._logical("nat"),
            name=scope.named(self._logical("nat")),
            project=scope.project,
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
            opts=child(self),
        )
        return [nat]

    def _names(self, network: gcp.compute.Network) -> None:
        """What nodes ask the name server is logged (CIS 2.12)."""
        scope, logical = self._args.scope, self._logical("names")
        gcp.dns.Policy(
            logical,
            name=scope.named(logical),
            project=scope.project,
            enable_logging=True,
            enable_inbound_forwarding=False,
            networks=[gcp.dns.PolicyNetworkArgs(network_url=network.self_link)],
            opts=child(self),
        )

    def _private_apis(self, network: gcp.compute.Network) -> list[pulumi.Resource]:
        """Google's own APIs and registries under addresses that lead nowhere else: a network without a way out needs these, and only these."""
        made: list[pulumi.Resource] = []
        for domain in PRIVATE_DOMAINS:
            logical = self._logical("apis", domain.replace(".", "-"))
            zone = gcp.dns.ManagedZone(
                logical,
                name=self._args.scope.named(logical),
                project=self._args.scope.project,
                dns_name=f"{domain}.",
                description=f"{domain} inside {self._args.scope.cluster}",
                visibility="private",
                private_visibility_config=gcp.dns.ManagedZonePrivateVisibilityConfigArgs(
                    networks=[gcp.dns.ManagedZonePrivateVisibilityConfigNetworkArgs(network_url=network.self_link)]
                ),
                labels=self._args.scope.labelled(),
                opts=child(self),
            )
            for word, name, type_, data in (
                ("here", f"{domain}.", "A", list(PRIVATE_ADDRESSES)),
                ("below", f"*.{domain}.", "CNAME", [f"{domain}."]),
            ):
                made.append(
                    gcp.dns.RecordSet(
                        naming.logical(logical, word),
                        project=self._args.scope.project,
                        managed_zone=zone.name,
                        name=name,
                        type=type_,
                        ttl=300,
                        rrdatas=data,
                        opts=child(self),
                    )
                )
        return made

    def _flow_logs(self, subnets: list[gcp.compute.Subnetwork]) -> None:
        """Flows of the main network go to a bucket of their own, for the days that the plan says."""
        scope, logical = self._args.scope, self._logical("flow")
        bucket = gcp.logging.ProjectBucketConfig(
            logical,
            project=scope.project,
            location=scope.region,
            bucket_id=scope.unique_name("flow"),
            description=f"Flows of {scope.cluster}",
            retention_days=self._args.plan.flow_log_retention_days,
            opts=child(self, keep=True),
        )
        these = pulumi.Output.all(*(subnet.name for subnet in subnets)).apply(
            lambda known: " OR ".join(f'"{one}"' for one in known)
        )
        gcp.logging.ProjectSink(
            logical,
            name=scope.unique_name("flow"),
            project=scope.project,
            destination=pulumi.Output.concat("logging.googleapis.com/", bucket.id),
            filter=pulumi.Output.concat(FLOW_LOGS, " AND resource.labels.subnetwork_name=(", these, ")"),
            unique_writer_identity=True,
            opts=child(self),
        )

    def _peering(self, network: gcp.compute.Network, range_: str) -> pulumi.Resource:
        """Addresses that Google's file systems take, and the peering over which they are reached (gcp.md 5.1)."""
        scope, logical, keep = self._args.scope, self._logical("services"), self._args.keep
        addresses = ipaddress.ip_network(range_)
        reserved = gcp.compute.GlobalAddress(
            logical,
            name=scope.named(logical),
            project=scope.project,
            purpose="VPC_PEERING",
            address_type="INTERNAL",
            address=str(addresses.network_address),
            prefix_length=addresses.prefixlen,
            network=network.id,
            labels=scope.labelled(),
            opts=child(self, keep=keep),
        )
        return gcp.servicenetworking.Connection(
            logical,
            network=network.id,
            service="servicenetworking.googleapis.com",
            reserved_peering_ranges=[reserved.name],
            # The service holds its end for days after its last file system is gone (gcp.md 12, number 5).
            deletion_policy="REMOVE_PEERING",
            opts=child(self, keep=keep),
        )


@dataclass(frozen=True, kw_only=True)
class RdmaNetworkArgs:
    """What the RDMA network is to be."""

    scope: Scope
    plan: OwnNetwork


class RdmaNetwork(Part):
    """One network with the RDMA profile of a zone, and a subnet for each rail. It takes no firewall rule, no router and no log (gcp.md 2.3)."""

    subnet_ids: dict[str, pulumi.Output[str]]
    """Subnets by the plan's names."""

    def __init__(self, name: str, args: RdmaNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        scope, plan = args.scope, args.plan
        network = gcp.compute.Network(
            name,
            name=scope.named(name),
            project=scope.project,
            auto_create_subnetworks=False,
            mtu=plan.mtu,
            network_profile=pulumi.Output.concat("projects/", scope.project, f"/global/networkProfiles/{plan.profile}"),
            opts=child(self),
        )
        self.subnet_ids = {}
        for index, subnet in enumerate(plan.subnets):
            logical = naming.logical(name, index)
            made = gcp.compute.Subnetwork(
                logical,
                name=scope.named(logical),
                project=scope.project,
                region=scope.region,
                network=network.id,
                ip_cidr_range=subnet.cidr,
                opts=child(self),
            )
            self.subnet_ids[subnet.name] = made.id


def _flows(plan: NetworkPlan) -> gcp.compute.SubnetworkLogConfigArgs:
    words = {
        5: "INTERVAL_5_SEC",
        30: "INTERVAL_30_SEC",
        60: "INTERVAL_1_MIN",
        300: "INTERVAL_5_MIN",
        600: "INTERVAL_10_MIN",
    }
    return gcp.compute.SubnetworkLogConfigArgs(
        aggregation_interval=words[plan.flow_log_interval_s], flow_sampling=1.0, metadata="INCLUDE_ALL_METADATA"
    )
