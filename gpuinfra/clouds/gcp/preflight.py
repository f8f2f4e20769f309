"""Questions to Google Cloud before a deployment, with google-auth and the credentials of the operator. All requests read."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from gpuinfra.clouds.preflight import Row, no_credentials, ok, problem, rejected, unreachable
from gpuinfra.handover import gcp_credentials
from gpuinfra.safe_text import one_line

LOGIN = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
TIMEOUT_S = 5

_KINDS = {
    "google.oauth2.service_account": "service account key",
    "google.oauth2.credentials": "user or access token",
    "google.auth.compute_engine.credentials": "service account of this machine",
    "google.auth.impersonated_credentials": "impersonated service account",
    "google.auth.identity_pool": "workload identity federation",
    "google.auth.aws": "workload identity federation from AWS",
    "google.auth.pluggable": "workload identity federation with an executable",
    "google.auth.external_account_authorized_user": "workforce identity federation",
}
"""Module of the credentials in google-auth -> type."""


TOPICS: tuple[str, ...] = ()
"""Topics of the questions about a plan: none yet."""


class Preflight:
    """Requests of one operator to one project."""

    def __init__(self, region: str, config: Mapping[str, object]) -> None:
        """`config` contains the provider settings of the stack file. `gcp:project` selects the project, as for Pulumi."""
        self.region = region
        self._project = str(config.get("gcp:project") or "")

    def identity(self) -> Iterator[Row]:
        """Return the type of the identity, and the project."""
        kind = self.login()
        if self.project:
            yield ok("identity", "Google Cloud", f"project {self.project}, {kind}")
        else:
            fix = "run `pulumi config set gcp:project PROJECT`, or set GOOGLE_CLOUD_PROJECT"
            yield problem("identity", "Google Cloud", f"{kind}, but no project", "a project", fix)

    def login(self) -> str:
        """Get a token, and return the type of the credentials. Raises `Unanswered` without valid credentials."""
        try:
            self.credentials, default = gcp_credentials.find(SCOPES)
        except gcp_credentials.NoCredentials as error:
            raise no_credentials(str(error), LOGIN) from None
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request

        self.project = self._project or default or ""
        try:
            if not self.credentials.valid:
                self.credentials.refresh(functools.partial(Request(), timeout=TIMEOUT_S))
        except TransportError as error:
            raise unreachable("the token service", one_line(error)) from None
        except GoogleAuthError as error:
            raise rejected(one_line(error), LOGIN) from None
        return _KINDS.get(type(self.credentials).__module__, type(self.credentials).__name__)
