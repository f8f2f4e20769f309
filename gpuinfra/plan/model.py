"""The plan: every decision taken, still data.

The plan owns the shapes that components, bundle, cost and report read.
It holds no Pulumi inputs and no cloud objects, so it can be printed, compared and tested anywhere.
How the decisions are taken is in the modules beside this one; what they may be is in `gpuinfra.spec`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum


class Lifetime(StrEnum):
    """What `destroy` does with a resource."""

    ENDS = "ends"
    """Removed with the stack."""
    KEPT = "kept"
    """Left in the account because it holds data, audit or a key; the next `up` adopts it."""


@dataclass(frozen=True, kw_only=True)
class Nic:
    """One network interface of a node."""

    card: int
    device: int
    kind: str
    """The provider's word: `interface`, `efa`, `efa-only` on AWS; `gvnic`, `rdma` on Google Cloud; `nic`, `ib` on Azure."""
    network: str = "main"
    """Which of the plan's networks it is on."""


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The root disk of a node."""

    size_gib: int
    kind: str
    """Volume type: `gp3`, `Premium_LRS`, `hyperdisk-balanced`."""
    iops: int | None = None
    throughput_mib_s: int | None = None
    encrypted: bool = True


@dataclass(frozen=True, kw_only=True)
class Image:
    """Where a node's image comes from."""

    source: str
    """`ssm` (an SSM public parameter), `id` (an AMI or image id), `family` (a Google image family), `urn` (an Azure marketplace image)."""
    ref: str
    os: str
    """`ubuntu-22.04`, `ubuntu-24.04`, `cos`."""
    arch: str
    """`x86_64` or `arm64`."""
    prebuilt: bool
    """True where the image brings driver and fabric; false for a plain distribution."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """One autoscaling group, scale set or managed instance group: nodes of one pool and one capacity kind."""

    name: str
    """Index-based logical suffix, `gpu-reserved-0`; part of the public contract."""
    pool: str
    kind: str
    """`on_demand`, `spot`, `reserved`, `block`, `flex`."""
    count: int
    """Nodes wanted now."""
    max_count: int
    zone: str
    reservation_id: str | None = None
    reservation_group_arn: str | None = None
    reservation_preference: str | None = None
    """AWS: `capacity-reservations-only` with a target, `capacity-reservations-first` where on-demand fills up behind one."""
    placement_group: str | None = None
    """Name of the plan's placement group, None for none; `placement_reason` says why."""
    placement_existing: bool = False
    """True where the placement group is there already (a reservation was made in it) and is only named."""
    placement_reason: str = ""
    spot_strategy: str | None = None
    max_price_usd: float | None = None
    starts_at: str | None = None
    ends_at: str | None = None
    max_run_s: int | None = None
    """Google: longest run of a queued node."""
    single_fabric: bool = False
    """Azure: the group is one InfiniBand fabric, a uniform scale set with a single placement group."""
    provisioning: str | None = None
    """Google: provisioning model of its nodes: `STANDARD`, `SPOT`, `FLEX_START`, `RESERVATION_BOUND`."""
    fault_domains: int | None = None
    """Azure: fault domains that nodes are spread over; None where the cloud picks."""
    terminate_first: bool = False
    """True where a replacement cannot be started before its predecessor is gone, because capacity is full."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One bootstrap step."""

    id: str
    """`30-driver`: file name without suffix."""
    timeout_s: int
    retries: int
    why: str


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """Nodes of one kind."""

    name: str
    machine: str
    count: int
    groups: tuple[Group, ...]
    nics: tuple[Nic, ...]
    image: Image
    disk: Disk
    steps: tuple[Step, ...]
    expectation: dict[str, object]
    """The content of `expectation.json` (docs/formats.md); a plain mapping because it is a file format."""
    versions: dict[str, str]
    """The content of `versions.env`: the lock as shell variables."""
    metadata_hop_limit: int = 1
    subnet: str = ""
    """Name of the subnet that its nodes are in."""
    ssh_keys: tuple[str, ...] = ()
    """Public keys that may log in, where the cloud itself puts keys on nodes."""
    canary: int = 1
    """Nodes that are renewed first and have to be verified before the others follow."""
    at_once_percent: int = 20
    """Most of the pool that may be away at one time while it is renewed."""
    tags: dict[str, str] = field(default_factory=dict)
    """Tags of this pool's nodes beside the plan's."""


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """One subnet."""

    name: str
    """Index-based logical suffix, `private-0`."""
    zone: str
    """AWS: zone id such as `use1-az4`, because names differ between accounts."""
    cidr: str
    role: str
    """`nodes` (private), `nat` (public, holds nothing but the NAT gateway), `storage`."""
    network: str = "main"
    """Which of the plan's networks it is in."""
    existing_id: str | None = None
    """The cloud's id of a subnet that is there already and only used; None where this plan makes it."""


