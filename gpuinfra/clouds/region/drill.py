"""The requests of `gpuinfra drill --live`: copy a checkpoint from a replica to the bucket of the drill. The replica is only read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gpuinfra.clouds.region.checkpoints import CheckpointObject

Algorithm = Literal["sha256", "md5"]
"""Hash functions with which a cloud calculates the checksums of a copy."""


@dataclass(frozen=True, kw_only=True)
class CopiedObject:
    """An object of the bucket of the drill, with the checksums that the cloud calculated when it wrote the copy."""

    key: str
    size: int
    algorithm: Algorithm
    part_bytes: int
    """Size of the parts to which the checksums apply. The last part can be shorter."""
    checksums: tuple[str, ...]
    """Checksum of each part in hexadecimal digits. Empty if the cloud has none."""


class DrillCopies(Protocol):
    """Requests to one cloud. All methods raise `Unreachable` and `DeploymentError`."""

    holders: frozenset[str]
    """Pulumi types of buckets, which the provider deletes with their objects only if `forceDestroy` is set in the state."""

    def bucket(self, resources: Iterable[Mapping[str, Any]], component: str) -> str:
        """Return the name of the bucket that a stack created for the component of a mount."""
        ...

    def copy(self, replica: str, bucket: str, objects: Sequence[CheckpointObject]) -> tuple[CopiedObject, ...]:
        """Copy objects from a replica to a bucket in the same region. The data does not pass through this machine."""
        ...
