"""Firewall rules of the networks: nodes reach each other and what the plan allows, and no connection from outside reaches a node.

By default, a network of Google Cloud allows all egress and denies all ingress. Both are explicit rules here, so that egress is declared and
denied connections are logged. Metadata, DNS and NTP are served from 169.254.169.254, which firewall rules do not cover.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.scope import Scope, child

ANYWHERE = "0.0.0.0/0"
ALLOW, DENY = 1000, 65_000
"""Priorities: the lowest number is evaluated first, and Google's implied rules have 65535."""
PORTS = {"lustre": ["988"], "home": ["111", "2046", "2049", "2050", "4045"]}
"""TCP ports by kind of file system: Lustre (GoogleCloudPlatform/cluster-toolkit: modules/file-system/managed-lustre/README.md), and NFS 3 of Filestore (https://docs.cloud.google.com/filestore/docs/configuring-firewall, read 2026-11)."""
PRIVATE_APIS = "199.36.153.8/30"
"""private.googleapis.com, addresses of Google's APIs that are not routed on the internet; https://docs.cloud.google.com/vpc/docs/configure-private-google-access, read 2026-11."""

Allows = list[gcp.compute.FirewallAllowArgs]


@dataclass(frozen=True, kw_only=True)
class FirewallRulesArgs:
    """One network, and what its nodes reach."""

    scope: Scope
    network_id: pulumi.Input[str]
    internal_ranges: tuple[str, ...]
    """Addresses of its subnets, which reach each other over all protocols."""
    services_range: str | None = None
    """Addresses of Google's file systems, None without file systems."""
    file_systems: frozenset[str] = frozenset()
    """Kinds of these file systems, `lustre` and `home`; only their ports are open."""
    egress: str | None = None
    """`nat`: HTTP and HTTPS to the internet; `endpoints`: HTTPS to Google's APIs; None for a network without routes, which needs only the rule
    between its nodes. A project has a quota of about 100 rules."""
    ssh_from: tuple[str, ...] = ()
    """Networks that reach port 22, for example 35.235.240.0/20 of IAP. By default port 22 is closed."""


class FirewallRules(pulumi.ComponentResource):
    """The firewall rules of one network."""

    rules: tuple[gcp.compute.Firewall, ...]
    """All rules, for `ready_after`."""

    def __init__(self, name: str, args: FirewallRulesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:FirewallRules", name, None, args.scope.options(opts))
        self._name, self._args = name, args
        internal = list(args.internal_ranges)
        rules = [self._ingress("allow-internal-ingress", internal, _all_protocols())]
        if args.egress is not None:
            rules += [
                self._egress("allow-internal-egress", internal, _all_protocols()),
                self._ingress("deny-ingress", [ANYWHERE], None),
                self._egress("deny-egress", [ANYWHERE], None),
                self._egress("allow-web-egress", [ANYWHERE], [_tcp(["80", "443"])])
                if args.egress == "nat"
                else self._egress("allow-web-egress", [PRIVATE_APIS], [_tcp(["443"])]),
            ]
        if args.ssh_from:
            rules.append(self._ingress("allow-ssh", list(args.ssh_from), [_tcp(["22"])]))
        if args.services_range:
            ports = [port for kind, opened in PORTS.items() if kind in args.file_systems for port in opened]
            rules.append(self._egress("allow-file-systems-egress", [args.services_range], [_tcp(ports)]))
            if "lustre" in args.file_systems:
                lustre = [_tcp(PORTS["lustre"])]
                rules.append(self._ingress("allow-file-systems-ingress", [args.services_range], lustre))
        self.rules = tuple(rules)
        self.register_outputs({})

    def _ingress(self, rule: str, sources: list[str], allows: Allows | None) -> gcp.compute.Firewall:
        return self._rule(rule, "INGRESS", allows, source_ranges=sources)

    def _egress(self, rule: str, destinations: list[str], allows: Allows | None) -> gcp.compute.Firewall:
        return self._rule(rule, "EGRESS", allows, destination_ranges=destinations)

    def _rule(
        self,
        rule: str,
        direction: str,
        allows: Allows | None,
        source_ranges: list[str] | None = None,
        destination_ranges: list[str] | None = None,
    ) -> gcp.compute.Firewall:
        """One rule. `allows` None denies all protocols. Denied and SSH connections are logged."""
        logical = rows.FIREWALL_RULE.logical(self._name, rule=rule)
        logged = allows is None or rule == "allow-ssh"
        return gcp.compute.Firewall(
            logical,
            name=self._args.scope.physical_name(logical),
            network=self._args.network_id,
            direction=direction,
            priority=DENY if allows is None else ALLOW,
            allows=allows,
            denies=[gcp.compute.FirewallDenyArgs(protocol="all")] if allows is None else None,
            source_ranges=source_ranges,
            destination_ranges=destination_ranges,
            log_config=gcp.compute.FirewallLogConfigArgs(metadata="INCLUDE_ALL_METADATA") if logged else None,
            opts=child(self, rows.FIREWALL_RULE),
        )


@dataclass(frozen=True, kw_only=True)
class NodeFirewallRuleArgs:
    """Nodes in a network that the stack did not create."""

    scope: Scope
    network_id: pulumi.Input[str]
    service_account: pulumi.Input[str]
    """Service account of the nodes; the rule applies only to its machines."""


class NodeFirewallRule(pulumi.ComponentResource):
    """Lets the nodes of a cluster reach each other in an existing network, and changes nothing else there."""

    rule: gcp.compute.Firewall
    """The rule."""

    def __init__(self, name: str, args: NodeFirewallRuleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:NodeFirewallRule", name, None, args.scope.options(opts))
        logical = rows.NODE_FIREWALL_RULE.logical(name)
        self.rule = gcp.compute.Firewall(
            logical,
            name=args.scope.physical_name(logical),
            # The rule is in the project of its network, which for a shared network is another project.
            project=pulumi.Output.all(args.network_id, args.scope.project).apply(
                lambda known: names.project_of(known[0], known[1])
            ),
            network=args.network_id,
            direction="INGRESS",
            priority=ALLOW,
            allows=_all_protocols(),
            source_service_accounts=[args.service_account],
            target_service_accounts=[args.service_account],
            opts=child(self, rows.NODE_FIREWALL_RULE),
        )
        self.register_outputs({})


def _all_protocols() -> Allows:
    """The protocols that Google's guides open between nodes (https://docs.cloud.google.com/ai-hypercomputer/docs/create/create-mig-with-a3-high-mega)."""
    return [gcp.compute.FirewallAllowArgs(protocol=one) for one in ("tcp", "udp", "icmp")]


def _tcp(ports: list[str]) -> gcp.compute.FirewallAllowArgs:
    return gcp.compute.FirewallAllowArgs(protocol="tcp", ports=ports)
