"""The replication of home directories on Amazon EFS, during a failover and a failback.

A replication ends when its configuration is deleted; the replica then accepts writes, and its replication overwrite protection is enabled again. The
configuration can be deleted in both Regions (https://docs.aws.amazon.com/efs/latest/ug/delete-replications.html). terraform-provider-aws deletes it in the
Region of the replica (`internal/service/efs/replication_configuration.go`). To fail back, EFS replicates only the differences to the original file system
(https://docs.aws.amazon.com/efs/latest/ug/replicate-existing-destination.html). A file system can be part of one replication only. All retrieved 2026-11-30.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.region.failover import HomePair, Resource

HOME = "aws:efs/fileSystem:FileSystem"
GONE = frozenset({"FileSystemNotFound", "ReplicationNotFound"})
ALONE = "LOCAL_CONFIGURATION_ONLY"
"""Deletes the configuration in the Region of the request only, if the other Region does not take part (API reference, DeleteReplicationConfiguration)."""


def home_pairs(resources: Iterable[Resource], first: str, second: str) -> Iterator[HomePair]:
    """Yield the file systems in a state that have the same creation token in both Regions: a refresh removes a replication that has ended from the state."""
    by_token: dict[str, dict[str, str]] = {}
    for resource in resources:
        outputs = resource.get("outputs") or {}
        if resource.get("type") == HOME:
            by_token.setdefault(str(outputs.get("creationToken")), {})[str(outputs.get("region"))] = str(resource["id"])
    for ids in by_token.values():
        if first in ids and second in ids:
            yield HomePair(source=ids[first], replica=ids[second])


class HomeRequests:
    """The requests of `gpuinfra.clouds.region.failover.ReplicatedHomes`."""

    def __init__(
        self, client: Callable[[str, str], Any], ask: Callable[..., dict[str, Any]], region: str, second: str
    ) -> None:
        self._clients, self._ask, self._regions = client, ask, (region, second)
        self._ended: set[HomePair] = set()
        """Pairs whose files are back, and whose replication to the first Region is being deleted."""

    def homes(self, resources: Iterable[Resource]) -> tuple[HomePair, ...]:
        return tuple(home_pairs(resources, *self._regions))

    def home_synced(self, pair: HomePair, since: datetime) -> bool:
        replication = self._replication(pair, self._regions[1])
        return replication is None or _synced(replication, since)

    def home_opened(self, pair: HomePair, *, alone: bool) -> bool:
        second = self._regions[1]
        replication = self._replication(pair, second)
        if replication is not None and (alone or _status(replication) != "DELETING"):
            self._end(second, pair.source, alone=alone)
        return replication is None

    def home_returned(self, pair: HomePair) -> bool:
        first, second = self._regions
        if self._replication(pair, second) is not None:
            return self.home_accepts(pair)
        if self._replication(pair, first) is not None:
            # A failover without the first Region deleted the configuration in the second Region only.
            self._end(first, pair.source, alone=True)
            return False
        replication = self._replication(pair, first, back=True)
        if replication is not None:
            if pair not in self._ended and _synced(replication, replication["CreationTime"]):
                self._end(first, pair.replica, alone=False)
                self._ended.add(pair)
            return False
        if self._replication(pair, second, back=True) is not None:
            return False  # The second Region is still deleting its configuration.
        if pair in self._ended or self._protection(second, pair.replica) == "DISABLED":
            return self.home_accepts(pair)
        self._unprotect(first, pair.source)
        target = {"Region": first, "FileSystemId": pair.source}
        self._ask(self._efs(second).create_replication_configuration, SourceFileSystemId=pair.replica, Destinations=[target])  # fmt: skip
        return False

    def home_accepts(self, pair: HomePair) -> bool:
        second = self._regions[1]
        if (replication := self._replication(pair, second)) is not None:
            return _status(replication) != "DELETING"
        self._unprotect(second, pair.replica)
        return True

    def _efs(self, region: str) -> Any:
        return self._clients("efs", region)

    def _replication(self, pair: HomePair, region: str, *, back: bool = False) -> Mapping[str, Any] | None:
        """Return the replication of a pair, or the one back to the first Region, as a Region knows it."""
        own = pair.source if region == self._regions[0] else pair.replica
        answer = self._ask(self._efs(region).describe_replication_configurations, GONE, FileSystemId=own)
        return replication_of(answer, pair.replica if back else pair.source)

    def _end(self, region: str, source: str, *, alone: bool) -> None:
        mode = {"DeletionMode": ALONE} if alone else {}
        self._ask(self._efs(region).delete_replication_configuration, GONE, SourceFileSystemId=source, **mode)

    def _protection(self, region: str, system: str) -> str:
        (description,) = self._ask(self._efs(region).describe_file_systems, FileSystemId=system)["FileSystems"]
        return str((description.get("FileSystemProtection") or {}).get("ReplicationOverwriteProtection"))

    def _unprotect(self, region: str, system: str) -> None:
        if self._protection(region, system) != "DISABLED":
            update = self._efs(region).update_file_system_protection
            self._ask(update, FileSystemId=system, ReplicationOverwriteProtection="DISABLED")


def replication_of(answer: Mapping[str, Any], source: str) -> Mapping[str, Any] | None:
    """Return the replication of a file system in a response of DescribeReplicationConfigurations."""
    return next((one for one in answer.get("Replications", ()) if one["SourceFileSystemId"] == source), None)


def _status(replication: Mapping[str, Any]) -> str:
    return str(replication["Destinations"][0]["Status"])


def _synced(replication: Mapping[str, Any], since: datetime) -> bool:
    """Return whether the last synchronization that succeeded is later than a time. Raises `DeploymentError` if no other one can succeed."""
    target = replication["Destinations"][0]
    if target["Status"] in ("ERROR", "PAUSED"):
        why = target.get("StatusMessage") or "no reason"
        pair = f"{replication['SourceFileSystemId']} to {target['FileSystemId']}"
        raise DeploymentError(f"the replication of {pair} is {target['Status']}: {why}")
    return "LastReplicatedTimestamp" in target and target["LastReplicatedTimestamp"] >= since
