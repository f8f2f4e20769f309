"""The replication of buckets between Regions on AWS, and the commands for operations that no Pulumi resource performs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from shlex import quote

from gpuinfra.clouds.aws.catalog import MACHINES
from gpuinfra.clouds.aws.regions import partition
from gpuinfra.clouds.region.second_region import quota_totals
from gpuinfra.plan.model import Image, PoolPlan
from gpuinfra.plan.recovery import Commitment, Replication, image_by_id
from gpuinfra.plan.recovery_model import RecoveryCommand, RecoveryImage

OLD_VERSIONS_DAYS = 90
"""Number of days for which a bucket keeps a replaced or deleted object, so that it can be restored."""

NAMESPACE, METRIC, DIMENSION = "gpuinfra", "Ready", "Replica"
"""CloudWatch metric in the second Region. Its value is 1 when `gpuinfra ready --record` finds that the Region is ready; otherwise, there is no value.
The dimension is the name of the replica of the evidence bucket."""


def quota_request(code: str, total: int, region: str, service: str = "ec2") -> str:
    """Return the command that requests a quota of `total` in a Region. `service` is the code of Service Quotas."""
    return (
        f"aws service-quotas request-service-quota-increase --service-code {service} --quota-code {code} "
        f"--desired-value {total} --region {region}"
    )


def image_copy(ref: str, source: str, target: str) -> str:
    """Return the command that copies an AMI to a Region and encrypts the copy with a key of that Region."""
    return (
        f"aws ec2 copy-image --source-region {source} --source-image-id {quote(ref)} --name {quote(f'{ref}-copy')} "
        f"--encrypted --kms-key-id KMS_KEY --region {target}"
    )


REGIONAL_IMAGE = "an AMI exists in one Region; a copy has a different ID and requires a key in its Region"


def _image(image: Image, region: str, second: str) -> RecoveryImage:
    """Amazon publishes the GPU images and the images of its parameters in each Region."""
    how = "a parameter" if image.source == "ssm" else "this name"
    copy = image_copy(image.ref, region, second)
    return image_by_id(
        image, why=REGIONAL_IMAGE, command=copy, otherwise=f"Amazon publishes it under {how} in each Region"
    )


def _commands(region: str, second: str, pools: tuple[PoolPlan, ...]) -> tuple[RecoveryCommand, ...]:
    return (*_quotas(second, pools), existing_objects(region))


def _quotas(second: str, pools: tuple[PoolPlan, ...]) -> Iterator[RecoveryCommand]:
    """The provider's quota resource fails if the account already has a higher quota (`internal/service/servicequotas/service_quota.go`
    in terraform-provider-aws, retrieved 2026-11-22), so the request is a command.
    """
    for code, vcpus in quota_totals(pools, MACHINES, lambda machine: machine.vcpus).items():
        if not code:
            continue
        yield RecoveryCommand(
            why=f"the nodes need {vcpus} vCPUs of quota {code} in {second}, where the default for GPUs is 0",
            command=quota_request(code, vcpus, second),
        )


def existing_objects(region: str) -> RecoveryCommand:
    """Return the command that replicates the objects that a bucket had before its replication."""
    # A rule does not replicate what another rule wrote (https://docs.aws.amazon.com/AmazonS3/latest/userguide/replication-what-is-isnot-replicated.html,
    # retrieved 2026-11-30), but a batch job does.
    statuses = ["NONE", "FAILED", "REPLICA"]
    generator = {
        "S3JobManifestGenerator": {
            "SourceBucket": f"arn:{partition(region)}:s3:::BUCKET",
            "EnableManifestOutput": False,
            "Filter": {"EligibleForReplication": True, "ObjectReplicationStatuses": statuses},
        }
    }
    return RecoveryCommand(
        why="replication covers only new objects; run this command once for each bucket that already contains objects, "
        "with the values in the `recovery` stack output",
        command=(
            f"aws s3control create-job --region {region} --account-id ACCOUNT --operation '{{\"S3ReplicateObject\":{{}}}}' --priority 1"
            " --role-arn ROLE --report Enabled=false --no-confirmation-required"
            f" --manifest-generator '{json.dumps(generator, separators=(',', ':'))}'"
        ),
    )


COMMITMENT = Commitment(lag_minutes=15, share="99.99 percent", rate_gbps=1.0)
REPLICATION = Replication(
    service="S3 Replication Time Control",
    commitment=COMMITMENT,
    has_fee=True,
    replicates_deletions=True,
    manual_exports=False,
    retained_days=OLD_VERSIONS_DAYS,
    control_regions={"us-east-1": "IAM roles, IAM policies and S3 buckets"},
    not_in_rto=("importing the metadata of existing objects through the data repository association",),
    not_in_rpo=(),
    source="https://docs.aws.amazon.com/AmazonS3/latest/userguide/replication-time-control.html and rtc-best-practices.html, retrieved 2026-11-22; "
    "the service level agreement covers 99.9 percent (https://aws.amazon.com/s3/sla-rtc/). Control planes: "
    "https://docs.aws.amazon.com/IAM/latest/UserGuide/disaster-recovery-resiliency.html and "
    "https://docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/global-services.html, retrieved 2026-11-22",
    geography=partition,
    needs_key=True,
    commands=_commands,
    image=_image,
    home_services=("efs",),
)
