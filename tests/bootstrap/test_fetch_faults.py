"""Every failure of the network and the metadata service during the download of the bundle, on each cloud.

A fault hits the first request to the metadata service or to the object store; the next requests succeed. The download
must end with the bundle, and its message must name who failed and why.

What the services answer: the metadata service of EC2 returns 404 as long as an instance has no role, and an object with
another `Code` than `Success` if EC2 cannot assume the role (amazon-ec2-user-guide, "Troubleshoot IAM"); Azure's returns
400 with `invalid_request` and `Identity not found`, and asks to repeat 404, 410, 429 and 5xx
(learn.microsoft.com, "How to use managed identities to acquire an access token", retrieved 2026-11-28).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.servers import Answering, serve

from .fetching import complete, first_trouble, start

DATA = b"a bundle"
PACKED = gzip.compress(DATA)
SHA256 = hashlib.sha256(DATA).hexdigest()
ATTEMPT_S = 5
STORES = {"aws": "S3", "azure": "blob storage", "gcp": "Cloud Storage"}
METADATA = {"aws": "the metadata service", "azure": "the metadata service", "gcp": "the metadata server"}
TOKENS = {
    "aws": json.dumps({"Code": "Success", "AccessKeyId": "ASIA", "SecretAccessKey": "s", "Token": "t"}),
    "azure": json.dumps({"access_token": "t"}),
    "gcp": json.dumps({"access_token": "t"}),
}
Fault = Callable[[BaseHTTPRequestHandler], None]


def answered(status: int, body: bytes = b"") -> Fault:
    """An answer with a status."""

    def fault(handler: BaseHTTPRequestHandler) -> None:
        assert isinstance(handler, Answering)
        handler.answer(status, body)

    return fault


def cut(handler: BaseHTTPRequestHandler) -> None:
    """The connection ends in the middle of the body."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"half")


def cut_error(handler: BaseHTTPRequestHandler) -> None:
    """The connection ends in the middle of the text of an error."""
    handler.send_response(500)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"<Error>")


def closed(handler: BaseHTTPRequestHandler) -> None:
    """The connection ends before the status line."""
    handler.close_connection = True


def not_http(handler: BaseHTTPRequestHandler) -> None:
    """The status line is none."""
    handler.wfile.write(b"SSH-2.0-OpenSSH_8.9\r\n\r\n")


