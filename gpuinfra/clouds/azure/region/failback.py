"""Failback requests: compare the containers of the first region with their replicas, and copy newer blobs back.

A replicated blob has its own ETag and time, so versions cannot be compared. Until the failover opens a replica, only Azure writes to it. A blob
in the replica that was written after that time (the tag `STOPPED` of the account) is therefore a blob of the second region. A blob in the first region
was replicated if it has the status `complete`, because nothing is replicated after the policy of the replica is deleted.
All times are from the clocks of Azure.

Azure checks the condition If-Match or If-None-Match when it writes a blob (https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations),
so a blob that was written after the comparison is never replaced. The accounts of a stack keep the previous version of a replaced blob.
The data does not pass through this machine: the
storage service reads the blob in the replica with the token in `x-ms-copy-source-authorization`
(https://learn.microsoft.com/rest/api/storageservices/put-blob-from-url and put-block-from-url).
`x-ms-source-if-match` ensures that it reads the compared blob. A copy has the ETag in the replica in its metadata,
so a repeated comparison recognizes the copy.

Microsoft documents 256 MiB and 5000 MiB as the limit of Put Blob From URL.
This module copies blobs larger than 128 MiB in blocks, so that each request is short. Azure deletes the
uncommitted blocks of an interrupted copy after a week. All sources retrieved 2026-11-26.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import quote

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.azure.blob_list import COPY_OF, Blob
from gpuinfra.clouds.azure.region.failover import STOPPED, AzureFailover, account_of, asked
from gpuinfra.clouds.azure.region.readiness import last
from gpuinfra.clouds.azure.rest import AzureRefused, Rest, RestAnswer, raise_for
from gpuinfra.clouds.region.failover import BucketPair, Comparison, Copy, ObjectConflict

PART = 128 * 2**20
MOST_PARTS = 50_000
"""Maximum number of blocks of a blob (https://learn.microsoft.com/azure/storage/blobs/scalability-targets)."""
THREADS = 8
TIMEOUT_S = 300.0
CHANGED = frozenset({"ConditionNotMet", "BlobAlreadyExists", "SourceConditionNotMet"})
KEPT = {
    "content-type": "x-ms-blob-content-type", "content-encoding": "x-ms-blob-content-encoding", "content-language": "x-ms-blob-content-language",
    "cache-control": "x-ms-blob-cache-control", "content-disposition": "x-ms-blob-content-disposition",
}  # fmt: skip
"""Maps a header of a response to the header that sets it."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def connect(region: str, second: str, config: Mapping[str, object]) -> AzureFailback:
    """Use the credentials from the environment."""
    return AzureFailback(Rest(timeout_s=TIMEOUT_S), region, second)


class AzureFailback(AzureFailover):
    """The requests for one failback. `gpuinfra.clouds.region.failover.Failback` describes the methods.

    `pulumi up --refresh` creates the replication policies again, so there are no requests for them.
    """

    def start_group(self, group: str, count: int) -> None:
        self._resize(group, count)

    def start_command(self, group: str) -> str:
        return ""

    def compare(self, pair: BucketPair) -> Comparison:
        stopped, replicated = self._stopped(pair), self._replicated(pair)
        first, second = ({one.name: one for one in self.listed(id_)} for id_ in (pair.source, pair.replica))
        differences = [
            difference
            for there in second.values()
            if (difference := _difference(first.get(there.name), there, stopped, replicated))
        ]
        return Comparison(
            copies=tuple(one for one in differences if isinstance(one, Copy)),
            conflicts=tuple(one for one in differences if isinstance(one, ObjectConflict)),
            deleted=sum(_known(one, replicated) for one in first.values() if one.name not in second),
        )

    def _stopped(self, pair: BucketPair) -> datetime:
        """Return the time at which the second region began to write to the replica."""
        tags = self._container(pair.replica).tags
        if STOPPED not in tags:
            raise DeploymentError(
                f"the account {last(account_of(pair.replica))} does not have the tag {STOPPED}, "
                "so it is unknown which blobs the second region wrote; the `replicas` step of a failover sets the tag to the "
                "time at which it deletes the replication policy"
            )
        try:
            return datetime.fromisoformat(tags[STOPPED]).astimezone(UTC)
        except ValueError:
            raise DeploymentError(
                f"the tag {STOPPED} of the account {last(account_of(pair.replica))} is {tags[STOPPED]!r}, expected a time such as 2026-01-31T12:00:00Z"
            ) from None

    def _replicated(self, pair: BucketPair) -> Callable[[Blob], bool]:
        """Return a function that returns whether Azure replicated a blob to the replica.

        A failover deletes the policy, so its ID is unknown here. The statuses of a policy to another account have its ID, and that policy still exists.
        """
        account = account_of(pair.source)
        others = {policy for policy, names, _ in self._policies(account) if names[1] != last(account_of(pair.replica))}
        return lambda blob: any(
            status == "complete" and name.partition("_")[0] not in others for name, status in blob.replication.items()
        )

    def copy(self, pair: BucketPair, copies: Iterable[Copy]) -> None:
        rows = list(copies)
        source, target = self._container(pair.replica).base, self._container(pair.source).base
        _together(lambda one: self._copy(source, target, one), [one for one in rows if one.size <= PART])
        for row in rows:
            if row.size > PART:
                self._copy(source, target, row)

    def _copy(self, source: str, target: str, copy: Copy) -> None:
        path = quote(copy.key, safe="/-_.~")
        there, here = f"{source}/{path}", f"{target}/{path}"
        head = asked(lambda: raise_for(self._rest.blob("HEAD", there)))
        # Managed Lustre stores owners and modes in the metadata.
        kept = {
            name: value
            for name, value in head.headers.items()
            if name.lower().startswith("x-ms-meta-") and name.lower() != f"x-ms-meta-{COPY_OF}"
        }
        guard = {"If-None-Match": "*"} if copy.replaces is None else {"If-Match": _quoted(copy.replaces)}
        final = {**kept, f"x-ms-meta-{COPY_OF}": copy.version, **guard}

        def read() -> dict[str, str]:
            token = asked(self._rest.storage_token)  # A large blob can take longer than the lifetime of a token.
            return {"x-ms-copy-source": there, "x-ms-source-if-match": _quoted(copy.version), "x-ms-copy-source-authorization": f"Bearer {token}"}  # fmt: skip

        if copy.size <= PART:
            self._put(here, {"x-ms-blob-type": "BlockBlob", **read(), **final}, copy)
            return
        size = max(PART, -(-copy.size // MOST_PARTS))

        def part(number: int) -> str:
            span = f"bytes={number * size}-{min((number + 1) * size, copy.size) - 1}"
            block = b64encode(f"{number:08}".encode()).decode()
            self._put(f"{here}?comp=block&blockid={quote(block)}", {**read(), "x-ms-source-range": span}, copy)
            return block

        blocks = _together(part, range(-(-copy.size // size)))
        named = {name.lower(): value for name, value in head.headers.items()}
        properties = {setter: named[name] for name, setter in KEPT.items() if named.get(name)}
        listed = "".join(f"<Latest>{block}</Latest>" for block in blocks)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'
        self._put(f"{here}?comp=blocklist", {**properties, **final}, copy, body.encode())

    def _put(self, url: str, headers: Mapping[str, str], copy: Copy, body: bytes = b"") -> None:
        def put() -> RestAnswer | None:
            try:
                return raise_for(self._rest.blob("PUT", url, headers, body))
            except AzureRefused as problem:
                if problem.code in CHANGED:
                    return None
                raise

        if asked(put) is None:
            raise DeploymentError(
                f"{copy.key} changed after the comparison and was not replaced; stop the programs that write to {url.split('?')[0]} or to its replica"
            )


def _difference(
    here: Blob | None, there: Blob, stopped: datetime, replicated: Callable[[Blob], bool]
) -> Copy | ObjectConflict | None:
    """Compare a blob in the first region with the blob in the replica."""
    written = there.modified >= stopped
    if here is None:
        # Azure replicated a blob that was deleted later, or the second region wrote the blob.
        return Copy(key=there.name, version=there.etag, size=there.size, replaces=None) if written else None
    if here.same_content(there):
        return None
    is_known = _known(here, replicated)
    if not written:
        return None if is_known else ObjectConflict(key=there.name, reason="is newer in the first region", copy=None)
    copy = Copy(key=there.name, version=there.etag, size=there.size, replaces=here.etag)
    if is_known:
        return copy
    later = there.modified > here.modified
    region = "second" if later else "first"
    return ObjectConflict(key=there.name, reason=f"was changed in both regions, last in the {region} region", copy=copy if later else None)  # fmt: skip


def _known(here: Blob, replicated: Callable[[Blob], bool]) -> bool:
    """Return whether the replica has, or had, the content of a blob in the first region: Azure replicated the blob, or an earlier failback copied it."""
    return COPY_OF in here.metadata or replicated(here)


def _quoted(etag: str) -> str:
    """Return an ETag as headers contain it. List Blobs returns it without quotes."""
    return f'"{etag}"'


def _together(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, items))
