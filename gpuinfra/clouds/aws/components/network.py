"""The network of a site: private subnets for nodes, egress, VPC endpoints and flow logs.

Node subnets have no public addresses and no inbound route from the internet. Depending on the plan, egress uses NAT gateways or VPC endpoints.
Subnets are placed by zone ID, because zone names map to different zones in each account. For security groups, see `security.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import ResourceKind, retained_subnets


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """Arguments for the network."""

    scope: Scope
    plan: Plan
    """Plan that contains the network and the file systems. `destroy` retains the VPC and the subnets that hold retained file systems."""
    log_key_arn: pulumi.Input[str] | None = None
    """KMS key for the flow log. If unset, CloudWatch Logs uses its own key."""


class Network(pulumi.ComponentResource):
    """A VPC with private subnets, egress, endpoints and flow logs."""

    vpc_id: pulumi.Output[str]
    """ID of the VPC."""
    cidr: str
    """CIDR block of the VPC."""
    subnet_ids: dict[str, pulumi.Output[str]]
    """Subnet IDs, keyed by the subnet's name in the plan. Each resolves after its egress exists."""
    file_system_subnet_ids: dict[str, pulumi.Output[str]]
    """Subnet IDs that resolve without egress. File systems do not connect to other networks, and a NAT gateway takes minutes to create."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Network", name, None, args.scope.options(opts))
        self._args, self._name, self._plan = args, name, args.plan.site_network
        self._data_subnets = retained_subnets(args.plan)
        self._egress: dict[str, list[pulumi.Resource]] = {subnet.name: [] for subnet in self._plan.subnets}
        self.cidr = self._plan.cidr
        vpc = self._vpc()
        self.vpc_id = vpc.id
        internet, addresses = self._addresses(vpc)
        subnets = self._subnets(vpc, addresses)
        tables = self._routes(vpc, subnets, internet, addresses)
        endpoints = self._endpoints(vpc, subnets, tables)
        if self._plan.egress == "endpoints":
            # Nodes reach AWS only through the endpoints. An instance that starts first cannot connect: aws/aws-cdk issue 20548, retrieved 2026-11-26.
            self._egress = {subnet: [*found, *endpoints] for subnet, found in self._egress.items()}
        self._flow_log(vpc)
        self.subnet_ids = {
            subnet: ready_after(subnet_id, self._egress[subnet]) for subnet, subnet_id in subnets.items()
        }
        self.file_system_subnet_ids = subnets
        self.register_outputs({"vpc_id": self.vpc_id, "subnet_ids": self.subnet_ids})

    def _vpc(self) -> aws.ec2.Vpc:
        vpc = aws.ec2.Vpc(
            rows.VPC.logical(self._name),
            cidr_block=self._plan.cidr,
            # Required to resolve the private DNS names of endpoints and file systems.
            enable_dns_support=True,
            enable_dns_hostnames=True,
            opts=child(self, rows.VPC, data=bool(self._data_subnets)),
        )
        # The default security group has no rules, so a network interface without a security group has no access (CIS 6.5).
        aws.ec2.DefaultSecurityGroup(
            rows.DEFAULT_SECURITY_GROUP.logical(self._name),
            vpc_id=vpc.id,
            ingress=[],
            egress=[],
            opts=child(self, rows.DEFAULT_SECURITY_GROUP),
        )
        return vpc

    def _addresses(self, vpc: aws.ec2.Vpc) -> tuple[aws.ec2.InternetGateway | None, dict[str, aws.ec2.Eip]]:
        """Create the internet gateway and the addresses of the NAT gateways, by subnet."""
        if self._plan.egress != "nat":
            return None, {}
        internet = aws.ec2.InternetGateway(
            rows.INTERNET_GATEWAY.logical(self._name),
            vpc_id=vpc.id,
            opts=child(self, rows.INTERNET_GATEWAY),
        )
        # An Elastic IP address requires that the VPC has an internet gateway.
        return internet, {
            subnet.name: aws.ec2.Eip(
                rows.NAT_ADDRESS.logical(self._name, subnet=subnet.name),
                domain="vpc",
                opts=child(self, rows.NAT_ADDRESS, depends_on=[internet]),
            )
            for subnet in self._plan.subnets
            if subnet.role == "nat"
        }

    def _subnets(self, vpc: aws.ec2.Vpc, addresses: Mapping[str, aws.ec2.Eip]) -> dict[str, pulumi.Output[str]]:
        return {
            subnet.name: aws.ec2.Subnet(
                rows.SUBNET.logical(self._name, subnet=subnet.name),
                vpc_id=vpc.id,
                cidr_block=subnet.cidr,
                availability_zone_id=subnet.zone,
                # Also disabled in the NAT gateway subnet: the gateway uses an Elastic IP address.
                map_public_ip_on_launch=False,
                # Nodes also get a name that contains their instance ID, as in the evidence. The host name remains the name of the address.
                enable_resource_name_dns_a_record_on_launch=subnet.role == "nodes",
                tags={"gpuinfra:role": subnet.role},
                # The subnet of a NAT gateway is deleted before its address. The provider waits until the subnet has no network interfaces,
                # and it does not retry the release of an address that EC2 still associates with one (terraform-provider-aws issue 49299).
                opts=child(
                    self,
                    rows.SUBNET,
                    data=subnet.name in self._data_subnets,
                    depends_on=[addresses[subnet.name]] if subnet.name in addresses else (),
                ),
            ).id
            for subnet in self._plan.subnets
        }

    def _routes(
        self,
        vpc: aws.ec2.Vpc,
        subnets: dict[str, pulumi.Output[str]],
        internet: aws.ec2.InternetGateway | None,
        addresses: Mapping[str, aws.ec2.Eip],
    ) -> list[pulumi.Output[str]]:
        """Create a route table per zone for its private subnets. Traffic is routed to the NAT gateway of the same zone."""
        plan = self._plan
        gateways = self._nat(vpc, subnets, internet, addresses) if internet else {}
        private = [subnet for subnet in plan.subnets if subnet.role != "nat"]
        tables: list[pulumi.Output[str]] = []
        for index, zone in enumerate(dict.fromkeys(subnet.zone for subnet in private)):
            table = self._table(vpc, rows.PRIVATE_ROUTE_TABLE, index=index)
            tables.append(table.id)
            routes: list[pulumi.Resource] = []
            if gateways:
                route = aws.ec2.Route(
                    rows.PRIVATE_ROUTE.logical(self._name, index=index),
                    route_table_id=table.id,
                    destination_cidr_block="0.0.0.0/0",
                    nat_gateway_id=gateways.get(zone, next(iter(gateways.values()))),
                    opts=child(self, rows.PRIVATE_ROUTE),
                )
                routes.append(route)
            for subnet in private:
                if subnet.zone == zone:
                    self._egress[subnet.name] = [*routes, self._associate(subnet.name, subnets[subnet.name], table.id)]
        return tables

    def _nat(
        self,
        vpc: aws.ec2.Vpc,
        subnets: dict[str, pulumi.Output[str]],
        internet: aws.ec2.InternetGateway,
        addresses: Mapping[str, aws.ec2.Eip],
    ) -> dict[str, pulumi.Output[str]]:
        """Create the NAT gateways and return them by zone."""
        table = self._table(vpc, rows.NAT_ROUTE_TABLE)
        aws.ec2.Route(
            rows.NAT_ROUTE.logical(self._name),
            route_table_id=table.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=internet.id,
            opts=child(self, rows.NAT_ROUTE),
        )
        gateways: dict[str, pulumi.Output[str]] = {}
        for subnet in self._plan.subnets:
            if subnet.role != "nat":
                continue
            association = self._associate(subnet.name, subnets[subnet.name], table.id)
            gateways[subnet.zone] = aws.ec2.NatGateway(
                rows.NAT_GATEWAY.logical(self._name, subnet=subnet.name),
                subnet_id=subnets[subnet.name],
                allocation_id=addresses[subnet.name].allocation_id,
                opts=child(self, rows.NAT_GATEWAY, depends_on=[internet, association]),
            ).id
        return gateways

    def _table(self, vpc: aws.ec2.Vpc, row: ResourceKind[Any], **values: int) -> aws.ec2.RouteTable:
        # Routes are separate resources, because inline and separate routes of a table overwrite each other.
        return aws.ec2.RouteTable(row.logical(self._name, **values), vpc_id=vpc.id, opts=child(self, row))

    def _associate(
        self, subnet: str, subnet_id: pulumi.Output[str], table_id: pulumi.Output[str]
    ) -> aws.ec2.RouteTableAssociation:
        return aws.ec2.RouteTableAssociation(
            rows.SUBNET_ROUTES.logical(self._name, subnet=subnet),
            subnet_id=subnet_id,
            route_table_id=table_id,
            opts=child(self, rows.SUBNET_ROUTES),
        )

    def _endpoints(
        self, vpc: aws.ec2.Vpc, subnets: dict[str, pulumi.Output[str]], tables: list[pulumi.Output[str]]
    ) -> list[pulumi.Resource]:
        """Create the endpoints and return what nodes need to use them."""
        plan, scope = self._plan, self._args.scope
        created: list[pulumi.Resource] = [
            aws.ec2.VpcEndpoint(
                rows.GATEWAY_ENDPOINT.logical(self._name, service=service),
                vpc_id=vpc.id,
                service_name=f"com.amazonaws.{scope.region}.{service}",
                vpc_endpoint_type="Gateway",
                route_table_ids=tables,
                opts=child(self, rows.GATEWAY_ENDPOINT),
            )
            for service in plan.gateway_endpoints
        ]
        if not plan.interface_endpoints:
            return created
        group = aws.ec2.SecurityGroup(
            rows.ENDPOINTS_GROUP.logical(self._name),
            description="Interface endpoints: HTTPS from this network",
            vpc_id=vpc.id,
            opts=child(self, rows.ENDPOINTS_GROUP),
        )
        created.append(
            aws.vpc.SecurityGroupIngressRule(
                rows.ENDPOINTS_RULE.logical(self._name),
                security_group_id=group.id,
                description="HTTPS from this network",
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                cidr_ipv4=plan.cidr,
                opts=child(self, rows.ENDPOINTS_RULE),
            )
        )
        # An endpoint accepts one subnet per zone.
        per_zone = {subnet.zone: subnets[subnet.name] for subnet in reversed(plan.subnets) if subnet.role == "nodes"}
        created += [
            aws.ec2.VpcEndpoint(
                rows.INTERFACE_ENDPOINT.logical(self._name, service=service.replace(".", "-")),
                vpc_id=vpc.id,
                service_name=f"com.amazonaws.{scope.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(per_zone.values()),
                security_group_ids=[group.id],
                opts=child(self, rows.INTERFACE_ENDPOINT),
            )
            for service in plan.interface_endpoints
        ]
        return created

    def _flow_log(self, vpc: aws.ec2.Vpc) -> None:
        plan, scope = self._plan, self._args.scope
        group = aws.cloudwatch.LogGroup(
            rows.FLOW_LOG_GROUP.logical(self._name),
            name=f"/gpuinfra/{scope.unique_name('flow')}",
            retention_in_days=plan.flow_log_retention_days,
            kms_key_id=self._args.log_key_arn,
            opts=child(self, rows.FLOW_LOG_GROUP),
        )
        role = aws.iam.Role(
            rows.FLOW_LOG_ROLE.logical(self._name),
            assume_role_policy=policies.flow_log_trust(scope),
            description="Writes the flow log of one network",
            opts=child(self, rows.FLOW_LOG_ROLE),
        )
        policy = aws.iam.RolePolicy(
            rows.FLOW_LOG_POLICY.logical(self._name),
            role=role.id,
            policy=policies.document(policies.flow_log_delivery(group.arn)),
            opts=child(self, rows.FLOW_LOG_POLICY),
        )
        aws.ec2.FlowLog(
            rows.FLOW_LOG.logical(self._name),
            vpc_id=vpc.id,
            traffic_type="ALL",
            max_aggregation_interval=plan.flow_log_interval_s,
            log_destination_type="cloud-watch-logs",
            log_destination=group.arn,
            iam_role_arn=role.arn,
            opts=child(self, rows.FLOW_LOG, depends_on=[policy]),
        )
