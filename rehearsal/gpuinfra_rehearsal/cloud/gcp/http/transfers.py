"""Changes of replication jobs and of schedules, and transfers of Managed Lustre, as `gpuinfra failover` and `gpuinfra failback` request them.

Storage Transfer: transferJobs.patch, with the status only. Cloud Scheduler: jobs.pause and resume. Managed Lustre: instances.importData and exportData,
operations.list and get (https://cloud.google.com/managed-lustre/docs/reference/rest, retrieved 2026-11-26). A transfer ends at once. It fails if the service
agent of Managed Lustre cannot read or write the bucket (https://docs.cloud.google.com/managed-lustre/docs/transfer-data, retrieved 2026-11-26).
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra_rehearsal.cloud.gcp import access, operator, outages, tokens
from gpuinfra_rehearsal.cloud.gcp.behaviors.network import LUSTRE
from gpuinfra_rehearsal.cloud.gcp.behaviors.replication import TransferJob, set_status
from gpuinfra_rehearsal.cloud.gcp.behaviors.scheduling import JOB, set_paused
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError, invalid
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT, PROJECT_NUMBER

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

_AGENT = f"service-{PROJECT_NUMBER}@gcp-sa-lustre.iam.gserviceaccount.com"
_OPERATION = "gcp-lustre-operation"
_PERMISSION_DENIED = 7
_JOB = re.compile(r"v1/(?P<job>projects/[^/]+/locations/(?P<region>[^/]+)/jobs/[^/:]+):(?P<action>pause|resume)")
_LUSTRE = re.compile(
    r"v1/(?P<place>projects/[^/]+/locations/(?P<location>[^/]+))/(?:(?P<instance>instances/[^/:]+):(?P<way>import|export)Data|operations(?:/(?P<operation>[^/]+))?)"
)


def serves(service: str, method: str, rest: str) -> bool:
    """Return whether a request is one of these."""
    if service == "lustre":
        return _LUSTRE.fullmatch(unquote(rest)) is not None
    if service == "cloudscheduler":
        return method == "POST" and _JOB.fullmatch(unquote(rest)) is not None
    return service == "storagetransfer" and method == "PATCH"


def answer(cloud: Cloud, service: str, request: Request, rest: str) -> Response:
    """Handle a request of the operator."""
    who = tokens.principal(cloud.store, request.headers.get("authorization", ""))
    if not who.is_operator:
        raise GoogleError("forbidden", f"Permission denied on resource '{unquote(rest)}'", status=403)
    if service == "storagetransfer":
        return _patch(cloud, request, unquote(rest).removeprefix("v1/"))
    if job := _JOB.fullmatch(unquote(rest)):
        outages.refuse(cloud.store, job["region"], "Cloud Scheduler")
        return _schedule(cloud, job["job"], job["action"])
    at = _LUSTRE.fullmatch(unquote(rest))
    assert at is not None
    outages.refuse(cloud.store, outages.region(at["location"]), "Managed Lustre")
    if at["instance"]:
        return json_response(_transfer(cloud, request, at["place"], f"{at['place']}/{at['instance']}", at["way"]))
    return json_response(_operations(cloud, at["place"], at["operation"]))


def _patch(cloud: Cloud, request: Request, name: str) -> Response:
    asked = _body(request)
    cloud.operator.check(operator, operator.storage("storagetransfer.jobs.update", f"projects/{PROJECT}"))
    job = cloud.store.find(TransferJob.types[0], f"{PROJECT}/{name.rpartition('/')[2]}")
    if job is None or asked.get("projectId") != PROJECT:
        raise GoogleError("notFound", f"Requested entity was not found: {name}", status=404)
    given = asked.get("transferJob") or {}
    if asked.get("updateTransferJobFieldMask") != "status" or list(given) != ["status"]:
        raise GoogleError("notImplemented", "only changes of the status are supported in a rehearsal", status=501)
    if given["status"] not in ("ENABLED", "DISABLED"):
        raise invalid(f"Invalid value at 'transfer_job.status': {given['status']}")
    changed = set_status(cloud.store, job, str(given["status"]))
    cloud.store.log("PATCH", job.type, job.id, "")
    return json_response(
        {
            "name": name,
            "projectId": PROJECT,
            **{key: changed.plain[key] for key in ("status", "description", "replicationSpec") if key in changed.plain},
        }
    )


def _schedule(cloud: Cloud, name: str, action: str) -> Response:
    permission = {"pause": "pause", "resume": "enable"}[action]
    cloud.operator.check(operator, operator.storage(f"cloudscheduler.jobs.{permission}", name))
    job = cloud.store.find(JOB, name)
    if job is None:
        raise GoogleError("notFound", f"Job not found: {name}", status=404)
    changed = set_paused(cloud, job, paused=action == "pause")
    cloud.store.log(action, JOB, name, "")
    return json_response({"name": name, "state": changed.outputs["state"]})


def _transfer(cloud: Cloud, request: Request, place: str, name: str, way: str) -> dict[str, Any]:
    """Import or export. A file system of a rehearsal contains no files, so an export copies nothing."""
    asked = _body(request)
    cloud.operator.check(operator, operator.storage(f"lustre.instances.{way}Data", name))
    if cloud.store.find(LUSTRE, name) is None:
        raise GoogleError("notFound", f"Resource '{name}' was not found", status=404)
    match = re.fullmatch(r"gs://([^/]+)/?(.*)", str((asked.get("gcsPath") or {}).get("uri") or ""))
    if match is None:
        raise invalid("gcs_path.uri must be a Cloud Storage path such as gs://BUCKET/PATH/")
    bucket, prefix = match.groups()
    if prefix and not prefix.endswith("/"):
        raise invalid("gcs_path.uri must end with a forward slash if it contains a path inside the bucket")
    imports, files = way == "import", asked.get("lustrePath") or {"path": "/"}
    count = len(cloud.store.objects(bucket, prefix)) if imports else 0
    needs = (access.GET, "any") if imports else (access.CREATE, "any")
    allowed = access.allowed(cloud, _AGENT, access.LIST, bucket) and access.allowed(cloud, _AGENT, needs[0], bucket, needs[1])  # fmt: skip
    counters = {"foundObjectsCount": str(count), "objectsCopiedCount": str(count)} if allowed else {}
    source, target = ("sourceGcsPath", "destinationLustrePath") if imports else ("destinationGcsPath", "sourceLustrePath")  # fmt: skip
    transfer = {"transferType": way.upper(), source: asked["gcsPath"], target: files, "counters": counters}
    id = f"{place}/operations/operation-{cloud.store.next('lustre operation')}"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    started = {"name": id, "metadata": {"target": name, "createTime": now, "apiVersion": "v1", "operationMetadata": transfer}, "done": False}  # fmt: skip
    reason = f"{_AGENT} does not have access to the bucket {bucket}, or the bucket does not exist."
    end = {"response": {}} if allowed else {"error": {"code": _PERMISSION_DENIED, "message": reason}}
    cloud.store.put(_OPERATION, id, {**started, "done": True, **end})
    return started


def _operations(cloud: Cloud, place: str, operation: str | None) -> dict[str, Any]:
    if operation is None:
        cloud.operator.check(operator, operator.storage("lustre.operations.list", place))
        return {"operations": [one for id, one in cloud.store.all(_OPERATION).items() if id.startswith(f"{place}/")]}
    cloud.operator.check(operator, operator.storage("lustre.operations.get", f"{place}/operations/{operation}"))
    operation_record: dict[str, Any] | None = cloud.store.get(_OPERATION, f"{place}/operations/{operation}")
    if operation_record is None:
        raise GoogleError("notFound", f"Resource '{place}/operations/{operation}' was not found", status=404)
    return operation_record


def _body(request: Request) -> dict[str, Any]:
    try:
        return dict(json.loads(request.body or b"{}"))
    except (ValueError, TypeError):
        raise invalid("Invalid JSON payload received.") from None
