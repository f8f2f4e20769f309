"""Reads the second region of a stack: replication jobs, replicas, keys, roles, bundles and images.

Requests and responses: the REST references of Storage Transfer (transferJobs.get), Cloud Storage (buckets.get, objects.get), Cloud KMS
(cryptoKeys.get), Cloud Monitoring (timeSeries.list) and IAM (projects.roles.get), and Google's discovery documents, retrieved 2026-11-22.
Images are global resources, but `storageLocations` of an image is a region or a multi-region
(https://cloud.google.com/compute/docs/reference/rest/v1/images, retrieved 2026-11-26).
The metrics are documented at https://docs.cloud.google.com/storage-transfer/docs/monitor-transfer-jobs, retrieved 2026-11-22.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

from gpuinfra.clouds.gcp.handover.ports import Client, PortUnavailable
from gpuinfra.clouds.region.readiness import (
    ReadinessLine,
    ReadinessQuestion,
    Unread,
    asked,
    bundle,
    deployed,
    exports_run,
    fails,
    key,
    lag,
    located,
    of_pair,
    passes,
    state,
)
from gpuinfra.handover.trust import checked_address

JOB = "gcp:storage/transferJob:TransferJob"
KEY = "gcp:kms/cryptoKey:CryptoKey"
ROLE = "gcp:projects/iAMCustomRole:IAMCustomRole"
OBJECT = "gcp:storage/bucketObject:BucketObject"
SCHEDULE = "gcp:cloudscheduler/job:Job"
ENABLED, PAUSED = "ENABLED", "PAUSED"
"""States of a job of Cloud Scheduler."""
METRIC = "storagetransfer.googleapis.com/transferjob"
LATENCY, COUNT = f"{METRIC}/replication_latency", f"{METRIC}/object_replication_count"
RECENT = timedelta(hours=1)
FAILURES = timedelta(hours=24)
ENDPOINTS = {
    "compute": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com/compute/v1/"),
    "cloudkms": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS", "https://cloudkms.googleapis.com/"),
    "iam": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_IAM", "https://iam.googleapis.com/"),
    "monitoring": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING", "https://monitoring.googleapis.com/"),
    "cloudscheduler": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER", "https://cloudscheduler.googleapis.com/"),
    "storage": ("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com"),
    "storagetransfer": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGETRANSFER", "https://storagetransfer.googleapis.com/"),
}
"""Maps a service to the variable that overrides its endpoint, and to the default endpoint."""

Get = Callable[[str, str, Mapping[str, str]], dict[str, Any] | None]
"""Sends a read request, given the service, path and parameters. Returns None if the resource does not exist. Raises `Unread`."""


def look(question: ReadinessQuestion) -> Iterator[ReadinessLine]:
    """Read the second region with the credentials from the environment."""
    client = Client()

    def get(service: str, path: str, parameters: Mapping[str, str]) -> dict[str, Any] | None:
        try:
            address = checked_address(*ENDPOINTS[service], os.environ).rstrip("/")
            return client.found(f"{address}/{path}", parameters)
        except PortUnavailable as problem:
            raise Unread(str(problem)) from None

    yield from lines(question, get, datetime.now(UTC))
    yield from images(question, get)
    yield from backend(question, get)


def lines(question: ReadinessQuestion, get: Get, now: datetime) -> Iterator[ReadinessLine]:
    """Return the lines for the resources in the state."""
    jobs = [one.get("outputs") or {} for one in question.of_type(JOB)]
    jobs = [one for one in jobs if one.get("replicationSpec")]
    keys = [str(one.get("id")) for one in question.of_type(KEY)]
    keys = [one for one in keys if f"/locations/{question.recovery.region}/" in one]
    yield from deployed(question, len(jobs), len(keys))
    replicas: dict[str, str] = {}
    for resource in jobs:
        spec = resource["replicationSpec"]
        source, replica = (str((spec.get(key) or {}).get("bucketName")) for key in ("gcsDataSource", "gcsDataSink"))
        replicas[source] = replica
        job = _Job(
            question,
            get,
            name=str(resource.get("name")),
            project=str(resource.get("project")),
            source=source,
            replica=replica,
            keys=keys,
            now=now,
        )
        yield from of_pair(source, replica, job)
        yield from asked("failures", source, job.failures)
    for name in keys:
        yield from asked("key", name, lambda name=name: _key(get, name))
    for role in (str(one.get("id")) for one in question.of_type(ROLE)):
        if "replication" in role.rpartition("/")[2]:
            yield from asked("role", role, lambda role=role: _role(get, role))
    for schedule in schedules_in(question.resources):
        yield from asked("export", str(schedule.get("id")), lambda one=schedule: _schedule(get, str(one.get("id"))))
    for resource in question.of_type(OBJECT):
        outputs = resource.get("outputs") or {}
        bucket, name = str(outputs.get("bucket")), str(outputs.get("name"))
        if replica := replicas.get(bucket):
            yield from asked("bundle", name, lambda b=bucket, r=replica, n=name: _bundle(get, b, r, n))


def images(question: ReadinessQuestion, get: Get) -> Iterator[ReadinessLine]:
    """Report the images that are stored only in the first region. `preflight` reports images that do not exist."""
    for ref in question.images:
        yield from asked("image", ref, lambda ref=ref: _image(question, get, ref))


def backend(question: ReadinessQuestion, get: Get) -> Iterator[ReadinessLine]:
    """Read the location of the bucket that contains the Pulumi state (`gs://BUCKET`). A multi-region or dual-region is no region."""
    name, url = question.backend
    parts = urlsplit(url)

    def home() -> Iterator[ReadinessLine]:
        answer = get("storage", f"storage/v1/b/{quote(parts.netloc, safe='')}", {})
        yield state(question, None if answer is None else str(answer.get("location") or "").lower())

    if parts.scheme == "gs":
        yield from asked("state", name, home)


class _Job:
    """A replication job with its bucket and its replica."""

    def __init__(
        self,
        question: ReadinessQuestion,
        get: Get,
        *,
        name: str,
        project: str,
        source: str,
        replica: str,
        keys: Sequence[str],
        now: datetime,
    ) -> None:
        self._question, self._get, self._now, self._keys = question, get, now, keys
        self._name, self._project, self._source, self._replica = name, project, source, replica

    def replication(self) -> Iterator[ReadinessLine]:
        answer = self._get("storagetransfer", f"v1/{self._name}", {"projectId": self._project})
        status = str((answer or {}).get("status") or "DELETED")
        sink = (((answer or {}).get("replicationSpec") or {}).get("gcsDataSink") or {}).get("bucketName")
        resume = f"gcloud transfer jobs update {self._name} --status=enabled --project={self._project}"
        if status != "ENABLED":
            reason = f"the replication job {self._name} is {status}"
            fix = resume if status == "DISABLED" else ""
            yield fails("replication", self._source, reason, fix)
        elif sink != self._replica:
            reason = f"the replication job {self._name} copies to {sink}, not to {self._replica}"
            yield fails("replication", self._source, reason)
        else:
            yield passes("replication", self._source, f"copies to {self._replica}")
        options = ((answer or {}).get("replicationSpec") or {}).get("transferOptions") or {}
        if (options.get("metadataOptions") or {}).get("kmsKey") == "KMS_KEY_PRESERVE":
            reason = f"the replication job keeps the key of each object, which is in {self._question.region}"
            yield fails("key", self._name, reason)

    def exists(self) -> Iterator[ReadinessLine]:
        second = self._question.recovery.region
        answer = self._get("storage", f"storage/v1/b/{quote(self._replica, safe='')}", {})
        location = None if answer is None else str(answer.get("location") or "").lower()
        yield located(self._replica, location, second)
        if answer is not None:
            yield self._encryption(str((answer.get("encryption") or {}).get("defaultKmsKeyName") or ""))

    def _encryption(self, key_id: str) -> ReadinessLine:
        """The default key of the replica is a key of the stack in the second region."""
        second = self._question.recovery.region
        if key_id in self._keys:
            return passes("key", self._replica, f"uses a key in {second}")
        used = key_id or "a Google-managed key"
        return fails("key", self._replica, f"the replica uses {used}, not a key of this stack in {second}")

    def lag(self) -> Iterator[ReadinessLine]:
        """The latency of the objects that were replicated is a distribution in milliseconds. The lag is the 99th percentile of the last hour."""
        values = self._series(f'metric.type = "{LATENCY}"', RECENT, "ALIGN_PERCENTILE_99")
        if not values:
            # Google publishes no metric about objects that are waiting.
            yield passes("lag", self._source, "no objects were replicated in the last hour")
            return
        fix = f"gcloud transfer operations list --job-names={self._name} --project={self._project}"
        yield lag(self._question, self._source, max(values) / 1000, fix)

    def failures(self) -> Iterator[ReadinessLine]:
        values = self._series(f'metric.type = "{COUNT}" AND metric.labels.status = "failed"', FAILURES, "ALIGN_SUM")
        failed = int(sum(values))
        if failed:
            reason = f"{failed} objects were not replicated in the last 24 hours"
            fix = _copy(self._source, self._replica, self._project)
            yield fails("failures", self._source, reason, fix)
        else:
            yield passes("failures", self._source, "no replication failures in the last 24 hours")

    def _series(self, metric: str, period: timedelta, aligner: str) -> list[float]:
        """Return one value for each time series, aligned over the whole period."""
        parameters = {
            "filter": f'resource.type = "storage_transfer_job" AND {metric} AND metric.labels.source_bucket = "{self._source}" '
            f'AND metric.labels.destination_bucket = "{self._replica}"',
            "interval.startTime": _iso(self._now - period),
            "interval.endTime": _iso(self._now),
            "aggregation.alignmentPeriod": f"{int(period.total_seconds())}s",
            "aggregation.perSeriesAligner": aligner,
        }
        answer = self._get("monitoring", f"v3/projects/{self._project}/timeSeries", parameters) or {}
        points = [point for series in answer.get("timeSeries", []) for point in series.get("points", [])]
        return [
            float(value.get("doubleValue", value.get("int64Value", 0)))
            for value in (one.get("value", {}) for one in points)
        ]


def _key(get: Get, name: str) -> Iterator[ReadinessLine]:
    answer = get("cloudkms", f"v1/{name}", {})
    primary = (answer or {}).get("primary") or {}
    state = str(primary.get("state") or "without a primary version")
    version = str(primary.get("name") or f"{name}/cryptoKeyVersions/VERSION")
    restore = f"gcloud kms keys versions restore {version} && " if state == "DESTROY_SCHEDULED" else ""
    yield key(name, None if answer is None else state, f"{restore}gcloud kms keys versions enable {version}")


def _role(get: Get, role: str) -> Iterator[ReadinessLine]:
    answer = get("iam", f"v1/{role}", {})
    project, _, name = role.removeprefix("projects/").partition("/roles/")
    if answer is None:
        yield fails("role", role, "the replication role does not exist")
    elif answer.get("deleted"):
        fix = f"gcloud iam roles undelete {name} --project={project}"
        yield fails("role", role, "the replication role is deleted", fix)
    else:
        yield passes("role", role, "exists")


def schedules_in(resources: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the jobs of Cloud Scheduler in a stack's state that export a file system. A program can create other jobs."""
    for resource in resources:
        target = ((resource.get("outputs") or {}).get("httpTarget") or {}) if resource.get("type") == SCHEDULE else {}
        if str(target.get("uri")).endswith(":exportData"):
            yield resource


