"""The traffic of the nodes that the security groups allow. `components/security.py` creates the groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuinfra.clouds.aws.instances import LUSTRE_PORTS, NFS_PORT, OPENZFS_PORTS, WEB_PORTS
from gpuinfra.clouds.connections import ALL, INTERNET, NODES, Traffic, declared
from gpuinfra.plan.model import ExistingFileSystemPlan, FileSystemPlan, Plan

SERVICES = "AWS service endpoints"


def connections(plan: Plan) -> Iterator[Traffic]:
    """Yield the traffic. The site creates the security group of the nodes."""
    if "site" not in plan.layers or plan.network is None:
        return
    yield Traffic(source=NODES, target=NODES, protocol=ALL, both_ways=True)
    web = INTERNET if plan.network.existing_id or plan.network.egress == "nat" else SERVICES
    yield Traffic(source=NODES, target=web, protocol="tcp", ports=tuple(str(port) for port in WEB_PORTS))
    yield from declared(plan.network)
    efa = any(one.efa for one in plan.file_systems)
    for entry in plan.file_systems:
        yield from _file_system(entry, efa=efa)
    for existing in plan.existing_file_systems:
        yield from _file_system(existing, efa=existing.efa)


def _file_system(entry: FileSystemPlan | ExistingFileSystemPlan, *, efa: bool) -> Iterator[Traffic]:
    target = f"{entry.kind} {entry.mount}"
    if entry.kind == "home":
        ports = OPENZFS_PORTS if entry.service == "openzfs" else ((NFS_PORT, NFS_PORT),)
        yield Traffic(source=NODES, target=target, protocol="tcp", ports=_spans(ports))
    elif entry.kind == "lustre" and efa:
        yield Traffic(source=NODES, target=target, protocol=ALL, both_ways=True)
    elif entry.kind == "lustre":
        yield Traffic(source=NODES, target=target, protocol="tcp", ports=_spans(LUSTRE_PORTS), both_ways=True)


def _spans(ports: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    return tuple(str(first) if first == last else f"{first}-{last}" for first, last in ports)
