"""Lists the inputs that force replacement of an AWS resource.

`replacements.json` contains CloudFormation's list, which `derive.py` writes. This module adds the differences in the
Pulumi provider.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuinfra_rehearsal.cloud.aws.ids import NAMED, PARTS
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.ids import module
from gpuinfra_rehearsal.cloud.core.sdk import Property

TABLE = Path(__file__).parent / "replacements.json"

# Inputs that force replacement but are not in CloudFormation's schema, because CloudFormation names them differently or
# has no such type. From the documentation of the AWS provider 7.x in the installed SDK, and from the API reference
# where an update call has no such member. Retrieved 2026-11-21.
_FORCED: dict[str, tuple[str, ...]] = {
    "aws:ec2/vpc:Vpc": ("ipv6NetmaskLength",),
    "aws:ebs/volume:Volume": ("availabilityZone", "encrypted", "kmsKeyId", "multiAttachEnabled", "outpostArn", "snapshotId"),
    "aws:ec2/eip:Eip": ("domain", "publicIpv4Pool"),
    "aws:amp/ruleGroupNamespace:RuleGroupNamespace": ("workspaceId",),
    "aws:ec2/amiCopy:AmiCopy": ("name", "sourceAmiId", "sourceAmiRegion", "encrypted", "kmsKeyId"),
    "aws:ec2/securityGroup:SecurityGroup": ("description", "namePrefix"),
    "aws:ec2/launchTemplate:LaunchTemplate": ("namePrefix",),
    "aws:ec2/natGateway:NatGateway": ("allocationId", "availabilityMode", "connectivityType", "privateIp", "subnetId", "vpcId"),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": ("gatewayId", "subnetId"),
    "aws:ec2/placementGroup:PlacementGroup": ("name",),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": ("vpcId",),
    "aws:ec2/flowLog:FlowLog": ("vpcId", "subnetId", "eniId", "iamRoleArn", "transitGatewayId"),
    "aws:autoscaling/group:Group": ("namePrefix",),
    "aws:autoscaling/schedule:Schedule": ("scheduledActionName", "autoscalingGroupName"),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": ("securityGroupId",),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": ("securityGroupId",),
    "aws:iam/role:Role": ("namePrefix",),
    "aws:iam/instanceProfile:InstanceProfile": ("namePrefix",),
    "aws:iam/rolePolicy:RolePolicy": ("name", "namePrefix", "role"),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": ("role", "policyArn"),
    "aws:s3/bucket:Bucket": ("bucket", "bucketPrefix", "objectLockEnabled"),
    "aws:s3/bucketObjectv2:BucketObjectv2": ("bucket", "key"),
    **dict.fromkeys((
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", "aws:s3/bucketLogging:BucketLogging",
        "aws:s3/bucketVersioning:BucketVersioning",
    ), ("bucket", "expectedBucketOwner")),
    "aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration": ("bucket", "expectedBucketOwner", "objectLockEnabled"),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": ("bucket", "expectedBucketOwner"),
    "aws:kms/key:Key": ("customKeyStoreId", "customerMasterKeySpec", "keyUsage", "multiRegion", "xksKeyId"),
    "aws:kms/alias:Alias": ("namePrefix",),
    "aws:efs/fileSystem:FileSystem": ("creationToken",),
    "aws:efs/replicationConfiguration:ReplicationConfiguration": ("destination",),
    "aws:sns/topic:Topic": ("namePrefix",),
    "aws:sns/topicPolicy:TopicPolicy": ("arn",),
    "aws:cloudwatch/eventRule:EventRule": ("eventBusName", "namePrefix"),
    "aws:cloudwatch/eventTarget:EventTarget": ("eventBusName", "rule", "targetId"),
    "aws:sns/topicSubscription:TopicSubscription": ("endpoint", "protocol", "topic"),
    "aws:ssm/parameter:Parameter": ("name", "dataType"),
    "aws:cloudwatch/logGroup:LogGroup": ("namePrefix", "logGroupClass"),
    "aws:budgets/budget:Budget": ("namePrefix", "accountId"),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        "deploymentType", "storageType", "driveCacheType", "efaEnabled", "exportPath", "importPath", "importedFileChunkSize",
        "copyTagsToBackups",
    ),
    # `internal/service/fsx/openzfs_file_system.go` in terraform-provider-aws, retrieved 2026-11-27.
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": (
        "backupId", "deploymentType", "kmsKeyId", "securityGroupIds", "storageType", "subnetIds",
        "rootVolumeConfiguration.copyTagsToSnapshots",
    ),
}  # fmt: skip


_IN_PLACE = {
    "aws:ec2/routeTableAssociation:RouteTableAssociation": {"routeTableId"},
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": {"batchImportMetaDataOnCreate"},
    "aws:budgets/budget:Budget": {"budgetType"},
}
"""Inputs that force replacement in CloudFormation or its documentation, but that the provider updates in place."""

LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
_GROWS = {(LUSTRE, "storageCapacity"), (LUSTRE, "metadataConfiguration.iops"), (LUSTRE, "fileSystemTypeVersion")}
"""Inputs whose decrease replaces the resource. An increase is applied in place.

Before hashicorp/terraform-provider-aws pull request 47719 (merged in 2026, so not in pulumi-aws 5), each change of `fileSystemTypeVersion` replaced
the file system. gpuinfra requires pulumi-aws 7.51.
"""
_FROM_TO = {
    ("aws:ec2/vpc:Vpc", "instanceTenancy"): lambda old, new: (old, new) != ("dedicated", "default"),
    ("aws:ssm/parameter:Parameter", "tier"): lambda old, new: (old, new) == ("Advanced", "Standard"),
}
"""Inputs whose values determine whether a change replaces the resource. Source: `CustomizeDiff` in terraform-provider-aws 6, retrieved 2026-11-22."""


def when(token: str, path: str, old: Any, new: Any) -> bool | None:
    """Return whether changing an input from `old` to `new` replaces the resource, or None if the values do not
    matter."""
    if (token, path) in _GROWS:
        return old is not None and new is not None and _number(new) < _number(old)
    decide = _FROM_TO.get((token, path))
    return decide(old, new) if decide else None


def _number(value: Any) -> tuple[int, ...]:
    """Convert a number or a version to a comparable value. An unknown value counts as the largest."""
    parts = re.findall(r"\d+", str(value)) if not wire.is_unknown(value) else []
    return tuple(int(one) for one in parts) or (sys.maxsize,)


def forced(token: str, inputs: Mapping[str, Property]) -> set[str]:
    """Return the inputs of a type whose change replaces the resource."""
    properties = {*_derived().get(token, ()), *_FORCED.get(token, ()), *re.findall(r"\{(\w+)\}", PARTS.get(token, ""))}
    if token in NAMED:
        properties.add(NAMED[token])
    if module(token) == "s3" and "bucket" in inputs:
        properties.add("bucket")
    return properties - _IN_PLACE.get(token, set())


@lru_cache(maxsize=1)
def _derived() -> dict[str, list[str]]:
    return json.loads(TABLE.read_text())["types"]
