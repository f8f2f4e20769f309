"""Mounted buckets on AWS: the bucket that the stack creates, and the permissions of the nodes."""

from __future__ import annotations

import base64
import functools
import json
import re
from typing import Any

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.recovery import replicated
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.cloud.aws import policy
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from tests.clouds.aws.test_homes import SPEC
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, recording_of_spec

KEY = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
MOUNTS = {
    **SPEC,
    "storage": [
        {"kind": "object", "mount": "/data", "bucket": "corpus", "key_arn": KEY},
        {"kind": "object", "mount": "/out", "bucket": "auto", "read_only": False},
    ],
}


@functools.cache
def recording() -> Recording:
    """A cluster that reads an existing bucket and writes to a created one."""
    return recording_of_spec(MOUNTS)


def made() -> Any:
    """The bucket of `/out`."""
    (found,) = (one for one in recording().of("aws:s3/bucket:Bucket") if one.name == "train-out-0-bucket")
    return found


def test_a_created_bucket_is_private_encrypted_and_retained() -> None:
    """The bucket of a mount has all settings of the other buckets and uses the data key; an existing bucket is not created."""
    mine = [one for one in recording().custom if one.name.startswith("train-out-0-")]
    settings = {one.type.split("/")[0].removeprefix("aws:") + "/" + one.type.rpartition(":")[2] for one in mine}
    assert {"s3/BucketPublicAccessBlock", "s3/BucketServerSideEncryptionConfiguration", "s3/BucketPolicy", "s3/BucketVersioning"} <= settings  # fmt: skip
    assert made().retained
    (encryption,) = (one for one in mine if one.type.endswith("BucketServerSideEncryptionConfiguration"))
    assert ":kms:us-east-1:" in json.dumps(encryption.inputs)
    assert not [one for one in recording().custom if one.name.startswith("train-data-0")]


def test_nodes_find_the_buckets_in_their_user_data() -> None:
    """node.json names both buckets."""
    scripts = json.dumps([one.inputs for one in recording().of("aws:ec2/launchTemplate:LaunchTemplate")])
    text = "".join(
        base64.b64decode(one).decode("utf-8", "replace") for one in re.findall(r'"userData": "([^"]+)"', scripts)
    )
    assert '"mount_name": "corpus"' in text
    assert f'"mount_name": "{made().inputs["bucket"]}"' in text


@pytest.mark.parametrize(
    ("action", "resource", "allowed"),
    [
        ("s3:ListBucket", "corpus", True),
        ("s3:GetObject", "corpus/a/b", True),
        ("s3:PutObject", "corpus/a", False),
        ("s3:DeleteObject", "corpus/a", False),
        ("s3:ListBucket", "OUT", True),
        ("s3:GetObject", "OUT/a", True),
        ("s3:PutObject", "OUT/a", True),
        ("s3:AbortMultipartUpload", "OUT/a", True),
        ("s3:DeleteObject", "OUT/a", True),
        ("s3:DeleteObjectVersion", "OUT/a", False),
        ("s3:PutBucketPolicy", "OUT", False),
        ("s3:ListBucket", "other", False),
        ("s3:GetObject", "corpus2/a", False),
    ],
)
def test_nodes_have_access_to_mounted_buckets_only(action: str, resource: str, allowed: bool) -> None:
    """Nodes read a read-only bucket, and create, replace and delete objects of a writable one, whose old versions remain."""
    arn = "arn:aws:s3:::" + resource.replace("OUT", str(made().inputs["bucket"]))
    assert decided(action, arn) is allowed


@pytest.mark.parametrize(
    ("action", "via", "allowed"),
    [
        ("kms:Decrypt", "s3.eu-west-1.amazonaws.com", True),
        ("kms:GenerateDataKey", "s3.eu-west-1.amazonaws.com", False),
        ("kms:Decrypt", "ec2.eu-west-1.amazonaws.com", False),
    ],
)
def test_the_key_of_a_read_only_bucket_decrypts_through_s3(action: str, via: str, allowed: bool) -> None:
    """The key of an existing bucket can be used for objects only, in the region of the bucket."""
    assert decided(action, KEY, {"kms:ViaService": via}) is allowed


def decided(action: str, resource: str, context: dict[str, str] | None = None) -> bool:
    """Whether the policy of the nodes allows a request."""
    (document,) = (
        one.inputs["policy"]
        for one in recording().of("aws:iam/rolePolicy:RolePolicy")
        if one.name == "train-node-policy"
    )
    request = AccessRequest("arn:aws:sts::0:assumed-role/node/i-0", action, resource, context or {})
    return policy.decide(request, [document])[0]


def test_a_created_bucket_is_replicated() -> None:
    """`recovery` replicates the bucket of a mount that the stack creates, and its objects are in the audit trail."""
    plan = build_plan(parse_spec(MOUNTS), TODAY)
    assert [one.name for one in replicated(plan.file_systems)] == ["out-0"]
    assert plan.audit.recorded_buckets == ("evidence", "out-0")
