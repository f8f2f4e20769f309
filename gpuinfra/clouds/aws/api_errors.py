"""Error codes of AWS, and what the operator can do about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuinfra.clouds.preflight import denied, failed, rejected, throttled, unreachable

LOGIN = "run `aws sso login` or `aws configure`, or set AWS_PROFILE"
THROTTLED = frozenset({"Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "TooManyRequestsException",
                       "RequestThrottled", "RequestThrottledException", "EC2ThrottledException", "SlowDown"})  # fmt: skip
"""Error codes of throttled requests, as `botocore.retries.standard.ThrottledRetryableChecker` lists them (botocore 1.40)."""
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "UnauthorizedException"})  # fmt: skip
INVALID = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException",
                     "InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthFailure", "RequestExpired", "IncompleteSignature"})  # fmt: skip
"""Error codes for credentials that AWS does not accept. EC2 API reference and IAM common errors, retrieved 2026-11-22."""


@contextmanager
def asked(action: str) -> Iterator[None]:
    """Convert botocore errors to `Unanswered`. Other error codes remain errors, so the caller can handle them."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code, message = code_of(error), str(error.response.get("Error", {}).get("Message", ""))
        why = f"{code}: {message}" if message else code
        if code in INVALID:
            raise rejected(why, LOGIN) from None
        if code in DENIED:
            raise denied(action, why) from None
        if code in THROTTLED:
            raise throttled(action, why) from None
        raise failed(action, why) from None
    except BotoCoreError as error:
        raise unreachable(action, str(error)) from None


def code_of(error: Any) -> str:
    """Return the error code of a `ClientError`."""
    return str(error.response.get("Error", {}).get("Code", ""))
