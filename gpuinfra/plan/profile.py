"""What plans and prices need of a cloud. `CloudProfile` has fields for facts and methods for decisions that differ between clouds.

A profile is pure: it does not import an SDK and does not make any calls.
Plan, rules, cost, and components call the profile instead of branching on the cloud's name.
`gpuinfra.clouds.cloud` defines the other capabilities of a cloud.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol

from gpuinfra.base.registry import cloud_as
from gpuinfra.catalog.records import MachineType, ServicePrice, TransferPrice
from gpuinfra.spec.kinds import DeclaredCloud, Offer
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.shown import shown

if TYPE_CHECKING:
    from gpuinfra.base.findings import Finding
    from gpuinfra.catalog.public import PublicPrices
    from gpuinfra.monitoring.discovery import ControlFacts, Discovery
    from gpuinfra.plan.model import (
        Decision,
        Disk,
        ExistingFileSystemPlan,
        FileSystemPlan,
        Group,
        Image,
        Kept,
        NetworkPlan,
        Nic,
        OwnNetwork,
        Plan,
    )
    from gpuinfra.plan.planned import PlannedResource
    from gpuinfra.plan.recovery import Replication
    from gpuinfra.plan.zones import Zoning
    from gpuinfra.software.cloud import CloudSoftware
    from gpuinfra.software.images import ImageFamily
    from gpuinfra.spec.model import ClusterSpec
    from gpuinfra.spec.pool import Pool
    from gpuinfra.spec.storage import ExistingFileSystem, Home, Lustre, ObjectMount


@dataclass(frozen=True, kw_only=True)
class BilledCapacity:
    """Declared capacity and billed capacity, in GiB."""

    requested: int
    billed: int
    reason: str

    def rounded(self, path: str) -> Iterator[Finding]:
        """Yield a finding about the field at `path` if the cloud bills more than the declaration requests."""
        if self.billed != self.requested:
            from gpuinfra.base.findings import info, warn

            # The price is then not the one that the declaration suggests.
            level = warn if self.billed > 1.5 * self.requested else info
            what = f"is {self.requested}, and {self.billed} GiB is billed: {self.reason}"
            yield level(path, what, f"use {self.billed}")


@dataclass(frozen=True, kw_only=True)
class TagForm:
    """Tags that a cloud accepts. Limits differ between the cloud's services. These values are valid for all services."""

    key: str
    """Regular expression that matches an entire key."""
    value: str
    allowed: str
    """Description of the allowed keys and values, for messages."""


