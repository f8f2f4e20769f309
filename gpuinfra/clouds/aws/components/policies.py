"""Policy documents: who may do what with keys, buckets and roles, and nothing more.

Pure functions over Pulumi inputs; each statement carries a Sid that says what it is for.
Service principals are held to this account (and where AWS allows it to the very resource), so that nobody else's service can be talked into using them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from gpuinfra.clouds.aws.components.scope import Scope

Statement = Mapping[str, Any]

_KEY_USE = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]


def document(statements: Sequence[Statement]) -> pulumi.Output[str]:
    """A policy document, as the JSON text that AWS takes."""
    return pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": list(statements)}, sort_keys=True)


def trust(service: str) -> str:
    """Who may take a role: one AWS service."""
    statement = {"Sid": "Trust", "Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, sort_keys=True)


def trust_for_account(service: str, account: pulumi.Input[str]) -> pulumi.Output[str]:
    """Who may take a role: one AWS service, when it acts for this account."""
    return document(
        [
            {
                "Sid": "Trust",
                "Effect": "Allow",
                "Principal": {"Service": service},
                "Action": "sts:AssumeRole",
                "Condition": {"StringEquals": {"aws:SourceAccount": account}},
            }
        ]
    )


def only_over_tls(bucket_arn: pulumi.Input[str]) -> Statement:
    """Refuses every request to a bucket that is not encrypted on the way (CIS 3.1.1)."""
    return {
        "Sid": "OnlyOverTls",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [bucket_arn, pulumi.Output.concat(bucket_arn, "/*")],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }


def trail_delivery(
    bucket_arn: pulumi.Input[str], trail_arn: pulumi.Input[str], account: pulumi.Input[str]
) -> list[Statement]:
    """Lets CloudTrail write one trail's records into a bucket (aws.md 5.1)."""
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
    """Lets S3 write the access log of one bucket into another."""
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


def _account_owns_key(scope: Scope) -> Statement:
    return {
        "Sid": "AccountDecidesByIam",
        "Effect": "Allow",
        "Principal": {"AWS": scope.arn("iam", "root", regional=False)},
        "Action": "kms:*",
        "Resource": "*",
    }


def audit_key(scope: Scope, trail_arn: pulumi.Input[str]) -> list[Statement]:
    """The key of the audit trail and of the logs (aws.md 5.1): CloudTrail and CloudWatch Logs may encrypt with it, for this trail and for our groups."""
    cloudtrail = {"Service": "cloudtrail.amazonaws.com"}
    any_trail = pulumi.Output.concat("arn:", scope.partition, ":cloudtrail:*:", scope.account, ":trail/*")
    # By what all our groups are called, not by this stack: a site and its clusters log under the foundation's key.
    groups = [scope.arn("logs", f"log-group:{prefix}*") for prefix in ("/gpuinfra/", "/aws/fsx/")]
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
        {
            "Sid": "LogGroupsOfClusters",
            "Effect": "Allow",
            "Principal": {"Service": f"logs.{scope.region}.amazonaws.com"},
            "Action": _KEY_USE,
            "Resource": "*",
            "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        },
    ]


def data_key(scope: Scope) -> list[Statement]:
    """The key of disks, evidence and file systems (aws.md 4).

    Auto Scaling, Spot and FSx use it under their service-linked roles. A fresh account has none of those roles yet, and a key policy that names a role
    which does not exist is refused; so the statements name the account and hold the caller to the role's ARN by condition.
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


def write_log_group(group_arn: pulumi.Input[str]) -> list[Statement]:
    """Lets a delivery role write into one log group."""
    return [
        {
            "Sid": "WriteLogs",
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": pulumi.Output.concat(group_arn, ":*"),
        },
    ]


def flow_log_delivery(group_arn: pulumi.Input[str]) -> list[Statement]:
    """What flow logs need beyond writing: they look for their group and streams first."""
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


def node(
    bucket_arn: pulumi.Input[str], evidence_prefix: str, key_arn: pulumi.Input[str], region: str
) -> list[Statement]:
    """What a node may do: fetch its bundle, write into its own evidence folder, and read where another node waits for it.

    `${aws:userid}` is `<role's unique id>:<instance id>` for an instance, so that no node can write, read or replace another one's evidence;
    only what lies below `rendezvous/` is read by others, who meet there for an all-reduce.
    """
    return [
        {
            "Sid": "FetchBundle",
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": pulumi.Output.concat(bucket_arn, "/bootstrap/*"),
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
            "Condition": {"StringEquals": {"kms:ViaService": f"s3.{region}.amazonaws.com"}},
        },
    ]
