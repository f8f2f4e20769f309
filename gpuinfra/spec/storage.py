"""File systems and buckets that all nodes mount."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from gpuinfra.spec.base import Days, Gib, Line, Mount, SpecModel, Unit
from gpuinfra.spec.formats import text

Events = tuple[Literal["NEW", "CHANGED", "DELETED"], ...]


class ExistingFileSystem(SpecModel):
    """A file system that exists outside the stack. Nodes mount it; `up` and `destroy` do not change it, and it is not part of the price."""

    id: Line = Field(examples=["fs-0123456789abcdef0"])
    """AWS: ID of the file system. Google Cloud: path of the instance,
    such as `projects/my-project/locations/us-central1-a/instances/scratch`. Azure: resource ID of the file system, the file share or the volume."""
    address: (
        Annotated[
            str,
            text(
                r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$",
                "a DNS name or an IPv4 address, without a port",
                max_length=253,
            ),
        ]
        | None
    ) = Field(default=None, examples=["10.40.0.2"])
    """DNS name or IPv4 address that nodes mount. Required for Managed Lustre and Azure NetApp Files on Azure, and on Google Cloud.
    On AWS and for Azure Files, if omitted, the DNS name that belongs to the ID is used."""
    mount_name: (
        Annotated[
            str,
            text(
                r"^/?[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$",
                "a name or a path of letters, digits, _, - and ., without spaces",
                max_length=128,
            ),
        ]
        | None
    ) = Field(default=None, examples=["a1b2c3d4"])
    """Lustre: name in the mount source, which the cloud returns.
    Home directories: exported path; on AWS, the root of the file system if omitted.
    Required, except for home directories on AWS, and on Azure, where the name is `lustrefs`, or follows from the ID of the share;
    for Azure NetApp Files, it is the file path of the volume."""
    security_group: Line | None = Field(default=None, examples=["sg-0123456789abcdef0"])
    """AWS: security group of the file servers or mount targets.
    On the nodes' side, the stack opens the ports between this group and the nodes. Required on AWS."""
    efa_enabled: StrictBool = False
    """AWS: whether the file system was created with EFA. Required for `fabric`."""
    address_range: Annotated[str, text(r"^[0-9.]+/[0-9]+$", "a network such as 10.40.0.0/24", max_length=18)] | None = (
        Field(default=None, examples=["10.40.0.0/24"])
    )
    """Google Cloud: address range of the file servers, from which the stack opens port 988 of the nodes. Required for Lustre on Google Cloud."""


