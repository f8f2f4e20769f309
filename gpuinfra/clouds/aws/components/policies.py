"""Policy documents for keys, buckets and roles.

The functions take Pulumi inputs. The Sid of each statement describes its purpose. To prevent the confused deputy problem, conditions restrict
service principals to this account and, where AWS supports it, to one resource.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from gpuinfra.base import naming
from gpuinfra.clouds.aws.components.scope import Scope
from gpuinfra.plan.model import MonitoringPlan

Statement = Mapping[str, Any]

ROLE_TAG, CONTROL = "gpuinfra:role", "control"
"""Tag of the role of a control node, and its value. Only the operator can set tags of roles."""
_KEY_USE = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]


def document(statements: Sequence[Statement]) -> pulumi.Output[str]:
    """Return a policy document as a JSON string."""
    return pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": list(statements)}, sort_keys=True)


def trust(*services: str) -> str:
    """Return a trust policy for AWS services, without a condition. CloudTrail does not support a condition in the role for its log group
    (https://docs.aws.amazon.com/awscloudtrail/latest/userguide/cloudtrail-required-policy-for-cloudwatch-logs.html),
    and the S3 guide does not use a condition in the replication role."""
    service = services[0] if len(services) == 1 else list(services)
    statement = {"Sid": "Trust", "Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, sort_keys=True)


def flow_log_trust(scope: Scope) -> pulumi.Output[str]:
    """Return the trust policy of a flow log's role, restricted to this account and Region (https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html)."""
    return document(
        [
            {
                "Sid": "Trust",
                "Effect": "Allow",
                "Principal": {"Service": "vpc-flow-logs.amazonaws.com"},
                "Action": "sts:AssumeRole",
                "Condition": {
                    "StringEquals": {"aws:SourceAccount": scope.account},
                    "ArnLike": {"aws:SourceArn": scope.arn("ec2", "vpc-flow-log/*")},
                },
            }
        ]
    )


def only_over_tls(bucket_arn: pulumi.Input[str]) -> Statement:
    """Deny requests to a bucket that do not use TLS (CIS 3.1.1)."""
    return {
        "Sid": "OnlyOverTls",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [bucket_arn, pulumi.Output.concat(bucket_arn, "/*")],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }


def own_evidence_only(bucket_arn: pulumi.Input[str]) -> list[Statement]:
    """Prevent a node from writing to a bucket outside its own evidence folder and from changing the bucket policy,
    regardless of the managed policies of its role. A control node also writes its orders, as far as its role allows this.

    A node is an instance whose role has a cluster tag. `node` allows the same folder.
    Policy variables are also resolved in bucket policies
    (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html, retrieved 2026-11-22).
    """
    cluster = "aws:PrincipalTag/gpuinfra:cluster"
    # For an instance, the part after the colon is the instance ID.
    nodes = {"Null": {cluster: "false"}, "StringLike": {"aws:userid": "*:i-*"}}
    own = pulumi.Output.concat(bucket_arn, "/", naming.evidence_prefix(f"${{{cluster}}}"), "/${aws:userid}/*")
    orders = pulumi.Output.concat(bucket_arn, "/", naming.repair_orders(f"${{{cluster}}}"))
    # S3 rejects a statement whose actions do not apply to its resources, so actions on the bucket have their own statement.
    return [
        {
            "Sid": "NodesWriteOwnEvidence",
            "Effect": "Deny",
            "Principal": "*",
            "Action": ["s3:DeleteObject", "s3:DeleteObjectVersion", "s3:PutObject"],
            "NotResource": [own, orders],
            "Condition": nodes,
        },
        {
            "Sid": "OnlyControlNodesGiveOrders",
            "Effect": "Deny",
            "Principal": "*",
            "Action": ["s3:DeleteObject", "s3:DeleteObjectVersion", "s3:PutObject"],
            "Resource": orders,
            # The condition also holds without the tag.
            "Condition": {**nodes, "StringNotEquals": {f"aws:PrincipalTag/{ROLE_TAG}": CONTROL}},
        },
        {
            "Sid": "NodesKeepBucketPolicy",
            "Effect": "Deny",
            "Principal": "*",
            "Action": ["s3:DeleteBucketPolicy", "s3:PutBucketPolicy"],
            "Resource": bucket_arn,
            "Condition": nodes,
        },
    ]


def trail_delivery(
    bucket_arn: pulumi.Input[str], trail_arn: pulumi.Input[str], account: pulumi.Input[str]
) -> list[Statement]:
    """Allow CloudTrail to deliver the records of one trail to a bucket (docstring of `cloudtrail.Trail`, pulumi_aws 7.51.1)."""
    service = {"Service": "cloudtrail.amazonaws.com"}
    return [
        {
            "Sid": "AWSCloudTrailAclCheck",
            "Effect": "Allow",
            "Principal": service,
            "Action": "s3:GetBucketAcl",
            "Resource": bucket_arn,
            "Condition": {"StringEquals": {"aws:SourceArn": trail_arn}},
        },
        {
            "Sid": "AWSCloudTrailWrite",
            "Effect": "Allow",
            "Principal": service,
            "Action": "s3:PutObject",
            "Resource": pulumi.Output.concat(bucket_arn, "/AWSLogs/", account, "/*"),
            "Condition": {"StringEquals": {"aws:SourceArn": trail_arn, "s3:x-amz-acl": "bucket-owner-full-control"}},
        },
    ]


def access_log_delivery(
    bucket_arn: pulumi.Input[str], source_arn: pulumi.Input[str], account: pulumi.Input[str]
) -> list[Statement]:
    """Allow S3 to deliver the access logs of other buckets to a bucket."""
    return [
        {
            "Sid": "AccessLogWrite",
            "Effect": "Allow",
            "Principal": {"Service": "logging.s3.amazonaws.com"},
            "Action": "s3:PutObject",
            "Resource": pulumi.Output.concat(bucket_arn, "/*"),
            "Condition": {"ArnLike": {"aws:SourceArn": source_arn}, "StringEquals": {"aws:SourceAccount": account}},
        }
    ]


def notify(topic_arn: pulumi.Input[str], account: pulumi.Input[str]) -> list[Statement]:
    """Allow the alarms of this account and the rules of EventBridge to publish to a topic. AWS grants EventBridge access without a condition
    (https://repost.aws/knowledge-center/sns-not-getting-eventbridge-notification, retrieved 2026-11-29)."""
    publish = {"Effect": "Allow", "Action": "sns:Publish", "Resource": topic_arn}
    return [
        {
            **publish,
            "Sid": "PublishAlarms",
            "Principal": {"Service": "cloudwatch.amazonaws.com"},
            "Condition": {"StringEquals": {"aws:SourceAccount": account}},
        },
        {**publish, "Sid": "PublishEvents", "Principal": {"Service": "events.amazonaws.com"}},
    ]


def notify_of_metrics(
    topic_arn: pulumi.Input[str], workspace_arn: pulumi.Input[str], account: pulumi.Input[str]
) -> list[Statement]:
    """Allow the alert manager of a workspace to publish to a topic
    (https://docs.aws.amazon.com/prometheus/latest/userguide/AMP-alertmanager-receiver-AMPpermission.html, retrieved 2026-11-30)."""
    return [
        {
            "Sid": "PublishAlerts",
            "Effect": "Allow",
            "Principal": {"Service": "aps.amazonaws.com"},
            "Action": ["sns:Publish", "sns:GetTopicAttributes"],
            "Resource": topic_arn,
            "Condition": {
                "ArnEquals": {"aws:SourceArn": workspace_arn},
                "StringEquals": {"aws:SourceAccount": account},
            },
        }
    ]


def _account_owns_key(scope: Scope) -> Statement:
    return {
        "Sid": "AccountDecidesByIam",
        "Effect": "Allow",
        "Principal": {"AWS": scope.arn("iam", "root", regional=False)},
        "Action": "kms:*",
        "Resource": "*",
    }


def audit_key(scope: Scope, trail_arn: pulumi.Input[str]) -> list[Statement]:
    """Return the policy of the audit key (https://docs.aws.amazon.com/awscloudtrail/latest/userguide/create-kms-key-policy-for-cloudtrail.html).

    CloudTrail uses the key for this trail, and CloudWatch Logs uses it for the log groups of clusters.
    """
    cloudtrail = {"Service": "cloudtrail.amazonaws.com"}
    any_trail = pulumi.Output.concat("arn:", scope.partition, ":cloudtrail:*:", scope.account, ":trail/*")
    return [
        _account_owns_key(scope),
        {
            "Sid": "CloudTrailEncrypts",
            "Effect": "Allow",
            "Principal": cloudtrail,
            "Action": "kms:GenerateDataKey*",
            "Resource": "*",
            "Condition": {
                "StringEquals": {"aws:SourceArn": trail_arn},
                "StringLike": {"kms:EncryptionContext:aws:cloudtrail:arn": any_trail},
            },
        },
        {
            "Sid": "CloudTrailDescribes",
            "Effect": "Allow",
            "Principal": cloudtrail,
            "Action": "kms:DescribeKey",
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:SourceArn": trail_arn}},
        },
        _log_groups(scope),
    ]


def log_key(scope: Scope) -> list[Statement]:
    """Return the policy of a key that only CloudWatch Logs uses, for the log groups of clusters."""
    return [_account_owns_key(scope), _log_groups(scope)]


def _log_groups(scope: Scope) -> Statement:
    # Matches the common prefix of all log groups instead of one stack, because sites and clusters in other stacks use the foundation's key.
    groups = [scope.arn("logs", f"log-group:{prefix}*") for prefix in ("/gpuinfra/", "/aws/fsx/")]
    return {
        "Sid": "LogGroupsOfClusters",
        "Effect": "Allow",
        "Principal": {"Service": f"logs.{scope.region}.amazonaws.com"},
        "Action": _KEY_USE,
        "Resource": "*",
        "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
    }


def data_key(scope: Scope) -> list[Statement]:
    """Return the policy of the key for disks, evidence and file systems (https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html).

    Auto Scaling, Spot and FSx use the key through their service-linked roles. A new account does not have these roles yet, and KMS rejects key policies
    that name a nonexistent principal. A condition on `aws:PrincipalArn` matches the roles instead.
    """
    roles = "arn:" + scope.partition + ":iam::"
    launchers = [
        pulumi.Output.concat(
            roles, scope.account, ":role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling*"
        ),
        pulumi.Output.concat(
            roles, scope.account, ":role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
        ),
    ]
    links = pulumi.Output.concat(
        roles,
        scope.account,
        ":role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_*",
    )
    return [
        _account_owns_key(scope),
        {
            "Sid": "NodesDisks",
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": _KEY_USE,
            "Resource": "*",
            "Condition": {
                "StringEquals": {"kms:CallerAccount": scope.account},
                "ArnLike": {"aws:PrincipalArn": launchers},
            },
        },
        {
            "Sid": "NodesDisksGrant",
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": "kms:CreateGrant",
            "Resource": "*",
            "Condition": {
                "StringEquals": {"kms:CallerAccount": scope.account},
                "ArnLike": {"aws:PrincipalArn": launchers},
                "Bool": {"kms:GrantIsForAWSResource": "true"},
            },
        },
        {
            "Sid": "FileSystemReadsItsBucket",
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": _KEY_USE,
            "Resource": "*",
            "Condition": {
                "StringEquals": {
                    "kms:CallerAccount": scope.account,
                    "kms:ViaService": f"s3.{scope.region}.amazonaws.com",
                },
                "ArnLike": {"aws:PrincipalArn": links},
            },
        },
    ]


def home_clients(file_system_arn: pulumi.Input[str]) -> list[Statement]:
    """Return the policy of a file system for home directories: clients connect to its mount targets, with TLS.

    EFS accepts clients without credentials only under these conditions
    (https://docs.aws.amazon.com/whitepapers/latest/efs-encrypted-file-systems/encryption-of-data-in-transit.html, retrieved 2026-11-22).
    The security group of the mount targets limits them to the nodes.
    """
    return [
        {
            "Sid": "ClientsWithTls",
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": [
                "elasticfilesystem:ClientMount",
                "elasticfilesystem:ClientRootAccess",
                "elasticfilesystem:ClientWrite",
            ],
            # EFS adds the resource to a policy without it, so a refresh would show a difference.
            "Resource": file_system_arn,
            "Condition": {"Bool": {"aws:SecureTransport": "true", "elasticfilesystem:AccessedViaMountTarget": "true"}},
        }
    ]


