"""File systems that all nodes share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuinfra.spec.base import Mount, Part, Whole, Word, YesNo

Events = tuple[Literal["NEW", "CHANGED", "DELETED"], ...]


class Lustre(Part):
    """A parallel file system: FSx for Lustre, Azure Managed Lustre, Google Cloud Managed Lustre."""

    kind: Literal["lustre"] = "lustre"
    """The kind of storage."""
    mount: Mount = "/scratch"
    """Where nodes mount it."""
    capacity_gib: Whole = Field(ge=1, le=1_000_000_000, examples=[4800])
    """Usable size in GiB. Clouds sell it in steps; the plan rounds up and says so."""
    throughput_mb_s_per_tib: Whole | None = Field(default=None, ge=1, le=10_000, examples=[250])
    """Throughput in MB/s for each TiB; each cloud sells a few tiers. Left out: the cloud's middle one."""
    deployment: Literal["persistent_2", "persistent_1", "scratch_2", "scratch_1"] | None = None
    """AWS: deployment type. Left out: `persistent_2`."""
    bucket: Word | None = None
    """Object storage behind it: `auto` makes a bucket beside it, a name takes an existing one. Left out: none."""
    importer_id: Word | None = None
    """Azure: object id of the tenant's service principal "HPC Cache Resource Provider", which imports from the container; needed with `bucket`."""
    bucket_prefix: Annotated[str, Field(max_length=512, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    """Folder of the bucket that is linked."""
    bucket_path: Mount | Literal["/"] = "/"
    """AWS: path in the file system that the bucket appears under."""
    import_events: Events = ("NEW", "CHANGED", "DELETED")
    """AWS: what happens in the bucket and shows in the file system."""
    export_events: Events = ("NEW", "CHANGED", "DELETED")
    """AWS: what happens in the file system and goes to the bucket."""
    version: Literal["2.10", "2.12", "2.15"] | None = None
    """AWS: Lustre version of the servers. Left out: 2.15."""
    metadata_iops: Whole | None = Field(default=None, ge=1)
    """AWS: metadata operations a second. Left out: chosen by the service from the capacity."""
    fabric: YesNo = False
    """AWS: clients reach it over EFA; needs persistent_2, Nitro v4 or later, and larger steps of capacity."""
    backup_days: Whole = Field(default=0, ge=0, le=90)
    """Days that automatic backups are kept; 0 for none."""
    zone: Word | None = None
    """Zone. Left out: the first pool's."""


class Home(Part):
    """Home directories: EFS, Azure Files over NFS, Filestore. Made on Google Cloud; not yet elsewhere: refused by `storage_is_made`."""

    kind: Literal["home"] = "home"
    """The kind of storage."""
    mount: Mount = "/home"
    """Where nodes mount it."""
    capacity_gib: Whole = Field(default=1024, ge=1, le=102_400)
    """Size in GiB; ignored where the service grows by itself (AWS)."""


class ObjectMount(Part):
    """A bucket mounted as a folder, for data that is read once. Declared, but not mounted yet: refused by `storage_is_made`."""

    kind: Literal["object"] = "object"
    """The kind of storage."""
    mount: Mount
    """Where nodes mount it."""
    bucket: Word
    """Name of the bucket, or `auto`."""
    read_only: YesNo = True
    """False lets nodes write."""


Storage = Annotated[Lustre | Home | ObjectMount, Field(discriminator="kind")]
