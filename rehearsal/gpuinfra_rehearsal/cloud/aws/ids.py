"""IDs and ARNs of AWS resources. If AWS identifies a resource by a user-defined name (bucket, role, log group), this
name is its ID."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from gpuinfra_rehearsal.cloud.core.ids import Count, class_name, counted, fill, hexa, kebab, module, uuid

ACCOUNT = "000000000000"
OPERATOR = f"arn:aws:iam::{ACCOUNT}:user/standin-operator"
OPERATOR_ID = "AIDA00000000000000001"

# EC2-style IDs: prefix by type. From the "ID" examples of the EC2, FSx and VPC API references, retrieved 2026-11-21.
PREFIXES = {
    "aws:ec2/vpc:Vpc": "vpc",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:ec2/routeTable:RouteTable": "rtb",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "rtbassoc",
    "aws:ec2/internetGateway:InternetGateway": "igw",
    "aws:ec2/natGateway:NatGateway": "nat",
    "aws:ec2/eip:Eip": "eipalloc",
    "aws:ec2/securityGroup:SecurityGroup": "sg",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "sg",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "sgr",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "sgr",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "vpce",
    "aws:ec2/flowLog:FlowLog": "fl",
    "aws:ec2/launchTemplate:LaunchTemplate": "lt",
    "aws:ec2/capacityReservation:CapacityReservation": "cr",
    "aws:ec2/amiCopy:AmiCopy": "ami",
    "aws:ebs/volume:Volume": "vol",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "fs",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": "fs",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": "dra",
    "aws:efs/fileSystem:FileSystem": "fs",
    "aws:efs/mountTarget:MountTarget": "fsmt",
}

# Types whose ID in pulumi_aws is one of their inputs, such as the name of a bucket or a role. From the "Import" section
# of each resource's documentation (registry of the AWS provider 7.x), retrieved 2026-11-21.
NAMED = {
    "aws:autoscaling/group:Group": "name",
    "aws:ec2/placementGroup:PlacementGroup": "name",
    "aws:iam/role:Role": "name",
    "aws:iam/instanceProfile:InstanceProfile": "name",
    "aws:cloudwatch/eventRule:EventRule": "name",
    "aws:cloudwatch/logGroup:LogGroup": "name",
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": "name",
    "aws:cloudwatch/metricAlarm:MetricAlarm": "name",
    "aws:kms/alias:Alias": "name",
    "aws:s3/bucket:Bucket": "bucket",
    "aws:ssm/parameter:Parameter": "name",
}

# Types whose ID is composed of inputs ({} = an input), such as the ID of the parent resource. Same source.
PARTS = {
    "aws:cloudwatch/eventTarget:EventTarget": "{rule}-{targetId}",
    "aws:sns/topicPolicy:TopicPolicy": "{arn}",
    "aws:iam/rolePolicy:RolePolicy": "{role}:{name}",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "{role}/{policyArn}",
    "aws:efs/fileSystemPolicy:FileSystemPolicy": "{fileSystemId}",
    "aws:efs/replicationConfiguration:ReplicationConfiguration": "{sourceFileSystemId}",
    "aws:amp/workspaceConfiguration:WorkspaceConfiguration": "{workspaceId}",
    "aws:amp/alertManagerDefinition:AlertManagerDefinition": "{workspaceId}",
    "aws:budgets/budget:Budget": ACCOUNT + ":{name}",
    # The names are unique only in their group. This is the format of their import IDs.
    "aws:autoscaling/schedule:Schedule": "{autoscalingGroupName}/{scheduledActionName}",
}

# ARN by type: service and resource part. {id} is the ID and {name} an input. Region and account are added
# automatically. `g` drops the region (IAM), `b` region and account (S3). AWS service authorization reference,
# retrieved 2026-11-21.
_ARNS = {
    "aws:s3/bucket:Bucket": ("s3", "{id}", "b"),
    "aws:s3/bucketObjectv2:BucketObjectv2": ("s3", "{bucket}/{key}", "b"),
    "aws:iam/role:Role": ("iam", "role{path}{id}", "g"),
    "aws:iam/instanceProfile:InstanceProfile": ("iam", "instance-profile{path}{id}", "g"),
    "aws:cloudwatch/eventRule:EventRule": ("events", "rule/{id}", ""),
    "aws:cloudwatch/logGroup:LogGroup": ("logs", "log-group:{id}", ""),
    "aws:cloudwatch/metricAlarm:MetricAlarm": ("cloudwatch", "alarm:{id}", ""),
    "aws:cloudtrail/trail:Trail": ("cloudtrail", "trail/{name}", ""),
    "aws:kms/key:Key": ("kms", "key/{id}", ""),
    "aws:kms/alias:Alias": ("kms", "{id}", ""),
    "aws:sns/topic:Topic": ("sns", "{name}", ""),
    "aws:ssm/parameter:Parameter": ("ssm", "parameter{id}", ""),
    "aws:budgets/budget:Budget": ("budgets", "budget/{name}", "g"),
    "aws:fsx/lustreFileSystem:LustreFileSystem": ("fsx", "file-system/{id}", ""),
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": ("fsx", "file-system/{id}", ""),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": ("fsx", "association/{fileSystemId}/{id}", ""),
    "aws:efs/fileSystem:FileSystem": ("elasticfilesystem", "file-system/{id}", ""),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": ("ec2", "security-group-rule/{id}", ""),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": ("ec2", "security-group-rule/{id}", ""),
    "aws:ec2/flowLog:FlowLog": ("ec2", "vpc-flow-log/{id}", ""),
    "aws:ebs/volume:Volume": ("ec2", "volume/{id}", ""),
    "aws:ec2/natGateway:NatGateway": ("ec2", "natgateway/{id}", ""),
    "aws:ec2/eip:Eip": ("ec2", "elastic-ip/{id}", ""),
    "aws:amp/workspace:Workspace": ("aps", "workspace/{id}", ""),
    "aws:amp/ruleGroupNamespace:RuleGroupNamespace": ("aps", "rulegroupsnamespace/{workspaceId}/{name}", ""),
}

_ARN_IDS = (
    "aws:cloudtrail/trail:Trail",
    "aws:sns/topic:Topic",
    "aws:sns/topicSubscription:TopicSubscription",
    "aws:amp/ruleGroupNamespace:RuleGroupNamespace",
)
"""Types whose ID is their ARN."""
_KEY = "aws:kms/key:Key"
_ROUTE = "aws:ec2/route:Route"
_WORKSPACE = "aws:amp/workspace:Workspace"


def route_id(table: str, destination: str) -> str:
    """Return the ID of a route. The provider hashes the destination (internal/service/ec2/vpc_route.go of terraform-provider-aws 6)."""
    return f"r-{table}{zlib.crc32(destination.encode())}"


def new_id(token: str, name: str, inputs: Mapping[str, Any], region: str, count: Count) -> str:
    """Return the ID of a new AWS resource."""
    if prefix := PREFIXES.get(token):
        return f"{prefix}-{hexa(count(prefix), 17)}"
    if (key := NAMED.get(token)) and isinstance(inputs.get(key), str):
        return inputs[key]
    if token == _KEY:
        number = count("uuid")
        return f"mrk-{number:032x}" if inputs.get("multiRegion") else uuid(number)
    if token == _WORKSPACE:
        return f"ws-{uuid(count('uuid'))}"
    if shape := PARTS.get(token):
        return fill(shape, inputs)
    if token == _ROUTE:
        to = next(
            str(inputs[key])
            for key in ("destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId")
            if inputs.get(key)
        )
        return route_id(str(inputs["routeTableId"]), to)
    if module(token) == "s3" and isinstance(inputs.get("bucket"), str):
        return f"{inputs['bucket']}/{inputs['key']}" if isinstance(inputs.get("key"), str) else inputs["bucket"]
    if token in _ARN_IDS:
        return arn_of(token, str(inputs.get("name", name)), inputs, region)
    return counted(token, count)


def arn_of(token: str, id: str, inputs: Mapping[str, Any], region: str) -> str:
    """Return the ARN of an AWS resource."""
    if id.startswith("arn:"):
        return id
    service, shape, scope = _ARNS.get(token, (module(token), kebab(class_name(token)) + "/{id}", ""))
    path = inputs.get("path") if isinstance(inputs.get("path"), str) else "/"
    resource = fill(shape, {"name": id, **inputs, "id": id, "path": path})
    where = {"": f"{region}:{ACCOUNT}", "g": f":{ACCOUNT}", "b": ":"}[scope]
    return f"arn:aws:{service}:{where}:{resource}"