@dataclass(frozen=True, kw_only=True)
class ExtraNetwork:
    """A further network of one's own for interfaces that may not share the main one (Google Cloud)."""

    name: str
    """`data-0`, `host-1`, `roce`; the `network` of interfaces and subnets on it."""
    mtu: int
    profile: str | None = None
    """Network profile, such as `us-central1-a-vpc-roce`."""


@dataclass(frozen=True, kw_only=True)
class OwnNetwork:
    """A network that a cluster makes for itself and no site shares (Google Cloud's RDMA networks, which belong to one zone)."""

    name: str
    """`roce`; the `network` of interfaces and subnets on it."""
    mtu: int
    profile: str
    """Network profile, such as `us-central1-a-vpc-roce`."""
    subnets: tuple[Subnet, ...]


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """One network and what leaves it."""

    cidr: str
    subnets: tuple[Subnet, ...]
    egress: str
    """`nat` or `endpoints`."""
    existing_id: str | None = None
    """The cloud's id of a network that is there already and only used; None where this plan makes it."""
    gateway_endpoints: tuple[str, ...] = ()
    """AWS service suffixes: `s3`."""
    interface_endpoints: tuple[str, ...] = ()
    extra: tuple[ExtraNetwork, ...] = ()
    service_range: str | None = None
    """Addresses that the cloud's own services take (Google's peering range for Lustre)."""
    mtu: int | None = None
    ssh_from: tuple[str, ...] = ()
    """Networks that may reach port 22 of nodes; none unless the declaration says so."""
    dns_zones: dict[str, str] = field(default_factory=dict)
    """Azure: private DNS zones that the network has already, name -> id."""
    flow_log_interval_s: int = 60
    flow_log_retention_days: int = 90


@dataclass(frozen=True, kw_only=True)
class FileSystemPlan:
    """One shared file system."""

    name: str
    """Index-based logical suffix, `scratch-0`."""
    kind: str
    """`lustre`, `home`, `object`."""
    mount: str
    capacity_gib: int
    deployment: str
    """FSx: `PERSISTENT_2`; Azure and Google: the tier."""
    throughput_mb_s_per_tib: int | None
    subnet: str
    zone: str | None = None
    """Google: the zone of its servers."""
    version: str | None = None
    metadata_mode: str | None = None
    metadata_iops: int | None = None
    efa: bool = False
    bucket: str | None = None
    """`auto` (made beside it), a bucket's name, or None for no link to object storage."""
    bucket_prefix: str = ""
    bucket_path: str = "/"
    """Path in the file system that the bucket appears under."""
    importer_id: str | None = None
    """Azure: object id of the service principal that imports from the container."""
    import_events: tuple[str, ...] = ()
    export_events: tuple[str, ...] = ()
    backup_days: int = 0
    lifetime: Lifetime = Lifetime.ENDS
    lifetime_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """The audit trail."""

    trail: bool
    existing_bucket: str | None = None
    lock_days: int = 365
    lock_mode: str = "GOVERNANCE"
    data_events: bool = True
    log_retention_days: int = 365


@dataclass(frozen=True, kw_only=True)
class EvidencePlan:
    """Who reads evidence beside its nodes."""

    operators: tuple[str, ...] = ()
    """Principals by the provider's own id; empty for whoever deploys."""
    reached_from: tuple[str, ...] = ()
    """Azure: public address ranges that the evidence can be asked from."""


@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """The budget alert."""

    limit_usd_per_month: float
    recipients: tuple[str, ...]
    thresholds_percent: tuple[int, ...] = (50, 80, 100)
    derived: bool = True
    """True when the limit comes from the plan's own price and not from the spec."""


@dataclass(frozen=True, kw_only=True)
class HandoverPlan:
    """How long `up` waits for its nodes, and for how many."""

    wait: str
    """`all`, `floor`, `none`."""
    floor: int | None
    deadline_s: int


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One thing that destroy leaves behind."""

    what: str
    """Logical name of the resource."""
    type: str
    """Pulumi type token."""
    why: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision with its reason, for people."""

    path: str
    chosen: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that one stack will be."""

    name: str
    cloud: str
    region: str
    zones: tuple[str, ...]
    layers: tuple[str, ...]
    """Which of `foundation`, `site`, `cluster` this stack makes."""
    network: NetworkPlan | None
    pools: tuple[PoolPlan, ...]
    file_systems: tuple[FileSystemPlan, ...]
    audit: AuditPlan
    budget: BudgetPlan | None
    handover: HandoverPlan
    tags: dict[str, str]
    evidence: EvidencePlan = EvidencePlan()
    own_networks: tuple[OwnNetwork, ...] = ()
    """Networks that belong to the cluster and not to its site."""
    registry: str | None = None
    """Container registry of one's own that nodes take images from."""
    project: str | None = None
    """Google: the project that the declaration names; None for the provider's own."""
    kept: tuple[Kept, ...] = ()
    resources: dict[str, int] = field(default_factory=dict)
    """Pulumi type token -> how many this plan creates."""
    decisions: tuple[Decision, ...] = ()
    today: date | None = None

    @property
    def nodes(self) -> int:
        """Nodes of all pools."""
        return sum(pool.count for pool in self.pools)
