"""What components on AWS keep to beyond the contract of all clouds (`test_contract.py`): regions, settings of buckets, user data, images."""

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
def test_every_regional_resource_names_its_region(stack: str) -> None:
    """The region is written on each child and on no global one: a provider for another region changes nothing."""
    region = spec_of(stack).where.region
    for one in _aws(stack):
        if one.type.startswith(GLOBAL):
            assert "region" not in one.inputs, one.name
        else:
            assert one.inputs.get("region") == region, f"{one.type} {one.name}"


@pytest.mark.parametrize("stack", STACKS)
def test_what_holds_data_audit_or_keys_outlives_the_stack(stack: str) -> None:
    """Buckets with all their settings, keys, aliases and audit logs are retained; nothing is protected, so that destroy ends."""
    for one in _aws(stack):
        if one.type.startswith(("aws:s3/bucket:", "aws:kms/")) or (
            one.type.startswith("aws:s3/bucket") and "Object" not in one.type.split(":")[-1][6:]
        ):
            assert one.retained, one.name
        assert not one.protected, one.name


@pytest.mark.parametrize("stack", STACKS)
def test_user_data_is_small_readable_and_without_secrets(stack: str) -> None:
    """What a node runs first is base64 of a bash script below 16 KB that names its bucket, its bundle's checksum and its own folder."""
    recording = recording_of(stack)
    for template in recording.of("aws:ec2/launchTemplate:LaunchTemplate"):
        encoded = template.inputs["userData"]
        assert len(encoded) < 16 * 1024 * 4 // 3
        text = base64.b64decode(encoded, validate=True).decode()
        assert text.startswith("#!/bin/bash")
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


def test_the_image_stays_the_one_of_the_first_day() -> None:
    """A vendor's newer image rolls nothing: the parameter that pins it ignores changes of its value, and the template reads it."""
    recording = recording_of("aws-p4d")
    pin = recording.one("aws:ssm/parameter:Parameter")
    assert "insecureValue" in pin.ignored
    for template in recording.of("aws:ec2/launchTemplate:LaunchTemplate"):
        assert template.inputs["imageId"] == pin.inputs["insecureValue"]
        assert pin.urn in template.depends_on


def test_warnings_of_the_plan_reach_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    """A finding of level warn is said during `up` too, where people look."""
    recording_of_spec(spec_of("aws-p4d"))
    assert any("budget.recipients" in record.getMessage() for record in caplog.records)


def test_policies_are_json_of_the_current_version() -> None:
    """Every policy document parses and says the version that policy variables need."""
    found = 0
    for one in _aws("aws-p4d"):
        for key in ("policy", "assumeRolePolicy"):
            if key in one.inputs:
                document = json.loads(one.inputs[key])
                assert document["Version"] == "2012-10-17"
                assert all(statement["Sid"] for statement in document["Statement"])
                found += 1
    assert found > 8
