"""Requests to Azure Resource Manager and blob storage, with the operator's own credentials.

This module uses plain HTTP requests, because Azure's client libraries refuse endpoints without TLS. azure-identity finds the credentials as
Azure's own tools do. Tokens are sent only to Azure hosts or the configured endpoint, never to an address from a response.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpuinfra.base.errors import reason_of
from gpuinfra.base.json_text import parsed
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.node.cloud import NoRedirect

MANAGEMENT_VARIABLE = "GPUINFRA_AZURE_RESOURCE_MANAGER"
"""Overrides the Azure Resource Manager endpoint, for sovereign clouds and rehearsals. Azure has no standard variable for it."""
MANAGEMENT = "https://management.azure.com"
STORAGE_SCOPE = "https://storage.azure.com/.default"
BLOB_VERSION = "2021-12-02"
THROTTLED_S = 30.0
"""How long to repeat a throttled request during a deployment."""
_ANSWER_LIMIT = 64 * 1024 * 1024
_RENEW_S = 300.0
"""Seconds before the expiry of a token at which a new token is requested."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Credential(Protocol):
    """The common interface of azure-identity's credentials."""

    def get_token(self, *scopes: str) -> Any:
        """Return an object with `token` and `expires_on`, in seconds since 1970."""
        ...


@dataclass(frozen=True, kw_only=True)
class RestAnswer:
    """A response with any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class AzureRefused(PortUnavailable):
    """Azure returned an error. `code` is the error code from Azure."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {' '.join(message.split())}" if message else f"{code} ({status})")
        self.status, self.code = status, code


class NotReached(PortUnavailable):
    """The service did not respond."""


class NoToken(PortUnavailable):
    """azure-identity found no credentials. `why` is its message without the list of the credentials that it attempted."""

    def __init__(self, message: str) -> None:
        text = " ".join(message.split())
        super().__init__(f"no credentials for Azure: {text[:500]}")
        self.why = text[:500].partition(" Attempted credentials")[0]


def subscription_of(settings: Mapping[str, object]) -> str:
    """Return the subscription of a stack, given its provider settings: `azure-native:subscriptionId`, or the variables that the Pulumi provider
    reads (pulumi-azure-native, `provider/pkg/provider/auth.go`). Empty if none of them is set; the provider then uses the default of the CLI."""
    given = settings.get("azure-native:subscriptionId")
    return str(given or os.environ.get("ARM_SUBSCRIPTION_ID") or os.environ.get("AZURE_SUBSCRIPTION_ID") or "")


