"""Who may talk to whom in one network: nodes among themselves, nodes to what the plan says, nobody to nodes.

Google's networks let everything out and nothing in unless told otherwise; both ends are written down here, so that what is dropped is logged
and what leaves is declared. Metadata, names and time come from 169.254.169.254, which no rule can close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.resource_group import Part

ANYWHERE = "0.0.0.0/0"
ALLOW, DENY = 1000, 65_000
"""Priorities: a lower number goes first, and Google's own two rules are at 65535."""
PORTS = {"lustre": ["988"], "home": ["111", "2046", "2049", "2050", "4045"]}
"""Kind of file system -> its ports: Lustre's one (gcp.md 2.4), and those of NFS version 3 at Filestore (https://docs.cloud.google.com/filestore/docs/configuring-firewall, read 2026-11)."""
PRIVATE_APIS = "199.36.153.8/30"
"""private.googleapis.com, Google's APIs at addresses that are announced to nobody else; https://docs.cloud.google.com/vpc/docs/configure-private-google-access, read 2026-11."""


@dataclass(frozen=True, kw_only=True)
class WallsArgs:
    """One network, and what lies inside it."""

    scope: Scope
    network_id: pulumi.Input[str]
    inside: tuple[str, ...]
    """Addresses of its subnets; they talk to each other over every protocol."""
    services: str | None = None
    """Addresses of Google's file systems; None where there are none."""
    file_systems: frozenset[str] = frozenset()
    """Kinds of file systems there, `lustre` and `home`: what is reached is their ports."""
    out: str | None = None
    """`nat`: to the web's two ports anywhere; `endpoints`: to Google's own APIs; None for a network without routes, which needs no walls but the one that lets nodes in: projects have about a hundred rules."""
    ssh_from: tuple[str, ...] = ()
    """Networks that may reach port 22, such as IAP's 35.235.240.0/20; left out, nobody."""


class Walls(Part):
    """The firewall rules of one network."""

    last: gcp.compute.Firewall
    """Made after all the others: who needs them waits for this one. It is the rule that lets nodes talk to each other."""

    def __init__(self, name: str, args: WallsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        self._name, self._args = name, args
        inside = list(args.inside)
        rules: list[pulumi.Resource] = []
        if args.out is not None:
            rules += [
                self._out("inside-out", inside, _every_protocol()),
                self._in("closed-in", [ANYWHERE], None),
                self._out("closed-out", [ANYWHERE], None),
            ]
        if args.ssh_from:
            rules.append(self._in("ssh-in", list(args.ssh_from), [_tcp(["22"])]))
        if args.services:
            ports = [port for kind, opened in PORTS.items() if kind in args.file_systems for port in opened]
            rules.append(self._out("files-out", [args.services], [_tcp(ports)]))
            if "lustre" in args.file_systems:
                rules.append(self._in("files-in", [args.services], [_tcp(PORTS["lustre"])]))
        if args.out:
            to = ANYWHERE if args.out == "nat" else PRIVATE_APIS
            ports = ["80", "443"] if args.out == "nat" else ["443"]
            rules.append(self._out("web-out", [to], [_tcp(ports)]))
        self.last = self._in("inside-in", inside, _every_protocol(), rules)

    def _in(
        self,
        what: str,
        sources: list[str],
        allows: list[gcp.compute.FirewallAllowArgs] | None,
        others: Sequence[pulumi.Resource] = (),
    ) -> gcp.compute.Firewall:
        return self._rule(what, "INGRESS", allows, source_ranges=sources, others=others)

    def _out(
        self, what: str, targets: list[str], allows: list[gcp.compute.FirewallAllowArgs] | None
    ) -> gcp.compute.Firewall:
        return self._rule(what, "EGRESS", allows, destination_ranges=targets)

    def _rule(
        self,
        what: str,
        direction: str,
        allows: list[gcp.compute.FirewallAllowArgs] | None,
        source_ranges: list[str] | None = None,
        destination_ranges: list[str] | None = None,
        others: Sequence[pulumi.Resource] = (),
    ) -> gcp.compute.Firewall:
        scope, logical = self._args.scope, naming.logical(self._name, what)
        dropped = allows is None
        logged = dropped or what == "ssh-in"
        return gcp.compute.Firewall(
            logical,
            name=scope.named(logical),
            project=scope.project,
            network=self._args.network_id,
            direction=direction,
            priority=DENY if dropped else ALLOW,
            allows=allows,
            denies=[gcp.compute.FirewallDenyArgs(protocol="all")] if dropped else None,
            source_ranges=source_ranges,
            destination_ranges=destination_ranges,
            log_config=gcp.compute.FirewallLogConfigArgs(metadata="INCLUDE_ALL_METADATA") if logged else None,
            opts=child(self, depends_on=others),
        )


@dataclass(frozen=True, kw_only=True)
class NeighboursArgs:
    """Nodes in a network that is somebody else's."""

    scope: Scope
    network_id: pulumi.Input[str]
    service_account: pulumi.Input[str]
    """Account of the nodes; the rule is about its machines and no others."""


class Neighbours(Part):
    """Lets the nodes of a cluster talk to each other in another's network, and touches nothing else there."""

    rule: gcp.compute.Firewall
    """The one rule."""

    def __init__(self, name: str, args: NeighboursArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        logical = naming.logical(name, "in")
        self.rule = gcp.compute.Firewall(
            logical,
            name=args.scope.named(logical),
            # A rule is in the project of its network, which a shared network has of its own.
            project=pulumi.Output.all(args.network_id, args.scope.project).apply(
                lambda known: names.project_of(known[0], known[1])
            ),
            network=args.network_id,
            direction="INGRESS",
            priority=ALLOW,
            allows=_every_protocol(),
            source_service_accounts=[args.service_account],
            target_service_accounts=[args.service_account],
            opts=child(self),
        )


def _every_protocol() -> list[gcp.compute.FirewallAllowArgs]:
    """What Google's recipes open between nodes (gcp.md 2.1)."""
    return [*(gcp.compute.FirewallAllowArgs(protocol=one) for one in ("tcp", "udp", "icmp"))]


def _tcp(ports: list[str]) -> gcp.compute.FirewallAllowArgs:
    return gcp.compute.FirewallAllowArgs(protocol="tcp", ports=ports)
