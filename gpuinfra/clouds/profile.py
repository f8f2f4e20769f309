"""What every cloud's profile answers: facts that differ are fields, behaviours that differ are methods.

A profile is pure: it imports no SDK and looks nothing up. Components, rules, plan and cost ask it and never a cloud's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
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
"""A rule: findings of one sentence about a declaration."""


@dataclass(frozen=True, kw_only=True)
class Bought:
    """A size as a person wrote it and as it is sold."""

    asked: int
    sold: int
    why: str


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
    """Kinds of storage that are made here and that a bootstrap step mounts."""

    metadata_to_guard: tuple[str, ...]
    """Addresses of the metadata service that a node keeps its containers from by itself; none where a hop limit does it."""

    def zone_number(self, zone: str) -> int:
        """Index of a zone in its region, the base of names and addresses."""
        ...

    def first_zone(self, region: str) -> str:
        """The zone for machines whose zones no record names."""
        ...

    def region_of_zone(self, zone: str, region: str) -> str | None:
        """The region that a zone belongs to, None for no zone of this cloud; `region` decides where a zone has the same name everywhere."""
        ...

    def group_limit(self, machine: MachineType) -> int | None:
        """Most nodes that one group of this machine type may hold; None for no limit."""
        ...

    def nics(self, machine: MachineType, *, fabric: bool) -> tuple[Nic, ...]:
        """The interfaces of one node."""
        ...

    def image(self, spec: ClusterSpec, pool: Pool, machine: MachineType) -> tuple[Image, str]:
        """Where a pool's image comes from, and why."""
        ...

    def disk(self, pool: Pool, machine: MachineType, image: Image) -> Disk:
        """The root disk of a node."""
        ...

    def groups(
        self, pool: Pool, machine: MachineType, zone: str, today: date
    ) -> tuple[tuple[Group, ...], tuple[Decision, ...]]:
        """The groups of one pool, and why each is placed as it is."""
        ...

    def network(self, spec: ClusterSpec, zoning: Zoning, today: date) -> NetworkPlan:
        """Addresses and the way out."""
        ...

    def own_networks(self, spec: ClusterSpec, zoning: Zoning) -> tuple[OwnNetwork, ...]:
        """Networks that a cluster makes for itself beside its site's; none on most clouds."""
        ...

    def subnet(self, zone: str) -> str:
        """Name of the subnet that nodes of a zone are in."""
        ...

    def lustre(self, entry: Lustre) -> Bought:
        """The capacity as the cloud sells it."""
        ...

    def file_system(self, entry: Lustre | Home | ObjectMount, name: str, zone: str) -> FileSystemPlan:
        """One file system."""
        ...

    def resources(self, plan: Plan) -> dict[str, int]:
        """Pulumi type -> how many the plan creates."""
        ...

    def kept(self, plan: Plan) -> tuple[Kept, ...]:
        """What destroy leaves behind."""
        ...
