"""Network security groups of a site: one each for nodes, Lustre, Azure NetApp Files, private endpoints and Bastion.

InfiniBand traffic is not IP traffic, so security groups do not apply to it.
The scale set isolates it (https://learn.microsoft.com/azure/virtual-machines/setup-infiniband, page dated 2026-09-25).
Azure's default rules allow all traffic inside a virtual network and all egress, so each group ends with two rules that deny the rest.
Rules are defined inline in their group, because inline rules and separate rule resources overwrite each other (pulumi/pulumi-azure-native#611, #1251).
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import network

from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.connections import HTTPS, LUSTRE_PORTS, NETAPP_PORTS, NFS, SSH, WEB_PORTS
from gpuinfra.clouds.azure.instances import NETAPP, NETAPP_SUBNET, retains_storage_group
from gpuinfra.plan.model import NetworkPlan, Plan
from gpuinfra.plan.planned import retained_subnets

LAST = 4096
"""Priority of the rules that deny all other traffic. This is the highest number that Azure accepts."""
SERVICE_TAGS = (
    "AzureMonitor",
    "AzureKeyVault.{region}",
    "AzureActiveDirectory",
    "Storage.{region}",
    "GuestAndHybridManagement",
    "ApiManagement.{region}",
    "AzureDataLake",
    "AzureResourceManager",
    "EventHub",
)
"""Services that Managed Lustre calls on port 443 (https://learn.microsoft.com/azure/azure-managed-lustre/configure-network-security-group,
page dated 2024-11-08)."""
LUSTRE_SERVICE_RANGE = "20.34.120.0/21"
LUSTRE_TIME_SERVER = "168.61.215.74"

Rules = list[network.SecurityRuleArgs]


@dataclass(frozen=True, kw_only=True)
class SecurityGroupsArgs:
    """Arguments for the security groups of a site."""

    scope: Scope
    plan: Plan
    """Plan that contains the network and the file systems, which determine the groups and their rules."""


class SecurityGroups(pulumi.ComponentResource):
    """The network security groups for nodes, file systems, private endpoints and Bastion."""

    nodes_group_id: pulumi.Output[str]
    """Security group for every network interface of the nodes."""
    members_group_id: pulumi.Output[str] | None
    """Application security group that the interfaces of the nodes join in an existing network, or `None` in a network of this stack."""
    storage_group_id: pulumi.Output[str] | None
    """Security group for the file system subnets."""
    group_ids: dict[str, pulumi.Output[str]]
    """Security groups by the role of the subnets in the plan."""

    def __init__(self, name: str, args: SecurityGroupsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:SecurityGroups", name, None, args.scope.options(opts))
        self._name, self._args, self._plan = name, args, args.plan.site_network
        self._created = {one.service or one.kind for one in args.plan.file_systems}
        self._existing = {one.service or one.kind for one in args.plan.existing_file_systems}
        self._prefixes = {
            role: _prefixes(self._plan, role) for role in ("nodes", "storage", "netapp", "endpoints", "bastion")
        }
        self.members_group_id = self._members() if self._plan.existing_id is not None else None
        self.group_ids = {"nodes": self._group("nodes", self._nodes())}
        if "lustre" in self._created:
            self.group_ids["storage"] = self._group("storage", self._storage())
        if NETAPP in self._created and self._plan.existing_id is None:
            self.group_ids[NETAPP] = self._group(NETAPP, self._netapp())
        if self._has("endpoints"):
            self.group_ids["endpoints"] = self._group("endpoints", self._endpoints())
        if self._has("bastion"):
            self.group_ids["bastion"] = self._group("bastion", _bastion())
        self.nodes_group_id = self.group_ids["nodes"]
        self.storage_group_id = self.group_ids.get("storage")
        self.register_outputs({"group_ids": self.group_ids})

    def _has(self, role: str) -> bool:
        return any(subnet.role == role for subnet in self._plan.subnets)

    def _group(self, role: str, rules: Rules) -> pulumi.Output[str]:
        holding = {
            "storage": (rows.STORAGE_GROUP, retains_storage_group(self._args.plan)),
            NETAPP: (rows.NETAPP_GROUP, NETAPP_SUBNET in retained_subnets(self._args.plan)),
        }
        row, data = holding.get(role, (rows.SECURITY_GROUP, None))
        return network.NetworkSecurityGroup(
            row.logical(self._name, purpose=role),
            network_security_group_name=self._args.scope.unique_name(role, 80),
            resource_group_name=self._args.scope.group,
            security_rules=[*rules, *_deny_rest()],
            opts=child(self, row, data=data),
        ).id

    def _members(self) -> pulumi.Output[str]:
        return network.ApplicationSecurityGroup(
            rows.MEMBERS.logical(self._name),
            application_security_group_name=self._args.scope.unique_name("members", 80),
            resource_group_name=self._args.scope.group,
            opts=child(self, rows.MEMBERS),
        ).id

    def _nodes(self) -> Rules:
        plan, nodes, storage = self._plan, self._prefixes["nodes"], self._prefixes["storage"]
        if self.members_group_id is None:
            rules = [
                _rule("allow-internal-ingress", 100, "Inbound", source=nodes, to=nodes, why="between nodes"),
                _rule("allow-internal-egress", 100, "Outbound", source=nodes, to=nodes, why="between nodes"),
            ]
        else:
            rules = [
                _between(self.members_group_id, "allow-internal-ingress", "Inbound"),
                _between(self.members_group_id, "allow-internal-egress", "Outbound"),
            ]
        if "lustre" in self._created:
            rules += _both_ways("allow-file-systems", 110, nodes, storage, "nodes and file servers")
        if "lustre" in self._existing:
            why = "nodes and an existing file system"
            rules += _both_ways("allow-existing-file-systems", 112, nodes, ("VirtualNetwork",), why)
        if self._has("bastion"):
            hosts = self._prefixes["bastion"]
            rules.append(_rule("allow-bastion-ssh", 120, "Inbound", source=hosts, to=nodes, protocol="Tcp", ports=SSH))
        if ranges := plan.ssh_from:
            why = "declared ranges of operators"
            rules.append(
                _rule("allow-ssh", 130, "Inbound", source=ranges, to=nodes, protocol="Tcp", ports=SSH, why=why)
            )
        for index, entry in enumerate(plan.ingress):
            name, protocol = f"allow-declared-{index}", entry.protocol.capitalize()
            rules.append(
                _rule(name, 150 + index, "Inbound", source=entry.sources, to=nodes, protocol=protocol, ports=entry.ports, why="declared in access.ingress")
            )  # fmt: skip
        if self._has("endpoints"):
            rules.append(self._to_endpoints(nodes, self._prefixes["endpoints"], "storage of bundles and evidence"))
        elif plan.interface_endpoints:
            rules.append(self._to_endpoints(nodes, ("VirtualNetwork",), "private endpoints in the network"))
        if "files" in self._created | self._existing:
            to = ("VirtualNetwork",) if "files" in self._existing else self._prefixes["endpoints"]
            why = "home directories"
            rules.append(_rule("allow-homes-egress", 145, "Outbound", source=nodes, to=to, protocol="Tcp", ports=NFS, why=why))  # fmt: skip
        if NETAPP in self._created | self._existing:
            to = ("VirtualNetwork",) if NETAPP in self._existing else self._prefixes[NETAPP]
            why = "home directories"
            rules.append(_rule("allow-netapp-egress", 146, "Outbound", source=nodes, to=to, protocol="Tcp", ports=NETAPP_PORTS, why=why))  # fmt: skip
        if plan.egress == "nat":
            why = "packages, images and Azure services"
            rules.append(
                _rule("allow-web-egress", 200, "Outbound", source=nodes, to=("Internet",), protocol="Tcp", ports=WEB_PORTS, why=why)
            )  # fmt: skip
        return rules

    def _storage(self) -> Rules:
        nodes, storage = self._prefixes["nodes"], self._prefixes["storage"]
        rules = [
            _rule("allow-internal-ingress", 100, "Inbound", source=storage, to=storage, why="between file servers"),
            _rule("allow-internal-egress", 100, "Outbound", source=storage, to=storage, why="between file servers"),
            *_both_ways("allow-nodes", 110, storage, nodes, "file servers and nodes"),
        ]
        if self._has("endpoints"):
            rules.append(self._to_endpoints(storage, self._prefixes["endpoints"], "the container to import from"))
        for index, pattern in enumerate(SERVICE_TAGS):
            tag = pattern.format(region=self._args.scope.region)
            name = f"allow-service-{tag.split('.')[0].lower()}-egress"
            rules.append(_rule(name, 200 + index, "Outbound", source=storage, to=(tag,), protocol="Tcp", ports=HTTPS))
        rules += [
            _rule("allow-service-range-egress", 220, "Outbound", source=storage, to=(LUSTRE_SERVICE_RANGE,), protocol="Tcp", ports=HTTPS),
            _rule("allow-time-egress", 221, "Outbound", source=storage, to=(LUSTRE_TIME_SERVER,), protocol="Udp", ports=("123",)),
        ]  # fmt: skip
        return rules

    def _netapp(self) -> Rules:
        nodes, to, why = self._prefixes["nodes"], self._prefixes[NETAPP], "nodes to home directories"
        return [_rule("allow-netapp-ingress", 110, "Inbound", source=nodes, to=to, protocol="Tcp", ports=NETAPP_PORTS, why=why)]  # fmt: skip

    def _to_endpoints(self, source: tuple[str, ...], to: tuple[str, ...], why: str) -> network.SecurityRuleArgs:
        return _rule(
            "allow-endpoints-egress", 140, "Outbound", source=source, to=to, ports=HTTPS, protocol="Tcp", why=why
        )

    def _endpoints(self) -> Rules:
        source = (*self._prefixes["nodes"], *(self._prefixes["storage"] if "lustre" in self._created else ()))
        to = self._prefixes["endpoints"]
        why = "nodes and file servers to Azure services"
        rules = [_rule("allow-https-ingress", 100, "Inbound", source=source, to=to, protocol="Tcp", ports=HTTPS, why=why)]  # fmt: skip
        if "files" in self._created:
            nodes, why = self._prefixes["nodes"], "nodes to home directories"
            rules.append(_rule("allow-homes-ingress", 110, "Inbound", source=nodes, to=to, protocol="Tcp", ports=NFS, why=why))  # fmt: skip
        return rules


def _prefixes(plan: NetworkPlan, role: str) -> tuple[str, ...]:
    """Return the address ranges of the subnets with the given role.
    The ranges of an existing network are unknown, so the service tag for the whole network is used."""
    return tuple(subnet.cidr for subnet in plan.subnets if subnet.role == role and subnet.cidr) or ("VirtualNetwork",)


def _rule(
    name: str,
    priority: int,
    direction: str,
    *,
    source: tuple[str, ...] = ("*",),
    to: tuple[str, ...] = ("*",),
    protocol: str = "*",
    ports: tuple[str, ...] = ("*",),
    access: str = "Allow",
    why: str = "",
) -> network.SecurityRuleArgs:
    """Return a rule. The API has separate properties for single and multiple values."""

    def one(values: tuple[str, ...]) -> str | None:
        return values[0] if len(values) == 1 else None

    def many(values: tuple[str, ...]) -> list[str] | None:
        return list(values) if len(values) > 1 else None

    return network.SecurityRuleArgs(
        name=name,
        priority=priority,
        direction=direction,
        access=access,
        protocol=protocol,
        source_port_range="*",
        source_address_prefix=one(source),
        source_address_prefixes=many(source),
        destination_address_prefix=one(to),
        destination_address_prefixes=many(to),
        destination_port_range=one(ports),
        destination_port_ranges=many(ports),
        description=why or None,
    )


def _between(members: pulumi.Input[str], name: str, direction: str) -> network.SecurityRuleArgs:
    """Allow all traffic between the members of an application security group."""
    group = [network.ApplicationSecurityGroupArgs(id=members)]
    return network.SecurityRuleArgs(
        name=name,
        priority=100,
        direction=direction,
        access="Allow",
        protocol="*",
        source_port_range="*",
        destination_port_range="*",
        source_application_security_groups=group,
        destination_application_security_groups=group,
        description="between nodes",
    )


def _both_ways(name: str, priority: int, here: tuple[str, ...], there: tuple[str, ...], why: str) -> Rules:
    """Return rules that allow Lustre traffic in both directions."""
    ports = LUSTRE_PORTS
    return [
        _rule(f"{name}-ingress", priority, "Inbound", source=there, to=here, protocol="Tcp", ports=ports, why=why),
        _rule(f"{name}-egress", priority, "Outbound", source=here, to=there, protocol="Tcp", ports=ports, why=why),
    ]


def _deny_rest() -> Rules:
    return [
        _rule("deny-ingress", LAST, "Inbound", access="Deny"),
        _rule("deny-egress", LAST, "Outbound", access="Deny"),
    ]


def _bastion() -> Rules:
    """Return the rules that Bastion requires. https://learn.microsoft.com/azure/bastion/bastion-nsg"""
    data = ("8080", "5701")
    table = [
        ("allow-https-ingress", "Inbound", "Internet", "*", "Tcp", HTTPS),
        ("allow-gateway-manager-ingress", "Inbound", "GatewayManager", "*", "Tcp", HTTPS),
        ("allow-load-balancer-ingress", "Inbound", "AzureLoadBalancer", "*", "Tcp", HTTPS),
        ("allow-bastion-hosts-ingress", "Inbound", "VirtualNetwork", "VirtualNetwork", "*", data),
        ("allow-ssh-rdp-egress", "Outbound", "*", "VirtualNetwork", "*", ("22", "3389")),
        ("allow-bastion-hosts-egress", "Outbound", "VirtualNetwork", "VirtualNetwork", "*", data),
        ("allow-azure-cloud-egress", "Outbound", "*", "AzureCloud", "Tcp", HTTPS),
        ("allow-sessions-egress", "Outbound", "*", "Internet", "*", ("80",)),
    ]
    return [
        _rule(name, 100 + 10 * index, direction, source=(source,), to=(to,), protocol=protocol, ports=ports)
        for index, (name, direction, source, to, protocol, ports) in enumerate(table)
    ]
