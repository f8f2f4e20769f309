"""A metadata service and an object store on loopback; botocore verifies the signatures independently."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.servers import Answering, serve

KEY, SECRET, TOKEN = "ASIA0000000000000001", "c3RhbmQtaW4/c2VjcmV0", "dG9rZW4vd2l0aCtzaWducz0="
INSTANCE = "i-00000000000000001"


def same_signature(method: str, url: str, headers: dict[str, str], body: bytes, service: str, region: str) -> bool:
    """True if botocore signs the same request identically."""
    lower = {name.lower(): value for name, value in headers.items()}
    given = lower["authorization"]
    signed = given.split("SignedHeaders=")[1].split(",")[0].split(";")
    kept = {name: value for name, value in lower.items() if name in signed and name not in ("host", "x-amz-date")}
    request = AWSRequest(method=method, url=url, headers=kept, data=body)
    kind = S3SigV4Auth if service == "s3" else SigV4Auth
    auth = kind(Credentials(KEY, SECRET, TOKEN), service, region)
    request.context["timestamp"] = lower["x-amz-date"]
    request.headers["X-Amz-Date"] = lower["x-amz-date"]
    for name in ("x-amz-security-token", "x-amz-content-sha256"):
        if name in request.headers:
            del request.headers[name]
    request.headers["X-Amz-Security-Token"] = TOKEN
    if service == "s3":
        request.headers["X-Amz-Content-SHA256"] = auth.payload(request)
    canonical = auth.canonical_request(request)
    ours = auth.signature(auth.string_to_sign(request, canonical), request)
    return given.rsplit("Signature=", 1)[1] == ours


class Cloud:
    """Objects by `bucket/key`, the received requests, and errors that are answered first."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.troubles: list[tuple[int, str]] = []
        self.lose_answers = 0
        self.clock: Callable[[], float] = time.monotonic
        self.tokens: dict[str, float] = {}
        """Token of the metadata service -> time at which it expires."""
        self.url = ""

    @property
    def environ(self) -> dict[str, str]:
        """The environment of an AWS SDK."""
        return {"AWS_ENDPOINT_URL": self.url, "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.url + "/imds"}

    def document(self, key: str) -> dict[str, Any]:
        """An object with JSON content."""
        return json.loads(self.objects[key])


@contextmanager
def running() -> Iterator[Cloud]:
    """A cloud for one test."""
    cloud = Cloud()

    class Handler(Answering):
        def _answer(self, code: int, text: str = "") -> None:
            self.answer(code, text.encode())

        def _imds(self) -> None:
            path = self.path.removeprefix("/imds/latest/")
            if self.command == "PUT" and path == "api/token":
                token = f"imds-token-{len(cloud.tokens)}"
                cloud.tokens[token] = cloud.clock() + int(self.headers["X-aws-ec2-metadata-token-ttl-seconds"])
                return self._answer(200, token)
            # An expired token is refused with 401:
            # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html, retrieved 2026-11-27.
            if cloud.clock() >= cloud.tokens.get(str(self.headers.get("X-aws-ec2-metadata-token")), 0.0):
                return self._answer(401)
            answers: dict[str, str] = {
                "meta-data/iam/security-credentials/": "node-role",
                "meta-data/iam/security-credentials/node-role": json.dumps(
                    {"Code": "Success", "AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": TOKEN}
                ),
                "dynamic/instance-identity/document": json.dumps({"instanceId": INSTANCE, "region": "us-east-1"}),
            }
            return self._answer(200, answers[path]) if path in answers else self._answer(404)

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            cloud.requests.append(f"{self.command} {self.path}")
            if self.path.startswith("/imds/"):
                return self._imds()
            if cloud.troubles:
                code, name = cloud.troubles.pop(0)
                return self._answer(code, f"<Error><Code>{name}</Code></Error>")
            headers = dict(self.headers.items())
            if not same_signature(self.command, cloud.url + self.path, headers, body, "s3", "us-east-1"):
                return self._answer(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>")
            key = self.path.lstrip("/")
            if self.headers.get("If-None-Match") == "*" and key in cloud.objects:
                return self._answer(412, "<Error><Code>PreconditionFailed</Code></Error>")
            if self.command == "GET":
                # S3's answer for a missing object to an identity without list permission.
                return self._answer(200, cloud.objects[key].decode()) if key in cloud.objects else self._answer(403)
            cloud.objects[key] = body
            if cloud.lose_answers:
                cloud.lose_answers -= 1
                return self.connection.close()
            return self._answer(200)

        do_GET = do_PUT = do_POST = _serve

    with serve(Handler) as url:
        cloud.url = url
        yield cloud
