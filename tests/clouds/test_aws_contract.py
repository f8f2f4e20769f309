"""Requirements for components on AWS, beyond those of `test_contract.py`: regions, bucket settings, user data, images."""

from __future__ import annotations

import base64
import json

import pulumi_aws as aws
import pytest

from tests.clouds.recorder import Registered
from tests.clouds.stacks import plan_of, recording_of, recording_of_spec, shipped_aws_stacks, spec_of

STACKS = shipped_aws_stacks()
GLOBAL = ("aws:iam/", "aws:budgets/")
"""Services without a region (Pulumi AWS 7 migration guide in pulumi/registry, 2026-08-22): a `region` argument does not exist there."""


def _class_of(resource: Registered) -> type:
    package, _, rest = resource.type.partition(":")
    assert package == "aws"
    module, _, name = rest.partition(":")
    return getattr(getattr(aws, module.split("/")[0]), name)


def _aws(stack: str) -> list[Registered]:
    return [one for one in recording_of(stack).custom if one.type.startswith("aws:")]


@pytest.mark.parametrize("stack", STACKS)
def test_every_regional_resource_has_its_region(stack: str) -> None:
    """The region is written on each child and on no global one: a provider for another region changes nothing."""
    spec = spec_of(stack)
    regions = {spec.where.region} | ({spec.recovery.region} if spec.recovery else set())
    found = set()
    for one in _aws(stack):
        if one.type.startswith(GLOBAL):
            assert "region" not in one.inputs, one.name
        else:
            assert one.inputs.get("region") in regions, f"{one.type} {one.name}"
            found.add(one.inputs["region"])
    assert found == regions


@pytest.mark.parametrize("stack", STACKS)
def test_destroy_retains_buckets_and_keys(stack: str) -> None:
    """Buckets with all their settings, keys and aliases are retained. No resource is protected, so `destroy` succeeds.

    A replication ends with the role that it uses.
    """
    for one in _aws(stack):
        if one.type == "aws:s3/bucketReplicationConfig:BucketReplicationConfig":
            continue
        if one.type.startswith(("aws:s3/bucket:", "aws:kms/")) or (
            one.type.startswith("aws:s3/bucket") and "Object" not in one.type.split(":")[-1][6:]
        ):
            assert one.retained, one.name
        assert not one.protected, one.name


@pytest.mark.parametrize("stack", STACKS)
def test_user_data_is_a_small_script_without_secrets(stack: str) -> None:
    """User data is base64 of a bash script below 16 KB with the key of the bundle and the evidence owner."""
    recording = recording_of(stack)
    for template in recording.of("aws:ec2/launchTemplate:LaunchTemplate"):
        encoded = template.inputs["userData"]
        assert len(encoded) < 16 * 1024 * 4 // 3
        text = base64.b64decode(encoded, validate=True).decode()
        assert text.startswith("#cloud-boothook\n#!/bin/bash\n")
        assert len(text.encode()) < 16 * 1024
        assert "AROA00000000000000001" in text
        bundle = recording.one(
            "aws:s3/bucketObjectv2:BucketObjectv2", f"{plan_of(stack).name}-{_pool_of(template)}-bundle"
        )
        assert bundle.inputs["key"] in text
        assert "PRIVATE KEY" not in text
        assert "aws_secret_access_key" not in text.lower()


def _pool_of(template: Registered) -> str:
    return template.inputs["tagSpecifications"][0]["tags"]["gpuinfra:pool"]


def test_a_newer_image_does_not_change_the_launch_template() -> None:
    """The SSM parameter with the image id ignores changes of its value, and launch templates read it."""
    recording = recording_of("aws-p4d")
    pin = recording.one("aws:ssm/parameter:Parameter")
    assert "insecureValue" in pin.ignored
    for template in recording.of("aws:ec2/launchTemplate:LaunchTemplate"):
        assert template.inputs["imageId"] == pin.inputs["insecureValue"]
        assert pin.urn in template.depends_on


def test_warnings_are_logged_during_an_update(caplog: pytest.LogCaptureFixture) -> None:
    """`pulumi up` logs findings of level warn."""
    recording_of_spec(spec_of("aws-p4d"))
    assert any("budget.recipients" in record.getMessage() for record in caplog.records)


def test_policies_are_json_of_the_current_version() -> None:
    """Every policy document is JSON with the version that policy variables require."""
    found = 0
    for one in _aws("aws-p4d"):
        for key in ("policy", "assumeRolePolicy"):
            if key in one.inputs:
                document = json.loads(one.inputs[key])
                assert document["Version"] == "2012-10-17"
                assert all(statement["Sid"] for statement in document["Statement"])
                found += 1
    assert found > 8
