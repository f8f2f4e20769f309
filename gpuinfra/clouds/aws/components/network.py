"""The network of a site: private subnets for nodes, one way out, nothing in, and a record of what flows.

Subnets that hold nodes have no public addresses and no route from outside; what leaves goes through a NAT gateway or through endpoints, as the plan says.
The zone of a subnet is given by its id, because zone names differ between accounts.
Who may talk to whom inside is the business of `security.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra import naming
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.ready_after import after
from gpuinfra.plan.model import NetworkPlan


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What the network is to be."""

    scope: Scope
    plan: NetworkPlan
    log_key_arn: pulumi.Input[str] | None = None
    """Key of the flow log; left out, CloudWatch's own key encrypts it."""
    keep_subnets: frozenset[str] = frozenset()
    """Subnets that a destroy leaves, and the VPC with them, because something that is kept lies in them."""


class Network(pulumi.ComponentResource):
    """A VPC with private subnets, one way out, endpoints and flow logs."""

    vpc_id: pulumi.Output[str]
    """Id of the VPC."""
    cidr: str
    """Addresses of the VPC."""
    subnet_ids: dict[str, pulumi.Output[str]]
    """Subnet ids by the plan's names; each is ready once it has a way out."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Network", name, None, opts)
        self._args, self._name = args, name
        self._way_out: dict[str, list[pulumi.Resource]] = {subnet.name: [] for subnet in args.plan.subnets}
        self.cidr = args.plan.cidr
        vpc = self._vpc()
        self.vpc_id = vpc.id
        subnets = self._subnets(vpc)
        tables = self._routes(vpc, subnets)
        self._endpoints(vpc, subnets, tables)
        self._flow_log(vpc)
        self.subnet_ids = {subnet: after(subnet_id, self._way_out[subnet]) for subnet, subnet_id in subnets.items()}
        self.register_outputs({"vpc_id": self.vpc_id, "subnet_ids": self.subnet_ids})

    def _logical(self, *parts: str | int) -> str:
        return naming.logical(self._name, *parts)

    def _vpc(self) -> aws.ec2.Vpc:
        scope = self._args.scope
        vpc = aws.ec2.Vpc(
            self._logical("vpc"),
            cidr_block=self._args.plan.cidr,
            # Private names of endpoints and of the file system are answered by the VPC's own resolver.
            enable_dns_support=True,
            enable_dns_hostnames=True,
            region=scope.region,
            tags=scope.tagged(self._name),
            opts=child(self, keep=bool(self._args.keep_subnets)),
        )
        # Adopted and emptied, so that whatever forgets to name a group reaches nothing (CIS 6.5).
        aws.ec2.DefaultSecurityGroup(
            self._logical("default-group"),
            vpc_id=vpc.id,
            ingress=[],
            egress=[],
            region=scope.region,
            tags=scope.tagged(self._logical("closed")),
            opts=child(self),
        )
        return vpc

    def _subnets(self, vpc: aws.ec2.Vpc) -> dict[str, pulumi.Output[str]]:
        scope = self._args.scope
        return {
            subnet.name: aws.ec2.Subnet(
                self._logical(subnet.name),
                vpc_id=vpc.id,
                cidr_block=subnet.cidr,
                availability_zone_id=subnet.zone,
                # Also in the NAT gateway's subnet: its address is an elastic one, and nothing else belongs there.
                map_public_ip_on_launch=False,
                region=scope.region,
                tags=scope.tagged(self._logical(subnet.name), gpuinfra_role=subnet.role),
                opts=child(self, keep=subnet.name in self._args.keep_subnets),
            ).id
            for subnet in self._args.plan.subnets
        }

    def _routes(self, vpc: aws.ec2.Vpc, subnets: dict[str, pulumi.Output[str]]) -> list[pulumi.Output[str]]:
        """One table for the private subnets of each zone; the way out of a zone is in the zone."""
        plan = self._args.plan
        gateways = self._nat(vpc, subnets) if plan.egress == "nat" else {}
        private = [subnet for subnet in plan.subnets if subnet.role != "nat"]
        tables: list[pulumi.Output[str]] = []
        for index, zone in enumerate(dict.fromkeys(subnet.zone for subnet in private)):
            table = self._table(vpc, "private-routes", index)
            tables.append(table.id)
            routes: list[pulumi.Resource] = []
            if gateways:
                route = aws.ec2.Route(
                    self._logical("private-way-out", index),
                    route_table_id=table.id,
                    destination_cidr_block="0.0.0.0/0",
                    nat_gateway_id=gateways.get(zone, next(iter(gateways.values()))),
                    region=self._args.scope.region,
                    opts=child(self),
                )
                routes.append(route)
            for subnet in private:
                if subnet.zone == zone:
                    self._way_out[subnet.name] = [*routes, self._associate(subnet.name, subnets[subnet.name], table.id)]
        return tables

    def _nat(self, vpc: aws.ec2.Vpc, subnets: dict[str, pulumi.Output[str]]) -> dict[str, pulumi.Output[str]]:
        """NAT gateways by zone."""
        scope = self._args.scope
        internet = aws.ec2.InternetGateway(
            self._logical("internet"),
            vpc_id=vpc.id,
            region=scope.region,
            tags=scope.tagged(self._logical("internet")),
            opts=child(self),
        )
        table = self._table(vpc, "nat-routes", 0)
        aws.ec2.Route(
            self._logical("nat-way-out", 0),
            route_table_id=table.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=internet.id,
            region=scope.region,
            opts=child(self),
        )
        gateways: dict[str, pulumi.Output[str]] = {}
        for subnet in self._args.plan.subnets:
            if subnet.role != "nat":
                continue
            association = self._associate(subnet.name, subnets[subnet.name], table.id)
            address = aws.ec2.Eip(
                self._logical(subnet.name, "address"),
                domain="vpc",
                region=scope.region,
                tags=scope.tagged(self._logical(subnet.name)),
                # An elastic address cannot be used before the VPC has its gateway.
                opts=child(self, depends_on=[internet]),
            )
            gateways[subnet.zone] = aws.ec2.NatGateway(
                self._logical(subnet.name, "gateway"),
                subnet_id=subnets[subnet.name],
                allocation_id=address.allocation_id,
                region=scope.region,
                tags=scope.tagged(self._logical(subnet.name)),
                opts=child(self, depends_on=[internet, association]),
            ).id
        return gateways

    def _table(self, vpc: aws.ec2.Vpc, what: str, index: int) -> aws.ec2.RouteTable:
        scope = self._args.scope
        name = self._logical(what, index)
        # Routes are resources of their own; none is written here, or the two forms undo each other.
        return aws.ec2.RouteTable(name, vpc_id=vpc.id, region=scope.region, tags=scope.tagged(name), opts=child(self))

    def _associate(
        self, subnet: str, subnet_id: pulumi.Output[str], table_id: pulumi.Output[str]
    ) -> aws.ec2.RouteTableAssociation:
        return aws.ec2.RouteTableAssociation(
            self._logical(subnet, "routes"),
            subnet_id=subnet_id,
            route_table_id=table_id,
            region=self._args.scope.region,
            opts=child(self),
        )

    def _endpoints(
        self, vpc: aws.ec2.Vpc, subnets: dict[str, pulumi.Output[str]], tables: list[pulumi.Output[str]]
    ) -> None:
        plan, scope = self._args.plan, self._args.scope
        for service in plan.gateway_endpoints:
            aws.ec2.VpcEndpoint(
                self._logical("endpoint", service),
                vpc_id=vpc.id,
                service_name=f"com.amazonaws.{scope.region}.{service}",
                vpc_endpoint_type="Gateway",
                route_table_ids=tables,
                region=scope.region,
                tags=scope.tagged(self._logical(service)),
                opts=child(self),
            )
        if not plan.interface_endpoints:
            return
        group = aws.ec2.SecurityGroup(
            self._logical("endpoints"),
            description="Interface endpoints: HTTPS from this network",
            vpc_id=vpc.id,
            region=scope.region,
            tags=scope.tagged(self._logical("endpoints")),
            opts=child(self),
        )
        aws.vpc.SecurityGroupIngressRule(
            self._logical("endpoints", "https"),
            security_group_id=group.id,
            description="HTTPS from this network",
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            cidr_ipv4=plan.cidr,
            region=scope.region,
            tags=scope.tagged(self._logical("endpoints")),
            opts=child(self),
        )
        # One subnet of each zone: an endpoint takes no more.
        per_zone = {subnet.zone: subnets[subnet.name] for subnet in reversed(plan.subnets) if subnet.role == "nodes"}
        for service in plan.interface_endpoints:
            aws.ec2.VpcEndpoint(
                self._logical("endpoint", service.replace(".", "-")),
                vpc_id=vpc.id,
                service_name=f"com.amazonaws.{scope.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(per_zone.values()),
                security_group_ids=[group.id],
                region=scope.region,
                tags=scope.tagged(self._logical(service)),
                opts=child(self),
            )

    def _flow_log(self, vpc: aws.ec2.Vpc) -> None:
        plan, scope = self._args.plan, self._args.scope
        group = aws.cloudwatch.LogGroup(
            self._logical("flow"),
            name=f"/gpuinfra/{scope.unique_name('flow')}",
            retention_in_days=plan.flow_log_retention_days,
            kms_key_id=self._args.log_key_arn,
            region=scope.region,
            tags=scope.tagged(self._logical("flow")),
            opts=child(self, keep=True),
        )
        role = aws.iam.Role(
            self._logical("flow"),
            assume_role_policy=policies.trust_for_account("vpc-flow-logs.amazonaws.com", scope.account),
            description="Writes the flow log of one network",
            tags=scope.tagged(self._logical("flow")),
            opts=child(self),
        )
        policy = aws.iam.RolePolicy(
            self._logical("flow"),
            role=role.id,
            policy=policies.document(policies.flow_log_delivery(group.arn)),
            opts=child(self),
        )
        aws.ec2.FlowLog(
            self._logical("flow"),
            vpc_id=vpc.id,
            traffic_type="ALL",
            max_aggregation_interval=plan.flow_log_interval_s,
            log_destination_type="cloud-watch-logs",
            log_destination=group.arn,
            iam_role_arn=role.arn,
            region=scope.region,
            tags=scope.tagged(self._logical("flow")),
            opts=child(self, depends_on=[policy]),
        )
