"""A metadata service and an object store on loopback that verify signatures with botocore."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.servers import Answering, serve

ACCESS_KEY, SECRET_KEY, TOKEN = "ASIA0000000000000001", "c3RhbmQtaW4gc2VjcmV0", "c3RhbmQtaW4gdG9rZW4="
SECRETS = (SECRET_KEY, TOKEN)
IMDS_TOKEN = "imds-token"


class Cloud:
    """Serves objects, `{"bucket/key": bytes}`; each of `troubles` answers one request before the normal answers."""

    def __init__(
        self, objects: dict[str, bytes], troubles: list[Callable[[BaseHTTPRequestHandler], None]] | None = None
    ) -> None:
        self.objects = objects
        self.troubles = list(troubles or [])
        self.served: list[str] = []
        self.clock_offset_s = 0.0
        self.refusals: list[str] = []
        cloud = self

        class Handler(Answering):
            def do_PUT(self) -> None:
                ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
                good = self.path == "/.imds/i-1/latest/api/token" and ttl
                answer(self, 200 if good else 400, IMDS_TOKEN.encode(), cloud.clock_offset_s)

            def do_GET(self) -> None:
                if self.path.startswith("/.imds/i-1/latest/"):
                    cloud.metadata(self)
                else:
                    cloud.object(self)

        self.serving = serve(Handler)
        self.url = ""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a node."""
        return {"AWS_ENDPOINT_URL": self.url, "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{self.url}/.imds/i-1"}

    def __enter__(self) -> Cloud:
        self.url = self.serving.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.serving.__exit__(None, None, None)

    def metadata(self, handler: BaseHTTPRequestHandler) -> None:
        """The role's credentials, for requests with a session token."""
        if handler.headers.get("X-aws-ec2-metadata-token") != IMDS_TOKEN:
            return answer(handler, 401, b"")
        path = handler.path.removeprefix("/.imds/i-1/latest/meta-data/iam/security-credentials/")
        if path == "":
            return answer(handler, 200, b"node-role", self.clock_offset_s)
        credentials = {"AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY, "Token": TOKEN}
        return answer(handler, 200, json.dumps(credentials).encode(), self.clock_offset_s)

    def object(self, handler: BaseHTTPRequestHandler) -> None:
        """One object, for a request with a valid signature and date."""
        if self.troubles:
            return self.troubles.pop(0)(handler)
        if (why := self.wrong(handler)) is not None:
            self.refusals.append(why)
            return answer(handler, 403, f"<Error><Code>{why}</Code></Error>".encode(), self.clock_offset_s)
        self.served.append(handler.path)
        data = self.objects.get(handler.path.lstrip("/"))
        return (
            answer(handler, 404, b"<Error><Code>NoSuchKey</Code></Error>")
            if data is None
            else answer(handler, 200, data, self.clock_offset_s)
        )

    def wrong(self, handler: BaseHTTPRequestHandler) -> str | None:
        """S3's error code for this request; None if the request is valid."""
        stamp = handler.headers.get("x-amz-date", "")
        if abs(amz_seconds(stamp) - (time.time() + self.clock_offset_s)) > 900:
            return "RequestTimeTooSkewed"
        return None if handler.headers.get("Authorization") == expected(handler, stamp) else "SignatureDoesNotMatch"


def amz_seconds(stamp: str) -> float:
    """Seconds since 1970 of a date such as 20261121T090000Z."""
    import calendar

    return calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))


def expected(handler: BaseHTTPRequestHandler, stamp: str) -> str:
    """The Authorization header that botocore creates for the same request."""
    names = handler.headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    request = AWSRequest(method="GET", url=f"http://{handler.headers['Host']}{handler.path}")
    for name in names:
        request.headers[name] = handler.headers[name]
    request.context["timestamp"] = stamp
    auth = S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY, TOKEN), "s3", "us-east-1")
    canonical = auth.canonical_request(request)
    signature = auth.signature(auth.string_to_sign(request, canonical), request)
    return (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{auth.credential_scope(request)}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}"
    )


def answer(handler: BaseHTTPRequestHandler, status: int, body: bytes, clock_offset_s: float = 0.0) -> None:
    """Send one answer."""
    handler.send_response_only(status)
    handler.send_header("Date", email.utils.formatdate(time.time() + clock_offset_s, usegmt=True))
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
