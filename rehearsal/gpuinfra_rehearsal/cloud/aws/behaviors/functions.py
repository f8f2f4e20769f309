"""Lookups: the account, the region, zones, images, parameters, and resources in the stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import places
from gpuinfra_rehearsal.cloud.aws.behaviors.audit import parameter_value
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.aws.images import image_id
from gpuinfra_rehearsal.cloud.core import ids, wire
from gpuinfra_rehearsal.cloud.core.behavior import answers
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

Args = Mapping[str, Any]


@answers("aws:index/getCallerIdentity:getCallerIdentity")
def caller(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    arn = f"arn:aws:iam::{ACCOUNT}:user/standin-operator"
    return {"accountId": ACCOUNT, "arn": arn, "userId": "AIDA00000000000000001", "id": ACCOUNT}


@answers("aws:index/getPartition:getPartition")
def partition(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    return {"partition": "aws", "dnsSuffix": "amazonaws.com", "reverseDnsPrefix": "com.amazonaws", "id": "aws"}


@answers("aws:index/getRegion:getRegion")
def current_region(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    name = str(args.get("name") or region)
    return {
        "region": name,
        "name": name,
        "id": name,
        "endpoint": f"ec2.{name}.amazonaws.com",
        "description": f"stand-in for {name}",
    }


@answers("aws:index/getAvailabilityZones:getAvailabilityZones")
def availability_zones(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    excluded = {*(args.get("excludeNames") or []), *(args.get("excludeZoneIds") or [])}
    zones = [(name, id) for name, id in places.zones(region) if not excluded & {name, id}]
    return {
        "names": [name for name, _ in zones],
        "zoneIds": [id for _, id in zones],
        "groupNames": [region],
        "id": region,
    }


@answers("aws:index/getAvailabilityZone:getAvailabilityZone")
def availability_zone(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    for name, id in places.zones(region):
        if args.get("name", name) == name and args.get("zoneId", id) == id:
            return {
                "name": name,
                "zoneId": id,
                "nameSuffix": name[-1],
                "region": region,
                "state": "available",
                "id": name,
                "groupName": region,
            }
    wanted = args.get("name") or args.get("zoneId")
    raise ApiRejected(
        "InvalidParameterValue", f"Invalid availability zone: [{wanted}]", "EC2: DescribeAvailabilityZones"
    )


@answers("aws:ssm/getParameter:getParameter")
def parameter(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    name = str(args["name"])
    value = parameter_value(cloud.store, name, region)
    if value is None:
        raise ApiRejected(
            "ParameterNotFound", f"reading SSM Parameter ({name}): couldn't find resource", "SSM: GetParameter"
        )
    arn = f"arn:aws:ssm:{region}:{'' if name.startswith('/aws/') else ACCOUNT}:parameter{name}"
    return {
        "value": wire.secret(value),
        "insecureValue": value,
        "type": "String",
        "withDecryption": args.get("withDecryption", True),
        "version": 1,
        "arn": arn,
        "id": name,
        "name": name,
    }


@answers("aws:ec2/getAmi:getAmi")
def ami(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    names = [
        value for one in args.get("filters") or [] if one.get("name") == "name" for value in one.get("values") or []
    ]
    name = str(next(iter(names), args.get("nameRegex") or "standin"))
    id = image_id(cloud.store, name, region)
    return {
        "id": id,
        "imageId": id,
        "name": name.rstrip("*") + "standin",
        "architecture": "x86_64",
        "rootDeviceName": "/dev/sda1",
        "state": "available",
    }


@answers("aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings")
def offerings(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    kind = str(args.get("locationType") or "region")
    types = [
        value
        for one in args.get("filters") or []
        if one.get("name") == "instance-type"
        for value in one.get("values") or []
    ]
    offered = []
    for machine in types:
        sold = places.offered(machine, region)
        where = {"availability-zone": [name for name, _ in sold], "availability-zone-id": [id for _, id in sold]}
        offered += [(machine, place) for place in where.get(kind, [region] if sold else [])]
    return {
        "instanceTypes": [one for one, _ in offered],
        "locations": [place for _, place in offered],
        "locationTypes": [kind for _ in offered],
    }


def _held(token: str, *keys: str, code: str = "NotFound"):
    """Look up a resource by ID or name. Resources that predate the rehearsal are synthesized."""

    def find(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
        wanted = next((str(args[key]) for key in keys if args.get(key)), None)
        if wanted is None:
            return {}
        matching = next(
            (
                one
                for one in cloud.store.list(token)
                if wanted in (one.id, one.outputs.get("name"), one.outputs.get("arn"))
            ),
            None,
        )
        if matching is None:
            if cloud.external(wanted) is None:
                raise ApiRejected(code, f"no matching {ids.class_name(token)} found: {wanted}", status=404)
            return {}
        return {**wire.plain(matching.outputs), "id": matching.id}

    return find


for _function, _token, *_keys in (
    ("aws:ec2/getVpc:getVpc", "aws:ec2/vpc:Vpc", "id"),
    ("aws:ec2/getSubnet:getSubnet", "aws:ec2/subnet:Subnet", "id"),
    ("aws:ec2/getSecurityGroup:getSecurityGroup", "aws:ec2/securityGroup:SecurityGroup", "id", "name"),
    ("aws:ec2/getLaunchTemplate:getLaunchTemplate", "aws:ec2/launchTemplate:LaunchTemplate", "id", "name"),
    ("aws:s3/getBucket:getBucket", "aws:s3/bucket:Bucket", "bucket"),
    ("aws:iam/getRole:getRole", "aws:iam/role:Role", "name"),
    ("aws:kms/getKey:getKey", "aws:kms/key:Key", "keyId"),
    ("aws:autoscaling/getGroup:getGroup", "aws:autoscaling/group:Group", "name"),
):
    answers(_function)(_held(_token, *_keys))
