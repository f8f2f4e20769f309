"""What a node needs of Google Cloud, with the standard library alone: who it is, Cloud Storage, and a proof of identity.

Endpoints other than Google's own come only from variables that Google's own libraries read: GCE_METADATA_HOST
(`host[:port]`), STORAGE_EMULATOR_HOST.
"""

from __future__ import annotations

import datetime
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Mapping

from .cloud import CloudError, Exists

AUDIENCE = "gpuinfra:evidence:%s"
"""What an identity token is asked for: it holds for this evidence and nothing else. Filled with the SHA-256."""
_FLAVOR = {"Metadata-Flavor": "Google"}
# Google's metadata server and Cloud Storage are reached directly; a proxy in the environment is for the steps' downloads.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Metadata:
    """The metadata server of a Compute Engine instance."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        host = environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
        self._base = "http://%s/computeMetadata/v1/" % host.rstrip("/")

    def get(self, path: str) -> str:
        """One value."""
        request = urllib.request.Request(self._base + path, headers=_FLAVOR)
        try:
            with _OPENER.open(request, timeout=5) as reply:
                if reply.headers.get("Metadata-Flavor") != "Google":
                    raise CloudError("what answers as the metadata server is not Google's")
                return reply.read(1 << 20).decode("utf-8")
        except urllib.error.HTTPError as error:
            raise CloudError("the metadata server answers %d for %s" % (error.code, path.split("?")[0])) from error
        except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
            raise CloudError("the metadata server does not answer (%s): %s" % (path.split("?")[0], error)) from error

    def instance_id(self) -> str:
        """The number that Google gave this instance."""
        found = self.get("instance/id").strip()
        if not found.isdigit():
            raise CloudError("the metadata server gives no instance id: %r" % found[:40])
        return found

    def access_token(self) -> str:
        """A token of the instance's service account; the server renews it by itself."""
        try:
            return str(json.loads(self.get("instance/service-accounts/default/token"))["access_token"])
        except (KeyError, TypeError, ValueError) as error:
            raise CloudError("the metadata server gives no access token: %s" % error) from None

    def identity_token(self, audience: str) -> str:
        """A statement by Google, signed for an hour, of which instance and service account asks, for one audience."""
        query = urllib.parse.urlencode({"audience": audience, "format": "full", "licenses": "FALSE"})
        token = self.get("instance/service-accounts/default/identity?" + query).strip()
        if token.count(".") != 2:
            raise CloudError("the metadata server gives no identity token")
        return token


def storage(environ: Mapping[str, str] = os.environ) -> str:
    """Where Cloud Storage answers, without a slash at the end."""
    named = environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com"
    return (named if "://" in named else "http://" + named).rstrip("/")


def put_object(
    metadata: Metadata,
    bucket: str,
    key: str,
    body: bytes,
    *,
    once: bool,
    attempts: int = 6,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Write one object. `once` refuses to replace an existing one, so that evidence can only be added.

    Throttling, server errors and grants that have not arrived everywhere yet are tried again with growing pauses.
    """
    query = {"uploadType": "media", "name": key}
    if once:
        query["ifGenerationMatch"] = "0"
    where = "%s/upload/storage/v1/b/%s/o?%s" % (
        storage(environ),
        urllib.parse.quote(bucket, safe=""),
        urllib.parse.urlencode(query),
    )
    said = "nothing was tried"
    for attempt in range(attempts):
        if attempt:
            time.sleep(min(30.0, 0.5 * 2**attempt))
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + metadata.access_token()}
        request = urllib.request.Request(where, data=body, method="POST", headers=headers)
        try:
            with _OPENER.open(request, timeout=30):
                return
        except urllib.error.HTTPError as error:
            text = error.read(4096).decode("utf-8", "replace")
            if error.code == 412 and once:
                # Evidence lies below this instance's own number, so an earlier attempt of ours did arrive.
                if attempt:
                    return
                raise Exists("gs://%s/%s exists already" % (bucket, key)) from error
            said = "%d %s" % (error.code, _message(text))
            if error.code not in (401, 403, 408, 429) and error.code < 500:
                break
        except (OSError, http.client.HTTPException) as error:
            said = str(error)
    raise CloudError("gs://%s/%s could not be written: %s" % (bucket, key, said))


def get_object(
    metadata: Metadata, bucket: str, key: str, most: int = 65536, environ: Mapping[str, str] = os.environ
) -> bytes | None:
    """The first `most` bytes of one object, None while there is none.

    A node may not list the bucket, so Cloud Storage answers 403 for an object that is not there: both answers mean "not yet".
    """
    where = "%s/storage/v1/b/%s/o/%s?alt=media" % (
        storage(environ),
        urllib.parse.quote(bucket, safe=""),
        urllib.parse.quote(key, safe=""),
    )
    request = urllib.request.Request(where, headers={"Authorization": "Bearer " + metadata.access_token()})
    try:
        with _OPENER.open(request, timeout=30) as reply:
            return reply.read(most)
    except urllib.error.HTTPError as error:
        if error.code in (403, 404):
            return None
        raise CloudError("gs://%s/%s could not be read: %d" % (bucket, key, error.code)) from error
    except (OSError, http.client.HTTPException) as error:
        raise CloudError("gs://%s/%s could not be read: %s" % (bucket, key, error)) from error


def _message(text: str) -> str:
    """The message of an error in Google's JSON, or the beginning of what came instead."""
    try:
        return " ".join(str(json.loads(text)["error"]["message"]).split())[:200]
    except (KeyError, TypeError, ValueError):
        return " ".join(text.split())[:60] or "without a message"


class Gcp:
    """A node's cloud (`cloud.Cloud`): the instance's service account and Cloud Storage."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._metadata = Metadata(environ)

    def instance_id(self) -> str:
        """A number of up to 20 digits."""
        return self._metadata.instance_id()

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        """One object of a bucket."""
        put_object(self._metadata, bucket, key, body, once=once, environ=self._environ)

    def get(self, bucket: str, key: str) -> bytes | None:
        """One small object of a bucket, None while there is none."""
        return get_object(self._metadata, bucket, key, environ=self._environ)

    def proof(self, evidence_sha256: str, now: datetime.datetime) -> dict[str, Any]:
        """Google's own statement about this instance, over that hash; good for an hour."""
        return {
            "schema": "gpuinfra.proof/1",
            "cloud": "gcp",
            "evidence_sha256": evidence_sha256,
            "signed": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "token": self._metadata.identity_token(AUDIENCE % evidence_sha256),
        }


def connect(node: Mapping[str, Any], environ: Mapping[str, str]) -> Gcp:
    """Google Cloud as `node.json` describes it: nothing of it is needed, the metadata server knows the rest."""
    return Gcp(environ)
