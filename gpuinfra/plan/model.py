"""The data model of a plan. The components, the bundle, the cost calculation, and the report read it.

A plan contains no Pulumi inputs and no cloud objects, so you can print, compare, and test it without a cloud.
`gpuinfra/plan/make.py` creates a plan from a declaration.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum

from gpuinfra.node.expectation import Expectation
from gpuinfra.plan.recovery_model import RecoveryPlan
from gpuinfra.software.images import ImageRelease, contents_text


class Lifetime(StrEnum):
    """Whether `destroy` deletes or retains a resource."""

    ENDS = "ends"
    """`destroy` deletes the resource."""
    KEPT = "kept"
    """`destroy` retains the resource, because it contains data, audit records, or a key. `gpuinfra adopt` imports it again."""


@dataclass(frozen=True, kw_only=True)
class Nic:
    """A network interface of a node."""

    card: int
    device: int
    kind: str
    """Type in the provider's terms: `interface`, `efa`, `efa-only` on AWS; `gvnic`, `rdma` on Google Cloud; `nic`, `ib` on Azure."""
    network: str = "main"
    """Network in the plan that contains the interface."""


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
    """The image of a node."""

    source: str
    """`ssm` (an SSM public parameter), `name` (the name of an Amazon AMI), `id` (an AMI or image ID), `family` (a Google image family),
    `urn` (an Azure marketplace image)."""
    ref: str
    os: str
    """`ubuntu-22.04`, `ubuntu-24.04`, `cos`."""
    arch: str
    """`x86_64` or `arm64`."""
    prebuilt: bool
    """Whether the image contains the driver and the fabric software. False for a plain distribution."""
    family: str = ""
    """Name of the cloud's GPU image family. Empty for a plain distribution and for your own image."""
    date: date | None = None
    """Date of the release. If None, the first deployment selects the newest release of `ref` and stores it."""
    release: ImageRelease | None = None
    """Recorded contents of the release of `date`, or of the newest recorded release if it has no record. None if no contents are recorded."""
    branch: int | None = None
    """Driver branch in the image, or None if it is unknown."""

    @property
    def on(self) -> str:
        """The date of the release, or how the release is selected."""
        if self.date:
            return self.date.isoformat()
        moving = self.source in ("ssm", "family") or self.ref.endswith(":latest")
        return "the newest at the first deployment" if moving else "an image by its ID"

    @property
    def contains(self) -> str:
        """The recorded contents and their date, or a note that they are not recorded."""
        if not self.prebuilt:
            return "no GPU software; the bootstrap steps install it"
        contents = contents_text(self.release.contents) if self.release else ""
        if not contents and self.branch:
            contents = f"driver branch {self.branch}"
        if not contents:
            return "contents not recorded; the bootstrap steps accept or reject the installed versions"
        which = "" if self.date or self.release is None else f"newest recorded release {self.release.date}: "
        read = f" (retrieved {self.release.read})" if self.release else ""
        return f"{which}{contents}{read}"


@dataclass(frozen=True, kw_only=True)
class Group:
    """An Auto Scaling group, scale set, or managed instance group: nodes of one pool with one kind of capacity."""

    name: str
    """Logical suffix with an index, such as `gpu-reserved-0`. Part of the public contract."""
    pool: str
    kind: str
    """`on_demand`, `spot`, `reserved`, `block`, `flex`."""
    count: int
    """Number of nodes that start immediately. `max_count` includes nodes that start later."""
    max_count: int
    zone: str
    reservation_id: str | None = None
    reservation_group_arn: str | None = None
    reservation_preference: str | None = None
    """AWS: `capacity-reservations-only` with a target, or `capacity-reservations-first` with on-demand overflow."""
    placement_group: str | None = None
    """Name of the placement group, or None. `placement_reason` contains the reason."""
    placement_existing: bool = False
    """Whether the placement group already exists, because it contains a reservation."""
    placement_reason: str = ""
    spot_strategy: str | None = None
    max_price_usd: float | None = None
    starts_at: str | None = None
    ends_at: str | None = None
    max_run_s: int | None = None
    """Google Cloud: maximum run time of a flex node."""
    single_fabric: bool = False
    """Azure: whether the group is a single InfiniBand fabric (a uniform scale set with a single placement group)."""
    provisioning: str | None = None
    """Google Cloud: provisioning model of the nodes: `STANDARD`, `SPOT`, `FLEX_START`, `RESERVATION_BOUND`."""
    fault_domains: int | None = None
    """Azure: number of fault domains, or None to let Azure choose."""
    terminate_first: bool = False
    """Whether a node is deleted before its replacement starts, because there is no spare capacity."""


