"""Which inputs replace a resource and which change in place."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

from gpuinfra_rehearsal.cloud.aws.derive import TABLE, derive
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.diff import diff
from gpuinfra_rehearsal.cloud.core.replace import replaces
from rehearsal.tests.cloud.conftest import Client


@pytest.mark.parametrize(
    ("token", "path", "expected"),
    [
        ("aws:ec2/vpc:Vpc", "cidrBlock", True),
        ("aws:ec2/vpc:Vpc", "enableDnsHostnames", False),
        ("aws:ec2/vpc:Vpc", "region", True),
        ("aws:ec2/subnet:Subnet", "availabilityZoneId", True),
        ("aws:ec2/launchTemplate:LaunchTemplate", "userData", False),
        ("aws:ec2/launchTemplate:LaunchTemplate", "name", True),
        ("aws:autoscaling/group:Group", "desiredCapacity", False),
        ("aws:fsx/lustreFileSystem:LustreFileSystem", "subnetIds[0]", True),
        ("aws:fsx/lustreFileSystem:LustreFileSystem", "storageCapacity", False),
        ("aws:fsx/lustreFileSystem:LustreFileSystem", "deploymentType", True),
        ("aws:iam/rolePolicy:RolePolicy", "policy", False),
        ("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "policyArn", True),
        ("aws:ec2/placementGroup:PlacementGroup", "strategy", True),
        ("aws:ec2/placementGroup:PlacementGroup", "tags.a", False),
        ("aws:s3/bucketPolicy:BucketPolicy", "policy", False),
        ("aws:s3/bucketPolicy:BucketPolicy", "bucket", True),
        ("azure-native:compute:Disk", "location", True),
        ("azure-native:compute:Disk", "tags.a", False),
        ("azure-native:network:Subnet", "virtualNetworkName", True),
        ("gcp:compute/instanceTemplate:InstanceTemplate", "machineType", True),
        ("gcp:compute/subnetwork:Subnetwork", "privateIpGoogleAccess", False),
        ("gcp:storage/bucket:Bucket", "location", True),
    ],
)
def test_inputs_replace_or_change_in_place(token: str, path: str, expected: bool) -> None:
    """Inputs that a cloud cannot change replace the resource; others do not."""
    assert replaces(token, path) is expected


def test_the_table_matches_the_schemas() -> None:
    """The committed table equals the derived one, where the installed cfn-lint has the version that the table names."""
    table = json.loads(TABLE.read_text())
    assert len(table["types"]) > 25
    if f"cfn-lint {importlib.metadata.version('cfn-lint')} " not in table["source"]:
        pytest.skip(f"the table was derived from another version: {table['source']}")
    assert derive() == table


def test_a_preview_shows_the_replacement(aws: Client) -> None:
    """A changed address range of a network is a replacement; changed tags are an update."""
    made = aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "tags": {"a": "b"}})
    answer = aws.diff(made, {**made.inputs, "cidrBlock": "10.1.0.0/16"})
    assert list(answer.replaces) == ["cidrBlock"]
    assert answer.detailedDiff["cidrBlock"].kind == 5
    answer = aws.diff(made, {**made.inputs, "tags": {"a": "c"}})
    assert not answer.replaces
    assert dict.fromkeys(answer.detailedDiff) == {"tags.a": None}


def test_a_replacement_with_a_chosen_name_deletes_first(aws: Client) -> None:
    """A replacement under a chosen name deletes before it creates; a generated name does not need it."""
    policy = '{"Statement": []}'
    made = aws.create("aws:iam/role:Role", {"assumeRolePolicy": policy, "name": "mine", "path": "/"})
    assert aws.diff(made, {**made.inputs, "path": "/other/"}).deleteBeforeReplace
    made = aws.create("aws:iam/role:Role", {"assumeRolePolicy": policy, "path": "/"}, "second")
    assert not aws.diff(made, {**made.inputs, "path": "/other/"}).deleteBeforeReplace


def test_an_unknown_counts_as_a_change() -> None:
    """A value that is known only after the deployment may differ."""
    (change,) = diff("aws:ec2/subnet:Subnet", {"vpcId": "vpc-1"}, {"vpcId": wire.UNKNOWN})
    assert change.replace


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"policy": '{"a": 1, "b": 2}'}, {"policy": '{"b":2,"a":1}'}),
        ({"maxSize": 8}, {"maxSize": "8"}),
        ({"ebsOptimized": True}, {"ebsOptimized": "true"}),
        ({"tags": {}}, {}),
        ({"tags": None}, {"tags": []}),
        ({"value": wire.secret("a")}, {"value": "a"}),
    ],
)
def test_equal_values_in_another_form_are_no_change(old: dict, new: dict) -> None:
    """The layout of a policy, a number as text, and an empty value for an absent one are not changes."""
    assert diff("aws:ec2/vpc:Vpc", old, new) == []
