"""Read calls for KMS, Filestore, Managed Lustre, networks, images, replication jobs, roles and metrics, as `gpuinfra adopt`, `gpuinfra ready`
and the preflight make them.

The path after the service and its version is the resource's name, which is also its ID in the stand-in cloud.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra_rehearsal.cloud.gcp import operator, outages, tokens
from gpuinfra_rehearsal.cloud.gcp.behaviors import replication
from gpuinfra_rehearsal.cloud.gcp.behaviors.functions import image
from gpuinfra_rehearsal.cloud.gcp.behaviors.scheduling import JOB as SCHEDULE
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

METRIC = "custom-metric"
"""Kind of the newest value of a custom metric, by type and labels."""
JOB = "gcp:storage/transferJob:TransferJob"
_TYPES = {
    "cloudkms": ("gcp:kms/keyRing:KeyRing", "gcp:kms/cryptoKey:CryptoKey"),
    "lustre": ("gcp:lustre/instance:Instance",),
    "file": ("gcp:filestore/instance:Instance",),
    "iam": ("gcp:projects/iAMCustomRole:IAMCustomRole",),
    "cloudscheduler": (SCHEDULE,),
    "storagetransfer": (JOB,),
    "compute": ("gcp:compute/network:Network", "gcp:compute/globalAddress:GlobalAddress"),
}
"""Maps a service to the resource types that it serves."""
_LISTS = {
    ("billingbudgets", "v1/billingAccounts/*/budgets"): ("gcp:billing/budget:Budget", "budgets", "billing.budgets.list"),
    ("monitoring", f"v3/projects/{PROJECT}/alertPolicies"): (
        "gcp:monitoring/alertPolicy:AlertPolicy", "alertPolicies", "monitoring.alertPolicies.list",
    ),
    ("monitoring", f"v3/projects/{PROJECT}/notificationChannels"): (
        "gcp:monitoring/notificationChannel:NotificationChannel", "notificationChannels", "monitoring.notificationChannels.list",
    ),
    ("storagetransfer", "v1/transferJobs"): (JOB, "transferJobs", "storagetransfer.jobs.list"),
}  # fmt: skip
"""Lists of resources whose names the service generates: service and path -> resource type, field of the response, and permission."""
_LISTED = ("displayName", "labels", "userLabels", "replicationSpec", "status", "description")
_LATENCY = "storagetransfer.googleapis.com/transferjob/replication_latency"
_IMAGE = re.compile(r"projects/(?P<project>[^/]+)/global/images/(?P<family>family/)?(?P<name>[^/]+)")
_CONNECTION = "gcp:servicenetworking/connection:Connection"


def serves(service: str, rest: str) -> bool:
    """Return whether a request is one of these read calls. Other requests to Compute Engine refer to one zone."""
    return _list_of(service, rest) is not None or (service in _TYPES and (service != "compute" or "/global/" in rest))


def read(cloud: Cloud, service: str, request: Request, rest: str) -> Response:
    """Handle `GET VERSION/NAME`."""
    who = tokens.principal(cloud.store, request.headers.get("authorization", ""))
    if request.method == "GET" and (listed := _list_of(service, rest)):
        if not who.is_operator:
            raise GoogleError("forbidden", f"Permission denied on '{rest[:200]}' (or it may not exist)", status=403)
        return _list(cloud, *listed, parent=unquote(rest).partition("/")[2].rpartition("/")[0])
    name = unquote(rest).partition("/")[2]
    place = f"{PROJECT}/{name.rpartition('/')[2]}" if service == "storagetransfer" else name
    resource = next((match for type_ in _TYPES[service] if (match := cloud.store.find(type_, place))), None)
    if not who.is_operator:
        raise GoogleError("forbidden", f"Permission denied on resource '{name}' (or it may not exist)", status=403)
    if service == "compute" and request.method == "GET" and (match := _IMAGE.fullmatch(name)):
        cloud.operator.check(operator, operator.compute("images", match["name"], "", name))
        wanted = {"project": match["project"], "family" if match["family"] else "name": match["name"]}
        return json_response({"kind": "compute#image", **image(cloud, wanted, "")})
    if request.method != "GET" or resource is None:
        raise GoogleError("notFound", f"Resource '{name}' was not found", status=404)
    located = re.search(r"/locations/([^/]+)/", name)
    outages.refuse(cloud.store, outages.region(located and located[1]), f"'{name}'")
    cloud.operator.check(operator, operator.required(cloud.store, "read", resource.type, {}, resource.region, resource))
    return json_response({"name": name, **_shown(cloud, resource)})


def _list_of(service: str, rest: str) -> tuple[str, str, str] | None:
    path = re.sub(r"(?<=billingAccounts/)[^/]+", "*", unquote(rest))
    return _LISTS.get((service, path))


def _list(cloud: Cloud, type_: str, field: str, permission: str, *, parent: str) -> Response:
    """Return all resources of a type in a project or a billing account, in one page."""
    cloud.operator.check(operator, operator.storage(permission, parent or f"projects/{PROJECT}"))
    shown = []
    for resource in cloud.store.list(type_):
        if type_ == JOB:
            name = f"transferJobs/{resource.id.rpartition('/')[2]}"
        elif resource.id.startswith(f"{parent}/"):
            name = resource.id
        else:
            continue
        shown.append({"name": name, **{key: resource.plain[key] for key in _LISTED if key in resource.plain}})
    return json_response({field: shown} if shown else {})


def metrics(cloud: Cloud, request: Request, rest: str) -> Response:
    """Handle `v3/projects/PROJECT/timeSeries` of Cloud Monitoring: `POST`, and `GET` for the latency of a replication job. The interval ends at the time of the
    stand-in. Google publishes no latency while no objects are replicated. Replications do not fail."""
    who = tokens.principal(cloud.store, request.headers.get("authorization", ""))
    if not who.is_operator or request.method not in ("GET", "POST") or rest != f"v3/projects/{PROJECT}/timeSeries":
        raise GoogleError("forbidden", f"Permission denied on '{rest[:200]}' (or it may not exist)", status=403)
    if request.method == "POST":
        return _write(cloud, request)
    cloud.operator.check(operator, operator.storage("monitoring.timeSeries.list", f"projects/{PROJECT}"))
    text, start, end = (request.query.get(name, "") for name in ("filter", "interval.startTime", "interval.endTime"))
    source, replica = (re.search(rf'metric\.labels\.{side}_bucket = "([^"]+)"', text) for side in ("source", "destination"))  # fmt: skip
    if _LATENCY not in text or source is None or replica is None:
        return json_response({})
    period = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    delay = replication.latency(cloud.store, source[1], replica[1], period.total_seconds())
    if delay is None:
        return json_response({})
    point = {"interval": {"startTime": start, "endTime": end}, "value": {"doubleValue": delay * 1000}}
    labels = {"source_bucket": source[1], "destination_bucket": replica[1]}
    return json_response({"timeSeries": [{"metric": {"type": _LATENCY, "labels": labels}, "points": [point]}]})


def _write(cloud: Cloud, request: Request) -> Response:
    """Store values of custom metrics. The first value of a metric creates its descriptor, which requires a permission of its own
    (https://docs.cloud.google.com/monitoring/custom-metrics/creating-metrics, retrieved 2026-11-29)."""
    project = f"projects/{PROJECT}"
    cloud.operator.check(operator, operator.storage("monitoring.timeSeries.create", project))
    for series in json.loads(request.body or b"{}").get("timeSeries", []):
        metric, labels = str(series["metric"]["type"]), series["metric"].get("labels") or {}
        if not metric.startswith("custom.googleapis.com/"):
            raise GoogleError(
                "badRequest", f'Field timeSeries[0].metric.type had an invalid value of "{metric}"', status=400
            )
        if not any(key.startswith(f"{metric}/") for key in cloud.store.all(METRIC)):
            cloud.operator.check(operator, operator.storage("monitoring.metricDescriptors.create", project))
        key = f"{metric}/{','.join(f'{name}={value}' for name, value in sorted(labels.items()))}"
        cloud.store.put(METRIC, key, {"point": series["points"][0]})
    return json_response({})


def _shown(cloud: Cloud, resource: Resource) -> dict[str, Any]:
    """Return the fields of a resource that gpuinfra reads, in addition to its name."""
    plain = resource.plain
    if resource.type == "gcp:compute/network:Network":
        return {"peerings": _peerings(cloud, resource)}
    if resource.type == "gcp:kms/cryptoKey:CryptoKey":
        return {"primary": {"name": f"{resource.id}/cryptoKeyVersions/1", "state": "ENABLED"}}
    if resource.type == JOB:
        return {key: plain[key] for key in ("status", "description", "replicationSpec") if key in plain}
    if resource.type == SCHEDULE:
        return {"schedule": plain.get("schedule"), "state": resource.outputs["state"]}
    if resource.type == "gcp:projects/iAMCustomRole:IAMCustomRole":
        return {key: plain[key] for key in ("title", "stage") if key in plain}
    return {}


def _peerings(cloud: Cloud, network: Resource) -> list[dict[str, Any]]:
    connections = [one.plain for one in cloud.store.list(_CONNECTION)]
    services = [str(one.get("service")) for one in connections if str(one.get("network")).endswith(network.id)]
    return [{"name": service.replace(".", "-")} for service in services]
