"""The requests to a cloud during a failover or a failback.

Each request can be repeated: the interrupted step runs again after an interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.words import counted

Resource = Mapping[str, Any]


class Unreachable(Exception):
    """No connection to a service succeeded. The message contains the reason. A response with an error is a `DeploymentError`."""


@dataclass(frozen=True, kw_only=True)
class BucketPair:
    """A bucket in the first region and its replica."""

    source: str
    replica: str
    job: str = ""
    """Replication job, on clouds where a job replicates the bucket."""
    writer: str = ""
    """Identity that writes to the replica: the ARN of a role, or a member of an IAM policy. Empty on clouds where a policy of the replica replicates."""
    key: str = ""
    """Key of the replica, on clouds where the key has a policy of its own."""
    role: str = ""
    """Role of `writer` in the IAM policy of the replica, on clouds where the replica has such a policy."""


@dataclass(frozen=True, kw_only=True)
class HomePair:
    """Home directories in the first region and their replica, which can only be read while it is replicated."""

    source: str
    replica: str


SHOWN = 5


def not_copied(where: str, keys: Sequence[str], why: str) -> DeploymentError:
    """Return the error about objects that are not in the replica and that the cloud no longer copies, after a failover continued without the first region."""
    names = ", ".join(keys[:SHOWN]) + (" ..." if len(keys) > SHOWN else "")
    are = "is" if len(keys) == 1 else "are"
    return DeploymentError(
        f"{counted(len(keys), 'object')} of {where} {are} not in the replica, or the replica has a different version, and {why}: "
        f"{names}; copy these objects yourself if the second region needs them"
    )


def label(name: str) -> str:
    """Return a name for messages: a resource ID without the subscription and the resource group, or another name unchanged."""
    return name.rpartition("/providers/")[2]


class Failover(Protocol):
    """Requests to one cloud. All methods except those that take resources raise `Unreachable` and `DeploymentError`."""

    global_replication: bool
    """Whether a global service stops the replication, so that it can be stopped while the first region does not respond."""

    def groups(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        """Return the node groups in a stack's state."""
        ...

    def pairs(self, resources: Iterable[Resource]) -> tuple[BucketPair, ...]:
        """Return the replicated buckets in a stack's state."""
        ...

    def file_systems(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        """Return the file systems in a stack's state that import from a bucket."""
        ...

    def answers(self, pair: BucketPair) -> None:
        """Raise `Unreachable` if the second region does not respond."""
        ...

    def services(self, resources: Iterable[Resource]) -> Mapping[str, Callable[[], object]]:
        """Return a request to each service of the first region, keyed by service name. It is sent once, and raises `Unreachable` without a connection."""
        ...

    def stop_group(self, group: str) -> None:
        """Scale a group in the first region to zero, and prevent it from launching nodes."""
        ...

    def running(self, group: str) -> int:
        """Return the number of nodes in a group, including nodes that are being terminated."""
        ...

    def not_replicated(self, pair: BucketPair) -> list[str]:
        """Return the sorted keys of the objects whose newest version is not in the replica."""
        ...

    def stop_replication(self, pair: BucketPair) -> None:
        """Disable the replication of a bucket, so that nothing is written to its replica after the failover."""
        ...

    def detach_replica(self, pair: BucketPair) -> None:
        """Make a replica refuse what the first region replicates, even if the replication is still enabled there, and allow the second region to write.

        Sends requests to the second region only, and none to IAM. A failback attaches the replica again."""
        ...

    def beyond_reach(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        """Return what a failover cannot stop while the first region does not respond, in words."""
        ...

    def start_import(self, file_system: str) -> str:
        """Start the import from the bucket into a file system in the second region, or find the running import. Returns its ID."""
        ...

    def import_ended(self, task: str) -> bool:
        """Return whether an import has finished. Raises `DeploymentError` if it failed."""
        ...


@dataclass(frozen=True, kw_only=True)
class Copy:
    """An object to copy from a replica to the bucket in the first region."""

    key: str
    version: str
    """Version in the replica."""
    size: int
    """Size in bytes."""
    replaces: str | None
    """ETag or generation of the current version in the first region, or None if the bucket has no current version. The copy fails if it changes."""


@dataclass(frozen=True, kw_only=True)
class ObjectConflict:
    """An object whose version in the first region is not an earlier version of the one in the replica."""

    key: str
    reason: str
    copy: Copy | None
    """The copy to make if the conflict is ignored. None if the version in the first region is the later one, which stays current."""


def changed_in_both(key: str, copy: Copy | None) -> ObjectConflict:
    """Return the conflict about an object that both regions changed. `copy` is None if the version in the first region is the later one."""
    return ObjectConflict(key=key, reason=f"was changed in both regions, last in the {'second' if copy else 'first'} region", copy=copy)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How a bucket in the first region differs from its replica."""

    copies: tuple[Copy, ...]
    conflicts: tuple[ObjectConflict, ...]
    deleted: int
    """Number of objects that were deleted in the replica and exist in the first region."""


class Failback(Failover, Protocol):
    """Requests to one cloud for a failback. Regions are named as in the failover."""

    def compare(self, pair: BucketPair) -> Comparison:
        """Compare a bucket in the first region with its replica."""
        ...

    def copy(self, pair: BucketPair, copies: Iterable[Copy]) -> None:
        """Copy objects from the replica to the first region. Fails if an object in the first region has changed since `compare`."""
        ...

    def start_group(self, group: str, count: int) -> None:
        """Allow a stopped group in the first region to launch nodes, and launch this number of nodes.

        Queued nodes have the count 0, because the next deployment requests them. A group that does not exist is left to the next deployment."""
        ...

    def start_command(self, group: str) -> str:
        """Return the command that allows a group in the second region to launch nodes, or an empty string if `up` is sufficient.

        `groups` was called with the resources of the group's stack."""
        ...


@runtime_checkable
class DisabledReplication(Protocol):
    """Requests to a cloud where a failover disables the replication and keeps its configuration. On other clouds, `up` creates the replication again."""

    def attach_replica(self, pair: BucketPair) -> None:
        """Undo `detach_replica`, so that the replica accepts what the first region replicates."""
        ...

    def start_replication(self, pair: BucketPair) -> None:
        """Enable the replication of a bucket in the first region, so that its replica also receives the copies."""
        ...

    def replicate_again(self, pair: BucketPair) -> int:
        """Write the objects in the first region again that the replica lacks, because an enabled replication only covers new versions.

        Returns their number. An object that is written meanwhile is left alone."""
        ...


@runtime_checkable
class ReplicatedHomes(Protocol):
    """Requests to a cloud whose services replicate home directories. A method that returns whether something has ended is called until it has."""

    def homes(self, resources: Iterable[Resource]) -> tuple[HomePair, ...]:
        """Return the replicated home directories in a stack's state."""
        ...

    def home_synced(self, pair: HomePair, since: datetime) -> bool:
        """Return whether the replica has the files that the first region had at a time, or is no longer replicated."""
        ...

    def home_opened(self, pair: HomePair, *, alone: bool) -> bool:
        """End the replication, so that nodes can write to the replica. Returns whether it has ended.

        Sends requests to the second region only. With `alone`, the first region does not take part."""
        ...

    def home_returned(self, pair: HomePair) -> bool:
        """Replicate the files of the second region back, end this replication, and allow the next deployment to replicate again. Returns whether it has ended.

        Files that only the first region has are deleted. A replica that still is replicated has no files of its own, and nothing changes."""
        ...

    def home_accepts(self, pair: HomePair) -> bool:
        """Allow the next deployment to replicate to the replica again. Returns whether it is allowed, or whether the replication has not ended."""
        ...
