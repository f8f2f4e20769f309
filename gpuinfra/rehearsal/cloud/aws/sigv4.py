"""AWS Signature Version 4, recomputed: a request is believed only when its signature is the one that we would have made.

Both forms: signed headers, and presigned addresses. Written from AWS's description of the algorithm
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html, read 2026-11-21).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, unquote

from gpuinfra.rehearsal.cloud.aws.credentials import Key
from gpuinfra.rehearsal.cloud.core.errors import CloudError

WINDOW_S = 15 * 60
"""How far a dated request may be from now, in either direction."""

_UNSIGNED = "UNSIGNED-PAYLOAD"
_STREAMING = "STREAMING-"


@dataclass(frozen=True, slots=True)
class Request:
    """What was signed. `path` and `query` are as they stood on the wire; header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Verified:
    """A request whose signature was right."""

    key: Key
    region: str
    service: str


def verify(
    request: Request, find: Callable[[str], Key | None], *, s3: bool = False, now: float | None = None
) -> Verified:
    """Whose request this is. Raises CloudError in AWS's words when it is nobody's."""
    claim = _presigned(request) if "X-Amz-Signature=" in request.query else _headed(request)
    key = find(claim["key"])
    if key is None:
        code, text = (
            ("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
            if s3
            else ("InvalidClientTokenId", "The security token included in the request is invalid.")
        )
        raise CloudError(code, text, status=403)
    _check_time(claim, time.time() if now is None else now, key)
    _check_token(claim, key)
    _check_payload(request, claim)
    expected = _signature(request, claim, key.secret, s3)
    if not hmac.compare_digest(expected, claim["signature"]):
        raise CloudError(
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method.",
            status=403,
        )
    if s3 is not (claim["service"] == "s3"):
        raise CloudError(
            "SignatureDoesNotMatch",
            f"Credential should be scoped to correct service, not '{claim['service']}'.",
            status=403,
        )
    return Verified(key, claim["region"], claim["service"])


def _headed(request: Request) -> dict[str, str]:
    header = request.headers.get("authorization", "")
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256\s+Credential=([^,\s]+),\s*SignedHeaders=([^,\s]+),\s*Signature=([0-9a-f]{64})", header
    )
    if not found:
        raise CloudError("MissingAuthenticationToken", "Request is missing Authentication Token", status=403)
    return {
        **_scope(found.group(1)),
        "signed": found.group(2),
        "signature": found.group(3),
        "date": request.headers.get("x-amz-date", ""),
        "expires": "",
        "token": request.headers.get("x-amz-security-token", ""),
        "payload": request.headers.get("x-amz-content-sha256", ""),
        "presigned": "",
    }


def _presigned(request: Request) -> dict[str, str]:
    query = dict(parse_qsl(request.query, keep_blank_values=True))
    if query.get("X-Amz-Algorithm") != "AWS4-HMAC-SHA256" or not re.fullmatch(
        r"[0-9a-f]{64}", query.get("X-Amz-Signature", "")
    ):
        raise CloudError(
            "IncompleteSignature", "The presigned request names no known algorithm or no signature", status=400
        )
    return {
        **_scope(query.get("X-Amz-Credential", "")),
        "signed": query.get("X-Amz-SignedHeaders", ""),
        "signature": query["X-Amz-Signature"],
        "date": query.get("X-Amz-Date", ""),
        "expires": query.get("X-Amz-Expires", ""),
        "token": query.get("X-Amz-Security-Token", ""),
        "payload": request.headers.get("x-amz-content-sha256", ""),
        "presigned": "yes",
    }


def _scope(credential: str) -> dict[str, str]:
    parts = credential.split("/")
    if len(parts) != 5 or parts[4] != "aws4_request":
        raise CloudError(
            "IncompleteSignature",
            f"Credential must have five parts, ending in aws4_request: '{credential}'",
            status=400,
        )
    return dict(zip(("key", "day", "region", "service"), parts, strict=False))


def _check_time(claim: Mapping[str, str], now: float, key: Key) -> None:
    try:
        at = datetime.strptime(claim["date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise CloudError(
            "IncompleteSignature", f"Date must be like 20261121T090000Z, not '{claim['date']}'", status=400
        ) from error
    if claim["date"][:8] != claim["day"]:
        raise CloudError(
            "SignatureDoesNotMatch", f"Date in Credential scope does not match {claim['date']}", status=403
        )
    window = min(int(claim["expires"]), 604800) if claim["expires"].isdigit() else WINDOW_S
    if now > at + window or at > now + WINDOW_S:
        raise CloudError(
            "RequestExpired", f"Signature expired: {claim['date']} is not within {window} seconds of now", status=403
        )
    if key.expired:
        raise CloudError("ExpiredToken", "The security token included in the request is expired", status=403)


def _check_token(claim: Mapping[str, str], key: Key) -> None:
    if not hmac.compare_digest(claim["token"], key.principal.token):
        raise CloudError("InvalidClientTokenId", "The security token included in the request is invalid.", status=403)
    if "host" not in claim["signed"].split(";"):
        raise CloudError(
            "SignatureDoesNotMatch", "'Host' must be a 'SignedHeader' in the AWS Authorization.", status=403
        )


def _check_payload(request: Request, claim: Mapping[str, str]) -> None:
    promised = claim["payload"]
    open_ended = not promised or promised == _UNSIGNED or promised.startswith(_STREAMING)
    if not open_ended and promised != hashlib.sha256(request.body).hexdigest():
        raise CloudError(
            "XAmzContentSHA256Mismatch",
            "The provided 'x-amz-content-sha256' header does not match what was computed.",
        )


def _signature(request: Request, claim: Mapping[str, str], secret: str, s3: bool) -> str:
    payload = claim["payload"] or (_UNSIGNED if claim["presigned"] and s3 else hashlib.sha256(request.body).hexdigest())
    canonical = "\n".join(
        [
            request.method,
            _path(request.path, s3),
            _query(request.query),
            *(f"{name}:{' '.join(request.headers.get(name, '').split())}" for name in claim["signed"].split(";")),
            "",
            claim["signed"],
            payload,
        ]
    )
    scope = f"{claim['day']}/{claim['region']}/{claim['service']}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", claim["date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (claim["day"], claim["region"], claim["service"], "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _path(path: str, s3: bool) -> str:
    """S3 encodes a path once, every other service encodes the encoded one again."""
    once = quote(unquote(path), safe="/-_.~") or "/"
    return once if s3 else quote(once, safe="/-_.~")


def _query(query: str) -> str:
    pairs = [part.partition("=")[::2] for part in query.split("&") if part]
    encoded = [(quote(unquote(name), safe="-_.~"), quote(unquote(value), safe="-_.~")) for name, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded) if name != "X-Amz-Signature")
