"""Exports of Google Cloud Managed Lustre: `instances.exportData` copies the files that the bucket does not have, or that changed.

One transfer can run at a time (https://docs.cloud.google.com/managed-lustre/docs/transfer-data, retrieved 2026-11-29). Requests and responses: the messages
of `packages/google-cloud-lustre` in googleapis/google-cloud-python, retrieved 2026-11-26.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from gpuinfra.clouds.gcp.api import LUSTRE, Api
from gpuinfra.clouds.gcp.region.failover import check_transfer, running_transfers, transfer_paths
from gpuinfra.clouds.region.exports import Export


def connect(region: str, config: Mapping[str, object]) -> GcpExports:
    """Use the credentials from the environment. Addresses of Google's APIs do not contain a region."""
    return GcpExports(Api())


class GcpExports:
    """The requests. `gpuinfra.clouds.region.exports.Exports` describes the methods. File systems are names of instances."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._paths: dict[str, str] = {}
        """File system -> path in Cloud Storage."""

    def exporting(self, resources: Iterable[Any]) -> tuple[str, ...]:
        paths = dict(transfer_paths(resources, "export"))
        self._paths |= paths
        return tuple(paths)

    def start(self, file_system: str) -> Export | None:
        if any(True for _ in running_transfers(self._api, file_system)):
            return None
        body = {"gcsPath": {"uri": self._paths[file_system]}, "lustrePath": {"path": "/"}, "requestId": str(uuid4())}
        made = self._api.sent("POST", LUSTRE, f"v1/{file_system}:exportData", body=body)
        return Export(file_system=file_system, mark=str(made["name"]))

    def ended(self, export: Export) -> bool:
        return check_transfer(self._api.sent("GET", LUSTRE, f"v1/{export.mark}"), "export")