def _schedule(get: Get, name: str) -> Iterator[ReadinessLine]:
    answer = get("cloudscheduler", f"v1/{name}", {})
    _, project, _, region, _, job = name.split("/")
    fix = f"gcloud scheduler jobs resume {job} --location={region} --project={project}" if answer else ""
    yield exports_run(name, str((answer or {}).get("state") or "") or None, ENABLED, fix)


def _bundle(get: Get, bucket: str, replica: str, name: str) -> Iterator[ReadinessLine]:
    answer = get("storage", f"storage/v1/b/{quote(replica, safe='')}/o/{quote(name, safe='')}", {})
    yield bundle(name, bucket, replica, _copy(bucket, replica, ""), exists=answer is not None)


def _image(question: ReadinessQuestion, get: Get, ref: str) -> Iterator[ReadinessLine]:
    path = ref.partition("/compute/v1/")[2] or ref
    answer = get("compute", path, {})
    places = [str(one).lower() for one in (answer or {}).get("storageLocations") or []]
    if places == [question.region]:
        name, project = str((answer or {}).get("name")), path.removeprefix("projects/").partition("/")[0]
        copy = f"{name}-{question.recovery.region}"
        fix = (
            f"gcloud compute images create {copy} --project={project} --source-image={name} --source-image-project={project} "
            f"--storage-location={question.recovery.region}, and set `image` to projects/{project}/global/images/{copy}"
        )
        yield fails("image", ref, f"the image is stored only in {question.region}", fix)


def _copy(bucket: str, replica: str, project: str) -> str:
    """Return the command that copies existing objects once, as in the plan."""
    return f"gcloud transfer jobs create gs://{bucket} gs://{replica}" + (f" --project={project}" if project else "")


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
