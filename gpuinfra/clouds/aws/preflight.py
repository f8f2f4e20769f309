"""Questions to AWS before a deployment, with boto3 and the credentials of the operator. All requests read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gpuinfra.clouds.preflight import Row, denied, failed, no_credentials, ok, rejected, throttled, unreachable

LOGIN = "run `aws sso login` or `aws configure`, or set AWS_PROFILE"
CONNECT_S, READ_S, ATTEMPTS = 3.0, 5.0, 3
"""Time limits of one attempt, and the number of attempts of one request."""

THROTTLED = frozenset({"Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "TooManyRequestsException",
                       "RequestThrottled", "RequestThrottledException", "EC2ThrottledException", "SlowDown"})  # fmt: skip
"""Error codes of throttled requests, as `botocore.retries.standard.ThrottledRetryableChecker` lists them (botocore 1.40)."""
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "UnauthorizedException"})  # fmt: skip
INVALID = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException",
                     "InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthFailure", "RequestExpired", "IncompleteSignature"})  # fmt: skip
"""Error codes of credentials that AWS does not accept. EC2 API reference and IAM common errors, read 2026-11-22."""


class Preflight:
    """Requests of one operator in one Region."""

    def __init__(self, region: str, config: Mapping[str, object]) -> None:
        """`config` contains the provider settings of the stack file. `aws:profile` selects the credentials, as for Pulumi."""
        self.region = region or "us-east-1"
        self._profile = str(config.get("aws:profile") or "") or None

    def identity(self) -> Iterator[Row]:
        """Return the account and the type of the identity, and where the credentials come from."""
        caller = self.caller()
        yield ok(
            "identity", "AWS", f"account {caller['Account']}, {_kind(caller['Arn'])}, credentials from {self._source}"
        )

    def caller(self) -> dict[str, str]:
        """Return the response of `sts:GetCallerIdentity`. Raises `Unanswered` without valid credentials."""
        from botocore.exceptions import BotoCoreError

        try:
            self._session = _session(self.region, self._profile)
            found = self._session.get_credentials()
            self._source = found.method if found else ""
        except BotoCoreError as error:
            raise no_credentials(str(error), LOGIN) from None
        if found is None:
            raise no_credentials("boto3 finds none in variables, profiles and the metadata service", LOGIN)
        with asked("sts:GetCallerIdentity"):
            caller: dict[str, str] = self.client("sts").get_caller_identity()
        return caller

    def client(self, service: str) -> Any:
        """Return a client with the time limits of a preflight."""
        from botocore.config import Config

        retries = {"total_max_attempts": ATTEMPTS, "mode": "standard"}
        limits = Config(connect_timeout=CONNECT_S, read_timeout=READ_S, retries=retries)
        return self._session.client(service, config=limits)


def _session(region: str, profile: str | None) -> Any:
    import boto3

    return boto3.session.Session(region_name=region, profile_name=profile)


def _kind(arn: str) -> str:
    """Return the type and the name of an identity from its ARN: `role deployer`, `user ana`, `root user`."""
    kind, _, name = arn.rpartition(":")[2].partition("/")
    if kind == "assumed-role":
        return f"role {name.partition('/')[0]}"
    return f"{kind} {name.rpartition('/')[2]}" if name else f"{kind} user"


@contextmanager
def asked(action: str) -> Iterator[None]:
    """Convert errors of botocore to `Unanswered`. Other error codes remain errors, so that the caller can judge them."""
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
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400) >= 500:
            raise failed(action, why) from None
        raise
    except BotoCoreError as error:
        raise unreachable(action, str(error)) from None


def code_of(error: Any) -> str:
    """Return the error code of a `ClientError`."""
    return str(error.response.get("Error", {}).get("Code", ""))