def write_log_group(group_arn: pulumi.Input[str]) -> list[Statement]:
    """Allow a delivery role or the nodes to write to one log group."""
    return [
        {
            "Sid": "WriteLogs",
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": pulumi.Output.concat(group_arn, ":*"),
        },
    ]


def flow_log_delivery(group_arn: pulumi.Input[str]) -> list[Statement]:
    """Return the permissions for flow log delivery: write to one log group, and list log groups and their streams."""
    return [
        *write_log_group(group_arn),
        {
            "Sid": "FindLogs",
            "Effect": "Allow",
            "Action": ["logs:DescribeLogStreams"],
            "Resource": pulumi.Output.concat(group_arn, ":*"),
        },
        {"Sid": "FindGroups", "Effect": "Allow", "Action": ["logs:DescribeLogGroups"], "Resource": "*"},
    ]


_SESSIONS = [
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
]
"""With `ssm:UpdateInstanceInformation`, the actions of the Systems Manager agent for sessions, as in the managed policy AWSCloud9SSMInstanceProfile
(https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AWSCloud9SSMInstanceProfile.html, retrieved 2026-11-22).
AmazonSSMManagedInstanceCore also allows `ssm:GetParameter` on every parameter of the account."""


@dataclass(frozen=True, kw_only=True)
class Replicated:
    """A bucket and its replica, as ARNs."""

    source: pulumi.Input[str]
    source_key: pulumi.Input[str]
    replica: pulumi.Input[str]


