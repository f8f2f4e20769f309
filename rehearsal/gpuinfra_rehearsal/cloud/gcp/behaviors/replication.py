"""Replication jobs of Storage Transfer Service, and the custom roles of its service agent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.core import outage, replication, wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.gcp import access, objects, outages
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT, PROJECT_NUMBER

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

TRANSFER_AGENT = f"project-{PROJECT_NUMBER}@storage-transfer-service.iam.gserviceaccount.com"
STORAGE_AGENT = f"service-{PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
_COPIED, _ENABLED = "gcp-replicated", "gcp-replicates-since"
FIRST_JOB = 1_000_000_000_000_000_000

_EVENTS = {
    TRANSFER_AGENT: ("pubsub.topics.create", "pubsub.subscriptions.create", "pubsub.subscriptions.consume"),
    STORAGE_AGENT: ("pubsub.topics.publish", "pubsub.subscriptions.consume", "pubsub.subscriptions.create"),
}
_SOURCE = ("storage.buckets.get", "storage.buckets.update", "storage.objects.get")
_SINK = ("storage.buckets.get", "storage.objects.create", "storage.objects.get")
"""Required permissions: https://docs.cloud.google.com/storage-transfer/docs/cross-bucket-replication, retrieved 2026-11-22."""

_OPTIONS = {
    "deleteObjectsFromSourceAfterTransfer": False,
    "deleteObjectsUniqueInSink": False,
    "overwriteObjectsAlreadyExistingInSink": False,
}
"""Options that the provider reads back without an input."""


@behaves
class TransferJob(Behavior):
    """A replication job. The service assigns its name. The job requires both buckets and the service agents' permissions.

    The wording of the errors follows a reported error of the service (iconara/bigshift issue 8). It is not verified when the service checks
    the permissions. The provider reads back all inputs and the defaults of their blocks (`resource_storage_transfer_job.go` in
    GoogleCloudPlatform/magic-modules at 14fbb56,
    Mozilla Public License 2.0, retrieved 2026-11-22).
    """

    types = ("gcp:storage/transferJob:TransferJob",)
    volatile = ("lastModificationTime",)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        plain = call.plain
        if plain.get("replicationSpec"):
            for other in ("transferSpec", "schedule", "eventStream"):
                if plain.get(other):
                    yield RejectedInput(other, "conflicts with replicationSpec")
        elif not plain.get("transferSpec"):
            yield RejectedInput("transferSpec", "one of `replication_spec,transfer_spec` must be specified")

    def identify(self, cloud: Cloud, call: Call) -> str | None:
        return f"{PROJECT}/{FIRST_JOB + cloud.store.next('transfer job')}"

    def before_create(self, cloud: Cloud, call: Call) -> None:
        spec = call.plain.get("replicationSpec")
        if not spec:
            return
        if call.plain.get("name"):
            raise GoogleError("badRequest", "Custom names are not supported for replication jobs.", status=400)
        options = spec.get("transferOptions") or {}
        if options.get("deleteObjectsUniqueInSink") or options.get("deleteObjectsFromSourceAfterTransfer"):
            raise GoogleError("badRequest", "Delete options are not supported for replication jobs.", status=400)
        for email, needed in _EVENTS.items():
            _require(cloud, email, needed, "project", PROJECT)
        for key, words, needed in (("gcsDataSource", "source", _SOURCE), ("gcsDataSink", "destination", _SINK)):
            name = str((spec.get(key) or {}).get("bucketName") or "")
            if cloud.external(name) is None and cloud.store.find(access.BUCKET, name) is None:
                raise GoogleError("notFound", f"The {words} bucket {name} does not exist.", status=404)
            _require(cloud, TRANSFER_AGENT, needed, f"{words} bucket", name)

    def before_update(self, cloud: Cloud, call: Call) -> None:
        assert call.old is not None
        if call.plain.get("status") == "ENABLED" != call.old.plain.get("status"):
            _enabled(cloud.store, call.old)

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs["name"] = f"transferJobs/{call.id.rpartition('/')[2]}"
        spec = wire.plain(call.outputs.get("replicationSpec"))
        if isinstance(spec, dict):
            read = {key: {"path": "", **(spec.get(key) or {})} for key in ("gcsDataSource", "gcsDataSink")}
            if spec.get("transferOptions"):
                read["transferOptions"] = {**_OPTIONS, **spec["transferOptions"]}
            call.outputs["replicationSpec"] = {**spec, **read}
        logging = wire.plain(call.outputs.get("loggingConfig"))
        if isinstance(logging, dict):
            call.outputs["loggingConfig"] = {"enableOnPremGcsTransferLogs": False, **logging}

    updated = created


