"""Creates a recording in moto, an independent model of AWS: the calls of each resource, with the ids of moto.

moto looks up every reference, so this tests the order, references and names of a program.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import boto3
import jmespath
from botocore.exceptions import ClientError

from tests.clouds.aws import requests
from tests.clouds.recorder import ACCOUNT, Recording, Registered, allocation_id

MODEL_ACCOUNT = "123456789012"
"""The account of moto."""
REGION = "us-east-1"
"""The default region of S3."""
ITSELF = ("vpc-1", "subnet-1", "igw-1", "ami-1", "00000000-0000-0000-0000-000000000001")
"""Placeholders in later calls of a mapping for the id from the first call."""

IDS = {
    "aws:amp/workspace:Workspace": "workspaceId",
    "aws:ec2/amiCopy:AmiCopy": "ImageId",
    "aws:ec2/vpc:Vpc": "Vpc.VpcId",
    "aws:ec2/subnet:Subnet": "Subnet.SubnetId",
    "aws:ec2/internetGateway:InternetGateway": "InternetGateway.InternetGatewayId",
    "aws:ec2/eip:Eip": "AllocationId",
    "aws:ec2/natGateway:NatGateway": "NatGateway.NatGatewayId",
    "aws:ec2/routeTable:RouteTable": "RouteTable.RouteTableId",
    "aws:ec2/securityGroup:SecurityGroup": "GroupId",
    "aws:ec2/launchTemplate:LaunchTemplate": "LaunchTemplate.LaunchTemplateId",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "VpcEndpoint.VpcEndpointId",
    "aws:efs/fileSystem:FileSystem": "FileSystemId",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "FileSystem.FileSystemId",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": "FileSystem.FileSystemId",
    "aws:kms/key:Key": "KeyMetadata.KeyId",
}
"""Path of the id in the response to the first call of a type. Other types are identified by name."""

NOT_IN_MOTO = {
    "s3 PutBucketLogging": "moto 5.2 expects a mapping as principal and fails on a statement with the principal `*`",
    "ec2 CreatePlacementGroup": "moto has no placement groups",
    "autoscaling StartInstanceRefresh": "moto has no instance refresh; the botocore model checks the request",
    "fsx CreateDataRepositoryAssociation": "moto supports file systems of FSx only",
}
"""Calls that moto does not support, with the reason."""

REFUSED = {
    "amp CreateAlertManagerDefinition": "moto has no alert manager; the botocore model checks the request",
    "s3 PutObject": "403: moto ignores conditions of a bucket policy, so the deny of requests without TLS applies to all requests",
}
"""Calls that moto rejects and AWS accepts, with the reason."""

_ITSELF = re.compile(r"(?<![\w-])(" + "|".join(ITSELF) + r")(?![\w-])")
"""Whole words only: an id of moto can begin with `vpc-1`."""
_GIVEN = re.compile(r"\b(vpc|subnet|sg)-[0-9a-f]{17}\b")
_ACCOUNT = re.compile(rf"(?<![0-9a-f]){ACCOUNT}(?![0-9a-f])")


class Model:
    """One account of moto. Use it inside `moto.mock_aws()`."""

    def __init__(self, region: str, *, managed: bool) -> None:
        self.region = region
        self.managed = managed
        """True if moto loads the AWS managed policies, which takes a second."""
        self.made: dict[str, str] = {}
        """Id in the recording -> id in the model."""
        self.missing: set[str] = set()
        """Calls that moto does not support."""

    def make(self, recording: Recording) -> Iterator[str]:
        """Create all resources; yields rejected calls."""
        self._give(recording)
        for resource in recording.custom:
            if resource.type not in requests.NO_CALL:
                yield from self._make(resource)

    def _give(self, recording: Recording) -> None:
        """Create the existing resources that a program uses: a network, the bucket of another stack, images to copy."""
        own = {one.id for one in recording.custom}
        text = json.dumps([one.inputs for one in recording.custom], default=str)
        given = sorted({match[0] for match in _GIVEN.finditer(text)} - own, reverse=True)  # networks first
        network = {"VpcId": self._client("ec2").create_vpc(CidrBlock="10.99.0.0/16")["Vpc"]["VpcId"]} if given else {}
        for index, id in enumerate(given):
            if id.startswith("vpc-"):
                self.made[id] = network["VpcId"]
            elif id.startswith("subnet-"):
                subnet = self._client("ec2").create_subnet(CidrBlock=f"10.99.{index}.0/24", **network)
                self.made[id] = subnet["Subnet"]["SubnetId"]
            else:
                group = self._client("ec2").create_security_group(GroupName=id[3:], Description="given", **network)
                self.made[id] = group["GroupId"]
        buckets = {one.inputs["bucket"] for one in recording.of("aws:s3/bucket:Bucket")}
        named = {str(one.inputs["bucket"]) for one in recording.of("aws:s3/bucketObjectv2:BucketObjectv2")}
        for name in sorted(named - buckets):
            _client("s3", REGION).create_bucket(Bucket=_here(name))
        for one in recording.of("aws:ec2/amiCopy:AmiCopy"):
            source = self._client("ec2", one.inputs["sourceAmiRegion"])
            self.made[one.inputs["sourceAmiId"]] = source.register_image(Name=one.name)["ImageId"]

    def _client(self, service: str, region: str | None = None) -> Any:
        # Outside of us-east-1, S3 requires a location constraint, which the provider adds.
        return _client(service, REGION if service == "s3" else region or self.region)

    def _make(self, resource: Registered) -> Iterator[str]:
        own = ""
        for call in requests.calls(resource):
            if not self.managed and ":iam::aws:policy/" in str(call.params.get("PolicyArn")):
                continue
            try:
                answer = self._ask(call, own, resource.inputs.get("region"))
            except (
                NotImplementedError,
                AttributeError,
            ):  # moto raises these for unsupported calls
                self.missing.add(f"{call.service} {call.operation}")
                continue
            except ClientError as error:
                if f"{call.service} {call.operation}" in REFUSED:
                    self.missing.add(f"{call.service} {call.operation}")
                    continue
                yield f"{resource.type} {resource.name}: {call.operation}: {error}"
                return
            if not own and resource.type in IDS:
                own = str(jmespath.search(IDS[resource.type], answer))
                self.made[resource.id] = own
                if resource.type == "aws:ec2/eip:Eip":
                    self.made[allocation_id(resource.name)] = own

    def _ask(self, call: requests.Call, own: str, region: str | None) -> dict[str, Any]:
        text = json.dumps(call.params, default=lambda raw: raw.decode())
        for known, here in self.made.items():
            text = text.replace(known, here)
        if own:
            text = _ITSELF.sub(own, text)
        text = _here(text)
        client = self._client(call.service, region)
        method = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in call.operation).lstrip("_")
        return getattr(client, method)(**json.loads(text))


def _here(text: str) -> str:
    """The same text for the account of moto, which has no Local Zones."""
    return _ACCOUNT.sub(MODEL_ACCOUNT, text).replace("use1-atl2-az1", "use1-az6")


@functools.cache
def _client(service: str, region: str) -> Any:
    return boto3.client(service, region_name=region, aws_access_key_id="testing", aws_secret_access_key="testing")
