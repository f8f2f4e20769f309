"""Verifies AWS Signature Version 4: botocore signs a received request again, and the signatures must match.

Supports signed headers and presigned URLs. This module also checks what botocore does not: the date, the session token,
the scope of the credential, and the hash of the body if the client sends one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, unquote

from gpuinfra_rehearsal.cloud.aws.credentials import KeyPair
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.http import Request

WINDOW_S = 15 * 60
"""Maximum difference between the date of a request and the current time, in either direction."""

_HEADER = re.compile(r"AWS4-HMAC-SHA256\s+Credential=([^,\s]+),\s*SignedHeaders=([^,\s]+),\s*Signature=([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Verified:
    """A request with a valid signature."""

    key: KeyPair
    region: str
    service: str


@dataclass(frozen=True, kw_only=True)
class _Claim:
    """The signature data in a request."""

    credential: str
    signed: list[str]
    signature: str
    date: str
    token: str
    expires: str = ""
    presigned: bool = False


def verify(request: Request, find: Callable[[str], KeyPair | None], *, s3: bool = False) -> Verified:
    """Identify the key that signed a request. Raises CloudError with AWS's message if the signature is invalid."""
    claim = _presigned(request) if "X-Amz-Signature=" in request.raw_query else _headed(request)
    parts = claim.credential.split("/")
    if len(parts) != 5 or parts[4] != "aws4_request":
        text = f"Credential must have five parts, ending in aws4_request: '{claim.credential}'"
        raise ApiRejected("IncompleteSignature", text, status=400)
    key_id, day, region, service, _ = parts
    key = find(key_id)
    if key is None and s3:
        raise ApiRejected("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.", status=403)  # fmt: skip
    if key is None or not hmac.compare_digest(claim.token, key.principal.token):
        raise ApiRejected("InvalidClientTokenId", "The security token included in the request is invalid.", status=403)
    _check_date(claim, day, key)
    if "host" not in claim.signed:
        raise _mismatch("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    promised = request.headers.get("x-amz-content-sha256", "")
    if re.fullmatch(r"[0-9a-f]{64}", promised) and promised != hashlib.sha256(request.body).hexdigest():
        text = "The provided 'x-amz-content-sha256' header does not match what was computed."
        raise ApiRejected("XAmzContentSHA256Mismatch", text)
    if not hmac.compare_digest(_signature(request, claim, key, region, service, s3), claim.signature):
        raise _mismatch(
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method."
        )
    if s3 is not (service == "s3"):
        raise _mismatch(f"Credential should be scoped to correct service, not '{service}'.")
    return Verified(key, region, service)


def _mismatch(text: str) -> ApiRejected:
    return ApiRejected("SignatureDoesNotMatch", text, status=403)


def _headed(request: Request) -> _Claim:
    match = _HEADER.fullmatch(request.headers.get("authorization", ""))
    if not match:
        raise ApiRejected("MissingAuthenticationToken", "Request is missing Authentication Token", status=403)
    return _Claim(
        credential=match[1], signed=match[2].split(";"), signature=match[3],
        date=request.headers.get("x-amz-date", ""), token=request.headers.get("x-amz-security-token", ""),
    )  # fmt: skip


def _presigned(request: Request) -> _Claim:
    query = dict(parse_qsl(request.raw_query, keep_blank_values=True))
    signature = query.get("X-Amz-Signature", "")
    if query.get("X-Amz-Algorithm") != "AWS4-HMAC-SHA256" or not re.fullmatch(r"[0-9a-f]{64}", signature):
        text = "The presigned request names no known algorithm or no signature"
        raise ApiRejected("IncompleteSignature", text, status=400)
    return _Claim(
        credential=query.get("X-Amz-Credential", ""), signed=query.get("X-Amz-SignedHeaders", "").split(";"), signature=signature,
        date=query.get("X-Amz-Date", ""), token=query.get("X-Amz-Security-Token", ""), expires=query.get("X-Amz-Expires", ""), presigned=True,
    )  # fmt: skip


def _check_date(claim: _Claim, day: str, key: KeyPair) -> None:
    try:
        at = datetime.strptime(claim.date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        text = f"Date must be like 20261121T090000Z, not '{claim.date}'"
        raise ApiRejected("IncompleteSignature", text, status=400) from error
    if claim.date[:8] != day:
        raise _mismatch(f"Date in Credential scope does not match {claim.date}")
    window = min(int(claim.expires), 604800) if claim.expires.isdigit() else WINDOW_S
    if not at - WINDOW_S <= time.time() <= at + window:
        text = f"Signature expired: {claim.date} is not within {window} seconds of now"
        raise ApiRejected("RequestExpired", text, status=403)
    if key.expired:
        raise ApiRejected("ExpiredToken", "The security token included in the request is expired", status=403)


def _signature(request: Request, claim: _Claim, key: KeyPair, region: str, service: str, s3: bool) -> str:
    """Return the signature that botocore computes for this request with this key."""
    from botocore import auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    kinds = {
        (False, False): auth.SigV4Auth,
        (False, True): auth.SigV4QueryAuth,
        (True, False): auth.S3SigV4Auth,
        (True, True): auth.S3SigV4QueryAuth,
    }
    signer = kinds[s3, claim.presigned](Credentials(key.id, key.secret), service, region)
    # Clients escape paths and queries differently in the request. The signed form is always escaped in one way.
    pairs = [part.partition("=")[::2] for part in request.raw_query.split("&") if part]
    again = AWSRequest(
        method=request.method,
        url=f"http://{request.headers.get('host', '')}{quote(request.path, safe='/-_.~')}",
        headers={name: request.headers.get(name, "") for name in claim.signed},
        data=request.body,
        params=[(unquote(name), unquote(value)) for name, value in pairs if name != "X-Amz-Signature"],
    )
    again.context["timestamp"] = claim.date
    return signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