class Lustre(SpecModel):
    """A parallel file system: Amazon FSx for Lustre, Azure Managed Lustre, or Google Cloud Managed Lustre."""

    kind: Literal["lustre"] = "lustre"
    """Selects a Lustre file system."""
    mount: Mount = Field(default="/scratch", examples=["/scratch"])
    """Path at which nodes mount the file system."""
    existing: ExistingFileSystem | None = None
    """Existing file system to mount. If omitted, the stack creates a file system."""
    capacity_gib: Gib | None = Field(default=None, ge=1, le=1_000_000_000, examples=[4800], validate_default=True)
    """Usable size of the file system. Each cloud offers capacity in fixed increments.
    The plan rounds the size up to the next increment and reports the result. Required unless `existing` is set."""
    throughput_mb_s_per_tib: Annotated[StrictInt, Unit("MB/s per TiB")] | None = Field(
        default=None, ge=1, le=10_000, examples=[250]
    )
    """Throughput per TiB of capacity. Each cloud offers a few tiers. If omitted, the cloud's middle tier is used."""
    deployment: Literal["persistent_2", "persistent_1", "scratch_2", "scratch_1"] | None = None
    """AWS: FSx deployment type. If omitted, `persistent_2` is used."""
    bucket: Line | None = Field(default=None, examples=["auto"])
    """Object storage to link to the file system: `auto` creates a bucket, and a name links an existing bucket. If omitted, no bucket is linked."""
    importer_id: Line | None = Field(default=None, examples=["00000000-0000-4000-8000-000000000000"])
    """Azure: object ID of your tenant's service principal "HPC Cache Resource Provider", which imports from the container. Required if `bucket` is set."""
    private_endpoint: StrictBool = False
    """Azure: whether the stack creates a private endpoint, in its network, for the account of an existing container,
    such as a replica in the second region. Your identity needs permission to approve endpoint connections of the account.
    A container that the stack creates always has an endpoint."""
    bucket_prefix: Annotated[str, text(r"^[^\x00-\x1f\x7f]*$", "one line of text", max_length=512)] = Field(
        default="", examples=["datasets/imagenet"]
    )
    """Folder in the bucket to link. If omitted, the entire bucket is linked."""
    bucket_path: Mount | Literal["/"] = Field(default="/", examples=["/data"])
    """AWS: path in the file system to which the bucket is linked."""
    import_events: Events = ("NEW", "CHANGED", "DELETED")
    """AWS: changes to objects in the bucket that are imported into the file system."""
    export_events: Events = ("NEW", "CHANGED", "DELETED")
    """AWS: changes to files in the file system that are exported to the bucket."""
    export_minutes: Annotated[StrictInt, Unit("minutes")] | None = Field(default=None, ge=15, le=1440, examples=[60])
    """Azure and Google Cloud: time between two scheduled exports of new and changed files to the bucket: 15, 20, 30, 60, 120, 180, 240, 360, 480, 720
    or 1440. `gpuinfra failover` pauses the schedule, and `failback` resumes it. If omitted, files are exported only on request."""
    export_paused: StrictBool = False
    """Azure and Google Cloud: whether the schedule of `export_minutes` is created paused, as `gpuinfra clone` sets it in the stack of the second region.
    `gpuinfra failover` resumes it there. A later deployment leaves its state unchanged."""
    version: Literal["2.10", "2.12", "2.15"] | None = None
    """AWS: Lustre version of the file servers. If omitted, 2.15 is used."""
    metadata_iops: Annotated[StrictInt, Unit("metadata operations per second")] | None = Field(
        default=None, ge=1, examples=[6000]
    )
    """AWS: provisioned metadata performance. If omitted, the service derives it from the capacity."""
    fabric: StrictBool = False
    """AWS: whether clients connect over EFA. Requires `persistent_2`, machines on Nitro v4 or later, and larger capacity increments."""
    backup_days: Days = Field(default=0, ge=0, le=90, examples=[7])
    """AWS: retention of automatic backups. 0 disables them."""
    restore_from: (
        Annotated[
            str,
            text(r"^backup-[0-9a-f]{8,64}$", "the ID of an FSx backup, such as backup-0123456789abcdef0"),
        ]
        | None
    ) = Field(default=None, examples=["backup-0123456789abcdef0"])
    """AWS: FSx backup from which the file system is created. `capacity_gib`,
    `deployment` and `throughput_mb_s_per_tib` must be those of the backup, `version` must not be older,
    and the original must have SSD storage and LZ4 compression. Has no effect after the file system exists.
    If omitted, the file system is created empty or with the objects of its bucket."""
    zone: Line | None = Field(default=None, examples=["use1-az4"])
    """Zone of the file system. If omitted, the cluster's zone is used."""

    @field_validator("capacity_gib")
    @classmethod
    def _has_size(cls, value: int | None, info: ValidationInfo) -> int | None:
        # If `existing` is invalid, it is not in `data`, and its own error is sufficient.
        if value is None and info.data.get("existing", True) is None:
            raise PydanticKnownError("missing")
        return value

    @property
    def size_gib(self) -> int:
        """The declared size, or 0 for an existing file system."""
        return self.capacity_gib or 0