class Rest:
    """Sends requests with one credential."""

    def __init__(
        self,
        credential: Credential | None = None,
        environ: Mapping[str, str] = os.environ,
        *,
        timeout_s: float = 60,
        patience_s: float = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """If no credential is given, the first request looks up the default credential.

        `timeout_s` limits one request. A request that Azure Resource Manager throttles is repeated for at most `patience_s` seconds.
        """
        self._credential = credential
        self._tokens: dict[str, Any] = {}
        self._lock = threading.Lock()
        """Held during a request for a token, so that requests on other threads share the token."""
        self._timeout_s, self._patience_s, self._sleep = timeout_s, patience_s, sleep
        self._environ = environ
        self._management = (environ.get(MANAGEMENT_VARIABLE) or MANAGEMENT).rstrip("/")

    # Azure Resource Manager

    def arm(self, path: str, api: str, query: Mapping[str, str] | None = None, *, post: bool = False) -> dict[str, Any]:
        """Send one request to `path` (an ARM ID with a suffix) and return the response."""
        url = f"{self._management}{path}?{urllib.parse.urlencode({'api-version': api, **(query or {})})}"
        return self._arm(url, post)

    def arm_change(self, method: str, path: str, api: str, body: Mapping[str, Any] | None = None) -> RestAnswer:
        """Send one request that changes or reads `path`, and return the response with its headers. Raises `AzureRefused` for an error."""
        url = f"{self._management}{path}?{urllib.parse.urlencode({'api-version': api})}"
        headers = {"Authorization": f"Bearer {self._token(self._scope)}", "Content-Type": "application/json"}
        return raise_for(self._managed(method, url, headers, None if body is None else json.dumps(body).encode()))

    def pages(self, path: str, api: str, query: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """Return all entries of a paginated list."""
        answer = self.arm(path, api, query)
        for _ in range(1000):
            yield from (one for one in answer.get("value") or [] if isinstance(one, dict))
            following = answer.get("nextLink")
            if not following:
                return
            answer = self._arm(self._same_host(str(following)), False)
        raise PortUnavailable(f"Azure's list of {path} has too many pages")

    def _arm(self, url: str, post: bool) -> dict[str, Any]:
        token = self._token(self._scope)
        authorized = {"Authorization": f"Bearer {token}"}
        answer = self._managed("POST" if post else "GET", url, authorized, b"" if post else None)
        if answer.status >= 300:
            raise _refused(answer)
        try:
            value = parsed(answer.body or b"{}")
        except ValueError as error:
            raise PortUnavailable(
                f"the response from Azure for {urllib.parse.urlsplit(url).path} is not JSON: {error}"
            ) from None
        # A few older list operations return a bare list.
        return {"value": value} if isinstance(value, list) else value if isinstance(value, dict) else {}

    def _managed(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> RestAnswer:
        """Send one request to Azure Resource Manager, and repeat it while it is throttled.

        Azure does not process a throttled request, and states in `Retry-After` when to send it again:
        https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling, retrieved 2026-11-27.
        """
        waited, pause = 0.0, 1.0
        while True:
            answer = self._send(method, url, headers, body)
            if answer.status != 429:
                return answer
            stated = _header(answer, "retry-after")
            wait = float(stated) if stated.isdigit() else pause
            if waited + wait > self._patience_s:
                return answer
            self._sleep(wait)
            waited, pause = waited + wait, pause * 2

    def _same_host(self, url: str) -> str:
        """Return the address of the next page. It must be on the same host, because the request contains the token."""
        parts = urllib.parse.urlsplit(url)
        own = urllib.parse.urlsplit(self._management)
        if (parts.scheme, parts.netloc) != (own.scheme, own.netloc):
            raise PortUnavailable(f"Azure's list continues at {parts.netloc[:80]}, expected {own.netloc}")
        return url

    # Blob storage

    def blob(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> RestAnswer:
        """Send one request to a blob or container. Return the response with any status."""
        token = self._token(STORAGE_SCOPE)
        return self._send(
            method, url, {"Authorization": f"Bearer {token}", "x-ms-version": BLOB_VERSION, **(headers or {})}, body
        )

    def storage_token(self) -> str:
        """Return a token for blob storage, which a request to copy a blob contains."""
        return self._token(STORAGE_SCOPE)

    def blob_base(self, container: str) -> str:
        """Return the address of a container: the given address, or an address under the endpoint that the environment sets."""
        from gpuinfra.node.azure import blob_url
        from gpuinfra.node.cloud import CloudError

        try:
            return blob_url(container, "", self._environ).rstrip("/")
        except CloudError as error:
            raise PortUnavailable(str(error)) from None

    def signed(self, url: str, limit: int) -> bytes:
        """Download from a presigned Azure URL, without a token."""
        answer = self._send("GET", url, {}, None)
        if answer.status >= 300:
            raise _refused(answer)
        return answer.body[-limit:]

    # Common

    def identity_type(self) -> str:
        """Return the type of the identity: `user`, `application`, or `identity` if the token does not contain it. Raises `PortUnavailable`.

        The optional `idtyp` claim is documented in https://learn.microsoft.com/entra/identity-platform/optional-claims-reference
        (retrieved 2026-11-22). Tokens of users contain the scopes (`scp`) that the user granted.
        """
        payload = self._token(self._scope).split(".")[1:2]
        try:
            claims = parsed(base64.urlsafe_b64decode(payload[0] + "==="))
            kind = claims.get("idtyp") or ("user" if claims.get("scp") else "")
        except (ValueError, IndexError, AttributeError):
            kind = ""
        return {"user": "user", "app": "application"}.get(kind, "identity")

    def token(self, scope: str) -> str:
        """Return a token for another service of Azure. Raises `NoToken`."""
        return self._token(scope)

    @property
    def _scope(self) -> str:
        return f"{self._management if self._management.startswith('https') else MANAGEMENT}/.default"

    def _token(self, scope: str) -> str:
        from azure.core.exceptions import AzureError

        with self._lock:
            # The Azure CLI credential does not cache tokens, and starts a process for each token.
            kept = self._tokens.get(scope)
            if kept is not None and kept.expires_on - time.time() > _RENEW_S:
                return str(kept.token)
            if self._credential is None:
                from azure.identity import DefaultAzureCredential

                self._credential = DefaultAzureCredential()
            try:
                self._tokens[scope] = given = self._credential.get_token(scope)
            except (AzureError, ValueError, OSError) as error:
                raise NoToken(str(error)) from None
        return str(given.token)

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> RestAnswer:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            raise PortUnavailable(
                f"{url.split('?')[0][:200]} does not use TLS, so gpuinfra does not send a token to this address"
            )
        request = urllib.request.Request(url, data=body, headers=dict(headers), method=method)
        try:
            with _OPENER.open(request, timeout=self._timeout_s) as answer:
                return RestAnswer(status=answer.status, headers=dict(answer.headers), body=answer.read(_ANSWER_LIMIT))
        except urllib.error.HTTPError as error:
            return RestAnswer(status=error.code, headers=dict(error.headers), body=error.read(64 * 1024))
        except (OSError, http.client.HTTPException) as error:
            raise NotReached(f"{parts.netloc} cannot be reached: {reason_of(error)}") from None


_OPENER = urllib.request.build_opener(NoRedirect)


def _refused(answer: RestAnswer) -> AzureRefused:
    """Parse an error from Azure: JSON with `error.code` from ARM, or a header and XML from blob storage."""
    code = _header(answer, "x-ms-error-code")
    text = answer.body[:4096].decode("utf-8", "replace")
    message = text.partition("<Message>")[2].partition("</Message>")[0]
    try:
        error = parsed(answer.body)["error"]
        code, message = str(error.get("code") or code), str(error.get("message") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return AzureRefused(answer.status, code or f"HTTP {answer.status}", message)


def _header(answer: RestAnswer, name: str) -> str:
    return next((value for key, value in answer.headers.items() if key.lower() == name), "")


def raise_for(answer: RestAnswer) -> RestAnswer:
    """Return the response. Raises `AzureRefused` if it is an error."""
    if answer.status >= 300:
        raise _refused(answer)
    return answer
