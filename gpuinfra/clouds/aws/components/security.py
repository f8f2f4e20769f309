"""Security groups for nodes and file systems.

EFA traffic does not use IP addresses, so rules with IP ranges never match it. The rules between nodes reference the group itself, in both directions.
A missing egress rule shows up only later, as an NCCL hang (gardener/gardener-extension-provider-aws#1832).
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.aws.instances import (
    LUSTRE_PORTS,
    NFS_PORT,
    OPENZFS_PORTS,
    WEB_PORTS,
    DeclaredRule,
    ExistingRule,
    declared_rules,
    existing_rules,
)
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import retained_subnets


@dataclass(frozen=True, kw_only=True)
class SecurityGroupsArgs:
    """Arguments for the security groups."""

    scope: Scope
    vpc_id: pulumi.Input[str]
    """VPC of the groups (`Network.vpc_id`)."""
    plan: Plan
    """Plan that contains the file systems and the declared connections, which determine the groups and their rules."""


class SecurityGroups(pulumi.ComponentResource):
    """The security groups of the nodes and their file systems."""

    nodes_group_id: pulumi.Output[str]
    """Security group for every network interface of the nodes. Resolves after its rules exist."""
    storage_group_id: pulumi.Output[str] | None
    """Security group for the file systems. Resolves after its rules exist."""
    homes_group_id: pulumi.Output[str] | None
    """Security group for the mount targets of home directories. Resolves after its rule exists."""

    def __init__(self, name: str, args: SecurityGroupsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:SecurityGroups", name, None, args.scope.options(opts))
        self._name, self._args = name, args
        services = {one.service or one.kind for one in args.plan.file_systems}
        nodes = aws.ec2.SecurityGroup(
            rows.NODES_GROUP.logical(name),
            # A changed description replaces the group, so it does not depend on `ingress`.
            description="GPU nodes: all traffic between them, HTTP and HTTPS out, nothing in",
            vpc_id=args.vpc_id,
            # Revoke the rules first, because groups whose rules reference each other cannot be deleted.
            revoke_rules_on_delete=True,
            opts=child(self, rows.NODES_GROUP),
        )
        nodes_rules = self._both_ways("allow-nodes", nodes, nodes, "-1", None, "nodes to nodes, EFA included")
        nodes_rules += [self._web(nodes, port) for port in WEB_PORTS]
        nodes_rules += [self._declared(nodes, one) for one in declared_rules(args.plan.network)]
        for rule in existing_rules(args.plan):
            nodes_rules += self._existing(nodes, rule)
        self.storage_group_id = None
        if services & {"lustre", "openzfs"}:
            self.storage_group_id = self._storage(nodes, nodes_rules)
        self.homes_group_id = None
        if "efs" in services:
            self.homes_group_id = self._homes_group(nodes, nodes_rules)
        self.nodes_group_id = ready_after(nodes.id, nodes_rules)
        self.register_outputs(
            {
                "nodes_group_id": self.nodes_group_id,
                "storage_group_id": self.storage_group_id,
                "homes_group_id": self.homes_group_id,
            }
        )

    def _storage(self, nodes: aws.ec2.SecurityGroup, nodes_rules: list[pulumi.Resource]) -> pulumi.Output[str]:
        """Create the file servers' group, and add the nodes' rules to `nodes_rules`."""
        plan, storage = self._args.plan, self._storage_group()
        services = {one.service or one.kind for one in plan.file_systems}
        storage_rules: list[pulumi.Resource] = []
        if "lustre" in services:
            protocol, spans = ("-1", (None,)) if any(one.efa for one in plan.file_systems) else ("tcp", LUSTRE_PORTS)
            for index, span in enumerate(spans):
                storage_rules += self._both_ways(
                    f"allow-storage-{index}", storage, storage, protocol, span, "file servers to file servers"
                )
                storage_rules += self._both_ways(
                    f"allow-storage-nodes-{index}", storage, nodes, protocol, span, "file servers and nodes"
                )
                nodes_rules += self._both_ways(
                    f"allow-nodes-storage-{index}", nodes, storage, protocol, span, "nodes and file servers"
                )
        if "openzfs" in services:
            storage_rules += self._openzfs(storage, nodes, nodes_rules)
        return ready_after(storage.id, storage_rules)

    def _openzfs(
        self, storage: aws.ec2.SecurityGroup, nodes: aws.ec2.SecurityGroup, nodes_rules: list[pulumi.Resource]
    ) -> list[pulumi.Resource]:
        """Create the rules that let the nodes reach FSx for OpenZFS, add those of the nodes to `nodes_rules`, and return those of the file servers."""
        made: list[pulumi.Resource] = []
        for first, last in OPENZFS_PORTS:
            ports = {"ip_protocol": "tcp", "from_port": first, "to_port": last}
            made.append(
                aws.vpc.SecurityGroupIngressRule(
                    rows.OPENZFS_INGRESS.logical(self._name, port=first),
                    security_group_id=storage.id,
                    referenced_security_group_id=nodes.id,
                    description="home directories from the nodes",
                    opts=child(self, rows.OPENZFS_INGRESS),
                    **ports,
                )
            )
            nodes_rules.append(
                aws.vpc.SecurityGroupEgressRule(
                    rows.OPENZFS_EGRESS.logical(self._name, port=first),
                    security_group_id=nodes.id,
                    referenced_security_group_id=storage.id,
                    description="nodes to home directories",
                    opts=child(self, rows.OPENZFS_EGRESS),
                    **ports,
                )
            )
        return made

    def _homes_group(self, nodes: aws.ec2.SecurityGroup, nodes_rules: list[pulumi.Resource]) -> pulumi.Output[str]:
        """Create the mount targets' group, which accepts NFS from the nodes, and add the nodes' rule to `nodes_rules`."""
        homes = aws.ec2.SecurityGroup(
            rows.HOMES_GROUP.logical(self._name),
            description="Home directories: NFS from the nodes",
            vpc_id=self._args.vpc_id,
            revoke_rules_on_delete=True,
            opts=child(self, rows.HOMES_GROUP),
        )
        ports = {"ip_protocol": "tcp", "from_port": NFS_PORT, "to_port": NFS_PORT}
        ingress = aws.vpc.SecurityGroupIngressRule(
            rows.HOMES_INGRESS.logical(self._name),
            security_group_id=homes.id,
            referenced_security_group_id=nodes.id,
            description="home directories from the nodes",
            opts=child(self, rows.HOMES_INGRESS),
            **ports,
        )
        egress = aws.vpc.SecurityGroupEgressRule(
            rows.HOMES_EGRESS.logical(self._name),
            security_group_id=nodes.id,
            referenced_security_group_id=homes.id,
            description="nodes to home directories",
            opts=child(self, rows.HOMES_EGRESS),
            **ports,
        )
        nodes_rules.append(egress)
        return ready_after(homes.id, [ingress])

    def _storage_group(self) -> aws.ec2.SecurityGroup:
        return aws.ec2.SecurityGroup(
            rows.STORAGE_GROUP.logical(self._name),
            # `adopt` finds the group by this name. A generated name would replace the group.
            name=self._args.scope.unique_name("storage"),
            description="Shared file systems: from and to the nodes",
            vpc_id=self._args.vpc_id,
            revoke_rules_on_delete=True,
            # A changed description replaces a group, and the name of this group is fixed, so the new group could not be created.
            opts=child(
                self, rows.STORAGE_GROUP, data=bool(retained_subnets(self._args.plan)), ignore_changes=["description"]
            ),
        )

    def _both_ways(
        self,
        rule: str,
        group: aws.ec2.SecurityGroup,
        peer: aws.ec2.SecurityGroup,
        protocol: str,
        ports: tuple[int, int] | None,
        description: str,
    ) -> list[pulumi.Resource]:
        """Create an ingress and an egress rule for `group` that reference `peer` by group ID."""
        first, last = ports or (None, None)
        ingress = aws.vpc.SecurityGroupIngressRule(
            rows.PEER_INGRESS.logical(self._name, rule=rule),
            security_group_id=group.id,
            referenced_security_group_id=peer.id,
            ip_protocol=protocol,
            from_port=first,
            to_port=last,
            description=description,
            opts=child(self, rows.PEER_INGRESS),
        )
        egress = aws.vpc.SecurityGroupEgressRule(
            rows.PEER_EGRESS.logical(self._name, rule=rule),
            security_group_id=group.id,
            referenced_security_group_id=peer.id,
            ip_protocol=protocol,
            from_port=first,
            to_port=last,
            description=description,
            opts=child(self, rows.PEER_EGRESS),
        )
        return [ingress, egress]

    def _existing(self, group: aws.ec2.SecurityGroup, rule: ExistingRule) -> list[pulumi.Resource]:
        """Create rules in the nodes' group for an existing file system."""
        ports = {"ip_protocol": rule.protocol, "from_port": rule.first, "to_port": rule.last}
        egress = aws.vpc.SecurityGroupEgressRule(
            rows.EXISTING_EGRESS.logical(self._name, rule=rule.name),
            security_group_id=group.id,
            referenced_security_group_id=rule.group,
            description="nodes to an existing file system",
            opts=child(self, rows.EXISTING_EGRESS),
            **ports,
        )
        if not rule.both_ways:
            return [egress]
        ingress = aws.vpc.SecurityGroupIngressRule(
            rows.EXISTING_INGRESS.logical(self._name, rule=rule.name),
            security_group_id=group.id,
            referenced_security_group_id=rule.group,
            description="an existing file system to nodes",
            opts=child(self, rows.EXISTING_INGRESS),
            **ports,
        )
        return [egress, ingress]

    def _declared(self, group: aws.ec2.SecurityGroup, rule: DeclaredRule) -> pulumi.Resource:
        return aws.vpc.SecurityGroupIngressRule(
            rows.DECLARED_INGRESS.logical(self._name, rule=rule.name),
            security_group_id=group.id,
            cidr_ipv4=rule.cidr,
            ip_protocol=rule.protocol,
            from_port=rule.first,
            to_port=rule.last,
            description="declared in access.ingress",
            opts=child(self, rows.DECLARED_INGRESS),
        )

    def _web(self, group: aws.ec2.SecurityGroup, port: int) -> pulumi.Resource:
        return aws.vpc.SecurityGroupEgressRule(
            rows.WEB_EGRESS.logical(self._name, port=port),
            security_group_id=group.id,
            cidr_ipv4="0.0.0.0/0",
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            description="packages, images and AWS services",
            opts=child(self, rows.WEB_EGRESS),
        )
