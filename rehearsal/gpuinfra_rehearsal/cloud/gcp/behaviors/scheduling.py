"""Jobs of Cloud Scheduler. A rehearsal runs no job, because its file systems contain no files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

JOB = "gcp:cloudscheduler/job:Job"
ENABLED, PAUSED = "ENABLED", "PAUSED"
_TARGETS = ("appEngineHttpTarget", "httpTarget", "pubsubTarget")
_CRON = re.compile(r"\S+ \S+ \S+ \S+ \S+")


@behaves
class Job(Behavior):
    """A job with one target. The provider leaves the state of a job unchanged if `paused` is not set, and reads `paused` back into an input only if the
    program sets it (`Job.yaml`, `post_create` and `post_update` of `cloud_scheduler` in GoogleCloudPlatform/magic-modules; `extractInputsFromOutputs` in
    pulumi/pulumi-terraform-bridge; retrieved 2026-11-29)."""

    types = (JOB,)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        if sum(bool(call.plain.get(target)) for target in _TARGETS) != 1:
            yield RejectedInput(_TARGETS[1], f"exactly one of {', '.join(_TARGETS)} must be specified")
        schedule = call.plain.get("schedule")
        if isinstance(schedule, str) and not _CRON.fullmatch(schedule):
            yield RejectedInput("schedule", f"must have the unix-cron format, got {schedule!r}")

    def created(self, cloud: Cloud, call: Call) -> None:
        before = call.old.outputs.get("state") if call.old else ENABLED
        paused = call.plain.get("paused")
        state = before if paused is None else PAUSED if paused else ENABLED
        call.outputs |= {"name": call.id.rpartition("/")[2], "state": state, "paused": state == PAUSED}

    updated = created


def set_paused(cloud: Cloud, job: Resource, *, paused: bool) -> Resource:
    """Pause or resume a job (https://docs.cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs, retrieved 2026-11-29)."""
    needed, state = (ENABLED, PAUSED) if paused else (PAUSED, ENABLED)
    if job.outputs.get("state") != needed:
        raise GoogleError("failedPrecondition", f"Job must be {needed} for this operation.", status=400)
    inputs = {**job.inputs, **({"paused": paused} if "paused" in job.inputs else {})}
    changed = replace(job, inputs=inputs, outputs={**job.outputs, "state": state, "paused": paused})
    cloud.store.update(changed)
    return changed
