"""The traffic of the nodes that the network security group of the nodes allows. `components/security.py` creates the group.

InfiniBand traffic is not IP traffic, so security groups do not apply to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuinfra.clouds.connections import ALL, INTERNET, NODES, Traffic, declared
from gpuinfra.plan.model import ExistingFileSystemPlan, FileSystemPlan, Plan

LUSTRE_PORTS = ("988", "1019-1023")
"""TCP ports between Lustre clients and servers, in both directions (https://learn.microsoft.com/azure/azure-managed-lustre/amlfs-prerequisites)."""
HTTPS = ("443",)
SSH = ("22",)
NFS = ("2049",)
"""TCP port of Azure Files for NFS 4.1, with and without TLS (Azure/AZNFS-mount at 850eebf: src/nfsv4mountscript.sh, CONNECT_PORT)."""
NETAPP_PORTS = ("111", "635", "2049", "4045-4046")
"""TCP ports of Azure NetApp Files for NFS 3: portmapper, mount, NFS,
lock manager and status monitor (requirements in
https://learn.microsoft.com/azure/azure-netapp-files/azure-netapp-files-mount-unmount-volumes-for-virtual-machines, retrieved 2026-11-27)."""
WEB_PORTS = ("80", "443")
"""TCP ports for egress to the internet. The Ubuntu archive serves signed packages on port 80; all other services use port 443."""
ENDPOINTS, BASTION = "private endpoints", "Bastion"


def connections(plan: Plan) -> Iterator[Traffic]:
    """Yield the traffic. The site creates the security group of the nodes."""
    network = plan.network
    if "site" not in plan.layers or network is None:
        return
    roles = {subnet.role for subnet in network.subnets}
    yield Traffic(source=NODES, target=NODES, protocol=ALL, both_ways=True)
    if network.egress == "nat":
        yield Traffic(source=NODES, target=INTERNET, protocol="tcp", ports=WEB_PORTS)
    if "endpoints" in roles or network.interface_endpoints:
        yield Traffic(source=NODES, target=ENDPOINTS, protocol="tcp", ports=HTTPS)
    if "bastion" in roles:
        yield Traffic(source=BASTION, target=NODES, protocol="tcp", ports=SSH)
    yield from declared(network)
    for entry in (*plan.file_systems, *plan.existing_file_systems):
        yield from _file_system(entry)


def _file_system(entry: FileSystemPlan | ExistingFileSystemPlan) -> Iterator[Traffic]:
    target = f"{entry.kind} {entry.mount}"
    if entry.kind == "lustre":
        yield Traffic(source=NODES, target=target, protocol="tcp", ports=LUSTRE_PORTS, both_ways=True)
    elif entry.kind == "home":
        yield Traffic(
            source=NODES, target=target, protocol="tcp", ports=NETAPP_PORTS if entry.service == "netapp" else NFS
        )
