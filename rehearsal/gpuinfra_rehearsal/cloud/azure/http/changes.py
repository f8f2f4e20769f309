"""Azure Resource Manager requests of a failover: the capacity of scale sets, tags of accounts, replication policies, import jobs, and schedules of exports.

Paths and bodies: the REST references of Compute (Virtual Machine Scale Sets - Update, 2024-11-01), Storage (Storage Accounts - Update, Object Replication
Policies, 2024-01-01) and Storage Cache (Import Jobs, AmlFilesystems - Archive, 2024-03-01), retrieved 2026-11-26; Logic (Workflows - Disable and Enable,
2019-05-01), retrieved 2026-11-29. The wording of the errors is not recorded.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.azure import model, stores
from gpuinfra_rehearsal.cloud.azure.behaviors.storage import LUSTRE, import_problem
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.core import wire

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.http import Request
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

_JOBS = "azure-import-job"
_POLICIES = re.compile(r"(?P<account>.+/storageAccounts/[^/]+)/objectReplicationPolicies(/(?P<policy>[^/]+))?", re.I)
_IMPORTS = re.compile(r"(?P<files>.+/amlFilesystems/[^/]+)/importJobs(/(?P<job>[^/]+))?", re.I)
_ARCHIVE = re.compile(r"(?P<files>.+/amlFilesystems/[^/]+)/archive", re.I)
_SCHEDULE = re.compile(r"(?P<workflow>.+/Microsoft\.Logic/workflows/[^/]+)/(?P<action>disable|enable)", re.I)
WORKFLOW = "azure-native:logic:Workflow"
_JOB_NAME = re.compile(r"[0-9a-zA-Z][-0-9a-zA-Z_]{0,78}[0-9a-zA-Z]")
_MODES = ("Fail", "Skip", "OverwriteIfDirty", "OverwriteAlways")


def answer(cloud: Cloud, request: Request, place: str) -> dict[str, Any] | None:
    """Return the response, or None if the request belongs to another service."""
    if (policies := _POLICIES.fullmatch(place)) and (request.method == "DELETE" or not policies["policy"]):
        return _policies(cloud, request.method, policies["account"], policies["policy"] or "")
    if imports := _IMPORTS.fullmatch(place):
        return _imports(cloud, request, imports["files"], imports["job"] or "")
    if (archive := _ARCHIVE.fullmatch(place)) and request.method == "POST":
        return _archive(cloud, archive["files"], json.loads(request.body or b"{}"))
    if (schedule := _SCHEDULE.fullmatch(place)) and request.method == "POST":
        if (workflow := _find(cloud, WORKFLOW, schedule["workflow"])) is None:
            raise AzureError("ResourceNotFound", f"The Resource '{schedule['workflow']}' was not found.", status=404)
        cloud.change(workflow, state="Disabled" if schedule["action"] == "disable" else "Enabled")
        return {}
    if request.method == "PATCH":
        body = json.loads(request.body or b"{}")
        if (group := _find(cloud, model.GROUP, place)) and set(body) == {"sku"}:
            return _scale(cloud, group, body["sku"])
        if (account := _find(cloud, stores.ACCOUNT, place)) and set(body) == {"tags"}:
            return _changed(cloud, account, tags=body["tags"])
    return None


def _find(cloud: Cloud, token: str, id: str) -> Resource | None:
    return next((one for one in cloud.store.list(token) if one.id.lower() == id.lower()), None)


def _changed(cloud: Cloud, resource: Resource, **values: Any) -> dict[str, Any]:
    cloud.change(resource, **values)
    return {"id": resource.id, **values}


def _scale(cloud: Cloud, group: Resource, sku: dict[str, Any]) -> dict[str, Any]:
    before = group.plain.get("sku") or {}
    if sku.get("name", before.get("name")) != before.get("name"):
        raise AzureError("NotSupported", "A rehearsal supports only changes of the capacity.", status=501)
    return _changed(cloud, group, sku={**before, "capacity": int(sku["capacity"])})


def _policies(cloud: Cloud, method: str, account: str, policy: str) -> dict[str, Any]:
    if _find(cloud, stores.ACCOUNT, account) is None:
        raise AzureError("ResourceNotFound", f"The Resource '{account}' was not found.", status=404)
    prefix = f"{account}/objectReplicationPolicies/".lower()
    held = [one for one in cloud.store.list(stores.POLICY) if one.id.lower().startswith(prefix)]
    if method == "GET":
        names = ("policyId", "sourceAccount", "destinationAccount", "rules", "enabledTime")
        return {
            "value": [
                {
                    "id": one.id,
                    "name": one.id.rsplit("/", 1)[-1],
                    "properties": {key: value for key, value in wire.plain(one.outputs).items() if key in names},
                }
                for one in held
            ]
        }
    for policy_record in held:
        if policy_record.id.lower() == prefix + policy.lower():
            cloud.delete(policy_record)
    return {}


def _imports(cloud: Cloud, request: Request, files: str, job: str) -> dict[str, Any]:
    system_record = _find(cloud, LUSTRE, files)
    if system_record is None:
        raise AzureError("ResourceNotFound", f"The Resource '{files}' was not found.", status=404)
    jobs = {id: one for id, one in cloud.store.all(_JOBS).items() if id.startswith(files.lower() + "/")}
    key = f"{files}/importJobs/{job}".lower()
    if request.method == "PUT" and job:
        return _start(cloud, system_record, jobs, key, f"{files}/importJobs/{job}", json.loads(request.body or b"{}"))
    if request.method != "GET":
        raise AzureError("NotSupported", "A rehearsal supports only creating and reading import jobs.", status=501)
    if job and key not in jobs:
        raise AzureError("ResourceNotFound", f"The Resource '{files}/importJobs/{job}' was not found.", status=404)
    for id, job_record in jobs.items():
        # A job ends after it was read once.
        cloud.store.put(
            _JOBS,
            id,
            {
                **job_record,
                "properties": {
                    **job_record["properties"],
                    "status": {"state": "Completed", "totalErrors": 0, "totalConflicts": 0},
                },
            },
        )
    return jobs[key] if job else {"value": list(jobs.values())}


def _archive(cloud: Cloud, files: str, body: dict[str, Any]) -> dict[str, Any]:
    """Export the files of a file system. A file system of a rehearsal contains no files, so the export ends at once."""
    system_record = _find(cloud, LUSTRE, files)
    if system_record is None:
        raise AzureError("ResourceNotFound", f"The Resource '{files}' was not found.", status=404)
    hsm = system_record.plain.get("hsm") or {}
    if not hsm.get("settings"):
        raise AzureError("InvalidParameter", f"The file system '{files}' has no container to export to.")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    status = {"state": "Completed", "lastStartedTime": now, "lastCompletionTime": now, "percentComplete": 100}
    archives = [{"filesystemPath": str(body.get("filesystemPath") or "/"), "status": status}]
    cloud.change(system_record, hsm={**hsm, "archiveStatus": archives})
    cloud.store.log("archive", LUSTRE, system_record.id, "")
    return {}


def _start(cloud: Cloud, resource: Resource, jobs: dict[str, Any], key: str, id: str, body: dict[str, Any]) -> dict[str, Any]:  # fmt: skip
    properties = body.get("properties") or {}
    settings = (resource.plain.get("hsm") or {}).get("settings") or {}
    if not _JOB_NAME.fullmatch(id.rsplit("/", 1)[-1]) or not body.get("location"):
        raise AzureError("InvalidParameter", f"The name or the location of the import job '{id}' is invalid.")
    if properties.get("conflictResolutionMode", "Fail") not in _MODES:
        raise AzureError("InvalidParameter", f"The conflictResolutionMode '{properties['conflictResolutionMode']}' is invalid.")  # fmt: skip
    if not settings:
        raise AzureError("InvalidParameter", f"The file system '{resource.id}' has no container to import from.")
    if any(one["properties"]["status"]["state"] == "InProgress" for one in jobs.values()):
        raise AzureError("Conflict", f"An import job of '{resource.id}' is running.", status=409)
    if problem := import_problem(cloud, settings):
        raise AzureError("InvalidParameter", problem)
    made = {
        "id": id,
        "location": body["location"],
        "properties": {**properties, "provisioningState": "Succeeded", "status": {"state": "InProgress"}},
    }
    cloud.store.put(_JOBS, key, made)
    cloud.store.log("create", "azure-import-job", id, "")
    return made
