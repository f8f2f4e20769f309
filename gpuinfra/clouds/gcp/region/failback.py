"""Failback requests: launch the nodes of the first region, and copy newer objects from a replica to its bucket.

Cloud Storage copies the objects; the data does not pass through this machine. The versions in a bucket and in its replica have different generations, so
versions are equal if their contents are equal (`failover.py`).

Cloud Storage checks the condition `ifGenerationMatch` when it writes an object,
so a version that was written after the comparison is never replaced as the live
version (https://cloud.google.com/storage/docs/request-preconditions).
A bucket with versioning keeps the replaced version as a noncurrent version. A large object is
copied with several requests (`objects.rewrite` in the discovery document of Cloud Storage).
Without a request body, a copy keeps the metadata. All retrieved 2026-11-26.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from shlex import join
from urllib.parse import quote

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.gcp.api import CHANGED, COMPUTE_ENGINE, STORAGE, Api
from gpuinfra.clouds.gcp.handover.ports import group_path
from gpuinfra.clouds.gcp.region.failover import (
    QUEUED,
    THREADS,
    Binding,
    Content,
    GcpFailover,
    Object,
    copied_from,
    objects_of,
    same,
)
from gpuinfra.clouds.region.active import OWN_KEYS
from gpuinfra.clouds.region.failover import BucketPair, Comparison, Copy, ObjectConflict, changed_in_both

PART = 256 * 2**20
"""Number of bytes that a request copies, so that each request is short. The API requires a multiple of 1 MiB."""
DELETED = "deleted"

Versions = Sequence[Object]


def connect(region: str, second: str, config: Mapping[str, object]) -> GcpFailback:
    """Use the credentials from the environment. Addresses of Google's APIs do not contain a region."""
    return GcpFailback(Api())


