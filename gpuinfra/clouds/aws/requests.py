"""The requests that gpuinfra sends to AWS, by purpose, with the actions that they require. The provider's requests are in the resource table."""

from __future__ import annotations

from enum import StrEnum

from gpuinfra.clouds.permissions import preflight_purpose, preflight_requests
from gpuinfra.plan.model import Plan


class Purpose(StrEnum):
    """Purposes of requests on which permissions depend."""

    BY_NAME = "find an image by its name"
    EVIDENCE = "handover: read the evidence"
    REFRESH = "handover: replace the other nodes after a verified canary"
    STOP_SECOND = "gpuinfra failback: stop the nodes of the second Region, which launches nodes again in a failover"
    REPLICAS = "gpuinfra ready: read the replication and the replicas"
    COMPARE = "gpuinfra failover: compare the buckets with their replicas"
    COPY = "gpuinfra failback: copy newer objects from the replicas"
    SYNC_HOMES = "gpuinfra ready, failover and failback: read the replication of home directories"
    END_HOMES = "gpuinfra failover and failback: end the replication of home directories"
    RETURN_HOMES = "gpuinfra failback: replicate home directories back to the first Region"
    READ_RECORD = "up, drift, calendar, failover, failback and names: read the record of the active Region"
    WRITE_RECORD = "gpuinfra failover and failback: write the record of the active Region"
    REPORT = "gpuinfra ready --record: report to CloudWatch that the second Region is ready"
    READ_ADDRESSES = "gpuinfra ready, failover, failback and names: read the addresses of the file systems"
    READ_NAMES = "gpuinfra ready and names: read the DNS names"
    MOVE_NAMES = "gpuinfra failover, failback and names: change the DNS names"


LOGS: dict[str, tuple[str, ...]] = {"gpuinfra logs: read the logs of the nodes": ("logs:FilterLogEvents",)}
"""Requests for a plan with `logs`."""

ASKED: dict[str, tuple[str, ...]] = {
    "read an image's parameter": ("ssm:GetParameter",),
    Purpose.BY_NAME: ("ec2:DescribeImages",),
    "handover: list the instances": (
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeScalingActivities",
        "ec2:DescribeInstances",
    ),
    Purpose.REFRESH: (
        "autoscaling:DescribeInstanceRefreshes",
        "autoscaling:StartInstanceRefresh",
    ),
    Purpose.EVIDENCE: ("s3:ListBucket", "s3:GetObject", "kms:Decrypt"),
    "handover: read the console output of a node without evidence": ("ec2:GetConsoleOutput",),
}
"""Requests that gpuinfra makes. `sts:GetCallerIdentity` requires no permission."""

PREFLIGHT: dict[str, tuple[str, ...]] = {
    "identity": ("sts:GetCallerIdentity",),
    "permissions": ("iam:GetRole", "iam:SimulatePrincipalPolicy"),
    "quota": (
        "servicequotas:GetServiceQuota",
        "servicequotas:GetAWSDefaultServiceQuota",
        "cloudwatch:GetMetricStatistics",
        "fsx:DescribeFileSystems",
        "elasticfilesystem:DescribeFileSystems",
    ),
    "machine": ("ec2:DescribeInstanceTypeOfferings", "ec2:DescribeAvailabilityZones"),
    "reservation": ("ec2:DescribeCapacityReservations", "resource-groups:ListGroupResources"),
    "image": ("ssm:GetParameter", "ec2:DescribeImages"),
    "names": ("s3:ListBucket",),
}
"""Maps a topic of the preflight to the permissions that its requests require. `docs/guides/doctor.md` contains them as a policy."""

OWN_PERMISSIONS = preflight_purpose("permissions")

