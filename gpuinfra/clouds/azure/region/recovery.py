"""The replication of containers between regions on Azure, and the commands for operations that no Pulumi resource performs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from gpuinfra.base.words import counted
from gpuinfra.clouds.azure.catalog import MACHINES, SPOT_QUOTA
from gpuinfra.clouds.region.second_region import quota_totals
from gpuinfra.plan.model import Image, PoolPlan
from gpuinfra.plan.recovery import Replication, image_by_id
from gpuinfra.plan.recovery_model import EXPORTS, RecoveryCommand, RecoveryImage

OLD_VERSIONS_DAYS = 90
"""Number of days for which an account keeps a replaced or deleted blob, so that it can be restored."""
_VERSION = re.compile(
    r"/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Compute/galleries/([^/]+)/images/([^/]+)/versions/([^/]+)",
    re.IGNORECASE,
)
_SUBSCRIPTION = "$(az account show --query id --output tsv)"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of replication policies."""

    namespace: str
    name: str
    dimension: str


PENDING = Metric(
    namespace="Microsoft.Storage/storageAccounts/objectReplicationPolicies",
    name="PendingOperationsForReplication",
    dimension="TimeBucket",
)
"""Number of operations that wait for replication, by age.

https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/microsoft-storage-storageaccounts-objectreplicationpolicies-metrics,
retrieved 2026-11-22.
"""
BUCKETS = (
    ("0-5 mins", 5), ("5-10 mins", 10), ("10-15 mins", 15), ("15-30 mins", 30), ("30 mins-2 hrs", 120), ("2-8 hrs", 480), ("8-24 hrs", 1440),
)  # fmt: skip
"""Values of the dimension, each with its upper limit in minutes. The last value, `24+ hrs`, has none.

MicrosoftDocs, preview of https://learn.microsoft.com/azure/storage/blobs/object-replication-priority-replication, retrieved from a stored index on 2026-11-22.
"""


def early_buckets(alert_after_s: int) -> tuple[str, ...]:
    """Return the values of the dimension for operations that are not late: those up to the first limit that is not below `alert_after_s`."""
    lower = [0, *(minutes for _, minutes in BUCKETS)]
    return tuple(name for (name, _), least in zip(BUCKETS, lower, strict=False) if least * 60 < alert_after_s)


def azure_cloud(region: str) -> str:
    """Return the cloud of a region. Data cannot be replicated between clouds."""
    if region.startswith("china"):
        return "AzureChinaCloud"
    return "AzureUSGovernment" if region.startswith(("usgov", "usdod")) else "AzureCloud"


def quota_request(quota: str, total: int, region: str, subscription: str | None = None) -> str:
    """Return the command that requests a quota of `total` in a region, in the current subscription or in another one."""
    scope = f"/subscriptions/{subscription or _SUBSCRIPTION}/providers/Microsoft.Compute/locations/{region}"
    if not quota:
        return f"az quota list --scope {scope}"
    resource = "lowPriority" if quota == SPOT_QUOTA else "dedicated"
    return f"az quota update --resource-name '{quota}' --resource-type {resource} --limit-object value={total} --scope {scope}"


REGIONAL_IMAGE = "a gallery belongs to one region, so a replica depends on the first region; GALLERY is a gallery in {region} with an image definition"


def image_copy(ref: str, target: str) -> str:
    """Return the commands that copy an image or an image version to a gallery in a region."""
    command = (
        "az sig image-version create --resource-group RESOURCE_GROUP --gallery-name GALLERY --gallery-image-definition IMAGE "
        f"--gallery-image-version VERSION --managed-image {quote(ref)} --location {target} --target-regions {target}"
    )
    if match := _VERSION.fullmatch(ref):
        subscription, group, gallery, image, version = map(quote, match.groups())
        command = (
            f"az sig image-version update --subscription {subscription} --resource-group {group} --gallery-name {gallery} "
            f"--gallery-image-definition {image} --gallery-image-version {version} "
            f"--add publishingProfile.targetRegions name={target} && {command}"
        )
    return command


def _image(image: Image, region: str, second: str) -> RecoveryImage:
    why, copy = REGIONAL_IMAGE.format(region=second), image_copy(image.ref, second)
    return image_by_id(image, why=why, command=copy, otherwise="a marketplace image has the same name in each region")


def _commands(region: str, second: str, pools: tuple[PoolPlan, ...]) -> tuple[RecoveryCommand, ...]:
    return (*_quotas(second, pools), EXPORTS)


def _quotas(second: str, pools: tuple[PoolPlan, ...]) -> Iterator[RecoveryCommand]:
    for quota, cores in quota_totals(pools, MACHINES, lambda machine: machine.vcpus).items():
        of = f"of quota {quota} " if quota else ""
        yield RecoveryCommand(
            why=f"the nodes need {counted(cores, 'vCPU')} {of}in {second}", command=quota_request(quota, cores, second)
        )


REPLICATION = Replication(
    service="object replication",
    commitment=None,
    has_fee=False,
    replicates_deletions=True,
    manual_exports=True,
    retained_days=OLD_VERSIONS_DAYS,
    control_regions={},
    not_in_rto=("importing the replica into the file system of the second region",),
    not_in_rpo=("the time until you start exporting a checkpoint",),
    source="https://learn.microsoft.com/azure/storage/blobs/object-replication-overview: "
    "no committed time, previous versions after a deletion, existing blobs with the earliest "
    "creation time, costs of requests and transfer; "
    "https://learn.microsoft.com/azure/storage/blobs/object-replication-priority-replication: 15 minutes only with priority "
    "replication, which the API version of the provider does not have; both retrieved 2026-11-22",
    geography=azure_cloud,
    commands=_commands,
    image=_image,
    no_image_copies="an image version is a resource of a gallery, which this stack does not create; `gpuinfra plan` prints the command for each image",
)
