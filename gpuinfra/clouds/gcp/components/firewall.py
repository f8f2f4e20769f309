"""Firewall rules of the networks. Nodes can reach each other and the destinations that the plan allows. Connections from outside are denied.

By default, a Google Cloud network allows all egress and denies all ingress. This module creates explicit rules for both, so that egress is declared
and denied connections are logged. Metadata, DNS and NTP are served from 169.254.169.254, to which firewall rules do not apply.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.profile import FILE_SYSTEM_PORTS
from gpuinfra.plan.model import IngressPlan

ANYWHERE = "0.0.0.0/0"
ALLOW, DENY = 1000, 65_000
"""Rule priorities. Lower numbers are evaluated first. The implied rules have priority 65535."""
PRIVATE_APIS = "199.36.153.8/30"
"""private.googleapis.com: addresses of Google APIs that are not routable from the internet;
https://docs.cloud.google.com/vpc/docs/configure-private-google-access, retrieved 2026-11."""

Allows = list[gcp.compute.FirewallAllowArgs]


@dataclass(frozen=True, kw_only=True)
class FirewallRulesArgs:
    """Arguments for the firewall: a network and the destinations that its nodes can reach."""

    scope: Scope
    network_id: pulumi.Input[str]
    """Network of the rules, `projects/P/global/networks/N`."""
    internal_ranges: tuple[str, ...]
    """Address ranges of the subnets. All protocols are allowed between them."""
    services_range: str | None = None
    """Address range of Google's file systems, or `None` without file systems."""
    file_systems: frozenset[str] = frozenset()
    """Kinds of these file systems: `lustre` and `home`. Only their ports are open."""
    egress: str | None = None
    """`nat` allows HTTP and HTTPS to the internet. `endpoints` allows HTTPS to Google APIs. `None` is for a network without routes, which needs only the
    rule between its nodes. A project has a quota of about 100 rules."""
    ssh_from: tuple[str, ...] = ()
    """Address ranges that can reach port 22. The plan lists 35.235.240.0/20, the range of Identity-Aware Proxy (IAP)."""
    ingress: tuple[IngressPlan, ...] = ()
    """Connections from other networks that the nodes accept. Each entry is one rule."""


class FirewallRules(pulumi.ComponentResource):
    """The firewall rules of a network."""

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
        for index, entry in enumerate(args.ingress):
            allows = [gcp.compute.FirewallAllowArgs(protocol=entry.protocol, ports=list(entry.ports))]
            rules.append(self._ingress(f"allow-declared-{index}", list(entry.sources), allows))
        if args.services_range:
            ports = [port for kind, opened in FILE_SYSTEM_PORTS.items() if kind in args.file_systems for port in opened]
            rules.append(self._egress("allow-file-systems-egress", [args.services_range], [_tcp(ports)]))
            if "lustre" in args.file_systems:
                lustre = [_tcp(FILE_SYSTEM_PORTS["lustre"])]
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
        """Create a rule. If `allows` is `None`, the rule denies all protocols. Denied connections and SSH connections are logged."""
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
    """Arguments for the firewall rule for nodes in an existing network."""

    scope: Scope
    network_id: pulumi.Input[str]
    """Existing network of the nodes, `projects/P/global/networks/N`."""
    service_account: pulumi.Input[str]
    """Service account of the nodes. The rules apply only to instances with this account."""
    control_account: pulumi.Input[str] | None = None
    """Service account of the control node, which is treated like `service_account`. If unset, there is no control node."""
    lustre_ranges: tuple[str, ...] = ()
    """Address ranges of existing Lustre file systems, whose servers can reach the nodes."""


class NodeFirewallRule(pulumi.ComponentResource):
    """Firewall rules that allow traffic between the nodes of a cluster in an existing network, and from existing Lustre file systems.
    The rest of the network is unchanged."""

    rule: gcp.compute.Firewall
    """The rule for traffic between the nodes."""

    def __init__(self, name: str, args: NodeFirewallRuleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:NodeFirewallRule", name, None, args.scope.options(opts))
        logical = rows.NODE_FIREWALL_RULE.logical(name)
        accounts = [one for one in (args.service_account, args.control_account) if one is not None]
        # The rules belong to the project of the network. For a Shared VPC, this is the host project.
        project = pulumi.Output.all(args.network_id, args.scope.project).apply(
            lambda known: names.project_of(known[0], known[1])
        )
        if args.lustre_ranges:
            lustre = rows.LUSTRE_FIREWALL_RULE.logical(name)
            gcp.compute.Firewall(
                lustre,
                name=args.scope.physical_name(lustre),
                project=project,
                network=args.network_id,
                direction="INGRESS",
                priority=ALLOW,
                allows=[_tcp(FILE_SYSTEM_PORTS["lustre"])],
                source_ranges=list(args.lustre_ranges),
                target_service_accounts=accounts,
                opts=child(self, rows.LUSTRE_FIREWALL_RULE),
            )
        self.rule = gcp.compute.Firewall(
            logical,
            name=args.scope.physical_name(logical),
            project=project,
            network=args.network_id,
            direction="INGRESS",
            priority=ALLOW,
            allows=_all_protocols(),
            source_service_accounts=accounts,
            target_service_accounts=accounts,
            opts=child(self, rows.NODE_FIREWALL_RULE),
        )
        self.register_outputs({})


def _all_protocols() -> Allows:
    """Return the protocols to allow between nodes, according to Google's guides (https://docs.cloud.google.com/ai-hypercomputer/docs/create/create-mig-with-a3-high-mega)."""
    return [gcp.compute.FirewallAllowArgs(protocol=one) for one in ("tcp", "udp", "icmp")]


def _tcp(ports: list[str]) -> gcp.compute.FirewallAllowArgs:
    return gcp.compute.FirewallAllowArgs(protocol="tcp", ports=ports)
