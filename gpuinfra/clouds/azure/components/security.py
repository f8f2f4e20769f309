"""Who may talk to whom inside a network: one security group for nodes, one for file systems, one for private endpoints, one for Bastion.

InfiniBand is not IP and passes no security group; its isolation is the scale set itself (azure.md 2.1).
Azure's own rules let a whole network talk and everything out, so each group ends with two rules that refuse the rest.
Rules are inside their group and never beside it, or the two forms undo each other (azure.md 10.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import network

from gpuinfra import naming
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.resource_group import Part
from gpuinfra.plan.model import NetworkPlan

LUSTRE_PORTS = ("988", "1019-1023")
"""TCP ports between Lustre clients and servers, both ways (azure.md 4.1)."""
WEB_PORTS = ("80", "443")
"""TCP ports that nodes reach outside: Ubuntu's archive answers on 80 with signed packages, everything else on 443."""
LAST = 4096
"""Priority of the rules that refuse the rest; no number is higher."""
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
"""Services that Managed Lustre calls over 443 (azure.md 4.1, AML-N 2024-11-08)."""
LUSTRE_SERVICE_RANGE = "20.34.120.0/21"
LUSTRE_TIME_SERVER = "168.61.215.74"


@dataclass(frozen=True, kw_only=True)
class SecurityArgs:
    """Whose traffic it is."""

    scope: Scope
    plan: NetworkPlan
    storage: bool = True
    """True where a Lustre file system needs a group of its own."""
    keep_storage: bool = False
    """True where a destroy leaves a file system, and its group with it."""