NOT_SHOWN = {"shown": False}
"""Metadata of a field that `--json` omits."""


@dataclass(frozen=True, kw_only=True)
class BootstrapStep:
    """A bootstrap step."""

    id: str
    """File name without suffix, such as `30-driver`."""
    timeout_s: int
    retries: int
    why: str


@dataclass(frozen=True, kw_only=True)
class OwnStep(BootstrapStep):
    """A declared step (`software.steps`), which runs after the bootstrap steps."""

    source: str
    """Path of the script, relative to the folder of the stack file, or its URL."""
    sha256: str
    """SHA-256 of the script. The step runs once for each checksum."""
    reboot: bool
    """Whether the node reboots after the script."""
    content: str | None = field(repr=False, metadata=NOT_SHOWN)
    """The script, or None if nodes download it."""


@dataclass(frozen=True, kw_only=True)
class FilePlan:
    """A declared file on the nodes of a pool, or the file that sets the declared environment variables."""

    path: str
    owner: str
    group: str
    mode: str
    """Four octal digits, such as `0644`."""
    source: str
    """Path of the local file, relative to the folder of the stack file; `content` or `environment` if the declaration contains the content."""
    sha256: str
    content: str = field(repr=False, metadata=NOT_SHOWN)


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """A pool of nodes."""

    name: str
    machine: str
    count: int
    groups: tuple[Group, ...]
    nics: tuple[Nic, ...]
    image: Image
    disk: Disk
    steps: tuple[BootstrapStep, ...]
    expectation: Expectation
    """Content of `expectation.json` (docs/reference/formats.md)."""
    versions: dict[str, str]
    """Content of `versions.env`: the software lock as shell variables."""
    files: tuple[FilePlan, ...] = ()
    """Declared files, sorted by path."""
    metadata_hop_limit: int = 1
    subnet: str = ""
    """Name of the subnet for the nodes."""
    ssh_keys: tuple[str, ...] = ()
    """Public SSH keys that the cloud installs on the nodes."""
    canary: int = 1
    """Number of nodes that are replaced first and must be verified before the others are replaced."""
    at_once_percent: int = 20
    """Maximum percentage of the pool that is replaced at the same time."""
    tags: dict[str, str] = field(default_factory=dict)
    """Tags of this pool's nodes, in addition to the tags of the plan."""

    @property
    def fabric_test(self) -> bool:
        """Whether the nodes must pass the fabric test (check B8)."""
        return "B8" in self.expectation["required"]


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """A subnet."""

    name: str
    """Logical suffix with an index, such as `private-0`."""
    zone: str
    """AWS: zone ID such as `use1-az4`, because zone names differ between accounts."""
    cidr: str
    role: str
    """`nodes` (private), `nat` (public, for the NAT gateway only), `storage`, `fabric`, `endpoints`, or `bastion`."""
    network: str = "main"
    """Network in the plan that contains the subnet."""
    existing_id: str | None = None
    """ID of an existing subnet, or None if the plan creates the subnet."""


@dataclass(frozen=True, kw_only=True)
class ExtraNetwork:
    """An additional network in the site for interfaces that cannot share the main network (Google Cloud)."""

    name: str
    """`data-0`, `host-1`, `roce`. Interfaces and subnets reference it in `network`."""
    mtu: int
    profile: str | None = None
    """Network profile, such as `us-central1-a-vpc-roce`."""


@dataclass(frozen=True, kw_only=True)
class OwnNetwork:
    """A network that belongs to the cluster instead of its site (RDMA networks on Google Cloud, which are zonal)."""

    name: str
    """`roce`. Interfaces and subnets reference it in `network`."""
    mtu: int
    profile: str
    """Network profile, such as `us-central1-a-vpc-roce`."""
    subnets: tuple[Subnet, ...]


