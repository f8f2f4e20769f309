"""Find the resources that an earlier `destroy` retained, and their import IDs.

Names depend only on the project, region and stack (`names.py`), so no record of the destroyed stack is needed. This module makes only read requests;
the engine imports the resources. Grants and log buckets are not looked up: creating a grant again has no effect, and creating a log bucket
acquires the existing log bucket.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from gpuinfra.base import naming
from gpuinfra.base.errors import EnvironmentMissing, UsageError
from gpuinfra.clouds.gcp import credentials as gcp_credentials
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.instances import Lookup
from gpuinfra.clouds.gcp.resources import resources
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import RetainedResource, bucket_names, find_retained

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
SERVICE = "servicenetworking.googleapis.com"
TIMEOUT_S = 30.0

ENDPOINTS = {
    "compute": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com/compute/v1/"),
    "cloudkms": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS", "https://cloudkms.googleapis.com/"),
    "lustre": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_LUSTRE", "https://lustre.googleapis.com/"),
    "file": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_FILE", "https://file.googleapis.com/"),
    "storage": ("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com"),
    "billingbudgets": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_BILLINGBUDGETS", "https://billingbudgets.googleapis.com/"),
    "monitoring": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING", "https://monitoring.googleapis.com/"),
    "storagetransfer": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGETRANSFER", "https://storagetransfer.googleapis.com/"),
}
"""Maps a service to the environment variable that overrides its endpoint in Google's tools, and to the default endpoint."""


class Project:
    """Lookups in one project."""

    def __init__(self, get: Callable[[str], dict[str, Any] | None], project: str, plan: Plan, token: str) -> None:
        """`get` returns the JSON response for a URL, or `None` if the resource does not exist."""
        self._get, self.id, self._plan, self._token = get, project, plan, token

    def find(self, lookup: Lookup) -> str | None:
        """Return the import ID of a resource, or `None` if the resource does not exist."""
        if lookup.kind == "bucket":
            name = names.bucket(self._plan.name, lookup.purpose, self.id, self._token)
            return name if self._read("storage", f"/storage/v1/b/{quote(name, safe='')}") else None
        if lookup.kind == "connection":
            return self._connection(lookup)
        path = self.path(lookup)
        service, version = {
            "ring": ("cloudkms", "v1/"),
            "key": ("cloudkms", "v1/"),
            "network": ("compute", ""),
            "address": ("compute", ""),
            "lustre": ("lustre", "v1/"),
            "filestore": ("file", "v1/"),
        }[lookup.kind]
        return path if self._read(service, version + path) else None

    def path(self, lookup: Lookup) -> str:
        """Return the path of a resource, which need not exist."""
        plan, unique = self._plan, naming.unique_name(self._plan.name, lookup.purpose, self._token, names.NAME_LIMIT)
        physical = names.physical(lookup.purpose, self._token)
        region = lookup.region or plan.region
        form = {
            "ring": f"locations/{region}/keyRings/{unique}",
            "key": f"locations/{region}/keyRings/{unique}/cryptoKeys/{unique}",
            "network": f"global/networks/{physical}",
            "address": f"global/addresses/{physical}",
            "lustre": f"locations/{lookup.zone}/instances/{physical}",
            "filestore": f"locations/{lookup.zone}/instances/{physical}",
        }
        return f"projects/{self.id}/{form[lookup.kind]}"

    def _connection(self, lookup: Lookup) -> str | None:
        """Look up a service connection, which is a network peering. Its ID consists of the escaped network and the service."""
        network = self.path(Lookup(kind="network", purpose=naming.logical(self._plan.name, "network", "main")))
        network_record = self._read("compute", network) or {}
        peered = any(one.get("name") == SERVICE.replace(".", "-") for one in network_record.get("peerings", []))
        return f"{quote_plus(network)}:{SERVICE}" if peered else None

    def _read(self, service: str, path: str) -> dict[str, Any] | None:
        variable, address = ENDPOINTS[service]
        return self._get(f"{(os.environ.get(variable) or address).rstrip('/')}/{path.lstrip('/')}")


def buckets(plan: Plan, project: str, token: str) -> list[str]:
    """Return the names of the buckets that `destroy` retains."""
    return bucket_names(resources(plan), lambda one: names.bucket(plan.name, one.purpose, project, token))


def look(
    plan: Plan, token: str, settings: Mapping[str, object], profile: str | None
) -> Sequence[RetainedResource[Lookup]]:
    """Find the retained resources of the stack in the project, using the credentials from the environment."""
    if profile:
        raise UsageError("--profile applies to AWS only; on Google Cloud, set application default credentials")
    get, default = connect()
    project = str(settings.get("gcp:project") or "") or default
    if not project:
        raise EnvironmentMissing(
            "the credentials have no project; set where.project, `gcp:project` or GOOGLE_CLOUD_PROJECT"
        )
    return retained_in(Project(get, project, plan, token), plan)


def connect() -> tuple[Callable[[str], dict[str, Any] | None], str | None]:
    """Return a function that reads a URL with the credentials from the environment, and their default project.

    The function returns None if the resource does not exist, and raises `EnvironmentMissing` for other errors.
    """
    try:
        credentials, default = gcp_credentials.find(SCOPES)
    except gcp_credentials.NoCredentials as problem:
        raise EnvironmentMissing(f"Google Cloud credentials not found: {problem}") from None
    from google.auth.transport.requests import AuthorizedSession

    session = AuthorizedSession(credentials)
    return lambda url: _get(session, url), default


def retained_in(project: Project, plan: Plan) -> Sequence[RetainedResource[Lookup]]:
    """Return the retained resources of the stack that exist in the project."""
    return find_retained(resources(plan), project.find)


def _get(session: Any, url: str) -> dict[str, Any] | None:
    """Return the response to a read request, or `None` for 404. Raises on any other error."""
    from google.auth.exceptions import GoogleAuthError
    from requests import RequestException

    try:
        response = session.get(url, timeout=TIMEOUT_S, allow_redirects=False)
    except (GoogleAuthError, RequestException) as problem:
        raise EnvironmentMissing(f"request to Google Cloud failed: {problem}") from None
    if response.status_code == 404:
        return None
    if response.status_code >= 300:
        raise EnvironmentMissing(
            f"Google Cloud refused GET {url}: {response.status_code} {response.text[:300]}; "
            "check the credentials (gcloud auth application-default login) and that the API is enabled"
        )
    return dict(response.json())
