"""Lists the blobs of a container with their replication status and metadata.

List Blobs: https://learn.microsoft.com/rest/api/storageservices/list-blobs, retrieved 2026-11-26. The listing contains the current version of each blob.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlencode
from xml.etree import ElementTree as Xml

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.azure.rest import raise_for

if TYPE_CHECKING:
    from gpuinfra.clouds.azure.rest import Rest

COPY_OF = "gpuinfra_copy_of"
"""Metadata key of a blob that a failback copied, with the ETag in the replica. Metadata keys must be C# identifiers."""
_STATUS = "or-"
_MOST_PAGES = 100_000


@dataclass(frozen=True, kw_only=True)
class BlobContainer:
    """A container and its account."""

    url: str
    """Public address."""
    base: str
    """Address for requests: the public address, or one under the endpoint that the environment sets."""
    tags: Mapping[str, str]
    """Tags of the account."""


@dataclass(frozen=True, kw_only=True)
class Blob:
    """The current version of a blob."""

    name: str
    etag: str
    size: int
    md5: str
    """Empty if the blob was written in blocks without a checksum."""
    modified: datetime
    kind: str
    replication: Mapping[str, str]
    """`complete` or `failed`, keyed by policy ID and rule ID, with an underscore between them. Missing while Azure has not replicated the blob."""
    metadata: Mapping[str, str]

    def same_content(self, other: Blob | None) -> bool:
        """Return whether this blob is a copy of the other one, or both have the same checksum and size."""
        if other is None:
            return False
        return self.metadata.get(COPY_OF) == other.etag or (bool(self.md5) and (self.md5, self.size) == (other.md5, other.size))  # fmt: skip


def blobs(rest: Rest, base: str, prefix: str = "") -> Iterator[Blob]:
    """Yield the blobs of a container whose names begin with a text, ordered by name."""
    marker = ""
    for _ in range(_MOST_PAGES):
        query = {"restype": "container", "comp": "list", "include": "metadata"}
        query |= {name: value for name, value in (("prefix", prefix), ("marker", marker)) if value}
        answer = raise_for(rest.blob("GET", f"{base}?{urlencode(query)}"))
        try:
            page = Xml.fromstring(answer.body)
        except Xml.ParseError as problem:
            raise DeploymentError(f"the list of blobs in {base} is not XML: {problem}") from None
        yield from (_blob(one) for one in page.iter("Blob"))
        marker = page.findtext("NextMarker") or ""
        if not marker:
            return
    raise DeploymentError(f"the list of blobs in {base} has too many pages")


def _blob(element: Xml.Element) -> Blob:
    name, text = element.find("Name"), element.findtext("Name") or ""
    held = {one.tag: one.text or "" for one in element.find("Properties") or ()}
    return Blob(
        # Azure encodes names with characters that XML does not allow.
        name=unquote(text) if name is not None and name.get("Encoded") == "true" else text,
        etag=held.get("Etag", "").strip('"'),
        size=int(held.get("Content-Length") or 0),
        md5=held.get("Content-MD5", ""),
        modified=parsedate_to_datetime(held["Last-Modified"]).astimezone(UTC),
        kind=held.get("BlobType", ""),
        replication={one.tag.removeprefix(_STATUS): one.text or "" for one in element.find("OrMetadata") or ()},
        metadata={one.tag.lower(): one.text or "" for one in element.find("Metadata") or ()},
    )
