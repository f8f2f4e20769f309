"""The health check that stops a rolling update at a node that is not verified.

A group counts a new node as available after its health check succeeds at least once, and replaces the next nodes only within `maxUnavailable` or
`maxSurge` (InstanceGroupManagerUpdatePolicy in the discovery document of the Compute Engine API, retrieved 2026-11-22).
The node responds with status 200 after all its checks pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.firewall import ALLOW
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.connections import PROBERS
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.node.health import PORT, VERIFIED_PATH


@dataclass(frozen=True, kw_only=True)
class NodeHealthArgs:
    """Arguments for the health check: the network and the identity of the nodes."""

    scope: Scope
    network_id: pulumi.Input[str]
    """Network of the nodes, `projects/P/global/networks/N`."""
    """Network of the first interface of the nodes."""
    service_account: pulumi.Input[str]
    """Service account of the nodes. Probes reach only instances with this account."""
    control_account: pulumi.Input[str] | None = None
    """Service account of the control node, which is treated like `service_account`. If unset, there is no control node."""


class NodeHealth(pulumi.ComponentResource):
    """A health check of the nodes, and the firewall rule for its probes."""

    check: pulumi.Output[str]
    """The health check. Resolves after the firewall rule exists."""

    def __init__(self, name: str, args: NodeHealthArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:NodeHealth", name, None, args.scope.options(opts))
        logical = rows.PROBE_FIREWALL_RULE.logical(name)
        accounts = [one for one in (args.service_account, args.control_account) if one is not None]
        rule = gcp.compute.Firewall(
            logical,
            name=args.scope.physical_name(logical),
            project=pulumi.Output.all(args.network_id, args.scope.project).apply(
                lambda known: names.project_of(known[0], known[1])
            ),
            network=args.network_id,
            direction="INGRESS",
            priority=ALLOW,
            allows=[gcp.compute.FirewallAllowArgs(protocol="tcp", ports=[str(PORT)])],
            source_ranges=list(PROBERS),
            target_service_accounts=accounts,
            opts=child(self, rows.PROBE_FIREWALL_RULE),
        )
        logical = rows.HEALTH_CHECK.logical(name)
        check = gcp.compute.HealthCheck(
            logical,
            name=args.scope.physical_name(logical),
            description=f"Verified nodes of {args.scope.cluster}",
            check_interval_sec=15,
            timeout_sec=5,
            healthy_threshold=1,
            unhealthy_threshold=4,
            http_health_check=gcp.compute.HealthCheckHttpHealthCheckArgs(port=PORT, request_path=VERIFIED_PATH),
            opts=child(self, rows.HEALTH_CHECK),
        )
        self.check = ready_after(check.self_link, [rule])
        self.register_outputs({"check": self.check})
