"""The replication of EFS file systems.

A file system is part of at most one replication. The replica cannot be written to, and its replication overwrite protection must be disabled before. When
the configuration is deleted, the replica can be written to, and is protected again (https://docs.aws.amazon.com/efs/latest/ug/replicate-existing-destination.html
and delete-replications.html). With `LOCAL_CONFIGURATION_ONLY`, only the Region of the request loses the configuration (API reference,
DeleteReplicationConfiguration). Requests, responses and errors: the service model of botocore 1.44.5. All retrieved 2026-11-30.

EFS replicates within minutes. The stand-in replicates when a request reads the replication. It does not know the files that nodes write: the control
interface writes and reads files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import operator
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT, arn_of
from gpuinfra_rehearsal.cloud.core import outage
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Store

HOME = "aws:efs/fileSystem:FileSystem"
CONFIGURATION = "aws:efs/replicationConfiguration:ReplicationConfiguration"
EMPTY_BYTES = 6 * 1024
_RECORD, _UNPROTECTED, _FILES = "home-replication", "home-unprotected", "home-files"
_ALONE = "LOCAL_CONFIGURATION_ONLY"


def create(cloud: Cloud, source: str, target: str, region: str, second: str) -> None:
    """Start to replicate a file system to another one."""
    for system, where in ((source, region), (target, second)):
        if cloud.store.find(HOME, system, where) is None:
            raise ApiRejected("FileSystemNotFound", f"File system '{system}' does not exist.", status=404)
        if is_part(cloud.store, system):
            raise ApiRejected("ConflictException", f"File system '{system}' is part of a replication.", status=409)
    if protection(cloud.store, target) != "DISABLED":
        text = f"Replication overwrite protection of '{target}' is enabled."
        raise ApiRejected("ConflictException", text, "EFS: CreateReplicationConfiguration", status=409)
    record = {"source": source, "target": target, "regions": [region, second], "known": [region, second], "at": time.time(), "deleting": False}  # fmt: skip
    cloud.store.put(_RECORD, source, record)


def exists(store: Store, source: str, region: str) -> bool:
    """Return whether a Region knows a replication of this file system."""
    return region in (store.get(_RECORD, source) or {}).get("known", ())


def is_part(store: Store, system: str) -> bool:
    """Return whether a file system is part of a replication."""
    return any(system in (one["source"], one["target"]) for one in store.all(_RECORD).values())


def delete(store: Store, source: str, region: str, *, alone: bool = False) -> None:
    """End a replication, as a request in one Region does."""
    record = store.get(_RECORD, source) or {}
    if region not in record.get("known", ()):
        raise ApiRejected("ReplicationNotFound", f"'{source}' has no replication configuration.", status=404)
    others = [one for one in record["known"] if one != region]
    if not alone and any(outage.affects(store, one) for one in others):
        store.put(_RECORD, source, {**record, "deleting": True})
        return
    store.drop(_UNPROTECTED, record["target"])
    left = others if alone else []
    if left:
        store.put(_RECORD, source, {**record, "known": left})
    else:
        store.drop(_RECORD, source)
    if record["regions"][0] not in left and (resource := store.find(CONFIGURATION, source)) is not None:
        store.remove(resource)


def protection(store: Store, system: str) -> str:
    """Return the replication overwrite protection of a file system."""
    for record in store.all(_RECORD).values():
        if record["target"] == system and record["regions"][1] in record["known"]:
            return "REPLICATING"
    return "ENABLED" if store.get(_UNPROTECTED, system) is None else "DISABLED"


def size(store: Store, system: str) -> int:
    """Return the metered size of a file system."""
    return EMPTY_BYTES + sum(map(len, files(store, system).values()))


def files(store: Store, system: str) -> dict[str, str]:
    """Return the files of a file system."""
    for record in store.all(_RECORD).values():
        if record["target"] == system and _runs(store, record):
            store.put(_FILES, system, store.get(_FILES, record["source"]) or {})
    return dict(store.get(_FILES, system) or {})


def control(cloud: Cloud, asked: dict[str, Any]) -> dict[str, Any]:
    """Handle POST `homes` `{"id", "write"}`: write files, and return all files of a file system. A replica rejects the write."""
    system, written = str(asked["id"]), asked.get("write") or {}
    if written and protection(cloud.store, system) != "ENABLED":
        raise ValueError(f"{system} is read-only")
    cloud.store.put(_FILES, system, {**files(cloud.store, system), **written})
    return {"files": files(cloud.store, system)}


def _runs(store: Store, record: Mapping[str, Any]) -> bool:
    return len(record["known"]) == 2 and not any(outage.affects(store, one) for one in record["regions"])


def _described(store: Store, record: Mapping[str, Any]) -> dict[str, Any]:
    source, (region, second) = record["source"], record["regions"]
    target = {"FileSystemId": record["target"], "Region": second, "Status": "DELETING" if record["deleting"] else "ENABLED", "OwnerId": ACCOUNT}  # fmt: skip
    files(store, record["target"])
    last = time.time() if _runs(store, record) else record["at"]
    return {
        "SourceFileSystemId": source,
        "SourceFileSystemRegion": region,
        "SourceFileSystemArn": arn_of(HOME, source, {}, region),
        "OriginalSourceFileSystemArn": arn_of(HOME, source, {}, region),
        "CreationTime": record["at"],
        "Destinations": [{**target, "LastReplicatedTimestamp": last}],
    }


def describe(cloud: Cloud, asked: Mapping[str, str], region: str) -> dict[str, Any]:
    """Describe the replication of a file system."""
    cloud.operator.check(operator, operator.http("elasticfilesystem:DescribeReplicationConfigurations", "*", region))
    system = asked.get("FileSystemId")
    replications = [
        one
        for one in cloud.store.all(_RECORD).values()
        if system in (one["source"], one["target"]) and region in one["known"]
    ]
    if not replications:
        raise ApiRejected("ReplicationNotFound", f"'{system}' has no replication configuration.", status=404)
    return {"Replications": [_described(cloud.store, one) for one in replications]}


def changes(method: str, path: str) -> Callable[[Cloud, Mapping[str, Any], str], dict[str, Any]] | None:
    """Return the handler of a request that changes `file-systems/ID/...`, or None."""
    kind, _, rest = path.partition("/")
    system, _, part = rest.partition("/")
    handler = _CHANGES.get((method, part)) if kind == "file-systems" else None
    return None if handler is None else lambda cloud, asked, region: handler(cloud, asked, region, system)


def _allowed(cloud: Cloud, action: str, system: str, region: str) -> None:
    cloud.operator.check(operator, list(_access(cloud, action, system, region)))


def _access(cloud: Cloud, action: str, system: str, region: str) -> Iterator[Any]:
    home = cloud.store.find(HOME, system, region)
    tags = {f"aws:ResourceTag/{key}": str(value) for key, value in ((home.plain.get("tags") if home else None) or {}).items()}  # fmt: skip
    yield from operator.http(f"elasticfilesystem:{action}", arn_of(HOME, system, {}, region), region, tags)


def _create(cloud: Cloud, asked: Mapping[str, Any], region: str, system: str) -> dict[str, Any]:
    _allowed(cloud, "CreateReplicationConfiguration", system, region)
    (target,) = asked["Destinations"]
    create(cloud, system, str(target["FileSystemId"]), region, str(target["Region"]))
    return _described(cloud.store, cloud.store.get(_RECORD, system) or {})


def _delete(cloud: Cloud, asked: Mapping[str, Any], region: str, system: str) -> dict[str, Any]:
    _allowed(cloud, "DeleteReplicationConfiguration", system, region)
    delete(cloud.store, system, region, alone=asked.get("deletionMode") == _ALONE)
    return {}


def _protect(cloud: Cloud, asked: Mapping[str, Any], region: str, system: str) -> dict[str, Any]:
    _allowed(cloud, "UpdateFileSystemProtection", system, region)
    if any(system in (one["source"], one["target"]) and region in one["known"] for one in cloud.store.all(_RECORD).values()):  # fmt: skip
        raise ApiRejected("ReplicationAlreadyExists", f"'{system}' is part of a replication.", status=409)
    if asked["ReplicationOverwriteProtection"] == "DISABLED":
        cloud.store.put(_UNPROTECTED, system, {})
    else:
        cloud.store.drop(_UNPROTECTED, system)
    return {"ReplicationOverwriteProtection": protection(cloud.store, system)}


_CHANGES = {
    ("POST", "replication-configuration"): _create,
    ("DELETE", "replication-configuration"): _delete,
    ("PUT", "protection"): _protect,
}