@dataclass(frozen=True, kw_only=True)
class IngressPlan:
    """Connections from other networks that the nodes accept."""

    sources: tuple[str, ...]
    """IPv4 networks."""
    ports: tuple[str, ...]
    """Ports and ranges of ports, such as `8080` and `9000-9100`."""
    protocol: str
    """`tcp` or `udp`."""

    def __str__(self) -> str:
        return f"{self.protocol} {', '.join(self.ports)} from {', '.join(self.sources)}"


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """The network of a site."""

    cidr: str
    subnets: tuple[Subnet, ...]
    egress: str
    """`nat` or `endpoints`."""
    existing_id: str | None = None
    """ID of an existing network, or None if the plan creates the network."""
    gateway_endpoints: tuple[str, ...] = ()
    """AWS: services with a gateway endpoint, such as `s3`."""
    interface_endpoints: tuple[str, ...] = ()
    extra: tuple[ExtraNetwork, ...] = ()
    service_range: str | None = None
    """Google Cloud: address range for peering with file system services."""
    mtu: int | None = None
    ssh_from: tuple[str, ...] = ()
    """Networks that can reach port 22 of the nodes. Empty by default."""
    ingress: tuple[IngressPlan, ...] = ()
    """Other connections that the nodes accept. Empty by default."""
    dns_zones: dict[str, str] = field(default_factory=dict)
    """Azure: private DNS zones of an existing network. Maps each name to an ID."""
    flow_log_interval_s: int = 60
    flow_log_retention_days: int = 90

    @property
    def inbound(self) -> str:
        """Connections from other networks that the nodes accept, in words. Empty if there are none."""
        ssh = [f"SSH from {', '.join(self.ssh_from)}"] if self.ssh_from else []
        return "; ".join([*ssh, *map(str, self.ingress)])


@dataclass(frozen=True, kw_only=True)
class FileSystemPlan:
    """A shared file system."""

    name: str
    """Logical suffix with an index, such as `scratch-0`."""
    kind: str
    """`lustre`, `home`, `object`."""
    service: str = ""
    """Home directories: the service, such as `efs`. Empty for other kinds."""
    mount: str
    capacity_gib: int
    deployment: str
    """Deployment type or tier of the service, such as `PERSISTENT_2`."""
    throughput_mb_s_per_tib: int | None = None
    throughput_mb_s: int | None = None
    """FSx for OpenZFS: provisioned throughput."""
    subnet: str
    holds_subnet: bool = False
    """Home directories: whether the file servers have network interfaces in `subnet`,
    so that the subnet cannot be deleted before the file system. Those of Lustre always have."""
    zone: str | None = None
    """Google Cloud: zone of the file servers."""
    version: str | None = None
    metadata_mode: str | None = None
    metadata_iops: int | None = None
    efa: bool = False
    bucket: str | None = None
    """`auto` (created with the file system), the name of an existing bucket, or None."""
    bucket_prefix: str = ""
    bucket_path: str = "/"
    """Path in the file system to which the bucket is linked."""
    importer_id: str | None = None
    """Azure: object ID of the service principal that imports from the container."""
    private_endpoint: bool = False
    """Azure: whether the stack creates a private endpoint for the account of an existing container."""
    read_only: bool = False
    """Whether nodes mount a bucket read-only."""
    key_arn: str | None = None
    """AWS: KMS key of a mounted bucket that exists outside the stack."""
    cache_gib: int | None = None
    """Declared cache size of a mounted bucket on each node, or None to use a tenth of the local disks."""
    import_events: tuple[str, ...] = ()
    export_events: tuple[str, ...] = ()
    export_minutes: int | None = None
    """Azure and Google Cloud: time between two scheduled exports, or None if exports are only manual."""
    replicated: bool = False
    """Whether `recovery` replicates the bucket although it exists outside the stack."""
    export_paused: bool = False
    """Whether the schedule is created paused, because the file system is older than its bucket until a failover."""
    backup_days: int = 0
    snapshot_days: int = 0
    """Azure NetApp Files: number of daily snapshots to keep."""
    restore_from: str | None = None
    """AWS: backup from which the file system is created."""
    replica: str | None = None
    """AWS: ID of the replica of another stack's home directories, for which the stack creates only mount targets."""
    lifetime: Lifetime = Lifetime.ENDS
    lifetime_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ExistingFileSystemPlan:
    """A file system outside the stack that the nodes mount."""

    name: str
    """Name from the mount, such as `scratch-0`."""
    kind: str
    """`lustre` or `home`."""
    service: str = ""
    """Home directories: the service, such as `efs`. Empty for Lustre."""
    mount: str
    id: str
    address: str
    """DNS name or IPv4 address of the server."""
    mount_name: str
    """Lustre: name in the mount source. Home directories: exported path, with a leading slash."""
    efa: bool = False
    security_group: str | None = None
    """AWS: security group of the servers, which the rules of the nodes' security group reference."""
    address_range: str | None = None
    """Google Cloud: address range of the file servers, from which nodes accept Lustre connections."""
    owner_opens: str = ""
    """What the owner of the file system must allow, in words."""

    @property
    def mounted(self) -> dict[str, str]:
        """The entry of the file system in the list of file systems that nodes mount."""
        service = {"service": self.service} if self.service else {}
        entry = {"kind": self.kind, "mount": self.mount, "dns_name": self.address, "mount_name": self.mount_name}
        return {**entry, **service}


@dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """The audit trail."""

    trail: bool
    existing_bucket: str | None = None
    lock_days: int = 365
    lock_mode: str = "GOVERNANCE"
    data_events: bool = True
    recorded_buckets: tuple[str, ...] | None = ("evidence",)
    """AWS: purposes of the stack's buckets whose objects are recorded, or None for all buckets of the account."""
    second_region: str | None = None
    """AWS: region of replicas whose objects are also recorded."""
    log_retention_days: int = 365


@dataclass(frozen=True, kw_only=True)
class EvidencePlan:
    """Principals and networks that can read evidence."""

    operators: tuple[str, ...] = ()
    """Provider IDs of the principals. If empty, only the deploying principal can read evidence."""
    reached_from: tuple[str, ...] = ()
    """Azure: public address ranges from which evidence can be read."""


@dataclass(frozen=True, kw_only=True)
class NodeRolePlan:
    """A role that is assigned to the nodes' identity."""

    role: str
    """Google Cloud: name of the role. Azure: ID of the role definition."""
    scope: str | None
    """Google Cloud: project ID, or None for the project of the stack. Azure: resource ID."""

    @property
    def name(self) -> str:
        """Resource name. It contains the values, because a renamed assignment is deleted only after its replacement with the same values exists."""
        words = f"{self.role.removeprefix('roles/')}-{(self.scope or '').strip('/').rpartition('/')[2]}".lower()
        digest = hashlib.sha256(f"{self.role} {self.scope}".encode()).hexdigest()[:8]
        return f"{re.sub('[^a-z0-9]+', '-', words).strip('-')}-{digest}"


@dataclass(frozen=True, kw_only=True)
class RolesPlan:
    """IAM roles that the stack creates on AWS, and additional permissions of the nodes."""

    permissions_boundary: str | None = None
    """ARN of the permissions boundary of every role, or None."""
    node_policies: tuple[str, ...] = ()
    """ARNs of the managed policies that are attached to the nodes' role."""
    node_role_in_site: bool = False
    """AWS: whether the site creates the nodes' role. Otherwise, the cluster creates it."""
    node_roles: tuple[NodeRolePlan, ...] = ()
    """Azure and Google Cloud: roles that are assigned to the nodes' identity."""


@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """The budget alert."""

    limit_usd_per_month: float
    currency: str
    """Currency of the billing account, as an ISO 4217 code."""
    amount_per_month: float
    """The limit in that currency."""
    recipients: tuple[str, ...]
    thresholds_percent: tuple[int, ...] = (50, 80, 100)
    derived: bool = True
    """Whether the limit is derived from the price of the plan."""


@dataclass(frozen=True, kw_only=True)
class HandoverPlan:
    """How long `up` waits, and for how many nodes."""

    wait: str
    """`all`, `floor`, `none`."""
    floor: int | None
    deadline_s: int


@dataclass(frozen=True, kw_only=True)
class RepairPlan:
    """What the control node does with a node that fails a check after the handover."""

    mode: str
    """`report`, `hold`, `replace`."""
    at_most: int
    """Maximum number of nodes taken out of use within 24 hours."""

    @property
    def replaces(self) -> bool:
        """Whether the control node replaces nodes."""
        return self.mode == "replace"