class Home(SpecModel):
    """Home directories over NFS: Amazon EFS or FSx for OpenZFS on AWS, Azure Files or Azure NetApp Files on Azure, Filestore on Google Cloud."""

    kind: Literal["home"] = "home"
    """Selects home directories over NFS."""
    mount: Mount = Field(default="/home", examples=["/home"])
    """Path at which nodes mount the file system."""
    service: Literal["efs", "openzfs", "files", "netapp", "filestore"] | None = Field(
        default=None, examples=["openzfs"]
    )
    """Service of the file system. AWS: `efs` (Amazon EFS), `openzfs` (FSx for OpenZFS).
    Azure: `files` (an NFS share of Azure Files), `netapp` (Azure NetApp Files). Google Cloud: `filestore`.
    If omitted, `efs`, `files` or `filestore` is used."""
    existing: ExistingFileSystem | None = None
    """Existing file system of the service to mount. If omitted, the stack creates a file system."""
    capacity_gib: Gib = Field(default=1024, ge=1, le=102_400, examples=[2560])
    """Size of the file system. `efs`: the file system grows and shrinks with its files, so this size affects only the price in the plan.
    `openzfs`: at least 64. `netapp`: at least 50, rounded up to a multiple of 1024, because a capacity pool is billed in increments of 1 TiB."""
    throughput_mb_s: Annotated[StrictInt, Unit("MB/s")] | None = Field(default=None, ge=1, le=100_000, examples=[320])
    """`openzfs`: provisioned throughput, which is billed whether you use it or not: 160, 320, 640, 1280, 2560, 3840, 5120, 7680 or 10240.
    If omitted, 160 is used."""
    service_level: Literal["standard", "premium", "ultra"] | None = Field(default=None, examples=["premium"])
    """`netapp`: service level of the capacity pool, which provides 16, 64 or 128 MiB/s for each TiB. If omitted, `premium` is used."""
    backup_days: Days = Field(default=0, ge=0, le=90, examples=[7])
    """`openzfs`: retention of daily automatic backups. 0 disables them."""
    snapshot_days: Days = Field(default=0, ge=0, le=255, examples=[7])
    """`netapp`: number of daily snapshots to keep. Users find them in the folder `.snapshot`.
    They use the capacity of the volume, and are lost with it. 0 disables them."""
    restore_from: (
        Annotated[
            str,
            text(r"^backup-[0-9a-f]{8,64}$", "the ID of an FSx backup, such as backup-0123456789abcdef0"),
        ]
        | None
    ) = Field(default=None, examples=["backup-0123456789abcdef0"])
    """`openzfs`: FSx backup from which the file system is created. `capacity_gib` must be the size of the backup.
    Has no effect after the file system exists. If omitted, the file system is created empty."""
    replica: (
        Annotated[str, text(r"^fs-[0-9a-f]{8,40}$", "the ID of an EFS file system, such as fs-0123456789abcdef0")]
        | None
    ) = Field(default=None, examples=["fs-0123456789abcdef0"])
    """`efs`: file system in this region to which `recovery.homes` of another stack replicates its home directories. The stack creates mount targets for it,
    and no file system. Nodes can only read it until `gpuinfra failover` ends the replication. If omitted, the stack creates a file system."""


class ObjectMount(SpecModel):
    """A bucket mounted as a folder: Mountpoint for Amazon S3 on AWS, BlobFuse on Azure, Cloud Storage FUSE on Google Cloud."""

    kind: Literal["object"] = "object"
    """Selects a bucket that is mounted as a folder."""
    mount: Mount = Field(examples=["/data"])
    """Path at which nodes mount the bucket."""
    bucket: Line = Field(examples=["my-training-data"])
    """Name of an existing bucket, or `auto` to create one. Azure: resource ID of an existing container, or `auto`. Nodes get access to this bucket only."""
    private_endpoint: StrictBool = False
    """Azure: whether the stack creates a private endpoint, in its network, for the account of an existing container,
    such as a replica in the second region. Your identity needs permission to approve endpoint connections of the account.
    A container that the stack creates always has an endpoint."""
    key_arn: Line | None = Field(
        default=None, examples=["arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"]
    )
    """AWS: ARN of the KMS key that encrypts an existing bucket. Nodes get permission to use the key for objects.
    If omitted, nodes can read only objects that S3 encrypts with its own keys."""
    read_only: StrictBool = True
    """Whether nodes mount the bucket read-only. Set to false to let all users of the nodes write and delete objects."""
    cache_gib: Gib | None = Field(default=None, ge=0, le=1_000_000, examples=[500])
    """Size of the cache for objects on the local disks of each node. If omitted, a tenth of the capacity of the local disks is used.
    0 disables the cache. Machine types without local disks have no cache."""


Storage = Annotated[Lustre | Home | ObjectMount, Field(discriminator="kind")]
