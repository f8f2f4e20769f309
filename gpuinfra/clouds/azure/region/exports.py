"""Exports of Azure Managed Lustre: the `archive` action copies all files that are new or changed to the container.

No more than one job of the blob integration can run at a time (MicrosoftDocs/azure-stack-docs, azure-managed-lustre/auto-export.md, retrieved 2026-11-29).
Request, states and times: AmlFilesystems - Archive, and `AmlFilesystemArchive` and `ArchiveStatusType` in the models of azure-mgmt-storagecache.
The result is read from the file system, because the response contains no job.

A workflow of Azure Logic Apps requests scheduled exports. A disabled workflow starts no runs, and runs that have started continue
(https://learn.microsoft.com/azure/logic-apps/manage-logic-apps-with-azure-portal; Workflows - Disable and Enable, 2019-05-01; retrieved 2026-11-29).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.azure.region.failover import CACHE, FILE_SYSTEM, TIMEOUT_S, asked, asked_or
from gpuinfra.clouds.azure.region.readiness import ENABLED, LOGIC, last, schedules_in
from gpuinfra.clouds.azure.rest import Rest
from gpuinfra.clouds.region.exports import Export

ROOT = "/"
RUNNING = ("InProgress", "FSScanInProgress", "Cancelling")
COMPLETED = "Completed"
FAILED = ("Failed", "Canceled")


def connect(region: str, config: Mapping[str, object]) -> AzureExports:
    """Use the credentials from the environment. Requests go to Azure Resource Manager, whose address has no region."""
    return AzureExports(Rest(timeout_s=TIMEOUT_S))


class AzureExports:
    """The requests of one subscription. `gpuinfra.clouds.region.exports.Exports` describes the methods. File systems are resource IDs."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def exporting(self, resources: Iterable[Any]) -> tuple[str, ...]:
        return tuple(
            str(one.get("id"))
            for one in resources
            if one.get("type") == FILE_SYSTEM and ((one.get("outputs") or {}).get("hsm") or {}).get("settings")
        )

    def start(self, file_system: str) -> Export | None:
        states = self._states(file_system)
        if any(one.get("state") in RUNNING for one in states.values()):
            return None
        asked(lambda: self._rest.arm_change("POST", f"{file_system}/archive", CACHE, {"filesystemPath": ROOT}))
        return Export(file_system=file_system, mark=str((states.get(ROOT) or {}).get("lastStartedTime") or ""))

    def ended(self, export: Export) -> bool:
        status = self._states(export.file_system).get(ROOT) or {}
        if str(status.get("lastStartedTime") or "") == export.mark or status.get("state") in RUNNING:
            return False
        if status.get("state") in FAILED:
            why = status.get("errorMessage") or status.get("errorCode") or "no reason was given"
            show = f"az amlfs show --ids {export.file_system}"
            raise DeploymentError(
                f"the export of {last(export.file_system)} is {status['state']}: {one_line(str(why))}; see `{show}` "
                "and the logging container of the file system"
            )
        return bool(status.get("state") == COMPLETED)

    def _states(self, file_system: str) -> dict[str, Mapping[str, Any]]:
        """Return the last export of each path of a file system."""
        answer = asked(lambda: self._rest.arm(file_system, CACHE))
        archives = ((answer.get("properties") or {}).get("hsm") or {}).get("archiveStatus") or []
        return {str(one.get("filesystemPath")): one.get("status") or {} for one in archives}

    def schedules(self, resources: Iterable[Any]) -> tuple[str, ...]:
        return tuple(str(one.get("id")) for one in schedules_in(resources))

    def set_schedule(self, schedule: str, *, paused: bool) -> None:
        workflow = asked_or({}, lambda: self._rest.arm(schedule, LOGIC))
        if workflow and ((workflow.get("properties") or {}).get("state") == ENABLED) is paused:
            asked(lambda: self._rest.arm_change("POST", f"{schedule}/{'disable' if paused else 'enable'}", LOGIC))
