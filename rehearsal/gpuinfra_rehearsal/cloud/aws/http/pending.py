"""Calls of EC2, KMS, FSx, EFS and Managed Service for Prometheus by which `gpuinfra up --resume` finds what a killed run created."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import operator
from gpuinfra_rehearsal.cloud.aws.behaviors.metrics import WORKSPACE
from gpuinfra_rehearsal.cloud.aws.behaviors.network import MOUNT_TARGET
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

KEY = "aws:kms/key:Key"
LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"
TYPES = {
    "image": ("ec2/amiCopy:AmiCopy",),
    "elastic-ip": ("ec2/eip:Eip",),
    "vpc-flow-log": ("ec2/flowLog:FlowLog",),
    "internet-gateway": ("ec2/internetGateway:InternetGateway",),
    "launch-template": ("ec2/launchTemplate:LaunchTemplate",),
    "natgateway": ("ec2/natGateway:NatGateway",),
    "route-table": ("ec2/routeTable:RouteTable",),
    "security-group": ("ec2/securityGroup:SecurityGroup",),
    "subnet": ("ec2/subnet:Subnet",),
    "vpc": ("ec2/vpc:Vpc",),
    "vpc-endpoint": ("ec2/vpcEndpoint:VpcEndpoint",),
    "security-group-rule": (
        "vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        "vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    ),
}
"""Resource types of `DescribeTags`."""


def describe_tags(cloud: Cloud, filters: Mapping[str, Sequence[str]], region: str) -> dict[str, Any]:
    """Describe the tags of EC2 resources by `resource-type`, `key` and `value`."""
    cloud.operator.check(operator, operator.http("ec2:DescribeTags", "*", region))
    kinds = filters.get("resource-type") or list(TYPES)
    rows = [
        {"resourceId": one.id, "resourceType": kind, "key": key, "value": value}
        for kind in kinds
        for token in TYPES[kind]
        for one in in_region(cloud, f"aws:{token}", region)
        for key, value in tags_of(one).items()
    ]
    wanted = {name: values for name, values in filters.items() if name in ("key", "value")}
    return {"tagSet": [row for row in rows if all(row[name] in values for name, values in wanted.items())]}


def describe_route_tables(cloud: Cloud, filters: Mapping[str, Sequence[str]], region: str) -> dict[str, Any]:
    """Describe route tables by `association.subnet-id`."""
    cloud.operator.check(operator, operator.http("ec2:DescribeRouteTables", "*", region))
    subnets = filters.get("association.subnet-id") or ()
    tables = []
    for table in in_region(cloud, "aws:ec2/routeTable:RouteTable", region):
        associations = [
            {
                "routeTableAssociationId": one.id,
                "routeTableId": table.id,
                "subnetId": one.plain.get("subnetId"),
                "main": False,
            }
            for one in cloud.store.where(ASSOCIATION, routeTableId=table.id)
        ]
        if any(one["subnetId"] in subnets for one in associations):
            tables.append({"routeTableId": table.id, "vpcId": table.plain.get("vpcId"), "associationSet": associations})
    return {"routeTableSet": tables}


def list_keys(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """List the keys of a Region."""
    cloud.operator.check(operator, operator.http("kms:ListKeys", "*", region))
    return {
        "Keys": [{"KeyId": one.id, "KeyArn": one.outputs["arn"]} for one in in_region(cloud, KEY, region)],
        "Truncated": False,
    }


def list_resource_tags(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """List the tags of a key."""
    key = cloud.store.find(KEY, str(asked.get("KeyId")), region)
    if key is None:
        raise ApiRejected("NotFoundException", f"Key '{asked.get('KeyId')}' does not exist")
    asks = operator.required(cloud.store, "read", key.type, {}, region, key)
    cloud.operator.check(operator, [one for one in asks if one.action == "kms:ListResourceTags"])
    return {"Tags": [{"TagKey": name, "TagValue": value} for name, value in tags_of(key).items()], "Truncated": False}


def list_workspaces(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """List the workspaces whose alias begins with a text (API_ListWorkspaces.html, retrieved 2026-11-30)."""
    cloud.operator.check(operator, operator.http("aps:ListWorkspaces", "*", region))
    return {
        "workspaces": [
            {
                "workspaceId": one.id, "alias": one.plain.get("alias"), "arn": one.outputs["arn"],
                "status": {"statusCode": "ACTIVE"}, "createdAt": 0, "tags": tags_of(one),
            }
            for one in in_region(cloud, WORKSPACE, region)
            if str(one.plain.get("alias", "")).startswith(asked.get("alias", ""))
        ]
    }  # fmt: skip


def describe_links(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Describe data repository associations by `file-system-id`."""
    cloud.operator.check(operator, operator.http("fsx:DescribeDataRepositoryAssociations", "*", region))
    systems = [
        value for one in asked.get("Filters") or [] if one["Name"] == "file-system-id" for value in one["Values"]
    ]
    return {
        "Associations": [
            {
                "AssociationId": one.id, "FileSystemId": one.plain.get("fileSystemId"), "Lifecycle": "AVAILABLE",
                "Tags": [{"Key": key, "Value": value} for key, value in tags_of(one).items()],
            }
            for one in in_region(cloud, LINK, region)
            if one.plain.get("fileSystemId") in systems
        ]
    }  # fmt: skip


def describe_mount_targets(cloud: Cloud, asked: Mapping[str, str], region: str) -> dict[str, Any]:
    """Describe the mount targets of a file system."""
    cloud.operator.check(operator, operator.http("elasticfilesystem:DescribeMountTargets", "*", region))
    return {
        "MountTargets": [
            {
                "MountTargetId": one.id, "FileSystemId": one.plain["fileSystemId"], "SubnetId": one.plain["subnetId"],
                "LifeCycleState": "available", "OwnerId": ACCOUNT,
            }
            for one in cloud.store.where(MOUNT_TARGET, fileSystemId=asked.get("FileSystemId"))
            if one.region == region
        ]
    }  # fmt: skip


JSON_ACTIONS: dict[str, Callable[[Cloud, Mapping[str, Any], str], dict[str, Any]]] = {
    "TrentService.ListKeys": list_keys,
    "TrentService.ListResourceTags": list_resource_tags,
    "AWSSimbaAPIService_v20180301.DescribeDataRepositoryAssociations": describe_links,
}


def in_region(cloud: Cloud, token: str, region: str) -> list[Resource]:
    """Return the resources of a type in a Region."""
    return [one for one in cloud.store.list(token) if one.region == region]


def tags_of(resource: Resource) -> dict[str, str]:
    """Return the tags of a resource with the default tags of its provider."""
    outputs = wire.plain(resource.outputs)
    return {str(key): str(value) for key, value in (outputs.get("tagsAll") or outputs.get("tags") or {}).items()}