def reset(handler: BaseHTTPRequestHandler) -> None:
    """The connection is reset."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(handler.connection.detach())


def silent(handler: BaseHTTPRequestHandler) -> None:
    """No answer within the time limit."""
    time.sleep(30)


ANYWHERE: tuple[tuple[Fault, str], ...] = (
    (cut, "IncompleteRead(4 bytes read, 996 more expected)"),
    (cut_error, "HTTP 500 <Error>"),
    (closed, "Remote end closed connection without response"),
    (not_http, "SSH-2.0-OpenSSH_8.9"),
    (reset, "Connection reset by peer"),
    (answered(429), "HTTP 429 Too Many Requests"),
    (answered(503), "HTTP 503 Service Unavailable"),
    (answered(403, b"<Error><Code>AccessDenied</Code></Error>"), "HTTP 403 AccessDenied"),
)
"""Faults of both services, and the cause in the message."""
IDENTITY: dict[str, tuple[tuple[str, Fault, str], ...]] = {
    "aws": (
        ("role", answered(404), "HTTP 404 Not Found"),
        ("role", answered(200), "the metadata service lists no role of this machine"),
        (
            "token",
            answered(200, b'{"Code": "AssumeRoleUnauthorizedAccess", "Message": "EC2 cannot assume the role node."}'),
            "EC2 cannot assume the role node.",
        ),
    ),
    "azure": (
        (
            "token",
            answered(400, b'{"error":"invalid_request","error_description":"Identity not found"}'),
            'HTTP 400 {"error":"invalid_request","error_description":"Identity not found"}',
        ),
        ("token", answered(200), "the answer has no access_token: it is empty"),
    ),
    "gcp": (
        ("token", answered(404, b"service account does not exist"), "HTTP 404 service account does not exist"),
        ("token", answered(200, b"<html>maintenance</html>"), "has no access_token: <html>maintenance</html>"),
    ),
}
"""Identities that the metadata service does not have yet: the request that shows it, the answer, and the cause in the message."""
OBJECTS: tuple[tuple[Fault, str], ...] = (
    (answered(200, gzip.compress(b"another")), f"not {SHA256}"),
    (answered(200, PACKED[:-10]), f"the object is incomplete after {len(PACKED) - 10} bytes"),
    (answered(200, b"<html>log in</html>"), "the object is damaged"),
)
"""Answers of the store that are not the bundle."""


@dataclass
class Services:
    """The metadata service and the object store of one cloud; the first fault hits the next request of its kind."""

    faults: list[tuple[str, Fault, str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()


@pytest.fixture(params=("aws", "azure", "gcp"))
def cloud(request: pytest.FixtureRequest) -> str:
    """One of the clouds."""
    return str(request.param)


@pytest.fixture
def services(cloud: str) -> Iterator[Services]:
    """Both services on one port."""
    made = Services()

    class Handler(Answering):
        def do_PUT(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            kind = "token" if cloud != "aws" or self.path.endswith("/nodes") else "metadata"
            kind = "role" if self.path.endswith("/security-credentials/") else kind
            kind = "store" if self.path.startswith("/store") else kind
            if made.faults and kind == made.faults[0][0]:
                return made.faults.pop(0)[1](self)
            if kind == "store":
                return self.answer(200, PACKED)
            return self.answer(200, (TOKENS[cloud] if kind == "token" else "nodes").encode())

    with serve(Handler) as url:
        host = url.removeprefix("http://")
        made.environment = {
            "aws": {"AWS_ENDPOINT_URL": f"{url}/store", "AWS_EC2_METADATA_SERVICE_ENDPOINT": url},
            "azure": {"AZURE_STORAGE_SERVICE_ENDPOINT": f"{url}/store", "AZURE_POD_IDENTITY_AUTHORITY_HOST": url},
            "gcp": {"GCE_METADATA_HOST": host, "STORAGE_EMULATOR_HOST": f"{url}/store"},
        }[cloud]
        place = "https://account.blob.core.windows.net/bundles" if cloud == "azure" else "bundles"
        made.words = (place, "b.tar.gz", "region-1", SHA256)
        yield made


def test_every_passing_fault_is_named_and_retried(services: Services, cloud: str, tmp_path: Path) -> None:
    """One fault after the other, first of the metadata service, then of the store: each message names who failed and why, and then the bundle is there."""
    first = "metadata" if cloud == "aws" else "token"
    wanted: list[tuple[str, str]] = []
    for kind, action, cause in (
        *((first, action, cause) for action, cause in ANYWHERE),
        *IDENTITY[cloud],
        *(("store", action, cause) for action, cause in ANYWHERE),
        *(("store", action, cause) for action, cause in OBJECTS),
        ("store", silent, f"no complete answer within {ATTEMPT_S} s"),
    ):
        services.faults.append((kind, action, cause))
        who = STORES[cloud] if kind == "store" else METADATA[cloud]
        wanted.append(("" if action is silent or (action, cause) in OBJECTS else who, cause))
    code, said = complete(start(cloud, services.words, tmp_path / "got", services.environment, attempt_s=ATTEMPT_S))
    assert code == 0, said
    assert (tmp_path / "got").read_bytes() == DATA
    lines = said.splitlines()
    assert len(lines) == len(wanted) + 1, said
    for line, (who, cause) in zip(lines, wanted, strict=False):
        assert who in line, line
        assert cause in line, line


@pytest.mark.parametrize(
    ("store", "cause"),
    [
        ("http://store.invalid", "(store.invalid): [Errno -"),
        ("http://127.0.0.1:9", "(127.0.0.1:9): [Errno 111] Connection refused"),
        ("https://HOST", "[SSL: "),
    ],
    ids=["DNS", "refused", "TLS"],
)
def test_a_store_that_is_not_reached_is_named(
    services: Services, cloud: str, store: str, cause: str, tmp_path: Path
) -> None:
    """A name that does not resolve, a closed port, and a server without TLS are named with the host, and the download goes on."""
    key = {"aws": "AWS_ENDPOINT_URL", "azure": "AZURE_STORAGE_SERVICE_ENDPOINT", "gcp": "STORAGE_EMULATOR_HOST"}[cloud]
    host = services.environment[key].removeprefix("http://").partition("/")[0]
    services.environment[key] = store.replace("HOST", host)
    said = first_trouble(start(cloud, services.words, tmp_path / "got", services.environment))
    assert STORES[cloud] in said
    assert cause in said
