"""The Cloud Storage JSON API calls that nodes, the operator and Google's own client use.

Objects are written whole (`media`, `multipart`), copied (`rewrite`), read whole or by range, listed and deleted. Buckets are described.
Each request looks up the access token, and then evaluates the grants on the bucket and the project, and the retention
policy. https://cloud.google.com/storage/docs/json_api/v1, retrieved 2026-11-21.
"""

from __future__ import annotations

import base64
import json
import re
import time
from email import message_from_bytes
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gpuinfra_rehearsal.cloud.core.http import Request, Response, content, json_response
from gpuinfra_rehearsal.cloud.gcp import access, iam, objects, operator, outages, tokens
from gpuinfra_rehearsal.cloud.gcp.behaviors.replication import replicate
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError, invalid
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT_NUMBER

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import StoredObject

_PATH = re.compile(
    r"(?P<how>(?:upload|download)/)?storage/v1/b(?:/(?P<bucket>[^/]+)(?:(?P<iam>/iam)|(?P<objects>/o(?:/(?P<name>.+))?))?)?"
)
_REWRITE = re.compile(r"(?P<source>.+)/rewriteTo/b/(?P<bucket>[^/]+)/o/(?P<name>.+)")
_UNMET = "At least one of the pre-conditions you specified did not hold."


