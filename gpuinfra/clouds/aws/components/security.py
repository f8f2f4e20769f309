"""Who may talk to whom inside a network.

EFA traffic has no IP addresses, so rules by address never match it: nodes are let through to each other by the group's own id, in both directions.
A missing rule for what leaves shows up only much later, as a hang in NCCL (aws.md 1.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra import naming
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.ready_after import Maker, after, gathered
from gpuinfra.clouds.resource_group import Part

LUSTRE_PORTS = ((988, 988), (1018, 1023))
"""TCP ports between Lustre clients and servers, both ways (aws.md 3.2)."""

WEB_PORTS = (80, 443)
"""TCP ports that nodes reach outside: Ubuntu's archive answers on 80 with signed packages, everything else on 443."""


@dataclass(frozen=True, kw_only=True)
class SecurityArgs:
    """Whose traffic it is."""

    scope: Scope
    vpc_id: pulumi.Input[str]
    storage: bool = True
    """True where a Lustre file system needs a group of its own."""
    storage_efa: bool = False
    """True where the file system is reached over EFA, whose traffic only a rule for all protocols by group id matches."""
    keep_storage: bool = False
    """True where a destroy leaves a file system, and its group with it."""


class Security(Part):
    """The security groups of nodes and of their file systems."""

    nodes_group_id: pulumi.Output[str]
    """Group of every interface of every node, once its rules exist."""
    storage_group_id: pulumi.Output[str] | None
    """Group of the file systems, once its rules exist."""

    def __init__(self, name: str, args: SecurityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Security", name, opts)
        self._name, self._scope = name, args.scope
        nodes = self._group(
            "nodes", args.vpc_id, "GPU nodes: everything among themselves, the web outwards, nothing inwards"
        )
        makers = {
            "nodes": self._both_ways("fabric", nodes, nodes, "-1", None, "nodes among themselves, EFA included"),
            "storage": [],
        }
        makers["nodes"] += [self._outwards(nodes, port) for port in WEB_PORTS]
        self.storage_group_id = None
        if args.storage:
            storage = self._group(
                "storage",
                args.vpc_id,
                "Shared file systems: Lustre from and to the nodes",
                # By this name it is found again after a destroy, and a name that is generated anew would replace it.
                name=self._scope.unique_name("storage"),
                keep=args.keep_storage,
            )
            ports = [None] if args.storage_efa else list(LUSTRE_PORTS)
            protocol = "-1" if args.storage_efa else "tcp"
            for index, span in enumerate(ports):
                makers["storage"] += self._both_ways(
                    f"servers-{index}", storage, storage, protocol, span, "file servers among themselves"
                )
                makers["storage"] += self._both_ways(
                    f"servers-nodes-{index}", storage, nodes, protocol, span, "file servers and nodes"
                )
                makers["nodes"] += self._both_ways(
                    f"nodes-servers-{index}", nodes, storage, protocol, span, "nodes and file servers"
                )
            self.storage_group_id = after(storage.id, [gathered(makers["storage"])])
        self.nodes_group_id = after(nodes.id, [gathered(makers["nodes"])])

    def _group(
        self, what: str, vpc_id: pulumi.Input[str], description: str, *, name: str | None = None, keep: bool = False
    ) -> aws.ec2.SecurityGroup:
        return aws.ec2.SecurityGroup(
            naming.logical(self._name, what),
            name=name,
            description=description,
            vpc_id=vpc_id,
            # Rules that point at each other are taken away first, or two groups keep each other alive.
            revoke_rules_on_delete=True,
            region=self._scope.region,
            tags=self._scope.tagged(naming.logical(self._name, what)),
            opts=child(self, keep=keep),
        )

    def _both_ways(
        self,
        what: str,
        group: aws.ec2.SecurityGroup,
        other: aws.ec2.SecurityGroup,
        protocol: str,
        ports: tuple[int, int] | None,
        why: str,
    ) -> list[Maker]:
        """Two rules of `group`: from `other`, and to `other`, by id."""
        first, last = ports or (None, None)

        def rule(cls: type[aws.vpc.SecurityGroupIngressRule | aws.vpc.SecurityGroupEgressRule], way: str) -> Maker:
            return lambda others: cls(
                naming.logical(self._name, what, way),
                security_group_id=group.id,
                referenced_security_group_id=other.id,
                ip_protocol=protocol,
                from_port=first,
                to_port=last,
                description=why,
                region=self._scope.region,
                tags=self._scope.tagged(naming.logical(self._name, what)),
                opts=child(self, depends_on=others),
            )

        return [rule(aws.vpc.SecurityGroupIngressRule, "in"), rule(aws.vpc.SecurityGroupEgressRule, "out")]

    def _outwards(self, group: aws.ec2.SecurityGroup, port: int) -> Maker:
        name = naming.logical(self._name, "web", port)
        return lambda others: aws.vpc.SecurityGroupEgressRule(
            name,
            security_group_id=group.id,
            cidr_ipv4="0.0.0.0/0",
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            description="packages, images and the cloud's own services",
            region=self._scope.region,
            tags=self._scope.tagged(name),
            opts=child(self, depends_on=others),
        )
