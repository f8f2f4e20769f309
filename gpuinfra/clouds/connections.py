"""The traffic of the nodes that a plan allows, for diagrams. All other traffic is denied.

The module `connections` of a cloud lists the traffic that its security groups or firewall rules allow. A test compares each list with the rules
that the components create.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuinfra.plan.model import NetworkPlan

NODES, INTERNET = "nodes", "internet"
ALL = "all"
"""Protocol of rules that allow all traffic."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Traffic from one place to another: the nodes, the internet, a network, a file system or a service."""

    source: str
    target: str
    protocol: str
    """`tcp`, `udp`, `all`, or several protocols without ports, such as `tcp, udp, icmp`."""
    ports: tuple[str, ...] = ()
    """Ports of the target, and ranges of ports such as `1018-1023`. Empty for all ports."""
    both_ways: bool = False
    """Whether the target also opens connections to the source, on the same ports."""

    @property
    def label(self) -> str:
        """Protocol and ports: `TCP 80, 443`."""
        if self.protocol == ALL:
            return "all traffic"
        return f"{self.protocol.upper()} {', '.join(self.ports)}".strip()


def declared(network: NetworkPlan | None) -> Iterator[Traffic]:
    """Yield the connections from other networks that the declaration allows: SSH, and `access.ingress`."""
    if network is None:
        return
    for source in network.ssh_from:
        yield Traffic(source=source, target=NODES, protocol="tcp", ports=("22",))
    for entry in network.ingress:
        for source in entry.sources:
            yield Traffic(source=source, target=NODES, protocol=entry.protocol, ports=entry.ports)