class Storage:
    """Serves `/.gcp/storage/...`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __call__(self, request: Request, rest: str) -> Response:
        who = tokens.principal(self.cloud.store, request.headers.get("authorization", ""))
        match = _PATH.fullmatch(rest)
        if match is None or not match["bucket"]:
            raise GoogleError("notFound", f"{rest[:120]} is not supported in a rehearsal", status=404)
        if not who.may_use_storage():
            raise GoogleError("insufficientPermissions", "Request had insufficient authentication scopes.", status=403)
        bucket, name = unquote(match["bucket"]), unquote(match["name"] or "")
        if not access.exists(self.cloud.store, bucket):
            self._allow(who, access.LOOK, bucket)
            raise GoogleError("notFound", "The specified bucket does not exist.", status=404)
        outages.refuse(self.cloud.store, outages.of_bucket(self.cloud.store, bucket), f"the bucket {bucket}")
        replicate(self.cloud.store)
        if match["iam"]:
            return json_response(self._policy(request, who, bucket))
        if match["how"] == "upload/":
            return self._put(request, who, bucket)
        if name:
            return self._object(request, who, bucket, name)
        if match["objects"]:
            self._allow(who, access.LIST, bucket, prefix=request.query.get("prefix", ""))
            return json_response(self._list(bucket, request.query))
        self._allow(who, access.LOOK, bucket)
        return json_response(self._bucket(bucket))

    def _allow(self, who: tokens.Principal, permission: str, bucket: str, name: str = "", prefix: str = "") -> None:
        if who.is_operator:
            place = f"projects/_/buckets/{bucket}" + (f"/objects/{name}" if name else "")
            self.cloud.operator.check(operator, operator.storage(permission, place))
            return
        if access.allowed(self.cloud, who.email, permission, bucket, name, prefix):
            return
        what = "object" if name or permission.startswith("storage.objects") else "bucket"
        raise GoogleError(
            "forbidden",
            f"{who.email} does not have {permission} access to the Google Cloud Storage {what}. "
            f"Permission '{permission}' denied on resource (or it may not exist).",
            status=403,
        )

    # Objects

    def _object(self, request: Request, who: tokens.Principal, bucket: str, name: str) -> Response:
        stored = self.cloud.store.object(bucket, name)
        if request.method == "DELETE":
            self._allow(who, access.DELETE, bucket, name)
            if stored is None:
                raise _gone(bucket, name)
            self._keep(bucket, name, stored)
            objects.remove(self.cloud.store, bucket, name)
            return Response(204)
        if request.method == "POST" and (match := _REWRITE.fullmatch(name)):
            return self._rewrite(request, who, (bucket, match["source"]), (match["bucket"], match["name"]))
        if request.method != "GET":
            raise GoogleError("methodNotAllowed", f"{request.method} is not supported in a rehearsal", status=405)
        self._allow(who, access.GET, bucket, name)
        if number := request.query.get("generation"):
            kept = objects.version(self.cloud.store, bucket, name, number)
            if kept is None:
                raise _gone(bucket, name)
            if request.query.get("alt") != "media":
                return json_response(kept[0])
        if stored is None or number not in (None, "", str(objects.generation(stored))):
            raise _gone(bucket, name)
        if request.query.get("alt") != "media":
            return json_response(objects.described(self.cloud.store, stored))
        headers = {
            "X-Goog-Generation": str(objects.generation(stored)),
            "X-Goog-Hash": f"md5={objects.md5(stored)}",
            "ETag": stored.etag,
        }
        kind = str(stored.meta.get("content-type") or "application/octet-stream")
        unsatisfiable = GoogleError("requestedRangeNotSatisfiable", "Request range not satisfiable", status=416)
        return content(stored.body, request.headers.get("range", ""), kind, headers, unsatisfiable)

    def _put(self, request: Request, who: tokens.Principal, bucket: str) -> Response:
        name, kind, body = _upload(request)
        if not name:
            raise GoogleError("required", "Required parameter: name", status=400)
        stored = self._store(request, who, bucket, name, body, {"content-type": kind})
        return json_response(objects.described(self.cloud.store, stored))

    def _store(self, request: Request, who: tokens.Principal, bucket: str, name: str, body: bytes, meta: dict[str, Any]) -> StoredObject:  # fmt: skip
        """Write an object, if the condition `ifGenerationMatch` holds."""
        self._allow(who, access.CREATE, bucket, name)
        with self.cloud.store.change():
            there = self.cloud.store.object(bucket, name)
            wanted = request.query.get("ifGenerationMatch")
            if wanted is not None and wanted != str(objects.generation(there) if there else 0):
                raise GoogleError("conditionNotMet", _UNMET, status=412)
            if there is not None:
                self._allow(who, access.DELETE, bucket, name)  # overwriting requires the delete permission
                self._keep(bucket, name, there)
            return objects.write(self.cloud.store, bucket, name, body, meta)

    def _rewrite(self, request: Request, who: tokens.Principal, source: tuple[str, str], target: tuple[str, str]) -> Response:  # fmt: skip
        """Copy an object with one request."""
        self._allow(who, access.GET, *source)
        if not access.exists(self.cloud.store, target[0]):
            raise GoogleError("notFound", "The specified bucket does not exist.", status=404)
        outages.refuse(self.cloud.store, outages.of_bucket(self.cloud.store, target[0]), f"the bucket {target[0]}")
        live = self.cloud.store.object(*source)
        number = request.query.get("sourceGeneration") or str(objects.generation(live) if live else 0)
        original = objects.version(self.cloud.store, *source, number)
        if original is None:
            raise _gone(*source)
        stored = self._store(request, who, *target, original[1], original[2])
        size = str(len(original[1]))
        shown = objects.described(self.cloud.store, stored)
        return json_response({"kind": "storage#rewriteResponse", "totalBytesRewritten": size, "objectSize": size, "done": True, "resource": shown})  # fmt: skip

    def _keep(self, bucket: str, name: str, stored_object: StoredObject) -> None:
        """Refuse the request while the bucket's retention policy protects the object."""
        until = access.retained_until(self.cloud.store, bucket, stored_object)
        if until > time.time():
            raise GoogleError(
                "retentionPolicyNotMet",
                f"Object '{bucket}/{name}' is subject to bucket's retention policy or object retention and cannot be "
                f"deleted or overwritten until {_moment(until)}",
                status=403,
            )

    # IAM

    def _policy(self, request: Request, who: tokens.Principal, bucket: str) -> dict[str, Any]:
        """Return the IAM policy of a bucket, or remove members from it and add members again that it had."""
        self._allow(who, f"storage.buckets.{'get' if request.method == 'GET' else 'set'}IamPolicy", bucket)
        if request.method == "GET":
            return iam.policy(self.cloud.store, bucket)
        if request.method != "PUT":
            raise GoogleError("methodNotAllowed", f"{request.method} is not supported in a rehearsal", status=405)
        return iam.change(self.cloud, bucket, request.body)

    # Listings

    def _bucket(self, bucket: str) -> dict[str, Any]:

        made = self.cloud.store.find(access.BUCKET, bucket)
        plain = made.plain if made else {}
        return {
            "kind": "storage#bucket",
            "id": bucket,
            "name": bucket,
            "projectNumber": PROJECT_NUMBER,
            "location": plain.get("location"),
            **({"encryption": plain["encryption"]} if plain.get("encryption") else {}),
        }

    def _list(self, bucket: str, query: dict[str, str]) -> dict[str, Any]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        limit = min(int(query.get("maxResults", "1000")) if query.get("maxResults", "1").isdigit() else 1000, 1000)
        try:
            after = base64.urlsafe_b64decode(query.get("pageToken", "")).decode()
        except ValueError:
            raise invalid("Invalid value for: pageToken") from None
        items: list[dict[str, Any]] = []
        folders: list[str] = []
        last = ""
        if query.get("versions") == "true":
            every = [objects.listed(one) for one in objects.versions(self.cloud.store, bucket, prefix)]
            return {"kind": "storage#objects", "items": every}
        for key, *_ in self.cloud.store.objects(bucket, prefix):
            rest = key[len(prefix) :]
            folder = prefix + rest.split(delimiter)[0] + delimiter if delimiter and delimiter in rest else ""
            if (folder or key) <= after or folder in folders:
                continue
            if len(items) + len(folders) == limit:
                token = base64.urlsafe_b64encode(last.encode()).decode()
                return {"kind": "storage#objects", "items": items, "prefixes": folders, "nextPageToken": token}
            last = folder or key
            if folder:
                folders.append(folder)
            elif (stored := self.cloud.store.object(bucket, key)) is not None:
                items.append(objects.listed(objects.described(self.cloud.store, stored)))
        return {"kind": "storage#objects", "items": items, "prefixes": folders}


def _upload(request: Request) -> tuple[str, str, bytes]:
    """Return (name, content type, content) of a single-request upload."""
    how = request.query.get("uploadType")
    name, kind = request.query.get("name", ""), request.headers.get("content-type", "application/octet-stream")
    if how == "media":
        return name, kind, request.body
    if how != "multipart":
        raise GoogleError("notImplemented", f"an upload of type {how} is not supported in a rehearsal", status=501)
    whole = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + request.body)
    parts = whole.get_payload()
    if not isinstance(parts, list) or len(parts) != 2:
        raise GoogleError("badContent", "Malformed multipart body.", status=400)
    about = json.loads(parts[0].get_payload(decode=True) or b"{}")  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    boundary = whole.get_boundary() or ""
    # Use the raw bytes: the mail parser changes line endings in binary content.
    last = request.body.split(b"--" + boundary.encode())[2]
    content = last.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
    return str(about.get("name") or name), str(about.get("contentType") or parts[1].get_content_type()), content  # pyright: ignore[reportAttributeAccessIssue]


def _gone(bucket: str, name: str) -> GoogleError:
    return GoogleError("notFound", f"No such object: {bucket}/{name}", status=404)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}Z"
