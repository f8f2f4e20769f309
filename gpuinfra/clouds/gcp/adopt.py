"""Taking back what an earlier destroy kept: which of it is there, and under which ids.

The names are made from project, region and stack (`names.py`), so nobody has to have written anything down.
Only reading calls are made here; the importing is the engine's. Grants are not looked for: made again they are the same grants.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from gpuinfra import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.resources import Lookup, resources
from gpuinfra.clouds.planned import Found, find_retained
from gpuinfra.errors import EnvironmentMissing, UsageError
from gpuinfra.plan.model import Plan

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
SERVICE = "servicenetworking.googleapis.com"
TIMEOUT_S = 30.0

_ENDPOINTS = {
    "compute": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com/compute/v1/"),
    "cloudkms": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS", "https://cloudkms.googleapis.com/"),
    "logging": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING", "https://logging.googleapis.com/"),
    "lustre": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_LUSTRE", "https://lustre.googleapis.com/"),
    "file": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_FILE", "https://file.googleapis.com/"),
    "storage": ("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com"),
}
"""Service -> the variable that Google's own tools read for another endpoint, and the endpoint."""


class Project:
    """Questions to one project, each a single reading call."""

    def __init__(self, ask: Callable[[str], dict[str, Any] | None], project: str, plan: Plan, token: str) -> None:
        """`ask` answers the JSON behind an address, None where there is nothing."""
        self._ask, self.id, self._plan, self._token = ask, project, plan, token

    def find(self, lookup: Lookup) -> str | None:
        """The import id of a thing, None where it is not there."""
        if lookup.kind == "bucket":
            name = names.bucket(self._plan.name, lookup.purpose, self.id, self._token)
            return name if self._at("storage", f"/storage/v1/b/{quote(name, safe='')}") else None
        if lookup.kind == "connection":
            return self._connection(lookup)
        path = self.path(lookup)
        service, version = {
            "ring": ("cloudkms", "v1/"),
            "key": ("cloudkms", "v1/"),
            "logs": ("logging", "v2/"),
            "network": ("compute", ""),
            "address": ("compute", ""),
            "lustre": ("lustre", "v1/"),
            "filestore": ("file", "v1/"),
        }[lookup.kind]
        return path if self._at(service, version + path) else None

    def path(self, lookup: Lookup) -> str:
        """Where a thing would be, whether it is there or not."""
        plan, unique = self._plan, naming.unique_name(self._plan.name, lookup.purpose, self._token, names.NAME_LIMIT)
        called = names.physical(lookup.purpose, self._token)
        form = {
            "ring": f"locations/{plan.region}/keyRings/{unique}",
            "key": f"locations/{plan.region}/keyRings/{unique}/cryptoKeys/{unique}",
            "logs": f"locations/{plan.region}/buckets/{unique}",
            "network": f"global/networks/{called}",
            "address": f"global/addresses/{called}",
            "lustre": f"locations/{lookup.zone}/instances/{called}",
            "filestore": f"locations/{lookup.zone}/instances/{called}",
        }
        return f"projects/{self.id}/{form[lookup.kind]}"

    def _connection(self, lookup: Lookup) -> str | None:
        """A peering is no thing of its own: the network has it, and it is imported by the network and the service."""
        network = self.path(Lookup(kind="network", purpose=naming.logical(self._plan.name, "network", "main")))
        known = self._at("compute", network) or {}
        peered = any(one.get("name") == SERVICE.replace(".", "-") for one in known.get("peerings", []))
        return f"/{network}:{SERVICE}" if peered else None

    def _at(self, service: str, path: str) -> dict[str, Any] | None:
        variable, address = _ENDPOINTS[service]
        return self._ask(f"{(os.environ.get(variable) or address).rstrip('/')}/{path.lstrip('/')}")


def look(plan: Plan, token: str, profile: str | None) -> Sequence[Found[Lookup]]:
    """What a destroy of this plan's stack kept and the project still holds, asked with the application default credentials."""
    if profile:
        raise UsageError("--profile is AWS's; on Google Cloud the application default credentials count")
    try:
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession
    except ImportError:
        raise EnvironmentMissing("adopt needs google-auth; install it with: pip install 'gpuinfra[gcp]'") from None
    try:
        credentials, default = google.auth.default(scopes=SCOPES)
    except GoogleAuthError as problem:
        raise EnvironmentMissing(f"no credentials for Google Cloud: {problem}") from None
    project = plan.project or default
    if not project:
        raise EnvironmentMissing(
            "the credentials name no project; write where.project, or set GOOGLE_CLOUD_PROJECT for this command"
        )
    session = AuthorizedSession(credentials)
    return kept_there(Project(lambda address: _asked(session, address), project, plan, token), plan)


def kept_there(project: Project, plan: Plan) -> Sequence[Found[Lookup]]:
    """What a destroy of this plan's stack kept and the project still holds."""
    return find_retained(resources(plan), project.find)


def _asked(session: Any, address: str) -> dict[str, Any] | None:
    """The answer of a reading call; a refusal is an error and not an absence."""
    from google.auth.exceptions import GoogleAuthError
    from requests import RequestException

    try:
        answer = session.get(address, timeout=TIMEOUT_S)
    except (GoogleAuthError, RequestException) as problem:
        raise EnvironmentMissing(f"Google Cloud does not answer: {problem}") from None
    if answer.status_code == 404:
        return None
    if answer.status_code >= 300:
        raise EnvironmentMissing(
            f"Google Cloud refuses GET {address}: {answer.status_code} {answer.text[:300]}; "
            "check the credentials (gcloud auth application-default login) and that the API is on"
        )
    return dict(answer.json())
