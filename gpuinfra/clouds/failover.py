"""The requests to a cloud during a failover. Each cloud that supports `gpuinfra failover` has a `failover` module with a `connect` function.

Each request can be repeated: the interrupted step runs again after an interruption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpuinfra.registry import has_module, module_of

Resource = Mapping[str, Any]


class Unreachable(Exception):
    """A region did not respond. The message contains the reason. A refused request is a `DeploymentError`."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A bucket in the first region and its replica."""

    source: str
    replica: str


class Failover(Protocol):
    """Requests to one cloud. All methods except those that take resources raise `Unreachable` and `DeploymentError`."""

    def groups(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        """Return the node groups in a stack's state."""
        ...

    def pairs(self, resources: Iterable[Resource]) -> tuple[Pair, ...]:
        """Return the replicated buckets in a stack's state."""
        ...

    def file_systems(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        """Return the file systems in a stack's state that import from a bucket."""
        ...

    def answers(self, pair: Pair) -> None:
        """Raise `Unreachable` if the second region does not respond."""
        ...

    def stop_group(self, group: str) -> None:
        """Scale a group in the first region to zero, and prevent it from launching nodes."""
        ...

    def running(self, group: str) -> int:
        """Return the number of nodes in a group, including nodes that are being terminated."""
        ...

    def not_replicated(self, pair: Pair) -> list[str]:
        """Return the sorted keys of the objects whose newest version is not in the replica."""
        ...

    def stop_replication(self, pair: Pair) -> None:
        """Disable the replication of a bucket, so that nothing is written to its replica after the failover."""
        ...

    def start_import(self, file_system: str) -> str:
        """Start the import from the bucket into a file system in the second region, or find the running import. Returns its ID."""
        ...

    def import_ended(self, task: str) -> bool:
        """Return whether an import has finished. Raises `DeploymentError` if it failed."""
        ...


def failover_of(cloud: str, region: str, second: str, config: Mapping[str, object]) -> Failover | None:
    """Return the requests to a cloud, or None if its package has no module `failover`. `config` contains the provider settings."""
    if not has_module(cloud, "failover"):
        return None
    found: Failover = module_of(cloud, "failover").connect(region, second, config)
    return found
