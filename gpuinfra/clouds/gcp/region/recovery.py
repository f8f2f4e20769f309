"""The replication of buckets between regions on Google Cloud, and the commands for operations that no Pulumi resource performs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuinfra.base.words import counted
from gpuinfra.clouds.gcp.catalog import MACHINES
from gpuinfra.clouds.region.second_region import quota_totals
from gpuinfra.plan.model import Image, PoolPlan
from gpuinfra.plan.recovery import Replication
from gpuinfra.plan.recovery_model import EXPORTS, RecoveryCommand, RecoveryImage

_COMPUTE = "compute.googleapis.com"
OLD_VERSIONS_DAYS = 90
"""Number of days for which a bucket keeps a replaced or deleted object, so that it can be restored."""
APIS = ("logging", "monitoring", "pubsub", "storagetransfer")
"""APIs that only the replication and its alerts call."""
READY, READY_LABEL = "custom.googleapis.com/gpuinfra/ready", "replica"
"""Metric of Cloud Monitoring. Its value is 1 when `gpuinfra ready --record` finds that the second region is ready; otherwise, there is no value.
The label is the name of the replica of the evidence bucket."""


def quota_request(quota: str, total: int, region: str, project: str | None) -> str:
    """Return the command that requests a quota of `total` in a region.

    Newer families share one quota ID and differ in the dimension `gpu_family`. Each older family has its own metric.
    """
    name, _, family = quota.partition(" ")
    if not name:
        return f"gcloud quotas info list --service={_COMPUTE} --project={project or 'PROJECT'}"
    quota_id = name if family else f"{name.replace('_', '-')}-per-project-region"
    key, _, value = family.partition("=")
    return quota_preference(_COMPUTE, quota_id, total, {"region": region} | ({key: value} if family else {}), project)


def quota_preference(
    service: str, quota_id: str, total: int, dimensions: Mapping[str, str], project: str | None
) -> str:
    """Return the command that requests a quota of a service.

    An increase requires the email address of a contact:
    https://docs.cloud.google.com/docs/quotas/reference/rest/v1/projects.locations.quotaPreferences, retrieved 2026-11-22.
    """
    places = ",".join(f"{key}={value}" for key, value in dimensions.items())
    return (
        f"gcloud quotas preferences create --service={service} --project={project or 'PROJECT'} --quota-id={quota_id} "
        f"--preferred-value={total} --dimensions={places} --email=EMAIL"
    )


def _image(image: Image, region: str, second: str) -> RecoveryImage:
    """An image is a global resource, and its data is in the locations that its owner chose
    (https://docs.cloud.google.com/compute/docs/regions-zones/global-regional-zonal-resources, retrieved 2026-11-27)."""
    why = "an image is a global resource, which has the same name in each region"
    if image.source == "id" and not image.family:
        why += "; `gpuinfra ready` checks that its data is not stored in the first region only"
    return RecoveryImage(ref=image.ref, regional=False, why=why)


def _commands(region: str, second: str, pools: tuple[PoolPlan, ...]) -> tuple[RecoveryCommand, ...]:
    return (*_quotas(second, pools), *_data())


def _quotas(second: str, pools: tuple[PoolPlan, ...]) -> Iterator[RecoveryCommand]:
    for quota, gpus in quota_totals(pools, MACHINES, lambda machine: machine.gpus).items():
        of = f"of quota {quota} " if quota else ""
        yield RecoveryCommand(
            why=f"the nodes need {counted(gpus, 'GPU')} {of}in {second}",
            command=quota_request(quota, gpus, second, None),
        )


def _data() -> Iterator[RecoveryCommand]:
    yield RecoveryCommand(
        why="replication covers only new objects; run this command once for each bucket that already contains objects, "
        "with the values in the `recovery` stack output",
        command="gcloud transfer jobs create gs://BUCKET gs://REPLICA",
    )
    yield EXPORTS


REPLICATION = Replication(
    service="cross-bucket replication",
    commitment=None,
    has_fee=False,
    replicates_deletions=False,
    manual_exports=True,
    retained_days=OLD_VERSIONS_DAYS,
    control_regions={},
    not_in_rto=("importing the replica into the file system of the second region",),
    not_in_rpo=("the time until you start exporting a checkpoint",),
    source="https://docs.cloud.google.com/storage-transfer/docs/cross-bucket-replication (last updated 2026-04-08): no recovery point objective, "
    "no deletions, new objects only; https://cloud.google.com/storage-transfer/pricing: no charge for agentless transfers; both retrieved 2026-11-22",
    geography=lambda region: "Google Cloud",
    commands=_commands,
    image=_image,
    no_image_copies="images are global resources",
)
