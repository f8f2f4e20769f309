"""Cloud Storage, with its JSON API (https://cloud.google.com/storage/docs/json_api/v1/objects, retrieved 2026-11-26). Its addresses do not contain a region."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import quote

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.gcp import credentials as gcp_credentials
from gpuinfra.clouds.gcp.handover.ports import SCOPES, STORAGE

TIMEOUT_S = 60.0


def connect(region: str) -> CloudStorage:
    """Return the object storage of a region."""
    from google.auth.transport.requests import AuthorizedSession

    credentials, _ = gcp_credentials.find(SCOPES)
    return CloudStorage(AuthorizedSession(credentials), os.environ.get("STORAGE_EMULATOR_HOST") or STORAGE)


def pattern(bucket: str) -> str:
    """The name of a bucket ends in a hash that contains the project."""
    rest, _, token = bucket.rpartition("-")
    return rf"{re.escape(rest)}-[0-9a-f]{{{len(token)}}}"


class CloudStorage:
    """The objects that a session reaches. `ObjectStore` describes the methods."""

    def __init__(self, session: Any, address: str) -> None:
        self._session, self._address = session, address.rstrip("/")

    def put(self, bucket: str, key: str, content: bytes) -> None:
        self._ask("POST", f"upload/storage/v1/b/{bucket}/o", {"uploadType": "media", "name": key}, content)

    def keys(self, bucket: str, prefix: str) -> set[str]:
        names: set[str] = set()
        token = ""
        while True:
            more = {"pageToken": token} if token else {}
            page = self._ask("GET", f"storage/v1/b/{bucket}/o", {"prefix": prefix, **more}).json()
            names |= {str(one["name"]) for one in page.get("items") or []}
            token = str(page.get("nextPageToken") or "")
            if not token:
                return names

    def get(self, bucket: str, key: str) -> bytes:
        content: bytes = self._ask("GET", f"storage/v1/b/{bucket}/o/{quote(key, safe='')}", {"alt": "media"}).content
        return content

    def _ask(self, method: str, path: str, parameters: dict[str, str], content: bytes | None = None) -> Any:
        answer = self._session.request(method, f"{self._address}/{path}", params=parameters, data=content, timeout=TIMEOUT_S)  # fmt: skip
        if answer.status_code != 200:
            raise DeploymentError(f"{method} {path} returned status {answer.status_code}: {answer.text[:300]}")
        return answer
