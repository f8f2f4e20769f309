"""Facts about a cloud that `gpuinfra clone` uses: partitions, transfer prices, and commands for items that a stack file cannot copy.

Each cloud implements `SecondRegion` in its module `second_region`. The modules are pure: they import no SDK and make no calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gpuinfra.catalog.records import CapacityKind, MachineType, TransferPrice
from gpuinfra.plan.model import PoolPlan


@dataclass(frozen=True, kw_only=True)
class Manual:
    """An item that a stack file cannot copy to another region, and the command that provides it."""

    path: str
    """Field of the declaration, or the setting of the stack file."""
    what: str
    why: str
    command: str
    """Command to run. Words in capital letters, such as `BUCKET`, are placeholders for your own values."""


@dataclass(frozen=True, kw_only=True)
class ReplicationLag:
    """The replication lag of object storage."""

    minutes: int | None
    """Maximum lag to which the cloud commits, or None if it does not commit to a lag."""
    feature: str
    """Feature to enable for this lag, and its requirements."""
    export: str
    """When changes in the file system reach the bucket that is replicated."""
    source: str
    caution: str = ""
    """Warning to read before you change the replication of a bucket. Printed with the command."""


@dataclass(frozen=True, kw_only=True)
class Quota:
    """A quota of a region, and the amount that a node uses."""

    name: str
    """The cloud's code or name of the quota. Empty if it is unknown."""
    per_node: int
    unit: str
    """`vCPUs` or `GPUs`."""


class SecondRegion(Protocol):
    """Facts about a cloud."""

    region_settings: tuple[str, ...]
    """Pulumi provider settings that contain the region."""
    zone_settings: tuple[str, ...]
    """Pulumi provider settings that contain a zone."""
    private_replicas: bool
    """Whether nodes and file systems reach a replica only through a private endpoint of its account (`storage[].private_endpoint`)."""
    tiers: tuple[int, ...]
    """Throughput tiers of Lustre in MB/s per TiB."""
    replication: ReplicationLag

    def partition(self, region: str) -> str:
        """Return the partition of a region. Accounts, keys and images cannot be used across partitions."""
        ...

    def transfer(self, source: str, target: str) -> TransferPrice:
        """Return the price of data from one region to another."""
        ...

    def egress(self, region: str) -> TransferPrice:
        """Return the price of data from a region to the internet, in the first tier."""
        ...

    def quota(self, machine: MachineType, kind: CapacityKind) -> Quota | None:
        """Return the quota that a node uses. None if the kind of capacity needs no quota."""
        ...

    def request(self, quota: Quota, total: int, region: str, project: str | None) -> str:
        """Return the command that requests a quota of `total` in a region."""
        ...

    def purchase(self, kind: CapacityKind, machine: MachineType, nodes: int, region: str, zone: str | None) -> str:
        """Return the command that finds or creates reserved capacity."""
        ...

    def image(self, ref: str, source: str, target: str) -> tuple[str, str] | None:
        """Return the reason and the command if an image must be copied to the region. None if the image is global. Commands are joined with `&&`."""
        ...

    def registry(self, registry: str, source: str, target: str) -> tuple[str, str] | None:
        """Return the registry in the other region, and the command that copies an image. None if the registry is not regional."""
        ...

    def network(self, region: str) -> str:
        """Return the command that lists the existing networks of a region."""
        ...

    def bucket(self, bucket: str, source: str, target: str) -> str:
        """Return the first command for the replication of a bucket. It never replaces existing replication rules."""
        ...


def quota_totals(
    pools: Iterable[PoolPlan], machines: Mapping[str, MachineType], per_node: Callable[[MachineType], int]
) -> dict[str, int]:
    """Return the amount of each quota that all nodes of a plan need, sorted by quota name. The name is empty if the catalog does not contain it."""
    totals: dict[str, int] = {}
    for pool in pools:
        machine = machines.get(pool.machine)
        for group in pool.groups:
            amount = group.max_count * per_node(machine) if machine else 0
            if machine and amount:
                name = machine.quotas.get(CapacityKind(group.kind), "")
                totals[name] = totals.get(name, 0) + amount
    return dict(sorted(totals.items()))
