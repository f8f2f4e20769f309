"""The record of the active region in a container of the second region.

The containers of the replicas are read-only while their replication policy exists, so the record has its own container in the account of the evidence replica.
Put Blob accepts If-None-Match and If-Match (https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations,
retrieved 2026-11-26).
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuinfra.clouds.azure.instances import RECORD_CONTAINER
from gpuinfra.clouds.azure.region.failback import CHANGED
from gpuinfra.clouds.azure.region.failover import TIMEOUT_S, account_of, asked, asked_or
from gpuinfra.clouds.azure.region.readiness import last
from gpuinfra.clouds.azure.rest import AzureRefused, Rest, RestAnswer, raise_for
from gpuinfra.clouds.region.active import KEY, RecordChanged, StoredRecord

EXISTS = "BlobAlreadyExists"


def connect(place: str, second: str, config: Mapping[str, object], key: str = KEY) -> BlobRecord:
    """Use the credentials from the environment. `place` is the resource ID of the container of the evidence replica."""
    return BlobRecord(Rest(timeout_s=TIMEOUT_S), last(account_of(place)), key)


class BlobRecord:
    """The requests. `gpuinfra.clouds.region.active.RecordStore` describes the methods."""

    def __init__(self, rest: Rest, account: str, key: str = KEY) -> None:
        self._rest, self._account, self._key = rest, account, key

    def _url(self) -> str:
        # The management API is not asked, because its failure must not make the record unreadable.
        return (
            f"{self._rest.blob_base(f'https://{self._account}.blob.core.windows.net/{RECORD_CONTAINER}')}/{self._key}"
        )

    def read(self) -> StoredRecord | None:
        answer = asked_or(None, lambda: raise_for(self._rest.blob("GET", self._url())))
        return None if answer is None else StoredRecord(text=answer.body, tag=_etag(answer))

    def write(self, text: bytes, tag: str | None) -> str:
        guard = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/json", **guard}

        def put() -> RestAnswer | None:
            try:
                return raise_for(self._rest.blob("PUT", self._url(), headers, text))
            except AzureRefused as problem:
                if problem.code in (*CHANGED, EXISTS):
                    return None
                raise

        made = asked(put)
        if made is None:
            raise RecordChanged
        return _etag(made)


def _etag(answer: RestAnswer) -> str:
    return next((value for name, value in answer.headers.items() if name.lower() == "etag"), "")
