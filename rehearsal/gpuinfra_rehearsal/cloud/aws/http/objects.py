"""The path-style S3 operations that nodes, the operator and bundles use.

PUT, GET, HEAD and DELETE of objects, with If-None-Match, ranges and batches of deletions; copies; both versions of listings;
locations and heads of buckets; versions and replication rules. The signature of each request is verified. Then the caller's IAM policies and the bucket
policy are evaluated.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from dataclasses import replace
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote
from xml.sax.saxutils import escape

from gpuinfra_rehearsal.cloud.aws import access, credentials, places, replication, signatures, versions
from gpuinfra_rehearsal.cloud.aws.http import changes
from gpuinfra_rehearsal.cloud.core import outage
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.http import Request, Response, content

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import StoredObject

_NS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_KEPT_HEADERS = ("content-type", "content-encoding", "cache-control", "content-disposition")


class Objects:
    """Serves `/<bucket>/<key>`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __call__(self, request: Request) -> Response:
        try:
            verified = signatures.verify(request, lambda key: credentials.by_id(self.cloud.store, key), s3=True)
            return self._serve(request, verified.key.principal)
        except ApiRejected as error:
            if error.status in (400, 403):
                self.cloud.store.log(request.method, "s3", request.path[:500], "", error.code)
            return _error(error, request)

    def _serve(self, request: Request, who: credentials.Principal) -> Response:
        _, bucket, *rest = request.path.split("/", 2)
        key = rest[0] if rest else ""
        if not bucket:
            self._allow(who, "s3:ListAllMyBuckets", "*", {})
            return self._buckets()
        if not access.exists(self.cloud.store, bucket):
            self._allow(who, "s3:ListBucket", f"arn:aws:s3:::{bucket}", {})
            raise ApiRejected("NoSuchBucket", "The specified bucket does not exist", status=404)
        if outage.affects(self.cloud.store, region := access.bucket_region(self.cloud.store, bucket)):
            # The endpoints of S3 are regional: https://docs.aws.amazon.com/general/latest/gr/s3.html
            raise outage.NoResponse(region)
        replication.run(self.cloud.store)
        return self._object(request, who, bucket, key) if key else self._bucket(request, who, bucket)

    def _allow(
        self,
        who: credentials.Principal,
        action: str,
        resource: str,
        context: dict[str, str],
        bucket: str = "",
        *,
        needed: bool = True,
    ) -> None:
        allowed, why = access.allowed(self.cloud, who, action, resource, bucket, context, needed=needed)
        if not allowed:
            text = f'User: {who.arn} is not authorized to perform: {action} on resource: "{resource}" {why}'
            raise ApiRejected("AccessDenied", text, status=403)

    # Buckets

    def _buckets(self) -> Response:
        names = "".join(f"<Bucket><Name>{escape(name)}</Name></Bucket>" for name in access.buckets(self.cloud.store))
        return _xml(f"<ListAllMyBucketsResult {_NS}><Buckets>{names}</Buckets></ListAllMyBucketsResult>")

    def _bucket(self, request: Request, who: credentials.Principal, bucket: str) -> Response:
        arn, query = f"arn:aws:s3:::{bucket}", request.query
        if request.method == "POST" and "delete" in query:
            return self._delete_many(request, who, bucket)
        if request.method == "PUT" and "replication" in query:
            self._allow(who, "s3:PutReplicationConfiguration", arn, {}, bucket)
            outage.refuse(self.cloud.store, [places.CONTROL_REGION], "PutBucketReplication")
            changes.set_replication(self.cloud, bucket, request.body)
            return Response(200)
        if request.method in ("PUT", "DELETE") and "policy" in query:
            call = "PutBucketPolicy" if request.method == "PUT" else "DeleteBucketPolicy"
            self._allow(who, f"s3:{call}", arn, {}, bucket)
            outage.refuse(self.cloud.store, [places.CONTROL_REGION], call)
            changes.set_bucket_policy(self.cloud, bucket, request.body)
            return Response(204)
        if request.method not in ("GET", "HEAD"):
            raise ApiRejected(
                "MethodNotAllowed", "The specified method is not allowed against this resource.", status=405
            )
        if "policy" in query:
            self._allow(who, "s3:GetBucketPolicy", arn, {}, bucket)
            return Response(200, changes.bucket_policy(self.cloud, bucket).encode(), "application/json")
        if "replication" in query:
            self._allow(who, "s3:GetReplicationConfiguration", arn, {}, bucket)
            return _xml(replication.document(self.cloud.store, bucket))
        if "versions" in query:
            self._allow(who, "s3:ListBucketVersions", arn, {"s3:prefix": query.get("prefix", "")}, bucket)
            return _xml(changes.versions(self.cloud, bucket, query.get("prefix", "")))
        if "location" in query:
            self._allow(who, "s3:GetBucketLocation", arn, {}, bucket)
            region = access.bucket_region(self.cloud.store, bucket)
            return _xml(f"<LocationConstraint {_NS}>{'' if region == 'us-east-1' else region}</LocationConstraint>")
        self._allow(who, "s3:ListBucket", arn, {"s3:prefix": query.get("prefix", "")}, bucket)
        if request.method == "HEAD":
            return Response(200, headers={"x-amz-bucket-region": access.bucket_region(self.cloud.store, bucket)})
        return self._list(bucket, query)

    def _list(self, bucket: str, query: dict[str, str]) -> Response:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        second = query.get("list-type") == "2"
        try:
            after = (
                base64.b64decode(query["continuation-token"]).decode()
                if "continuation-token" in query
                else query.get("start-after", query.get("marker", ""))
            )
            limit = min(int(query.get("max-keys", "1000")), 1000)
        except ValueError as error:
            raise ApiRejected("InvalidArgument", "max-keys or continuation-token is malformed") from error
        as_url = query.get("encoding-type") == "url"

        def shown(text: str) -> str:
            return escape(quote(text, safe="/-_.~") if as_url else text)

        contents, prefixes, last, more = "", [], "", False
        count = 0
        for key, size, etag, modified in self.cloud.store.objects(bucket, prefix):
            folder = (
                prefix + key[len(prefix) :].split(delimiter)[0] + delimiter
                if delimiter and delimiter in key[len(prefix) :]
                else ""
            )
            if (folder or key).encode() <= after.encode() or (folder and folder in prefixes):
                continue
            if count == limit:
                more = True
                break
            count, last = count + 1, folder or key
            if folder:
                prefixes.append(folder)
            else:
                contents += (
                    f"<Contents><Key>{shown(key)}</Key><LastModified>{_iso(modified)}</LastModified><ETag>&quot;{etag}&quot;</ETag>"
                    f"<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
                )
        token = base64.b64encode(last.encode()).decode()
        tail = (
            (
                f"<NextContinuationToken>{token}</NextContinuationToken>"
                if second
                else f"<NextMarker>{shown(last)}</NextMarker>"
            )
            if more
            else ""
        )
        return _xml(
            f"<ListBucketResult {_NS}><Name>{bucket}</Name><Prefix>{shown(prefix)}</Prefix><MaxKeys>{limit}</MaxKeys>"
            + (f"<KeyCount>{count}</KeyCount>" if second else "")
            + (f"<Delimiter>{shown(delimiter)}</Delimiter>" if delimiter else "")
            + ("<EncodingType>url</EncodingType>" if as_url else "")
            + f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{tail}{contents}"
            + "".join(f"<CommonPrefixes><Prefix>{shown(one)}</Prefix></CommonPrefixes>" for one in prefixes)
            + "</ListBucketResult>"
        )

    def _delete_many(self, request: Request, who: credentials.Principal, bucket: str) -> Response:
        from defusedxml.ElementTree import fromstring

        root = fromstring(request.body)
        namespace = re.match(r"\{[^}]*\}", root.tag)
        mark = namespace.group(0) if namespace else ""
        answers = ""
        for node in root.iter(f"{mark}Key"):
            key = node.text or ""
            try:
                self._remove(who, bucket, key)
                answers += f"<Deleted><Key>{escape(key)}</Key></Deleted>"
            except ApiRejected as error:
                answers += f"<Error><Key>{escape(key)}</Key><Code>{error.code}</Code><Message>{escape(error.message)}</Message></Error>"
        return _xml(f"<DeleteResult {_NS}>{answers}</DeleteResult>")

    # Objects

    def _object(self, request: Request, who: credentials.Principal, bucket: str, key: str) -> Response:
        arn = f"arn:aws:s3:::{bucket}/{key}"
        if request.method == "PUT":
            self._allow(who, "s3:PutObject", arn, access.put_context(request.headers), bucket)
            if "x-amz-copy-source" in request.headers:
                return self._copy(request, who, bucket, key)
            return self._put(request, bucket, key)
        if request.method in ("GET", "HEAD"):
            self._allow(who, "s3:GetObject", arn, {}, bucket)
            return self._get(request, who, bucket, key)
        if request.method == "DELETE":
            self._remove(who, bucket, key)
            return Response(204)
        raise ApiRejected("MethodNotAllowed", "The specified method is not allowed against this resource.", status=405)

    def _put(self, request: Request, bucket: str, key: str) -> Response:
        body = _unchunked(request)
        digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        if request.headers.get("content-md5", digest) != digest:
            raise ApiRejected("BadDigest", "The Content-MD5 you specified did not match what we received.")
        stored = self._write(request, bucket, key, body, _metadata(request))
        return Response(200, headers={"ETag": f'"{stored.etag}"', "x-amz-server-side-encryption": "AES256"})

    def _copy(self, request: Request, who: credentials.Principal, bucket: str, key: str) -> Response:
        """Copy a version of an object. The copy has its own version ID, and its metadata is that of the request if `x-amz-metadata-directive` is REPLACE
        (https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html, retrieved 2026-11-29)."""
        path, _, query = request.headers["x-amz-copy-source"].partition("?")
        given, _, source_key = unquote(path).removeprefix("/").partition("/")
        version = parse_qs(query).get("versionId", [""])[0]
        action = "s3:GetObjectVersion" if version else "s3:GetObject"
        self._allow(who, action, f"arn:aws:s3:::{given}/{source_key}", {}, given)
        outage.refuse(self.cloud.store, [access.bucket_region(self.cloud.store, given)], "CopyObject")
        source = self._stored(given, source_key, version)
        if source is None:
            raise ApiRejected("NoSuchKey", "The specified key does not exist.", status=404)
        kept = {name: value for name, value in source.meta.items() if name != versions.VERSION}
        meta = _metadata(request) if request.headers.get("x-amz-metadata-directive") == "REPLACE" else kept
        own = hashlib.sha256(f"{bucket} {key} copy {self.cloud.store.next('copies')}".encode()).hexdigest()[:32]
        stored = self._write(request, bucket, key, source.body, {**meta, versions.VERSION: own})
        checksum = ""
        if request.headers.get("x-amz-checksum-algorithm") == "SHA256":
            digest = base64.b64encode(hashlib.sha256(source.body).digest()).decode()
            checksum = f"<ChecksumSHA256>{digest}</ChecksumSHA256><ChecksumType>FULL_OBJECT</ChecksumType>"
        done = _xml(
            f"<CopyObjectResult {_NS}><LastModified>{_iso(stored.modified)}</LastModified><ETag>&quot;{stored.etag}&quot;</ETag>{checksum}</CopyObjectResult>"
        )
        return replace(
            done, headers={versions.VERSION: own, "x-amz-copy-source-version-id": versions.version_of(source)}
        )

    def _write(self, request: Request, bucket: str, key: str, body: bytes, meta: dict[str, str]) -> StoredObject:
        """Write an object if the conditions of the request hold."""
        with self.cloud.store.change():
            there = self.cloud.store.object(bucket, key)
            if there and request.headers.get("if-none-match") in ("*", f'"{there.etag}"'):
                raise ApiRejected(
                    "PreconditionFailed", "At least one of the pre-conditions you specified did not hold", status=412
                )
            if (wanted := request.headers.get("if-match")) and (there is None or wanted.strip('"') != there.etag):
                raise ApiRejected(
                    "PreconditionFailed", "At least one of the pre-conditions you specified did not hold", status=412
                )
            return versions.write(self.cloud.store, bucket, key, body, meta)

    def _stored(self, bucket: str, key: str, version: str = "") -> StoredObject | None:
        """Return an object. Raises `NoSuchVersion` if its current version is another one."""
        stored = self.cloud.store.object(bucket, key)
        if version and (stored is None or versions.version_of(stored) != version):
            if any(one.key == key and one.version == version for one in versions.listed(self.cloud.store, bucket, key)):
                raise ApiRejected("NotImplemented", "the content of noncurrent versions is not stored in a rehearsal", status=501)  # fmt: skip
            raise ApiRejected("NoSuchVersion", "The specified version does not exist.", status=404)
        return stored

    def _get(self, request: Request, who: credentials.Principal, bucket: str, key: str) -> Response:
        stored = self._stored(bucket, key, request.query.get("versionId", ""))
        if stored is None:
            # Without the list permission, S3 does not reveal whether a key exists. A node that polls for an object does not need the permission.
            self._allow(who, "s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": key}, bucket, needed=False)
            raise ApiRejected("NoSuchKey", "The specified key does not exist.", status=404)
        headers = _headers(stored)
        if request.headers.get("if-none-match", "").strip('"') == stored.etag:
            return Response(304, headers=headers)
        if request.method == "HEAD":
            headers["Content-Length"] = str(len(stored.body))
        unsatisfiable = ApiRejected("InvalidRange", "The requested range is not satisfiable", status=416)
        kind = stored.meta.get("content-type", "binary/octet-stream")
        return content(stored.body, request.headers.get("range", ""), kind, headers, unsatisfiable)

    def _remove(self, who: credentials.Principal, bucket: str, key: str) -> None:
        self._allow(who, "s3:DeleteObject", f"arn:aws:s3:::{bucket}/{key}", {}, bucket)
        if access.locked(self.cloud.store, bucket, self.cloud.store.object(bucket, key)):
            raise ApiRejected("AccessDenied", "Access Denied because object protected by object lock.", status=403)
        self.cloud.store.remove_object(bucket, key)


