"""Exports of Google Cloud Managed Lustre: `instances.exportData` copies the files that the bucket does not have, or that changed.

One transfer can run at a time (https://docs.cloud.google.com/managed-lustre/docs/transfer-data, retrieved 2026-11-29). Requests and responses: the messages
of `packages/google-cloud-lustre` in googleapis/google-cloud-python, retrieved 2026-11-26.

A job of Cloud Scheduler requests scheduled exports. Only a job in the state `ENABLED` can be paused, and only one in the state `PAUSED` can be resumed
(https://docs.cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs/pause and /resume, retrieved 2026-11-29).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from gpuinfra.clouds.gcp.api import LUSTRE, SCHEDULER, Api
from gpuinfra.clouds.gcp.region.failover import check_transfer, running_transfers, transfer_paths
from gpuinfra.clouds.gcp.region.readiness import ENABLED, PAUSED, schedules_in
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

    def schedules(self, resources: Iterable[Any]) -> tuple[str, ...]:
        return tuple(str(one.get("id")) for one in schedules_in(resources))

    def set_schedule(self, schedule: str, *, paused: bool) -> None:
        before, action = (ENABLED, "pause") if paused else (PAUSED, "resume")
        job = self._api.ask("GET", SCHEDULER, f"v1/{schedule}")
        if job is not None and job.get("state") == before:
            self._api.sent("POST", SCHEDULER, f"v1/{schedule}:{action}")