def replicate(pairs: Sequence[Replicated], replica_key: pulumi.Input[str], first: str, second: str) -> list[Statement]:
    """Allow S3 to replicate encrypted objects (https://docs.aws.amazon.com/AmazonS3/latest/userguide/replication-config-for-kms-objects.html).

    A replica with an S3 Bucket Key also needs `kms:GenerateDataKey`. A batch job for existing objects needs `s3:InitiateReplication`.
    """
    return [
        {
            "Sid": "ReadConfiguration",
            "Effect": "Allow",
            "Action": ["s3:GetReplicationConfiguration", "s3:ListBucket", "s3:PutInventoryConfiguration"],
            "Resource": [one.source for one in pairs],
        },
        {
            "Sid": "ReadVersions",
            "Effect": "Allow",
            "Action": [
                "s3:GetObjectVersionAcl",
                "s3:GetObjectVersionForReplication",
                "s3:GetObjectVersionTagging",
                "s3:InitiateReplication",
            ],
            "Resource": [pulumi.Output.concat(one.source, "/*") for one in pairs],
        },
        {
            "Sid": "WriteReplicas",
            "Effect": "Allow",
            "Action": ["s3:ReplicateDelete", "s3:ReplicateObject", "s3:ReplicateTags"],
            "Resource": [pulumi.Output.concat(one.replica, "/*") for one in pairs],
        },
        {
            "Sid": "DecryptSources",
            "Effect": "Allow",
            "Action": "kms:Decrypt",
            "Resource": pulumi.Output.all(*(one.source_key for one in pairs)).apply(lambda keys: sorted(set(keys))),
            "Condition": {"StringEquals": {"kms:ViaService": f"s3.{first}.amazonaws.com"}},
        },
        {
            "Sid": "EncryptReplicas",
            "Effect": "Allow",
            "Action": ["kms:Encrypt", "kms:GenerateDataKey"],
            "Resource": replica_key,
            "Condition": {"StringEquals": {"kms:ViaService": f"s3.{second}.amazonaws.com"}},
        },
    ]


