"""The protocol of a cloud's profile: fields for facts that differ between clouds, methods for decisions that differ.

A profile is pure: it imports no SDK and makes no calls. Plan, rules, cost and components read the profile and do not compare names of clouds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from types import FunctionType
from typing import TYPE_CHECKING, Protocol

from gpuinfra.catalog.records import CapacityKind, MachineType, ServicePrice

if TYPE_CHECKING:
    from gpuinfra.findings import Finding
    from gpuinfra.plan.model import (
        Decision,
        Disk,
        FileSystemPlan,
        Group,
        Image,
        Kept,
        NetworkPlan,
        Nic,
        OwnNetwork,
        Plan,
    )
    from gpuinfra.plan.zones import Zoning
    from gpuinfra.software.cloud import CloudSoftware
    from gpuinfra.spec.model import ClusterSpec
    from gpuinfra.spec.pool import Pool
    from gpuinfra.spec.storage import Home, Lustre, ObjectMount


Rule = Callable[["ClusterSpec", date], Iterable["Finding"]]
"""A rule: takes a declaration and the day, and yields findings."""


def rules_in(module: Mapping[str, object]) -> tuple[Rule, ...]:
    """The rules of a module, which are its own public functions, in their order: `RULES = rules_in(vars())`."""
    return tuple(
        one
        for name, one in module.items()
        if isinstance(one, FunctionType) and one.__module__ == module["__name__"] and not name.startswith("_")
    )


@dataclass(frozen=True, kw_only=True)
class BilledCapacity:
    """The capacity in the declaration, and the capacity that the cloud bills, in GiB."""

    requested: int
    billed: int
    reason: str


class CloudProfile(Protocol):
    """One cloud."""

    name: str
    title: str
    machines: Mapping[str, MachineType]
    regions: tuple[str, ...]
    capacity_kinds: frozenset[CapacityKind]
    service_prices: tuple[ServicePrice, ...]
    software: CloudSoftware
    """Facts that decide about software on nodes."""
    user_data_limit: int
    """User data must have fewer bytes than this, before base64."""
    node_units: frozenset[str]
    """Units of `bootstrap/units` that only nodes of this cloud run."""
    region_setting: str | None
    """Setting of the Pulumi provider that holds the region, such as `aws:region`; None if it has none."""
    tag_limit: int
    storage_kinds: frozenset[str]
    """Kinds of storage that gpuinfra creates on this cloud."""

    metadata_to_guard: tuple[str, ...]
    """Addresses of the metadata service that nodes block for containers; empty if the cloud has a hop limit."""

    def zone_number(self, zone: str) -> int:
        """Number of a zone in its region, from which names and addresses are derived."""
        ...

    def first_zone(self, region: str) -> str:
        """The zone for machine types without zones in the catalog."""
        ...

    def region_of_zone(self, zone: str, region: str) -> str | None:
        """The region of a zone, None if the cloud has no such zone. If every region has the same zones, the result is `region`."""
        ...

    def group_limit(self, machine: MachineType) -> int | None:
        """Maximum number of nodes in one group of this machine type, None for no limit."""
        ...

    def nics(self, machine: MachineType, *, fabric: bool) -> tuple[Nic, ...]:
        """The network interfaces of a node."""
        ...

    def image(self, spec: ClusterSpec, pool: Pool, machine: MachineType) -> tuple[Image, str]:
        """The image of a pool, and the reason."""
        ...

    def disk(self, pool: Pool, machine: MachineType, image: Image) -> Disk:
        """The root disk of a node."""
        ...

    def groups(
        self, pool: Pool, machine: MachineType, zone: str, today: date
    ) -> tuple[tuple[Group, ...], tuple[Decision, ...]]:
        """The groups of a pool, and a decision about the placement of each."""
        ...

    def network(self, spec: ClusterSpec, zoning: Zoning, today: date) -> NetworkPlan:
        """The network of the site: addresses, subnets and egress."""
        ...

    def own_networks(self, spec: ClusterSpec, zoning: Zoning) -> tuple[OwnNetwork, ...]:
        """Networks that belong to the cluster and not to its site; empty on most clouds."""
        ...

    def subnet(self, zone: str) -> str:
        """Name of the subnet of a zone's nodes."""
        ...

    def lustre(self, entry: Lustre) -> BilledCapacity:
        """The capacity that the cloud bills for a Lustre file system."""
        ...

    def file_system(self, entry: Lustre | Home | ObjectMount, name: str, zone: str) -> FileSystemPlan:
        """The plan of one file system."""
        ...

    def resources(self, plan: Plan) -> dict[str, int]:
        """Pulumi type -> number of resources that the plan creates."""
        ...

    def kept(self, plan: Plan) -> tuple[Kept, ...]:
        """Resources that destroy retains."""
        ...
