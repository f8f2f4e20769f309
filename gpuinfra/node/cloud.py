"""The interface between the node program and a cloud. Each cloud has one module that implements this interface.

Nodes import only the module of their own cloud.
"""

from __future__ import annotations

import datetime
import http.client
import importlib
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Callable, Collection, Mapping, Protocol

from .notices import Notice


class CloudError(Exception):
    """A request to the cloud failed. The message is shown to the operator."""


class Exists(CloudError):
    """The object already exists and must not be replaced."""


class Refused(CloudError):
    """The cloud refused a request of a repair."""

    def __init__(self, message: str, status: int, code: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class FaultyNode:
    """A node that the control node replaces."""

    name: str
    """The label `instance` of its metrics: the instance ID, or on Azure the name of the machine."""
    instance_id: str
    cluster: str
    zones: tuple[str, ...]
    """Zones of its pool."""


class NodeCloud(Protocol):
    """The node's cloud, which is accessed with the node's own identity. Credentials never appear in a repr.

    Every method raises `CloudError` if a request fails.
    """

    notice_poll_s: float
    """Seconds between two readings of the notices."""

    def instance_id(self) -> str:
        """Return the cloud's ID of this instance, as in the evidence and the group membership."""
        ...

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        """Write one JSON object to the bucket or container that `node.json` specifies.

        With `once`, raises `Exists` instead of replacing an existing object. Throttling, server errors and an identity that is
        not effective yet are retried with increasing pauses.
        """
        ...

    def get(self, bucket: str, key: str, limit: int = 65536) -> bytes | None:
        """Return the first `limit` bytes of an object, or None if it does not exist or the node must not read it."""
        ...

    def proof(self, evidence_sha256: str, now: datetime.datetime) -> dict[str, Any]:
        """Return an identity proof (`gpuinfra.proof/1`) for a hash of 64 hex digits. Only this instance can obtain it."""
        ...

    def notice_sources(self) -> Mapping[str, Callable[[], list[Notice]]]:
        """Return the functions that read the current notices about this machine, by name. None of them acknowledges an event.

        Each makes one attempt and raises `CloudError` if it fails, because the next reading follows soon.
        """
        ...


def of(node: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> NodeCloud:
    """Return the cloud named in `node.json`. Raises `CloudError` if no module of that name has `connect(node, environ)`."""
    name = str(node.get("cloud"))
    try:
        connect = importlib.import_module("." + name, __package__).connect
    except (ModuleNotFoundError, AttributeError):
        raise CloudError("the cloud in node.json is %s, which this node program does not support" % name) from None
    return connect(node, environ)


def field(record: Mapping[str, Any], name: str) -> str:
    """Return a required text field from `node.json`."""
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise CloudError("node.json has no %s" % name)
    return value


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send credentials to a different host."""

    def redirect_request(self, *args: object, **more: object) -> None:
        return None


# A proxy in the environment is only for downloads. Requests that carry credentials never use it.
OPENER = urllib.request.build_opener(NoRedirect, urllib.request.ProxyHandler({}))
ATTEMPTS = 6


def read_metadata(request: urllib.request.Request, service: str, path: str) -> tuple[Mapping[str, str], str]:
    """Return the headers and the body of one response from the metadata service."""
    try:
        with OPENER.open(request, timeout=5) as reply:
            return reply.headers, reply.read(1 << 20).decode("utf-8")
    except urllib.error.HTTPError as error:
        raise CloudError("%s returned status %d for %s" % (service, error.code, path)) from error
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        raise CloudError("%s did not respond (%s): %s" % (service, path, error)) from error


def optional_metadata(read: Callable[[], str]) -> str | None:
    """Return a metadata value, or None if the service has no such value (404 or 410)."""
    try:
        return read()
    except CloudError as error:
        if isinstance(error.__cause__, urllib.error.HTTPError) and error.__cause__.code in (404, 410):
            return None
        raise


def read_secret(request: urllib.request.Request, what: str, explain: Callable[[str], str]) -> str:
    """Return the body of one response that contains a secret. `what` names the secret, and `explain` returns the reason in the body of an error."""
    try:
        with OPENER.open(request, timeout=30) as reply:
            return reply.read(1 << 17).decode("utf-8")
    except urllib.error.HTTPError as error:
        problem = "%d %s" % (error.code, explain(error.read(4096).decode("utf-8", "replace")))
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        problem = str(error) or type(error).__name__
    raise CloudError("%s could not be read: %s" % (what, problem))


def change(request: urllib.request.Request, what: str, explain: Callable[[str], str]) -> str:
    """Send one request of a repair, without retries, and return the body of the answer. `what` names the object.
    Raises `Refused` with the status and the code of the answer, or `CloudError`."""
    try:
        with OPENER.open(request, timeout=30) as reply:
            return reply.read(32 << 20).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        code = explain(error.read(1 << 16).decode("utf-8", "replace"))
        raise Refused("%s: %d %s" % (what, error.code, code), error.code, code) from error
    except (OSError, http.client.HTTPException) as error:
        raise CloudError("%s: no answer: %s" % (what, str(error) or type(error).__name__)) from error


def make_proof(cloud: str, evidence_sha256: str, now: datetime.datetime, **claim: Any) -> dict[str, Any]:
    """Return an identity proof for a hash. `claim` is the part that only this instance can obtain."""
    return {
        "schema": "gpuinfra.proof/1",
        "cloud": cloud,
        "evidence_sha256": evidence_sha256,
        "signed": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        **claim,
    }


def put_with_retry(
    request: Callable[[], urllib.request.Request],
    name: str,
    *,
    once: bool,
    own: bool,
    explain: Callable[[urllib.error.HTTPError, str], str],
    exists: Callable[[int, str], bool],
    retried: Collection[int],
) -> None:
    """Write one object, with a new `request` for each attempt. Raises `CloudError`, or `Exists` if `once` is set and the object exists.

    `explain` returns the error code or message of a response, and `exists` decides from status and code whether the object is already there.
    `own` states whether only this instance can write under this name. Server errors and the statuses in `retried` are retried with increasing pauses.
    """
    problem = "no attempt was made"
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(min(30.0, 0.5 * 2**attempt))
        try:
            with OPENER.open(request(), timeout=30):
                return
        except urllib.error.HTTPError as error:
            code = explain(error, error.read(4096).decode("utf-8", "replace"))
            if once and exists(error.code, code):
                # In a folder of its own, an earlier attempt of this instance must have succeeded.
                if attempt and own:
                    return
                raise Exists("%s already exists" % name) from error
            problem = "%d %s" % (error.code, code)
            if error.code not in retried and error.code < 500:
                break
        except (OSError, http.client.HTTPException, CloudError) as error:  # CloudError: the metadata service
            problem = str(error)
    raise CloudError("%s could not be written: %s" % (name, problem))


def get_optional(request: Callable[[], urllib.request.Request], name: str, limit: int) -> bytes | None:
    """Return the first bytes of an object, or None if it is missing. Without list permission, a missing object is a 403."""
    return _read(request, name, "read", limit, absent=(403, 404))


def _read(
    request: Callable[[], urllib.request.Request],
    name: str,
    verb: str,
    limit: int,
    absent: Collection[int],
    end: bytes = b"",
) -> bytes | None:
    """Send a request that reads, with retries after server errors, throttling and incomplete answers."""
    problem = "no attempt was made"
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(min(30.0, 0.5 * 2**attempt))
        try:
            with OPENER.open(request(), timeout=30) as reply:
                data = reply.read(limit)
                length = min(limit, int(reply.headers.get("Content-Length") or 0))
                if len(data) >= length and data.rstrip().endswith(end):
                    return data
                problem = "the answer is incomplete after %d bytes" % len(data)
        except urllib.error.HTTPError as error:
            if error.code in absent:
                return None
            problem = str(error.code)
            if error.code != 429 and error.code < 500:
                break
        except (OSError, http.client.HTTPException, CloudError) as error:
            problem = str(error)
    raise CloudError("%s could not be %s: %s" % (name, verb, problem))


def error_code(text: str) -> str:
    """Return the error code in an XML response from S3 or blob storage."""
    start, end = text.find("<Code>"), text.find("</Code>")
    return text[start + 6 : end][:60] if 0 <= start < end else "without a code"