class CloudProfile(Offer, Protocol):
    """The profile of a cloud. Facts with a value here are optional."""

    name: str
    machines: Mapping[str, MachineType]
    arm64_names: str
    """Regular expression that matches the names of machine types with ARM CPUs. Some of these machine types can have other names."""
    regions: tuple[str, ...]
    """Regions about which the catalog contains facts."""
    region_form: str = ""
    """Regular expression that matches the names of all regions, also of those that are not in the catalog. If empty, only `regions` are allowed."""
    scheduled_actions: str = ""
    """The service that changes the size of a group at its declared start and end. If empty, `gpuinfra up` changes it."""
    export_scheduler: str = ""
    """The service that requests scheduled exports, if it does not exist in each region of the cloud."""
    export_scheduler_regions: frozenset[str] = frozenset()
    """Regions in which this service is known to exist."""
    service_prices: tuple[ServicePrice, ...] = ()
    software: CloudSoftware
    """Facts that determine the software on nodes."""
    image_families: tuple[ImageFamily, ...] = ()
    """Records of the GPU images that the cloud publishes."""
    user_data_limit: int
    """Upper limit for user data, exclusive, in bytes before base64 encoding."""
    opt_in_zones: frozenset[str] = frozenset()
    """Zones that an account must enable first, such as Local Zones. The plan never chooses such a zone."""
    node_units: frozenset[str] = frozenset()
    """Units in `bootstrap/units` that only nodes of this cloud run."""
    region_setting: str | None = None
    """Pulumi provider setting for the region, such as `aws:region`, or None."""
    sign_in_settings: tuple[str, ...] = ()
    """Provider settings that also select the credentials of gpuinfra's own requests, such as `aws:profile`. They must not be secret."""
    provider_only_settings: tuple[str, ...] = ()
    """Patterns of provider settings that select credentials or endpoints only for the provider: gpuinfra's own requests cannot use them, for example because
    the state holds them as secrets."""
    sign_in_hint: str = ""
    """What to use instead, so that the provider and gpuinfra ask with the same identity."""
    tag_limit: int
    tag_form: TagForm | None = None
    """Characters and lengths of tags that all services of the cloud accept. None if gpuinfra converts tags."""
    home_services: tuple[str, ...]
    """Services for home directories on this cloud. The first one is the default. `gpuinfra/spec/homes.py` lists the settings of each service."""
    access_fields: frozenset[str]
    """Fields of `access` that this cloud uses, or that a rule of this cloud reports."""
    own_fields: frozenset[str] = frozenset()
    """Fields of `gpuinfra.rules.shape.OF_SOME_CLOUDS` that this cloud uses, such as `software.registry`."""
    selects_buckets: bool = False
    """Whether the audit trail records the objects of selected buckets, so that `audit.all_buckets` has an effect."""

    budget_currency: str | None = None
    """The only currency of a budget, as an ISO 4217 code, or None if it is the currency of the billing account."""
    replication: Replication | None = None
    """How buckets are replicated to a second region, or None if gpuinfra does not create resources in a second region on this cloud."""
    replacing_xids: tuple[int, ...] = ()
    """Xids after which the cloud replaces a machine, although NVIDIA's catalog requires less."""
    metadata_to_guard: tuple[str, ...] = ()
    """Metadata service addresses that nodes block for containers. Empty if the cloud has a hop limit."""

    control: ControlFacts
    """What the control node needs."""

    def discovery(self, cluster: str, region: str, zones: Sequence[str], port: int) -> Discovery:
        """Return how Prometheus finds the running nodes of a cluster in these zones."""
        ...

    def is_region(self, region: str) -> bool:
        """Return whether a text is the name of a region, or has the form of one. The catalog can lack the region."""
        return region in self.regions or re.fullmatch(self.region_form, region) is not None

    def region_findings(self, path: str, region: str) -> Iterator[Finding]:
        """Yield the finding about a region that is not in the catalog: a warning if the name is that of a region, otherwise an error."""
        from gpuinfra.base.findings import error, warn

        if region in self.regions:
            return
        near = nearest(region, list(self.regions))
        guess = f"did you mean {near}?" if near else ""
        if self.is_region(region):
            what = (
                f"is {region}, which is not in the catalog: its zones, its prices, the machine types that it offers, and whether the "
                "images and services of the plan exist there are unknown"
            )
            yield warn(path, what, f"{guess} `gpuinfra plan STACK --live` asks {self.title}".strip())
        else:
            hint = guess or f"allowed: {listed(list(self.regions), 40)}"
            yield error(path, f"is {shown(region)}, which is not a valid {self.title} region", hint)

    def zone_number(self, zone: str) -> int:
        """Return the number of a zone in its region. Names and addresses are derived from this number."""
        ...

    def first_zone(self, region: str) -> str:
        """Return the zone for machine types that have no zones in the catalog."""
        ...

    def region_of_zone(self, zone: str, region: str) -> str | None:
        """Return the region of a zone, or None if the zone does not exist. Returns `region` if zone names are the same in every region."""
        ...

    def group_limit(self, machine: MachineType) -> int | None:
        """Return the maximum number of nodes in a group of this machine type, or None if there is no limit."""
        return None

    def nics(self, machine: MachineType, *, fabric: bool) -> tuple[Nic, ...]:
        """Return the network interfaces of a node."""
        ...

    def image(self, spec: ClusterSpec, pool: Pool, machine: MachineType) -> tuple[Image, str]:
        """Return the image of a pool and the reason for the choice."""
        ...

    def disk(self, pool: Pool, machine: MachineType, image: Image) -> Disk:
        """Return the root disk of a node."""
        ...

    def groups(
        self, pool: Pool, machine: MachineType, zone: str, today: date
    ) -> tuple[tuple[Group, ...], tuple[Decision, ...]]:
        """Return the groups of a pool, with a decision about the placement of each group. `today` is a time in UTC if the plan is for the present."""
        ...

    def network(self, spec: ClusterSpec, zoning: Zoning, today: date) -> NetworkPlan:
        """Return the network of the site: addresses, subnets, and egress."""
        ...

    def own_networks(self, spec: ClusterSpec, zoning: Zoning) -> tuple[OwnNetwork, ...]:
        """Return the networks that belong to the cluster instead of its site. Empty on most clouds."""
        return ()

    def subnet(self, zone: str) -> str:
        """Return the name of the node subnet in a zone."""
        ...

    def lustre(self, entry: Lustre) -> BilledCapacity:
        """Return the capacity that the cloud bills for a Lustre file system."""
        ...

    def file_system(self, entry: Lustre | Home | ObjectMount, name: str, zone: str, region: str) -> FileSystemPlan:
        """Return the plan of a file system."""
        ...

    def existing_file_system(
        self, entry: Lustre | Home, existing: ExistingFileSystem, name: str, region: str
    ) -> ExistingFileSystemPlan:
        """Return the plan of a file system that exists outside the stack."""
        ...

    def resources(self, plan: Plan) -> dict[str, int]:
        """Return the number of resources in a plan by Pulumi type."""
        ...

    def kept(self, plan: Plan) -> tuple[Kept, ...]:
        """Return the resources that `destroy` retains."""
        ...


class PlannedCloud(DeclaredCloud):
    """A cloud as plans and prices use it."""

    @property
    @abstractmethod
    def profile(self) -> CloudProfile:
        """The decisions that differ between clouds."""

    @property
    def public_prices(self) -> PublicPrices | None:
        """The price files that the cloud publishes, for `gpuinfra prices update`."""
        return None

    def resources(self, plan: Plan) -> tuple[PlannedResource[Any], ...]:
        """Return the resources that a plan creates. They determine its price."""
        return ()

    @abstractmethod
    def transfer_price(self, source: str, target: str) -> TransferPrice | None:
        """Return the price of data from one region to another, or None if the cloud has no second regions."""

    @abstractmethod
    def budget_limit(self, plan: Plan, today: date) -> float:
        """Return the limit of the budget in USD a month if the declaration has none."""


def planned_cloud(cloud: str) -> PlannedCloud:
    """Return a cloud for a plan. Raises `UsageError` if gpuinfra does not support the cloud."""
    return cloud_as(cloud, PlannedCloud)


def profile_of(cloud: str) -> CloudProfile:
    """Return the profile of a cloud without importing an SDK. Raises `UsageError` if gpuinfra does not support the cloud."""
    return planned_cloud(cloud).profile