def _metadata(request: Request) -> dict[str, str]:
    """Return the headers that S3 stores with an object."""
    return {
        name: value
        for name, value in request.headers.items()
        if name in _KEPT_HEADERS or name.startswith("x-amz-meta-")
    }


def _headers(stored_object: StoredObject) -> dict[str, str]:
    kept = {name: value for name, value in stored_object.meta.items() if name != "content-type"}
    return {
        "ETag": f'"{stored_object.etag}"',
        "Last-Modified": formatdate(stored_object.modified, usegmt=True),
        "Accept-Ranges": "bytes",
        **kept,
    }


def _unchunked(request: Request) -> bytes:
    """Return the body without the chunks of `aws-chunked`, which SDKs use to send a checksum after the content."""
    if not request.headers.get("x-amz-content-sha256", "").startswith("STREAMING-"):
        return request.body
    body, rest = b"", request.body
    while rest:
        head, _, rest = rest.partition(b"\r\n")
        try:
            size = int(head.split(b";")[0], 16)
        except ValueError as error:
            raise ApiRejected("IncompleteBody", "The request body terminated unexpectedly") from error
        if size == 0:
            break
        body, rest = body + rest[:size], rest[size + 2 :]
    return body


def _error(error: ApiRejected, request: Request) -> Response:
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{error.code}</Code><Message>{escape(error.message)}</Message>'
        f"<Resource>{escape(request.path)}</Resource><RequestId>0000STANDIN00000</RequestId></Error>"
    )
    return Response(error.status, text.encode(), "application/xml", {"x-amz-request-id": "0000STANDIN00000"})


def _xml(text: str) -> Response:
    return Response(200, f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode(), "application/xml")


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))