class Security(Part):
    """The security groups of nodes, file systems, private endpoints and Bastion."""

    nodes_group_id: pulumi.Output[str]
    """Group of every interface of every node."""
    storage_group_id: pulumi.Output[str] | None
    """Group of the file systems' subnets."""
    group_ids: dict[str, pulumi.Output[str]]
    """Groups by the role of the plan's subnets that they are for."""

    def __init__(self, name: str, args: SecurityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        self._name, self._args = name, args
        self._where = {role: _prefixes(args.plan, role) for role in ("nodes", "storage", "endpoints", "bastion")}
        self.group_ids = {"nodes": self._group("nodes", self._nodes())}
        if args.storage:
            self.group_ids["storage"] = self._group("storage", self._storage(), keep=args.keep_storage)
        if self._made("endpoints"):
            self.group_ids["endpoints"] = self._group("endpoints", self._endpoints())
        if self._made("bastion"):
            self.group_ids["bastion"] = self._group("bastion", _bastion())
        self.nodes_group_id = self.group_ids["nodes"]
        self.storage_group_id = self.group_ids.get("storage")

    def _made(self, role: str) -> bool:
        return any(subnet.role == role for subnet in self._args.plan.subnets)

    def _group(self, what: str, rules: list[network.SecurityRuleArgs], *, keep: bool = False) -> pulumi.Output[str]:
        scope = self._args.scope
        return network.NetworkSecurityGroup(
            naming.logical(self._name, what),
            network_security_group_name=scope.unique_name(what, 80),
            resource_group_name=scope.group,
            location=scope.region,
            security_rules=rules,
            tags=scope.tagged(naming.logical(self._name, what)),
            opts=child(self, keep=keep),
        ).id

    def _nodes(self) -> list[network.SecurityRuleArgs]:
        nodes, storage = self._where["nodes"], self._where["storage"]
        rules = [
            _rule("nodes-in", 100, "Inbound", source=nodes, to=nodes, why="nodes among themselves"),
            _rule("nodes-out", 100, "Outbound", source=nodes, to=nodes, why="nodes among themselves"),
        ]
        if self._args.storage:
            rules += _both_ways("lustre", 110, nodes, storage, "nodes and file servers")
        if self._made("bastion"):
            hosts = self._where["bastion"]
            rules.append(_rule("bastion-in", 120, "Inbound", source=hosts, to=nodes, protocol="Tcp", ports=("22",)))
        if ranges := self._args.plan.ssh_from:
            why = "declared networks of operators"
            rules.append(
                _rule("ssh-in", 130, "Inbound", source=ranges, to=nodes, protocol="Tcp", ports=("22",), why=why)
            )
        if self._made("endpoints"):
            why = "storage of bundles and evidence"
            rules.append(
                _rule("endpoints-out", 140, "Outbound", source=nodes, to=self._where["endpoints"], ports=("443",),
                      protocol="Tcp", why=why)
            )  # fmt: skip
        elif self._args.plan.interface_endpoints:
            rules.append(
                _rule("endpoints-out", 140, "Outbound", source=nodes, to=("VirtualNetwork",), ports=("443",),
                      protocol="Tcp", why="private endpoints in the network")
            )  # fmt: skip
        if self._args.plan.egress == "nat":
            why = "packages, images and the cloud's own services"
            rules.append(
                _rule("web-out", 200, "Outbound", source=nodes, to=("Internet",), protocol="Tcp", ports=WEB_PORTS, why=why)
            )  # fmt: skip
        return [*rules, *_nothing_else()]

    def _storage(self) -> list[network.SecurityRuleArgs]:
        nodes, storage = self._where["nodes"], self._where["storage"]
        region = self._args.scope.region
        rules = [
            _rule("servers-in", 100, "Inbound", source=storage, to=storage, why="file servers among themselves"),
            _rule("servers-out", 100, "Outbound", source=storage, to=storage, why="file servers among themselves"),
            *_both_ways("lustre", 110, storage, nodes, "file servers and nodes"),
        ]
        if self._made("endpoints"):
            rules.append(
                _rule("endpoints-out", 140, "Outbound", source=storage, to=self._where["endpoints"], ports=("443",),
                      protocol="Tcp", why="the container that is imported from")
            )  # fmt: skip
        for index, tag in enumerate(tag.format(region=region) for tag in SERVICE_TAGS):
            name = f"service-{tag.split('.')[0].lower()}-out"
            rules.append(
                _rule(name, 200 + index, "Outbound", source=storage, to=(tag,), protocol="Tcp", ports=("443",))
            )
        rules += [
            _rule("service-range-out", 220, "Outbound", source=storage, to=(LUSTRE_SERVICE_RANGE,), protocol="Tcp", ports=("443",)),
            _rule("time-out", 221, "Outbound", source=storage, to=(LUSTRE_TIME_SERVER,), protocol="Udp", ports=("123",)),
        ]  # fmt: skip
        return [*rules, *_nothing_else()]

    def _endpoints(self) -> list[network.SecurityRuleArgs]:
        inside = [*self._where["nodes"], *(self._where["storage"] if self._args.storage else ())]
        here = self._where["endpoints"]
        why = "nodes and file servers to the cloud's own services"
        https = _rule(
            "https-in", 100, "Inbound", source=tuple(inside), to=here, protocol="Tcp", ports=("443",), why=why
        )
        return [https, *_nothing_else()]


def _prefixes(plan: NetworkPlan, role: str) -> tuple[str, ...]:
    """Addresses of the subnets of one role; in somebody else's network they are not known, and the whole network is what can be said."""
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
    """One rule. One value and several values are different properties of the API."""

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


def _both_ways(
    name: str, priority: int, here: tuple[str, ...], there: tuple[str, ...], why: str
) -> list[network.SecurityRuleArgs]:
    return [
        _rule(f"{name}-in", priority, "Inbound", source=there, to=here, protocol="Tcp", ports=LUSTRE_PORTS, why=why),
        _rule(f"{name}-out", priority, "Outbound", source=here, to=there, protocol="Tcp", ports=LUSTRE_PORTS, why=why),
    ]


def _nothing_else() -> list[network.SecurityRuleArgs]:
    return [
        _rule("nothing-else-in", LAST, "Inbound", access="Deny"),
        _rule("nothing-else-out", LAST, "Outbound", access="Deny"),
    ]


def _bastion() -> list[network.SecurityRuleArgs]:
    """What the service asks for, word by word. https://learn.microsoft.com/azure/bastion/bastion-nsg"""
    data = ("8080", "5701")
    rows = [
        ("https-in", "Inbound", "Internet", "*", "Tcp", ("443",)),
        ("manager-in", "Inbound", "GatewayManager", "*", "Tcp", ("443",)),
        ("balancer-in", "Inbound", "AzureLoadBalancer", "*", "Tcp", ("443",)),
        ("hosts-in", "Inbound", "VirtualNetwork", "VirtualNetwork", "*", data),
        ("nodes-out", "Outbound", "*", "VirtualNetwork", "*", ("22", "3389")),
        ("hosts-out", "Outbound", "VirtualNetwork", "VirtualNetwork", "*", data),
        ("cloud-out", "Outbound", "*", "AzureCloud", "Tcp", ("443",)),
        ("sessions-out", "Outbound", "*", "Internet", "*", ("80",)),
    ]
    return [
        *(
            _rule(name, 100 + 10 * index, direction, source=(source,), to=(to,), protocol=protocol, ports=ports)
            for index, (name, direction, source, to, protocol, ports) in enumerate(rows)
        ),
        *_nothing_else(),
    ]
