"""Recovery targets: the second region, and the data loss and downtime that you accept when the first region fails."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from gpuinfra.spec.base import Gib, Line, Number, SpecModel, Unit
from gpuinfra.spec.formats import text

Minutes = Annotated[StrictInt, Unit("minutes")]
Zone = Annotated[str, text(r"^[!-~]+$", "the ID of a DNS zone", max_length=400)]
Domain = Annotated[
    str,
    text(
        r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "a domain name in lowercase such as train.example.internal",
        max_length=150,
    ),
]


class RecoveryNames(SpecModel):
    """DNS names of the nodes and the file systems, which `gpuinfra failover` and `gpuinfra failback` move to the other region."""

    zone: Zone = Field(examples=["Z0123456789ABCDEFGHIJ"])
    """ID of an existing DNS zone that contains the names: the ID of a Route 53 hosted zone, the resource ID of an Azure private DNS zone,
    or `projects/PROJECT/managedZones/NAME` on Google Cloud. gpuinfra does not create or delete the zone."""
    domain: Domain = Field(examples=["train.example.internal"])
    """Domain of the names, which is the zone's name or ends with it:
    `login.DOMAIN` is the name of the nodes, and `scratch.DOMAIN` of the file system at `/scratch`."""


class Recovery(SpecModel):
    """A second region in which you can recreate the cluster if its region fails."""

    region: Line = Field(examples=["us-west-2"])
    """Second region, to which the buckets are replicated."""
    mode: Literal["cold", "pilot-light", "hot"] = "cold"
    """What runs in the second region before a failure: `cold` has only replicas and keys,
    `pilot-light` also has the network and the file systems, `hot` also has the nodes.
    A separate stack creates the network, file systems, and nodes in the second region."""
    rpo_minutes: Minutes = Field(ge=1, le=10_080, examples=[120])
    """Recovery point objective: maximum age of the newest checkpoint in the second region when the first region fails."""
    rto_minutes: Minutes = Field(ge=1, le=10_080, examples=[120])
    """Recovery time objective: maximum time from the start of the failover until the checkpoint is read on verified nodes."""
    checkpoint_gib: Gib = Field(ge=1, le=1_000_000, examples=[100])
    """Size of one checkpoint."""
    checkpoint_minutes: Minutes = Field(ge=1, le=10_080, examples=[30])
    """Time between the starts of two checkpoints."""
    export_mb_s: Annotated[StrictInt, Unit("MB/s")] | None = Field(default=None, ge=1, le=10_000_000, examples=[500])
    """Measured rate at which the file system exports a checkpoint to its bucket.
    If omitted, the throughput of the file system is used, which is the upper limit."""
    replication_gbps: Annotated[Number, Unit("Gbit/s")] | None = Field(default=None, gt=0, le=10_000, examples=[10])
    """Replication rate that the cloud guarantees to your account. If omitted, the default quota of the cloud is used."""
    replication_minutes: Minutes | None = Field(default=None, ge=1, le=10_080, examples=[60])
    """Measured time from the export of a checkpoint until all its objects are in the second region.
    Required if and only if the cloud does not commit to a time, as on Azure and Google Cloud."""
    site_minutes: Minutes | None = Field(default=None, ge=1, le=1440, examples=[30])
    """Measured time to create the network and file systems in the second region. Required if and only if `mode` is `cold`."""
    existing_buckets: StrictBool = False
    """Whether the existing buckets of the file systems, and of mounts that nodes can write to, are also replicated, such as the replicas that a failover
    made the data of this stack. The stack sets their replication, so they must not have another one."""
    existing_key_arn: Line | None = Field(
        default=None, examples=["arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"]
    )
    """AWS: ARN of the KMS key that encrypts these buckets. Required if and only if `existing_buckets` is set."""
    copy_images: StrictBool = False
    """AWS: copy the images that the pools select with `image.ref` to the second region, encrypted with a key in that region.
    A copy has its own ID, which the stack file of the second region contains."""
    homes: StrictBool = False
    """AWS: replicate the home directories on Amazon EFS to a file system in the second region, which the stack creates. Its price is part of the plan.
    If omitted, home directories are not replicated, and `gpuinfra ready` states what would be lost."""
    checkpoints: Line | None = Field(default=None, examples=["runs/*/step-*/COMPLETE"])
    """Names of the objects that complete a checkpoint, which the training program writes last: `*` and `?` match within a folder, `**/` matches folders.
    All objects in the folder belong to the checkpoint. `gpuinfra ready` and `failover` then show the age of the newest complete checkpoint in the replica."""
    names: RecoveryNames | None = None
    """DNS names that move to the second region. If omitted, each region has its own names."""


__all__ = ["Recovery", "RecoveryNames"]