@dataclass(frozen=True, kw_only=True)
class MountedBucket:
    """A bucket that the nodes mount."""

    arn: pulumi.Input[str]
    read_only: bool = True
    """If true, nodes can list the bucket and read its objects. If false, they can also create, replace and delete objects."""
    key_arn: str | None = None
    """KMS key of an existing bucket. A bucket that the stack creates uses the stack's key."""


def mounts(buckets: Sequence[MountedBucket]) -> list[Statement]:
    """Return the permissions for buckets that a node mounts with Mountpoint for Amazon S3
    (awslabs/mountpoint-s3 v1.23.0, doc/CONFIGURATION.md, "IAM permissions", retrieved 2026-11-22)."""

    def objects(some: Sequence[MountedBucket]) -> list[pulumi.Output[str]]:
        return [pulumi.Output.concat(one.arn, "/*") for one in some]

    writable = [one for one in buckets if not one.read_only]
    statements: list[Statement] = []
    if buckets:
        arns = [one.arn for one in buckets]
        statements.append({"Sid": "ListMounts", "Effect": "Allow", "Action": "s3:ListBucket", "Resource": arns})
        statements.append(
            {"Sid": "ReadMounts", "Effect": "Allow", "Action": "s3:GetObject", "Resource": objects(buckets)}
        )
    if writable:
        actions = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:PutObject"]
        statements.append({"Sid": "WriteMounts", "Effect": "Allow", "Action": actions, "Resource": objects(writable)})
    for sid, actions, some in (
        ("DecryptMounts", ["kms:Decrypt"], buckets),
        ("EncryptMounts", ["kms:GenerateDataKey"], writable),
    ):
        if keys := sorted({one.key_arn for one in some if one.key_arn}):
            # The bucket can be in another Region. S3 uses the key in the Region of the bucket.
            via = {"StringLike": {"kms:ViaService": "s3.*.amazonaws.com"}}
            statements.append({"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": keys, "Condition": via})
    return statements


