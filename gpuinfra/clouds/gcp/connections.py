"""The traffic of the nodes that the firewall rules allow. `components/firewall.py` and `components/health.py` create the rules."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinfra.clouds.connections import INTERNET, NODES, Traffic, declared
from gpuinfra.clouds.gcp.instances import lustre_ranges, node_health
from gpuinfra.clouds.gcp.profile import FILE_SYSTEM_PORTS
from gpuinfra.node.health import PORT
from gpuinfra.plan.model import FileSystemPlan, NetworkPlan, Plan

PROBERS = ("35.191.0.0/16", "130.211.0.0/22")
"""Source ranges of Google's health checks: https://docs.cloud.google.com/load-balancing/docs/firewall-rules, retrieved 2026-11-22."""
BETWEEN_NODES = "tcp, udp, icmp"
APIS = "Google APIs"


def connections(plan: Plan) -> Iterator[Traffic]:
    """Yield the traffic. The site creates the rules of its network, and a cluster adds rules to an existing network."""
    network = plan.network
    if network is not None and network.existing_id is None and "site" in plan.layers:
        yield from _of_site(plan, network)
    if "cluster" not in plan.layers:
        return
    if network is not None and network.existing_id is not None:
        yield Traffic(source=NODES, target=NODES, protocol=BETWEEN_NODES, both_ways=True)
        for source in lustre_ranges(plan):
            yield Traffic(source=source, target=NODES, protocol="tcp", ports=tuple(FILE_SYSTEM_PORTS["lustre"]))
    if any(node_health(plan)):
        for source in PROBERS:
            yield Traffic(source=source, target=NODES, protocol="tcp", ports=(str(PORT),))


def _of_site(plan: Plan, network: NetworkPlan) -> Iterator[Traffic]:
    yield Traffic(source=NODES, target=NODES, protocol=BETWEEN_NODES, both_ways=True)
    if network.egress == "nat":
        yield Traffic(source=NODES, target=INTERNET, protocol="tcp", ports=("80", "443"))
    else:
        yield Traffic(source=NODES, target=APIS, protocol="tcp", ports=("443",))
    yield from declared(network)
    for entry in plan.file_systems if network.service_range else ():
        yield from _file_system(entry)


def _file_system(entry: FileSystemPlan) -> Iterator[Traffic]:
    if ports := FILE_SYSTEM_PORTS.get(entry.kind):
        target = f"{entry.kind} {entry.mount}"
        yield Traffic(source=NODES, target=target, protocol="tcp", ports=tuple(ports), both_ways=entry.kind == "lustre")