def set_status(store: Store, job: Resource, status: str) -> Resource:
    """Enable or disable a job."""
    if status == "ENABLED" != job.plain.get("status"):
        _enabled(store, job)
    changed = job.changed(status=status)
    store.update(changed)
    return changed


def _enabled(store: Store, job: Resource) -> None:
    """Record that a job replicates objects that are written from now on. It does not replicate objects that were written while it was disabled."""
    store.put(_ENABLED, job.id, store.now())


def replicate(store: Store) -> None:
    """Copy each new generation that enabled jobs cover, once. A region with an outage, and a replica on which the service agent has no grant, get nothing."""
    least = replication.lag(store)
    for job, source, replica in _jobs(store):
        if access.granted(store, TRANSFER_AGENT, access.CREATE, replica, "any") is None:
            continue
        if any(outage.affects(store, outages.of_bucket(store, one)) for one in (source, replica)):
            continue
        since = max(job.created, float(store.get(_ENABLED, job.id) or 0))
        for key, _, etag, modified in store.objects(source):
            at = modified + least
            stored = store.object(source, key) if modified >= since and at <= store.now() else None
            if stored is None:
                continue
            number, copy_key = objects.generation(stored), f"{job.id} {key}"
            if (store.get(_COPIED, copy_key) or {}).get("generation") == number:
                continue
            there = store.object(replica, key)
            if there is None or there.etag != etag:
                kept = {"customTime": objects.moment(stored.modified)} if _keeps_time(job) else {}
                objects.write(store, replica, key, stored.body, {**objects.about(stored), **kept})
            store.put(_COPIED, copy_key, {"job": job.id, "generation": number, "at": at, "latency_s": least})


def _keeps_time(job: Resource) -> bool:
    """Return whether a copy has the time of creation of its source as its custom time."""
    options = (job.plain.get("replicationSpec") or {}).get("transferOptions") or {}
    return (options.get("metadataOptions") or {}).get("timeCreated") == "TIME_CREATED_PRESERVE_AS_CUSTOM_TIME"


def latency(store: Store, source: str, replica: str, period_s: float) -> float | None:
    """Return the longest latency in seconds of the objects that were replicated in this period until now, or None if no objects were replicated."""
    jobs = [job.id for job, *pair in _jobs(store) if pair == [source, replica]]
    since = store.now() - period_s
    return max((one["latency_s"] for one in store.all(_COPIED).values() if one["job"] in jobs and one["at"] >= since), default=None)  # fmt: skip


def _jobs(store: Store) -> Iterator[tuple[Resource, str, str]]:
    for resource in store.list(TransferJob.types[0]):
        spec = resource.plain.get("replicationSpec")
        if spec and resource.plain.get("status") == "ENABLED":
            yield resource, str(spec["gcsDataSource"]["bucketName"]), str(spec["gcsDataSink"]["bucketName"])


def _require(cloud: Cloud, email: str, permissions: tuple[str, ...], words: str, name: str) -> None:
    """Raise an error for the first permission that a service agent lacks."""
    for permission in permissions:
        if not access.allowed(cloud, email, permission, "" if words == "project" else name):
            raise GoogleError(
                "failedPrecondition",
                f"Failed to use the {words} {name} due to insufficient permissions: {email} needs {permission}. "
                "Please verify that the necessary permissions have been granted.",
            )


@behaves
class CustomRole(Behavior):
    """A project role. The provider restores a deleted role with the same ID."""

    types = (access.CUSTOM_ROLE,)
    shapes = {
        "roleId": (r"^[a-zA-Z0-9_.]{3,64}\Z", "must be 3 to 64 letters, digits, underscores and periods, got '{value}'")
    }

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {"name": call.id, "deleted": False}

    updated = created
