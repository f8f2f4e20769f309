"""The operator's Google credentials, read from the same variables as the Pulumi provider, in the same order.

Source: `provider.go.tmpl` and `GetCredentials` in `config.go.tmpl`, GoogleCloudPlatform/magic-modules at d577844, retrieved 2026-11-22.
The plugin runs in a separate process and cannot read the provider settings in a stack file (`gcp:accessToken`, `gcp:credentials`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuinfra.base.json_text import parsed

TOKEN = "GOOGLE_OAUTH_ACCESS_TOKEN"
KEYS = ("GOOGLE_CREDENTIALS", "GOOGLE_CLOUD_KEYFILE_JSON", "GCLOUD_KEYFILE_JSON")
"""Variables that contain the path or the content of a key file. The first variable that is set applies."""
IMPERSONATED = "GOOGLE_IMPERSONATE_SERVICE_ACCOUNT"
PROJECTS = ("GOOGLE_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")


class NoCredentials(Exception):
    """There are no credentials, or they cannot be read."""


def find(scopes: Sequence[str]) -> tuple[Any, str | None]:
    """Return google-auth credentials and the default project. Raises NoCredentials. This function sends no request."""
    try:
        import google.auth
        from google.auth import impersonated_credentials
        from google.auth.exceptions import GoogleAuthError
        from google.oauth2.credentials import Credentials
    except ImportError:
        raise NoCredentials("google-auth is not installed; run: pip install 'gpuinfra[gcp]'") from None
    key = next((name for name in KEYS if os.environ.get(name)), None)
    try:
        if os.environ.get(TOKEN):
            credentials, project = Credentials(token=_content(os.environ[TOKEN])), None
        elif key is not None:
            with warnings.catch_warnings():  # deprecated for untrusted keys; this key belongs to the operator
                warnings.simplefilter("ignore", DeprecationWarning)
                credentials, project = google.auth.load_credentials_from_dict(_json(key), scopes=list(scopes))
        else:
            credentials, project = google.auth.default(scopes=list(scopes))
    except GoogleAuthError as error:
        raise NoCredentials(f"{' '.join(str(error).split())} (variables: {TOKEN}, {', '.join(KEYS)})") from None
    if target := os.environ.get(IMPERSONATED):
        credentials = impersonated_credentials.Credentials(
            credentials, target_principal=target, target_scopes=list(scopes)
        )
    named = next((value for name in PROJECTS if (value := os.environ.get(name))), None)
    return credentials, named or project


def _content(value: str) -> str:
    """Return the content of the file if the value is the path to a file."""
    try:
        path = Path(value).expanduser()
        return path.read_text(encoding="utf-8").strip() if path.is_file() else value
    except OSError:  # a value that is too long for a path
        return value


def _json(variable: str) -> dict[str, Any]:
    try:
        return dict(parsed(_content(os.environ[variable])))
    except (ValueError, TypeError):
        raise NoCredentials(
            f"{variable} contains neither the path nor the contents of a key file; set the variable to a path or to the contents, or unset it"
        ) from None