def node(
    scope: Scope, bucket_arn: pulumi.Input[str], evidence_prefix: str, key_arn: pulumi.Input[str]
) -> list[Statement]:
    """Return the permissions of a node: download its bundle, write to its own evidence folder,
    read the `rendezvous/` folders of other nodes, and accept Session Manager sessions.

    For an instance, `${aws:userid}` is `<unique role ID>:<instance ID>`, so a node cannot read or replace the evidence of other nodes.
    Nodes use `rendezvous/` to exchange addresses for an all-reduce.
    """
    return [
        {
            "Sid": "FetchBundle",
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": pulumi.Output.concat(bucket_arn, f"/bootstrap/{scope.cluster}/*"),
        },
        {
            "Sid": "WriteOwnEvidence",
            "Effect": "Allow",
            "Action": "s3:PutObject",
            "Resource": pulumi.Output.concat(bucket_arn, "/", evidence_prefix, "/${aws:userid}/*"),
        },
        {
            "Sid": "MeetOtherNodes",
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": pulumi.Output.concat(bucket_arn, "/", evidence_prefix, "/*/rendezvous/*"),
        },
        {
            "Sid": "UseKeyThroughS3",
            "Effect": "Allow",
            "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
            "Resource": key_arn,
            "Condition": {"StringEquals": {"kms:ViaService": f"s3.{scope.region}.amazonaws.com"}},
        },
        {
            "Sid": "RegisterForSessions",
            "Effect": "Allow",
            "Action": "ssm:UpdateInstanceInformation",
            "Resource": scope.arn("ec2", "instance/*"),
        },
        # These actions do not support resource-level permissions (service authorization reference of Amazon Message Gateway Service).
        {"Sid": "AcceptSessions", "Effect": "Allow", "Action": _SESSIONS, "Resource": "*"},
    ]


def control(
    scope: Scope,
    monitoring: MonitoringPlan,
    bucket_arn: pulumi.Input[str],
    workspace_arn: pulumi.Input[str] | None = None,
    topic_arns: Sequence[pulumi.Input[str]] = (),
) -> list[Statement]:
    """Return the permissions of the control node: list the instances of the Region, for Prometheus, read the secrets of the receivers of alerts, publish to
    the topics of the others, write metrics to its workspace, write orders to the nodes, and replace nodes of this cluster.

    `ec2:DescribeInstances` does not support resource-level permissions. KMS accepts the default key of Parameter Store without a statement for it, because
    its key policy allows the account's principals to use it through SSM
    (https://docs.aws.amazon.com/systems-manager/latest/userguide/secure-string-parameter-kms-encryption.html, retrieved 2026-11-29).
    """
    statements: list[Statement] = [
        {
            "Sid": "FindNodes",
            "Effect": "Allow",
            "Action": "ec2:DescribeInstances",
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:RequestedRegion": scope.region}},
        }
    ]
    if monitoring.secrets:
        arns = [scope.arn("ssm", f"parameter{name}") for name in sorted(set(monitoring.secrets))]
        statements.append({"Sid": "ReadSecrets", "Effect": "Allow", "Action": "ssm:GetParameter", "Resource": arns})
    if topic_arns:
        statements.append(
            {"Sid": "SendEmails", "Effect": "Allow", "Action": "sns:Publish", "Resource": list(topic_arns)}
        )
    if workspace_arn is not None:
        statements.append(
            {"Sid": "WriteMetrics", "Effect": "Allow", "Action": "aps:RemoteWrite", "Resource": workspace_arn}
        )
    if monitoring.repair:
        key = pulumi.Output.concat(bucket_arn, "/", naming.repair_orders(scope.cluster))
        statements.append({"Sid": "GiveOrders", "Effect": "Allow", "Action": "s3:PutObject", "Resource": key})
    if monitoring.repair and monitoring.repair.replaces:
        # The action supports the tags of the group (service authorization reference of Amazon EC2 Auto Scaling, retrieved 2026-11-29).
        own = {"StringEquals": {"aws:ResourceTag/gpuinfra:cluster": scope.cluster}}
        statements.append(
            {
                "Sid": "ReplaceNodes",
                "Effect": "Allow",
                "Action": "autoscaling:TerminateInstanceInAutoScalingGroup",
                "Resource": scope.arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*"),
                "Condition": own,
            }
        )
    return statements


def attach(
    scope: Scope, monitoring: MonitoringPlan, disk_arn: pulumi.Input[str], key_arn: pulumi.Input[str]
) -> list[Statement]:
    """Return the permissions to attach the data disk, and no other, to a node of the pool of the control node.

    EC2 checks the action for the volume and for the instance, which both have tags (service authorization reference of Amazon EC2, retrieved 2026-11-30).
    It creates a grant on the key in the name of the caller (https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html, and
    the tests of `grantAttachVolume` in aws/aws-cdk: packages/aws-cdk-lib/aws-ec2/test/volume.test.ts; both retrieved 2026-11-30).
    """
    action = {"Effect": "Allow", "Action": "ec2:AttachVolume"}
    own = {"aws:ResourceTag/gpuinfra:cluster": scope.cluster, "aws:ResourceTag/gpuinfra:pool": monitoring.pool}
    return [
        {"Sid": "AttachDataDisk", **action, "Resource": disk_arn},
        {
            "Sid": "AttachToControlNode",
            **action,
            "Resource": scope.arn("ec2", "instance/*"),
            "Condition": {"StringEquals": own},
        },
        {
            "Sid": "LetEbsUseKey",
            "Effect": "Allow",
            "Action": "kms:CreateGrant",
            "Resource": key_arn,
            "Condition": {
                "Bool": {"kms:GrantIsForAWSResource": "true"},
                "StringEquals": {"kms:ViaService": f"ec2.{scope.region}.amazonaws.com"},
            },
        },
    ]
