"""Azure Blob Storage: Put, Get, Head, Delete and List, and Delete Container, subject to roles, the account's network rules
and immutability.

https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api, retrieved 2026-11-21. Supports only block blobs
that are uploaded in one request.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from email.utils import formatdate
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import escape

from gpuinfra_rehearsal.cloud.azure import conditions, identity, places, replication, stores
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.core import outage
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.http import Request, Response, content

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import StoredObject

AUDIENCES = ("https://storage.azure.com",)
_PAGE = 5000


class BlobService:
    """Serves `blob/<account>/<container>/<name>`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __call__(self, request: Request, path: str) -> Response:
        _, account, *rest = path.split("/", 3)
        container, name = (rest[0] if rest else ""), (rest[1] if len(rest) > 1 else "")
        try:
            return self._serve(request, account, container, name)
        except ApiRejected as error:
            self.cloud.store.log(request.method, "azure-blob", path[:500], "", error.code)
            text = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{error.code}</Code><Message>{escape(error.message)}</Message></Error>'
            return Response(error.status, text.encode(), "application/xml", {"x-ms-error-code": error.code})

    def _serve(self, request: Request, account: str, container: str, name: str) -> Response:
        who = identity.of_token(self.cloud.store, request.headers.get("authorization", ""), AUDIENCES)
        if "x-ms-version" not in request.headers:
            raise AzureError(
                "MissingRequiredHeader", "An HTTP header that's mandatory for this request is not specified."
            )
        if any(outage.affects(self.cloud.store, one) for one in places.of_id(self.cloud.store, stores.account_id(self.cloud.store, account))):  # fmt: skip
            raise outage.NoResponse(account)
        stores.reachable(self.cloud.store, account, who)
        replication.run(self.cloud.store)
        place = stores.container_id(self.cloud.store, account, container)
        if request.method == "DELETE" and not name and request.query.get("restype") == "container":
            return self._delete_container(who, account, container, place)
        listing = request.method == "GET" and not name and request.query.get("comp") == "list"
        held = self.cloud.store.object(stores.bucket(account, container), name) if name else None
        verbs = _verbs(request.method, held is not None)
        if request.method == "GET" and not name and request.query == {"restype": "container"}:
            return self._container(who, account, place)
        if not name and not listing:
            raise AzureError(
                "InvalidQueryParameterValue", "A rehearsal supports only listing and deletion of containers."
            )
        attributes = {f"{identity.BLOBS.rpartition('/')[0]}:name": container}
        if name:
            attributes[f"{identity.BLOBS}:path"] = name
        if listing:
            # The suboperation and its attribute: https://learn.microsoft.com/azure/storage/blobs/storage-auth-abac-attributes, retrieved 2026-11-27.
            attributes |= {conditions.SUB_OPERATION: "Blob.List", f"{identity.BLOBS}:prefix": request.query.get("prefix", "")}  # fmt: skip
        at = place or stores.account_id(self.cloud.store, account)

        def may(*verbs: str) -> bool:
            return identity.may(self.cloud, who, tuple(f"{identity.BLOBS}/{verb}" for verb in verbs), at, attributes)

        if request.method == "PUT" and held is not None and not may("write") and may("add/action"):
            # https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes, retrieved 2026-11-28.
            raise AzureError("UnauthorizedBlobOverwrite", "This request is not authorized to perform blob overwrites.", status=403)  # fmt: skip
        _allowed(place, may=may(*verbs))
        if listing:
            return self._list(account, container, request.query)
        return self._blob(request, who, account, container, name, held)

    def _container(self, who: identity.Principal, account: str, place: str | None) -> Response:
        """Return the properties of a container. The role requires the action on the container, not a data action."""
        at = place or stores.account_id(self.cloud.store, account)
        _allowed(place, may=identity.may_manage(self.cloud, who, f"{identity.CONTAINERS}/read", at))
        return Response(200, headers={"x-ms-lease-state": "available"})

    def _delete_container(self, who: identity.Principal, account: str, container: str, place: str | None) -> Response:
        """Delete a container with its blobs. The role requires the action on the container, not a data action."""
        at = place or stores.account_id(self.cloud.store, account)
        may = identity.may_manage(self.cloud, who, f"{identity.CONTAINERS}/delete", at)
        stores.delete_container(self.cloud.store, _allowed(place, may=may))
        return Response(202)

    def _blob(
        self,
        request: Request,
        who: identity.Principal,
        account: str,
        container: str,
        name: str,
        held: StoredObject | None,
    ) -> Response:
        bucket = stores.bucket(account, container)
        if request.method == "PUT":
            return self._put(request, who, account, container, name)
        if held is None:
            raise AzureError("BlobNotFound", "The specified blob does not exist.", status=404)
        if request.method == "DELETE":
            stores.immutable(self.cloud.store, account, container, held)
            self.cloud.store.remove_object(bucket, name)
            return Response(202)
        headers = {
            "ETag": f'"{_etag(held.etag)}"',
            "Last-Modified": formatdate(held.modified, usegmt=True),
            "x-ms-blob-type": "BlockBlob",
            **{
                f"x-ms-{mark}": status
                for mark, status in replication.statuses(self.cloud.store, account, container).get(name, {}).items()
            },
            **{f"x-ms-meta-{key}": value for key, value in held.meta.get("metadata", {}).items()},
        }
        kind = held.meta.get("content-type", "application/octet-stream")
        if request.method == "HEAD":
            headers["Content-Length"] = str(len(held.body))
        unsatisfiable = AzureError(
            "InvalidRange", "The range specified is invalid for the current size of the resource.", status=416
        )
        wanted = request.headers.get("x-ms-range") or request.headers.get("range", "")
        return content(held.body, wanted if held.body else "", kind, headers, unsatisfiable)

    def _put(self, request: Request, who: identity.Principal, account: str, container: str, name: str) -> Response:
        if request.headers.get("x-ms-blob-type") != "BlockBlob" or request.query.get("comp"):
            raise AzureError(
                "InvalidHeaderValue", "A rehearsal supports only block blobs that are uploaded in one request."
            )
        bucket = stores.bucket(account, container)
        with self.cloud.store.change():
            stores.writable(self.cloud.store, account, container)
            there = self.cloud.store.object(bucket, name)
            if there is not None:
                if request.headers.get("if-none-match") == "*":
                    raise AzureError("BlobAlreadyExists", "The specified blob already exists.", status=409)
                stores.immutable(self.cloud.store, account, container, there)
            if "if-match" in request.headers and request.headers["if-match"].strip('"') != (
                _etag(there.etag) if there else ""
            ):
                raise AzureError("ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.", status=412)  # fmt: skip
            body = self._source(request, who) if "x-ms-copy-source" in request.headers else request.body
            meta: dict[str, Any] = {"content-type": request.headers.get("content-type", "application/octet-stream")}
            if metadata := {key.removeprefix("x-ms-meta-"): value for key, value in request.headers.items() if key.startswith("x-ms-meta-")}:  # fmt: skip
                meta["metadata"] = metadata
            stored = self.cloud.store.put_object(bucket, name, body, meta)
        return Response(201, headers={"ETag": f'"{_etag(stored.etag)}"', "x-ms-request-server-encrypted": "true"})

    def _source(self, request: Request, who: identity.Principal) -> bytes:
        """Return the content of the blob from which Put Blob From URL copies. The caller needs network access to both accounts."""
        path = unquote(urlsplit(request.headers["x-ms-copy-source"]).path).removeprefix("/.azure/blob/")
        account, container, name = path.split("/", 2)
        reader = identity.of_token(self.cloud.store, request.headers.get("x-ms-copy-source-authorization", ""), AUDIENCES)  # fmt: skip
        place = stores.container_id(self.cloud.store, account, container)
        attributes = {f"{identity.BLOBS.rpartition('/')[0]}:name": container, f"{identity.BLOBS}:path": name}
        stores.reachable(self.cloud.store, account, who)
        if place is None or not identity.may(self.cloud, reader, (f"{identity.BLOBS}/read",), place, attributes):
            raise AzureError("CannotVerifyCopySource", "This request is not authorized to perform this operation.", status=403)  # fmt: skip
        stored = self.cloud.store.object(stores.bucket(account, container), name)
        if stored is None:
            raise AzureError("CannotVerifyCopySource", "The specified blob does not exist.", status=404)
        wanted = request.headers.get("x-ms-source-if-match", "").strip('"')
        if wanted and wanted != _etag(stored.etag):
            raise AzureError("SourceConditionNotMet", "The source condition specified using HTTP conditional header(s) is not met.", status=412)  # fmt: skip
        return stored.body

    def _list(self, account: str, container: str, query: dict[str, str]) -> Response:
        prefix, marker, delimiter = query.get("prefix", ""), query.get("marker", ""), query.get("delimiter", "")
        size = min(int(query.get("maxresults") or _PAGE), _PAGE)
        rows: dict[str, tuple[str, int, str, float] | None] = {}
        for row in self.cloud.store.objects(stores.bucket(account, container), prefix):
            head, delimited, _ = row[0][len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            rows.setdefault(prefix + head + delimiter if delimited else row[0], None if delimited else row)
        rest = [(name, row) for name, row in rows.items() if name >= marker]
        statuses = replication.statuses(self.cloud.store, account, container)
        metadata = "metadata" in query.get("include", "").split(",")

        def extras(key: str) -> str:
            stored = self.cloud.store.object(stores.bucket(account, container), key) if metadata else None
            shown = _element("Metadata", stored.meta.get("metadata", {})) if stored else ""
            return shown + _element("OrMetadata", statuses.get(key, {}))

        def shown(name: str, row: tuple[str, int, str, float] | None) -> str:
            if row is None:
                return f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
            key, length, etag, modified = row
            return (
                f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{formatdate(modified, usegmt=True)}</Last-Modified>"
                f"<Etag>{_etag(etag)}</Etag><Content-Length>{length}</Content-Length><Content-MD5>{_md5(etag)}</Content-MD5><BlobType>BlockBlob</BlobType></Properties>{extras(key)}</Blob>"
            )

        blobs = "".join(shown(name, row) for name, row in rest[:size])
        following = escape(rest[size][0]) if len(rest) > size else ""
        text = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="{container}"><Prefix>{escape(prefix)}</Prefix>'
            f"<Blobs>{blobs}</Blobs><NextMarker>{following}</NextMarker></EnumerationResults>"
        )
        return Response(200, text.encode(), "application/xml")


def _etag(digest: str) -> str:
    return f"0x{digest.upper()[:15]}"


def _md5(digest: str) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode()


def _element(name: str, values: Mapping[str, str]) -> str:
    return f"<{name}>{''.join(f'<{key}>{escape(value)}</{key}>' for key, value in values.items())}</{name}>"


def _verbs(method: str, exists: bool) -> tuple[str, ...]:
    """Return the data actions for a request. One of them is sufficient: a new blob can be written or added."""
    if method == "PUT":
        return ("write",) if exists else ("write", "add/action")
    if method == "DELETE":
        return ("delete",)
    if method in ("GET", "HEAD"):
        return ("read",)
    raise AzureError("UnsupportedHttpVerb", "The resource doesn't support the specified HTTP verb.", status=405)


def _allowed(place: str | None, *, may: bool) -> str:
    """Return the ID of a container that exists. A caller without a permission does not learn whether it exists."""
    if not may:
        message = "This request is not authorized to perform this operation using this permission."
        raise AzureError("AuthorizationPermissionMismatch", message, status=403)
    if place is None:
        raise AzureError("ContainerNotFound", "The specified container does not exist.", status=404)
    return place