READY: dict[str, tuple[str, ...]] = {
    Purpose.REPLICAS: (
        "s3:GetReplicationConfiguration",
        "s3:ListBucket",
        "s3:GetObject",
    ),
    "gpuinfra ready: read the replication lag and failures": ("cloudwatch:GetMetricStatistics",),
    "gpuinfra ready: read the replica keys and the replication role": ("kms:DescribeKey", "iam:GetRole"),
    "gpuinfra ready: read the quotas": (
        "servicequotas:GetServiceQuota",
        "servicequotas:GetAWSDefaultServiceQuota",
        "fsx:DescribeFileSystems",
        "elasticfilesystem:DescribeFileSystems",
    ),
    "gpuinfra ready: find the machine types": PREFLIGHT["machine"],
    "gpuinfra ready: read the reservations": PREFLIGHT["reservation"],
    "gpuinfra ready: find the images": PREFLIGHT["image"],
}
"""Requests of `gpuinfra ready` for a plan with `recovery`."""
FAILOVER: dict[str, tuple[str, ...]] = {
    "gpuinfra failover: stop the nodes of the first Region": (
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:SuspendProcesses",
        "autoscaling:UpdateAutoScalingGroup",
    ),
    "gpuinfra failover: wait for the exports of the file systems": ("cloudwatch:GetMetricStatistics",),
    Purpose.COMPARE: ("s3:ListBucketVersions", "s3:GetObject", "s3:GetObjectVersion"),
    "gpuinfra failover: stop the replication": (
        "s3:GetReplicationConfiguration",
        "s3:PutReplicationConfiguration",
        "iam:PassRole",
    ),
    "gpuinfra failover: make the replicas refuse the replication": (
        "s3:GetBucketPolicy",
        "s3:PutBucketPolicy",
        "kms:GetKeyPolicy",
        "kms:PutKeyPolicy",
    ),
    "gpuinfra failover: import a replica into a file system": (
        "fsx:CreateDataRepositoryTask",
        "fsx:DescribeDataRepositoryTasks",
    ),
}
"""Requests of `gpuinfra failover` in addition to the permissions to deploy the stack of the second Region."""
FAILBACK: dict[str, tuple[str, ...]] = {
    Purpose.STOP_SECOND: (
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:SuspendProcesses",
        "autoscaling:ResumeProcesses",
        "autoscaling:UpdateAutoScalingGroup",
    ),
    "gpuinfra failback: launch the nodes of the first Region": (
        "autoscaling:ResumeProcesses",
        "autoscaling:UpdateAutoScalingGroup",
    ),
    "gpuinfra failback: make the replicas accept the replication": ("s3:DeleteBucketPolicy", "s3:PutBucketPolicy"),
    Purpose.COPY: (
        "s3:ListBucketVersions",
        "s3:GetObject",
        "s3:GetObjectVersion",
        "s3:GetObjectVersionTagging",
        "s3:PutObject",
        "s3:PutObjectTagging",
        "kms:Decrypt",
        "kms:GenerateDataKey",
    ),
}
"""Requests of `gpuinfra failback` in addition to `FAILOVER` and the permissions to deploy the stack.

A copy reads a version and its tags, and writes an object and its tags (https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html,
retrieved 2026-11-26)."""
HOMES: dict[str, tuple[str, ...]] = {
    Purpose.SYNC_HOMES: ("elasticfilesystem:DescribeReplicationConfigurations",),
    Purpose.END_HOMES: ("elasticfilesystem:DeleteReplicationConfiguration",),
    Purpose.RETURN_HOMES: (
        "elasticfilesystem:CreateReplicationConfiguration",
        "elasticfilesystem:UpdateFileSystemProtection",
    ),
}
"""Requests for a plan with `recovery.homes`."""
NAMES: dict[str, tuple[str, ...]] = {
    Purpose.READ_ADDRESSES: ("ec2:DescribeNetworkInterfaces",),
    Purpose.READ_NAMES: ("route53:GetHostedZone", "route53:ListResourceRecordSets"),
    Purpose.MOVE_NAMES: ("route53:ChangeResourceRecordSets",),
}
"""Requests for a plan with `recovery.names`."""
RECORD: dict[str, tuple[str, ...]] = {
    Purpose.READ_RECORD: ("s3:GetObject", "s3:ListBucket", "kms:Decrypt"),
    Purpose.WRITE_RECORD: ("s3:PutObject", "kms:GenerateDataKey"),
}
"""Requests for the record of the active Region of a plan with `recovery`. Without `s3:ListBucket`, a record that does not exist is an error
(https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html, retrieved 2026-11-28)."""
REPORT: dict[str, tuple[str, ...]] = {Purpose.REPORT: ("cloudwatch:PutMetricData",)}
"""Requests of `gpuinfra ready --record`, in addition to those that write the record."""
RESTORE: dict[str, tuple[str, ...]] = {"read the backup of a file system": ("fsx:DescribeBackups",)}
"""Requests for a plan with `restore_from`."""
IN_BOTH = frozenset((*READY, *FAILOVER, *FAILBACK, *HOMES, *RECORD, Purpose.READ_ADDRESSES))
"""Requests in the Region of the plan and in the second Region."""

SSH: dict[str, tuple[str, ...]] = {
    "gpuinfra ssh: send a key to a node": ("ec2-instance-connect:SendSSHPublicKey",),
    "gpuinfra ssh: open a session to a node": ("ssm:StartSession",),
    "gpuinfra ssh: use and end the session": (
        "ssm:ResumeSession",
        "ssm:TerminateSession",
        "ssmmessages:OpenDataChannel",
    ),
}
"""Requests of `gpuinfra ssh`, `run` and `verify --ssh`. The AWS CLI's Session Manager plugin sends the last of them."""

REPLACE: dict[str, tuple[str, ...]] = {
    "gpuinfra replace: terminate an instance": ("autoscaling:TerminateInstanceInAutoScalingGroup",),
}
"""Requests of `gpuinfra replace` in addition to those of the handover and of `gpuinfra ssh`."""

CHANGES = frozenset(
    {
        Purpose.REFRESH,
        *SSH,
        *REPLACE,
        *FAILOVER,
        *FAILBACK,
        Purpose.END_HOMES,
        Purpose.RETURN_HOMES,
        Purpose.WRITE_RECORD,
        Purpose.REPORT,
        Purpose.MOVE_NAMES,
    }
)
"""gpuinfra requests that change something or open a session."""


def asked(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the requests that gpuinfra makes for a plan."""
    moves = {**READY, **FAILOVER, **FAILBACK, **RECORD, **REPORT} if plan.recovery else {}
    if plan.recovery and plan.recovery.names:
        moves |= NAMES
    if plan.recovery and plan.recovery.homes:
        moves |= HOMES
    if any(one.restore_from for one in plan.file_systems):
        moves |= RESTORE
    moves |= {
        topic: tuple(one for one in actions if one != "sts:GetCallerIdentity")
        for topic, actions in preflight_requests(plan, PREFLIGHT).items()
    }
    if plan.monitoring:
        moves["find the name of the zone of the data disk"] = ("ec2:DescribeAvailabilityZones",)
    if not plan.pools:
        return moves
    by_name = any(pool.image.source == "name" for pool in plan.pools)
    requests = {**ASKED, **SSH, **REPLACE, **(LOGS if plan.logs else {})}
    return {**{purpose: requests[purpose] for purpose in requests if by_name or purpose != Purpose.BY_NAME}, **moves}