@dataclass(frozen=True, kw_only=True)
class DataDisk:
    """The disk with the data of the control node, which attaches it at boot. It stays when the node is replaced."""

    size_gib: int
    """At least this size: a disk that is already larger stays as it is."""
    kind: str
    """Volume type, as that of the root disk."""
    zone: str
    """Zone of the control node, to which the disk is bound."""


@dataclass(frozen=True, kw_only=True)
class StorePlan:
    """The managed Prometheus of the cloud, to which the control node writes."""

    service: str
    retention_days: int | None
    """Declared period for which it keeps metrics, or None for the period of the service."""
    samples_per_day: int
    """Upper limit for the samples that the control node writes."""
    recipients: tuple[str, ...]
    """Email addresses that learn that the control node is gone."""
    watches: bool
    """Whether the absence of the control node is reported. It has no node while no pool has nodes."""


@dataclass(frozen=True, kw_only=True)
class EmailPlan:
    """The recipients of the alerts that the service of the cloud sends by email."""

    receiver: str
    """Name of the receiver, such as `email-0`."""
    recipients: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MonitoringPlan:
    """The control node, which runs Prometheus and Alertmanager."""

    pool: str
    """Name of its pool, which has one node."""
    retention_days: int
    disk: DataDisk
    receivers: tuple[str, ...] = ()
    """Names of the receivers, such as `slack-0`."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets that only the control node can read: those of the receivers in their order, and that of the remote endpoint."""
    emails: tuple[EmailPlan, ...] = ()
    remote_write: str | None = None
    """URL of the endpoint that also gets the metrics."""
    store: StorePlan | None = None
    """The managed Prometheus that also gets the metrics."""
    repair: RepairPlan | None = None
    """What the control node does with faulty nodes. None if it does nothing."""


@dataclass(frozen=True, kw_only=True)
class LogsPlan:
    """The logs of the nodes in the log service of the cloud."""

    retention_days: int
    files: tuple[str, ...]
    """Declared log files."""
    recipients: tuple[str, ...]
    """Email addresses that are notified of an Xid after which a node must not be used."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A resource that `destroy` retains."""

    what: str
    """Logical name of the resource."""
    type: str
    """Pulumi type token."""
    why: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A decision and its reason, for `gpuinfra plan --why`."""

    path: str
    chosen: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a stack."""

    name: str
    cloud: str
    region: str
    zones: tuple[str, ...]
    layers: tuple[str, ...]
    """Layers that this stack creates: `foundation`, `site`, `cluster`."""
    network: NetworkPlan | None
    pools: tuple[PoolPlan, ...]
    file_systems: tuple[FileSystemPlan, ...]
    audit: AuditPlan
    budget: BudgetPlan | None
    handover: HandoverPlan
    tags: dict[str, str]
    evidence: EvidencePlan = EvidencePlan()
    roles: RolesPlan = RolesPlan()
    own_networks: tuple[OwnNetwork, ...] = ()
    """Networks that belong to the cluster instead of its site."""
    mounted_buckets: tuple[FileSystemPlan, ...] = ()
    """Buckets that the nodes mount, which the nodes' identity can access. A site in another stack can create them."""
    existing_file_systems: tuple[ExistingFileSystemPlan, ...] = ()
    """File systems outside the stack that the nodes mount. `file_systems` contains only those that the stack creates."""
    recovery: RecoveryPlan | None = None
    """The second region, or None if nothing is replicated."""
    monitoring: MonitoringPlan | None = None
    """The control node, which `pools` contains, or None if the stack has none."""
    logs: LogsPlan | None = None
    """The logs in the log service of the cloud, or None if they are only on the nodes."""
    registry: str | None = None
    """Private container registry from which nodes pull images."""
    project: str | None = None
    """Google Cloud: the declared project, or None to use the project of the provider."""
    kept: tuple[Kept, ...] = ()
    resources: dict[str, int] = field(default_factory=dict)
    """Maps each Pulumi type token to the number of resources that the plan creates."""
    decisions: tuple[Decision, ...] = ()
    today: date | None = None

    @property
    def nodes(self) -> int:
        """Number of nodes in all pools."""
        return sum(pool.count for pool in self.pools)

    @property
    def site_network(self) -> NetworkPlan:
        """The network of the site. Raises `ValueError` if the declaration does not contain the site."""
        if self.network is None:
            raise ValueError("the plan has no network, because layers of the declaration does not include site")
        return self.network
