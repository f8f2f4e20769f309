"""The part of a plan about the second region. `recovery.py` calculates it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Replica:
    """A bucket that is replicated to the second region."""

    name: str
    """Purpose in the bucket's name, such as `evidence` or `scratch-0`. It is the same in both regions."""


@dataclass(frozen=True, kw_only=True)
class HomeReplica:
    """Home directories that are replicated to the second region."""

    name: str
    """Name of the file system, such as `home-0`. It is the same in both regions."""
    mount: str


@dataclass(frozen=True, kw_only=True)
class RecoveryImage:
    """An image of the nodes, and how the second region gets it."""

    ref: str
    regional: bool
    """Whether the image exists in the first region only."""
    why: str
    """Why a copy is, or is not, needed in the second region."""
    command: str = ""
    """Command that copies a regional image."""
    copied: bool = False
    """Whether the stack copies the image."""


@dataclass(frozen=True, kw_only=True)
class RecoveryPart:
    """A step that contributes to the time until a checkpoint is in the second region, or until it is read there."""

    what: str
    minutes: float
    how: str
    """The calculation, with its figures and their sources."""
    assumed: bool = False
    """Whether the time is an assumption of gpuinfra, which neither the declaration nor the cloud states."""


@dataclass(frozen=True, kw_only=True)
class RecoveryTarget:
    """A recovery objective and the time that the plan calculates for it."""

    declared_minutes: int
    minutes: float
    """Sum of the parts."""
    holds: bool
    """Whether `minutes` is at most `declared_minutes`, and each part can keep up. This applies only if the rates in `parts` are reached."""
    parts: tuple[RecoveryPart, ...]
    excluded: tuple[str, ...] = ()
    """Steps that `minutes` does not include, because the declaration does not contain their duration."""


@dataclass(frozen=True, kw_only=True)
class RecoveryCommand:
    """A command that you run yourself, because no Pulumi resource performs the operation."""

    why: str
    command: str


EXPORTS = RecoveryCommand(
    why="without `export_minutes`, Managed Lustre exports only on request; run the command in the `export_commands` stack output after each checkpoint",
    command="pulumi stack output export_commands",
)
"""The exports of a file system that has no schedule, on clouds where it does not export by itself."""


@dataclass(frozen=True, kw_only=True)
class MountName:
    """The DNS name of a file system."""

    mount: str
    host: str

    @property
    def source(self) -> str:
        """Name of the TXT record with the complete mount source."""
        return f"source.{self.host}"


@dataclass(frozen=True, kw_only=True)
class NamesPlan:
    """DNS names that move to the other region with the cluster."""

    zone: str
    """ID of an existing hosted zone."""
    domain: str
    login: str
    """Name of the nodes."""
    mounts: tuple[MountName, ...]
    """Names of the file systems that the stack creates."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """All names, the nodes first."""
        return (self.login, *(one.host for one in self.mounts))


@dataclass(frozen=True, kw_only=True)
class RecoveryPlan:
    """The resources that exist in the second region before a failure, and whether the recovery targets are met."""

    region: str
    mode: str
    """`cold`, `pilot-light`, or `hot`."""
    replicas: tuple[Replica, ...]
    alert_after_s: int
    """Replication lag in seconds above which an alert is sent."""
    recipients: tuple[str, ...]
    """Email addresses that receive the alert."""
    rpo: RecoveryTarget
    rto: RecoveryTarget
    checkpoint_gb_per_month: float
    """Checkpoint data that is replicated per month, in GB (10^9 bytes)."""
    commands: tuple[RecoveryCommand, ...] = ()
    images: tuple[RecoveryImage, ...] = ()
    """The images of the nodes, each once."""
    homes: tuple[HomeReplica, ...] = ()
    """Home directories that are replicated, without those whose service cannot replicate them."""
    checkpoints: str | None = None
    """Pattern of the objects that complete a checkpoint, or None if checkpoints are not declared."""
    names: NamesPlan | None = None
    """DNS names that `failover` and `failback` move, or None if each region has its own names."""
    existing_key_arn: str | None = None
    """AWS: key of the replicated buckets that exist outside the stack."""