class GcpFailback(GcpFailover):
    """The requests for one failback. `gpuinfra.clouds.region.failover.Failback` describes the methods."""

    def start_group(self, group: str, count: int) -> None:
        """A queued group requires new requests, which `up` creates after the old ones are deleted."""
        if count:
            self._api.ask("POST", COMPUTE_ENGINE, f"{group}/resize", {"size": str(count)})
        for request in self._requests(group):
            if request.get("state") not in QUEUED:
                self._api.ask("DELETE", COMPUTE_ENGINE, f"{group}/resizeRequests/{request['name']}")

    def start_command(self, group: str) -> str:
        names = self._queued.get(group)
        if not names:
            return ""
        at = group_path(group)
        options = [f"--resize-requests={','.join(names)}", f"--zone={at['zone']}", f"--project={at['project']}", "--quiet"]  # fmt: skip
        return join(["gcloud", "compute", "instance-groups", "managed", "resize-requests", "delete", at["name"], *options])  # fmt: skip

    def attach_replica(self, pair: BucketPair) -> None:
        granted: Binding = {"role": pair.role, "members": [pair.writer]}
        if pair.writer and self._is_detached(pair):
            self._change_grants(pair, lambda bindings: [*bindings, granted])

    def start_replication(self, pair: BucketPair) -> None:
        self._set_replication(pair, "ENABLED")

    def compare(self, pair: BucketPair) -> Comparison:
        first = dict(self._by_name(pair.source))
        keys = [
            (name, first.get(name, []), there) for name, there in self._by_name(pair.replica) if name not in OWN_KEYS
        ]
        with ThreadPoolExecutor(THREADS) as pool:
            differences = list(pool.map(lambda one: self._difference(pair, *one), keys))
        return Comparison(
            copies=tuple(one for one in differences if isinstance(one, Copy)),
            conflicts=tuple(one for one in differences if isinstance(one, ObjectConflict)),
            deleted=differences.count(DELETED),
        )

    def _by_name(self, bucket: str) -> Iterable[tuple[str, Versions]]:
        for name, versions in groupby(self.listed(bucket, versions="true"), key=lambda one: str(one["name"])):
            yield name, list(versions)

    def _difference(
        self, pair: BucketPair, key: str, here: Versions, there: Versions
    ) -> Copy | ObjectConflict | str | None:
        """Compare the versions of an object."""
        current, newest = _live(here), _live(there)
        if newest is None:
            return DELETED if current is not None else None
        replaces = None if current is None else str(current["generation"])
        copy = Copy(key=key, version=str(newest["generation"]), size=int(newest["size"]), replaces=replaces)
        if current is None:
            return self._deleted_here(pair, key, here, copy, newest, self._content(pair.replica, newest))
        when = _time(current)
        if copied_from(current, newest) or same(
            self._content(pair.replica, newest), self._content(pair.source, current)
        ):
            # A job can replicate a version after the second region wrote its own version.
            late = [one for one in there if one is not newest and _time(one) > when]
            missed = [one for one in late if not self._is_among(pair.source, here, self._content(pair.replica, one))]
            if not missed:
                return None
            last = max(missed, key=_time)
            return changed_in_both(key, replace(copy, version=str(last["generation"]), size=int(last["size"])))
        content, ours = self._content(pair.replica, newest), self._content(pair.source, current)
        is_known = self._is_among(pair.source, here, content)
        copied = self._is_among(pair.replica, there, ours)
        later = _time(newest) > when
        if is_known:
            if copied:
                return changed_in_both(key, copy) if later else None
            return ObjectConflict(key=key, reason="is newer in the first region", copy=None)
        if copied and later:
            return copy
        return changed_in_both(key, copy if later else None)

    def _deleted_here(
        self, pair: BucketPair, key: str, here: Versions, copy: Copy, newest: Object, content: Content
    ) -> Copy | ObjectConflict | None:
        """Compare a replica with an object that has no live version in the first region. Deletions are not replicated."""
        if self._is_among(pair.source, here, content):
            return None
        if here and max(datetime.fromisoformat(str(one["timeDeleted"])) for one in here) > _time(newest):
            return changed_in_both(key, None)
        return copy

    def _is_among(self, bucket: str, versions: Versions, content: Content) -> bool:
        sizes = [one for one in versions if str(one["size"]) == content[0]]
        return any(same(self._content(bucket, one), content) for one in sizes)

    def _content(self, bucket: str, blob: Object) -> Content:
        content = self.content(bucket, blob)
        if content is None:
            raise DeploymentError(
                f"a version of {blob['name']} in {bucket} was deleted during the comparison; stop the programs that delete objects, and run the command again"
            )
        return content

    def copy(self, pair: BucketPair, copies: Iterable[Copy]) -> None:
        rows = list(copies)
        with ThreadPoolExecutor(THREADS) as pool:
            for row, unchanged in zip(rows, pool.map(lambda one: self._copy(pair, one), rows), strict=True):
                if not unchanged:
                    raise DeploymentError(
                        f"{row.key} in {pair.source} changed after the comparison and was not replaced; stop the programs that write to the bucket"
                    )

    def replicate_again(self, pair: BucketPair) -> int:
        """Rewrite each object in place, which creates a generation, as a new object does."""
        missing, own = set(self.not_replicated(pair)), BucketPair(source=pair.source, replica=pair.source)
        blobs = [blob for blob in self.listed(pair.source) if blob["name"] in missing]
        copies = [
            Copy(
                key=str(one["name"]),
                version=str(one["generation"]),
                size=int(one["size"]),
                replaces=str(one["generation"]),
            )
            for one in blobs
        ]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda one: self._copy(own, one), copies))
        return len(copies)

    def _copy(self, pair: BucketPair, copy: Copy) -> bool:
        """Copy an object. Returns whether the object in the first region was still the compared one."""
        name = quote(copy.key, safe="")
        path = f"{objects_of(pair.replica)}/{name}/rewriteTo/b/{quote(pair.source, safe='')}/o/{name}"
        asked = {
            "sourceGeneration": copy.version,
            "ifGenerationMatch": copy.replaces or "0",
            "maxBytesRewrittenPerCall": str(PART),
        }
        while True:
            answer = self._api.ask("POST", STORAGE, path, asked, missing=CHANGED)
            if answer is None:
                return False
            if answer.get("done"):
                return True
            asked["rewriteToken"] = str(answer["rewriteToken"])


def _live(versions: Versions) -> Object | None:
    """Return the live version. Noncurrent versions have the time at which they became noncurrent."""
    return next((one for one in versions if "timeDeleted" not in one), None)


def _time(version: Object) -> datetime:
    return datetime.fromisoformat(str(version["timeCreated"]))
