"""Nodes and operators use AWS's own clients for metadata, storage, identity and groups; requests need a valid signature."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from gpuinfra.clouds.aws.handover.ports import S3Evidence
from gpuinfra.node import aws as aws_node
from gpuinfra_rehearsal.cloud.aws import credentials
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.cloud.core.server import Server
from rehearsal.tests.cloud import stacks
from rehearsal.tests.cloud.conftest import Client
from rehearsal.tests.cloud.shared_object import only_the_first_writes

BUCKET = "evidence-000000000000"
TOKEN = "the-token-of-this-rehearsal"


@pytest.fixture
def server(cloud: Cloud) -> Iterator[Server]:
    """The HTTP side of the cloud."""
    server = Server(cloud, TOKEN)
    server.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def node(cloud: Cloud, aws: Client, server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """One instance with the role of a node."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    stacks.bucket(aws)
    profile = stacks.role(aws, BUCKET)
    _, subnet = stacks.network(aws)
    launch = stacks.template(
        aws, iamInstanceProfile={"arn": profile.outputs["arn"]}, metadataOptions={"httpTokens": "required"}
    )
    stacks.group(aws, launch, 1, subnet)
    cloud.fleet.reconcile()
    return next(iter(cloud.fleet.instances().values()))


def client(server: Server, service: str, key: credentials.KeyPair, **config: Any) -> Any:
    """AWS's own client with one pair of keys."""
    return boto3.client(
        service, region_name="us-east-1", endpoint_url=f"http://127.0.0.1:{server.port}",
        aws_access_key_id=key.id, aws_secret_access_key=key.secret, aws_session_token=key.principal.token or None,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, **config),
    )  # fmt: skip


def metadata(
    server: Server, node: dict[str, Any], path: str, token: str | None = None, method: str = "GET", **headers: str
) -> str:
    """One question to the metadata service."""
    if token:
        headers["X-aws-ec2-metadata-token"] = token
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/.imds/{node['id']}/latest/{path}", method=method, headers=headers
    )
    with urllib.request.urlopen(request, timeout=300) as reply:
        return reply.read().decode()


def session(server: Server, node: dict[str, Any]) -> str:
    """A token of the metadata service."""
    return metadata(server, node, "api/token", method="PUT", **{"X-aws-ec2-metadata-token-ttl-seconds": "60"})


def node_key(cloud: Cloud, node: dict[str, Any]) -> credentials.KeyPair:
    """The keys of the node's role."""
    issued = credentials.of_instance(cloud.store, node)
    assert issued is not None
    return issued[0]


def refused(call: Any, **arguments: Any) -> str:
    """The code with which a call is refused."""
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return str(error.value.response["Error"]["Code"])


def test_metadata_needs_a_token(server: Server, node: dict[str, Any]) -> None:
    """Version 1 is refused where the template requires tokens; so is the token of another instance."""
    with pytest.raises(urllib.error.HTTPError, match="401"):
        metadata(server, node, "meta-data/instance-id")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        metadata(server, node, "meta-data/instance-id", "not-a-token")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        metadata(server, node, "api/token", method="PUT")


def test_metadata_describes_the_instance(server: Server, node: dict[str, Any]) -> None:
    """Id, type, zone, user data, identity document and folders have the paths of EC2."""
    token = session(server, node)
    assert metadata(server, node, "meta-data/instance-id", token) == "i-00000000000000001"
    assert metadata(server, node, "meta-data/placement/availability-zone-id", token) == "use1-az4"
    assert metadata(server, node, "user-data", token) == stacks.USER_DATA
    assert (
        json.loads(metadata(server, node, "dynamic/instance-identity/document", token))["instanceType"]
        == "p4d.24xlarge"
    )
    assert "instance-id\n" in metadata(server, node, "meta-data/", token)
    assert metadata(server, node, "meta-data/iam/security-credentials/", token) == "node"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        metadata(server, node, "meta-data/nothing", token)


@pytest.mark.parametrize("version", ["2021-03-23", "2018-09-24", "2016-09-02", "2009-04-04", "latest"])
def test_metadata_answers_each_version_that_cloud_init_requests(
    server: Server, node: dict[str, Any], version: str
) -> None:
    """The root lists the versions, each answers as `latest` does, and an unknown version is not found."""
    header = {"X-aws-ec2-metadata-token": session(server, node)}

    def read(path: str) -> str:
        url = f"http://127.0.0.1:{server.port}/.imds/{node['id']}/{path}"
        with urllib.request.urlopen(urllib.request.Request(url, headers=header), timeout=300) as reply:
            return reply.read().decode()

    assert version in read("").split("\n")
    for path in ("meta-data/", "meta-data/instance-id", "user-data", "dynamic/instance-identity/document"):
        assert read(f"{version}/{path}") == read(f"latest/{path}")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        read("2001-01-01/meta-data/instance-id")


def test_credentials_of_an_instance_are_its_roles(server: Server, node: dict[str, Any], aws: Client) -> None:
    """The keys of the metadata service belong to role and instance, and expire."""
    token = session(server, node)
    found = json.loads(metadata(server, node, "meta-data/iam/security-credentials/node", token))
    assert found["Expiration"] > time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sts = boto3.client(
        "sts", region_name="us-east-1", endpoint_url=f"http://127.0.0.1:{server.port}",
        aws_access_key_id=found["AccessKeyId"], aws_secret_access_key=found["SecretAccessKey"], aws_session_token=found["Token"],
    )  # fmt: skip
    said = sts.get_caller_identity()
    assert said["Arn"] == "arn:aws:sts::000000000000:assumed-role/node/i-00000000000000001"
    assert said["UserId"] == f"{aws.read('aws:iam/role:Role', 'node').outputs['uniqueId']}:i-00000000000000001"


def test_a_wrong_secret_or_token_is_denied(cloud: Cloud, server: Server, node: dict[str, Any]) -> None:
    """A changed secret, a changed session token and an unknown key are denied."""
    key = node_key(cloud, node)
    wrong = credentials.KeyPair(key.id, "x" * 40, key.principal)
    assert refused(client(server, "sts", wrong).get_caller_identity) == "SignatureDoesNotMatch"
    assert refused(client(server, "s3", wrong).list_objects_v2, Bucket=BUCKET) == "SignatureDoesNotMatch"
    stranger = credentials.KeyPair("ASIA9999999999999999", key.secret, key.principal)
    assert refused(client(server, "sts", stranger).get_caller_identity) == "InvalidClientTokenId"
    other = credentials.Principal("instance", "", "", token="another")
    assert (
        refused(client(server, "sts", credentials.KeyPair(key.id, key.secret, other)).get_caller_identity)
        == "InvalidClientTokenId"
    )


def test_the_operator_assumes_a_role_outside_the_stack(cloud: Cloud, server: Server, node: dict[str, Any]) -> None:
    """The operator gets keys of the role, which expire and are valid for its requests. A node may assume no role, and an invalid ARN is refused."""
    role = {"RoleArn": "arn:aws:iam::123456789012:role/team/deploy", "RoleSessionName": "ci", "DurationSeconds": 900}
    own = credentials.operator(cloud.store)
    given = client(server, "sts", own).assume_role(**role)
    assert given["AssumedRoleUser"]["Arn"].endswith(":assumed-role/deploy/ci")
    assumed = credentials.by_id(cloud.store, given["Credentials"]["AccessKeyId"])
    assert assumed is not None
    assert assumed.principal.token == given["Credentials"]["SessionToken"]
    assert 800 < (assumed.expires or 0) - time.time() <= 900
    accounts = {client(server, "sts", pair).get_caller_identity()["Account"] for pair in (own, assumed)}
    assert len(accounts) == 1
    assert refused(client(server, "sts", node_key(cloud, node)).assume_role, **role) == "AccessDenied"
    wrong = {**role, "RoleArn": "arn:aws:iam::123456789012:user/x"}
    assert refused(client(server, "sts", own).assume_role, **wrong) == "ValidationError"


def test_expired_keys_are_refused_and_renewed(cloud: Cloud, server: Server, node: dict[str, Any]) -> None:
    """Expired keys are denied; the metadata service gives new ones before."""
    key = node_key(cloud, node)
    for kind, id in (("key", key.id), ("credential", node["id"])):
        cloud.store.put(kind, id, {**(cloud.store.get(kind, id) or {}), "expires": time.time() - 1})
    assert refused(client(server, "sts", key).get_caller_identity) == "ExpiredToken"
    assert node_key(cloud, node).id != key.id


def test_a_node_reads_bundles_and_writes_its_own_evidence_only(
    cloud: Cloud, server: Server, node: dict[str, Any]
) -> None:
    """The role's policies limit a node to its own folder, by the id that AWS gives to it."""
    cloud.store.put_object(BUCKET, "bootstrap/a.tar.gz", b"bundle")
    cloud.store.put_object(BUCKET, "evidence/train/other/1.json", b"{}")
    key = node_key(cloud, node)
    s3 = client(server, "s3", key)
    assert s3.get_object(Bucket=BUCKET, Key="bootstrap/a.tar.gz")["Body"].read() == b"bundle"
    own = f"evidence/train/{key.principal.user_id}/boot/000001.json"
    s3.put_object(Bucket=BUCKET, Key=own, Body=b"{}", IfNoneMatch="*")
    assert refused(s3.put_object, Bucket=BUCKET, Key=own, Body=b"[]", IfNoneMatch="*") == "PreconditionFailed"
    assert refused(s3.put_object, Bucket=BUCKET, Key="evidence/train/other/2.json", Body=b"{}") == "AccessDenied"
    assert refused(s3.get_object, Bucket=BUCKET, Key="evidence/train/other/1.json") == "AccessDenied"
    assert refused(s3.list_objects_v2, Bucket=BUCKET) == "AccessDenied"
    assert refused(s3.delete_object, Bucket=BUCKET, Key=own) == "AccessDenied"
    assert refused(s3.get_object, Bucket=BUCKET, Key="bootstrap/none") == "AccessDenied"


def test_a_bucket_policy_uses_the_tags_of_the_role(
    cloud: Cloud, server: Server, aws: Client, node: dict[str, Any]
) -> None:
    """A bucket policy denies a node by the tags of its role, also what the policies of the role allow."""
    everything = {"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    aws.create(
        "aws:iam/rolePolicy:RolePolicy", {"role": "node", "name": "more", "policy": json.dumps(everything)}, "more"
    )
    role = cloud.store.list("aws:iam/role:Role")[0]
    own = "${aws:PrincipalTag/gpuinfra:cluster}/${aws:userid}/*"
    statement = {
        "Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "NotResource": f"arn:aws:s3:::{BUCKET}/evidence/{own}",
        "Condition": {"Null": {"aws:PrincipalTag/gpuinfra:cluster": "false"}},
    }  # fmt: skip
    aws.create("aws:s3/bucketPolicy:BucketPolicy", {"bucket": BUCKET, "policy": json.dumps({"Statement": [statement]})})
    key = node_key(cloud, node)
    s3, user = client(server, "s3", key), key.principal.user_id
    s3.put_object(Bucket=BUCKET, Key="evidence/train/other/a.json", Body=b"{}")
    cloud.store.update(replace(role, inputs={**role.inputs, "tags": {"gpuinfra:cluster": "train"}}))
    s3.put_object(Bucket=BUCKET, Key=f"evidence/train/{user}/a.json", Body=b"{}")
    for path in ("evidence/train/other/a.json", f"evidence/other/{user}/a.json", "bootstrap/a"):
        assert refused(s3.put_object, Bucket=BUCKET, Key=path, Body=b"{}") == "AccessDenied"


def test_unused_rights_and_denials_are_reported(cloud: Cloud, server: Server, node: dict[str, Any]) -> None:
    """Each action of a node's policies is used or not; before a node did anything, none counts as unused; denied actions are named."""
    read, write = "node: without a Sid: s3:GetObject", "node: without a Sid: s3:PutObject"
    assert cloud.rights.summary(cloud.fleet.running()) == {
        "used": [],
        "unused": [],
        "not_exercised": [read, write],
        "refused": [],
    }
    key = node_key(cloud, node)
    s3 = client(server, "s3", key)
    s3.put_object(Bucket=BUCKET, Key=f"evidence/train/{key.principal.user_id}/a.json", Body=b"{}")
    assert refused(s3.delete_object, Bucket=BUCKET, Key="bootstrap/a") == "AccessDenied"
    seen = cloud.rights.summary(cloud.fleet.running())
    assert (seen["used"], seen["unused"]) == ([write], [read])
    assert seen["refused"] == [f"node: s3:DeleteObject on arn:aws:s3:::{BUCKET}/bootstrap/a"]


def test_an_object_of_several_operators_loses_no_change(cloud: Cloud, server: Server, node: dict[str, Any]) -> None:
    """A write is refused if another operator wrote since the object was read."""
    only_the_first_writes(S3Evidence(client(server, "s3", credentials.operator(cloud.store)), BUCKET, "evidence/train"))


def test_an_encrypted_bucket_needs_its_key(cloud: Cloud, server: Server, aws: Client, node: dict[str, Any]) -> None:
    """Reading and writing need the key through S3; the error names the action of the key."""
    default = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": "arn:aws:kms:us-east-1:000000000000:key/a"}
    rules = [{"applyServerSideEncryptionByDefault": default}]
    kind = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
    aws.create(kind, {"bucket": BUCKET, "rules": rules})
    key = node_key(cloud, node)
    s3 = client(server, "s3", key)
    own = f"evidence/train/{key.principal.user_id}/a.json"
    with pytest.raises(ClientError, match="kms:GenerateDataKey"):
        s3.put_object(Bucket=BUCKET, Key=own, Body=b"{}")
    statement = {
        "Sid": "Key", "Effect": "Allow", "Action": ["kms:GenerateDataKey"], "Resource": default["kmsMasterKeyId"],
        "Condition": {"StringEquals": {"kms:ViaService": "s3.us-east-1.amazonaws.com"}},
    }  # fmt: skip
    policy = json.dumps({"Statement": [statement]})
    aws.create("aws:iam/rolePolicy:RolePolicy", {"role": "node", "name": "key", "policy": policy})
    s3.put_object(Bucket=BUCKET, Key=own, Body=b"{}")
    assert "node: Key: kms:GenerateDataKey" in cloud.rights.summary(cloud.fleet.running())["used"]


def test_an_operator_reads_and_lists_everything(cloud: Cloud, server: Server, aws: Client) -> None:
    """Lists are ordered, paged and grouped by folder; contents, ranges and heads are correct; absent objects give 404."""
    stacks.bucket(aws)
    s3 = client(server, "s3", credentials.operator(cloud.store))
    for name in ("b/2", "a b/ü+1", "b/1", "c"):
        s3.put_object(Bucket=BUCKET, Key=name, Body=name.encode(), ContentType="text/plain")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, PaginationConfig={"PageSize": 1})
    assert [one["Key"] for page in pages for one in page["Contents"]] == ["a b/ü+1", "b/1", "b/2", "c"]
    folders = s3.list_objects_v2(Bucket=BUCKET, Delimiter="/")
    assert [one["Prefix"] for one in folders["CommonPrefixes"]] == ["a b/", "b/"]
    assert [one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET, Prefix="b/")["Contents"]] == ["b/1", "b/2"]
    assert s3.get_object(Bucket=BUCKET, Key="a b/ü+1")["Body"].read().decode() == "a b/ü+1"
    assert s3.get_object(Bucket=BUCKET, Key="b/1", Range="bytes=1-")["Body"].read() == b"/1"
    assert s3.head_object(Bucket=BUCKET, Key="c")["ContentLength"] == 1
    assert refused(s3.get_object, Bucket=BUCKET, Key="d") == "NoSuchKey"
    assert refused(s3.list_objects_v2, Bucket="nobodys") == "NoSuchBucket"
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "b/1"}, {"Key": "b/2"}]})
    assert [key for key, *_ in cloud.store.objects(BUCKET)] == ["a b/ü+1", "c"]


def test_a_copy_has_its_own_version_and_is_conditional(cloud: Cloud, server: Server, aws: Client) -> None:
    """S3 copies the version that is given, with the metadata of the request if it says so, and not over an object that the condition excludes."""
    stacks.bucket(aws)
    stacks.bucket(aws, "target")
    s3 = client(server, "s3", credentials.operator(cloud.store))
    s3.put_object(Bucket=BUCKET, Key="a b/ü", Body=b"1", Metadata={"mode": "0644"})
    (version,) = (one["VersionId"] for one in s3.list_object_versions(Bucket=BUCKET)["Versions"])
    source = {"Bucket": BUCKET, "Key": "a b/ü", "VersionId": version}
    made = s3.copy_object(Bucket="target", Key="copy", CopySource=source, IfNoneMatch="*")
    assert made["CopySourceVersionId"] == version
    (own,) = (one["VersionId"] for one in s3.list_object_versions(Bucket="target")["Versions"])
    assert made["VersionId"] == own != version
    assert s3.head_object(Bucket="target", Key="copy", VersionId=own)["Metadata"] == {"mode": "0644"}
    assert refused(s3.copy_object, Bucket="target", Key="copy", CopySource=source, IfNoneMatch="*") == "PreconditionFailed"  # fmt: skip
    assert refused(s3.copy_object, Bucket="target", Key="copy", CopySource=source, IfMatch='"other"') == "PreconditionFailed"  # fmt: skip
    replacing = {"IfMatch": made["CopyObjectResult"]["ETag"], "MetadataDirective": "REPLACE", "Metadata": {"of": "a"}}
    s3.copy_object(Bucket="target", Key="copy", CopySource=source, **replacing)
    found = s3.get_object(Bucket="target", Key="copy")
    assert (found["Body"].read(), found["Metadata"], found["VersionId"] != own) == (b"1", {"of": "a"}, True)
    s3.put_object(Bucket=BUCKET, Key="a b/ü", Body=b"2")
    assert refused(s3.copy_object, Bucket="target", Key="new", CopySource=source) == "NoSuchVersion"
    assert refused(s3.copy_object, Bucket="target", Key="new", CopySource=f"{BUCKET}/none") == "NoSuchKey"


def test_a_bucket_with_versioning_keeps_the_versions_that_are_replaced(
    cloud: Cloud, server: Server, aws: Client
) -> None:
    """A list contains each version of an object, the current one first. Without versioning, it contains only the current one."""
    stacks.bucket(aws)
    s3 = client(server, "s3", credentials.operator(cloud.store))

    def sizes() -> list[tuple[int, bool]]:
        return [(one["Size"], one["IsLatest"]) for one in s3.list_object_versions(Bucket=BUCKET)["Versions"]]

    s3.put_object(Bucket=BUCKET, Key="a", Body=b"1")
    s3.put_object(Bucket=BUCKET, Key="a", Body=b"12")
    assert sizes() == [(2, True)]
    enabled = {"bucket": BUCKET, "versioningConfiguration": {"status": "Enabled"}}
    aws.create("aws:s3/bucketVersioning:BucketVersioning", enabled)
    s3.put_object(Bucket=BUCKET, Key="a", Body=b"123")
    s3.put_object(Bucket=BUCKET, Key="a", Body=b"1234")
    assert sizes() == [(4, True), (3, False), (2, False)]


def test_a_bucket_policy_can_deny(cloud: Cloud, server: Server, aws: Client) -> None:
    """An explicit deny of the bucket policy wins over the operator's permissions; a condition on TLS holds on loopback."""
    stacks.bucket(aws)
    arn = f"arn:aws:s3:::{BUCKET}"
    statements = [
        {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": [arn, f"{arn}/*"], "Condition": {"Bool": {"aws:SecureTransport": "false"}}},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": f"{arn}/*"},
    ]  # fmt: skip
    aws.create("aws:s3/bucketPolicy:BucketPolicy", {"bucket": BUCKET, "policy": json.dumps({"Statement": statements})})
    s3 = client(server, "s3", credentials.operator(cloud.store))
    s3.put_object(Bucket=BUCKET, Key="a", Body=b"1")
    assert refused(s3.delete_object, Bucket=BUCKET, Key="a") == "AccessDenied"


def test_a_presigned_url_works_until_it_expires(cloud: Cloud, server: Server, aws: Client) -> None:
    """A presigned URL needs no key, cannot be changed, and expires."""
    stacks.bucket(aws)
    cloud.store.put_object(BUCKET, "a", b"1")
    s3 = client(server, "s3", credentials.operator(cloud.store), signature_version="s3v4")
    address = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "a"}, ExpiresIn=60)
    with urllib.request.urlopen(address, timeout=300) as reply:
        assert reply.read() == b"1"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address.replace("/a?", "/b?"), timeout=300)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address.replace("X-Amz-Expires=60", "X-Amz-Expires=600"), timeout=300)


def test_groups_and_instances_are_described_as_boto3_reads_them(
    cloud: Cloud, server: Server, node: dict[str, Any]
) -> None:
    """boto3 parses members with their template version, tags, activities, states and the console."""
    operator = credentials.operator(cloud.store)
    scaling, ec2 = client(server, "autoscaling", operator), client(server, "ec2", operator)
    (group,) = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["gpu"])["AutoScalingGroups"]
    assert group["DesiredCapacity"] == 1
    assert group["Instances"][0]["LaunchTemplate"]["Version"] == "1"
    assert {tag["Key"]: tag["Value"] for tag in group["Tags"]} == stacks.TAGS
    (member,) = scaling.describe_auto_scaling_instances()["AutoScalingInstances"]
    assert (member["InstanceId"], member["AutoScalingGroupName"]) == (node["id"], "gpu")
    (activity,) = scaling.describe_scaling_activities(AutoScalingGroupName="gpu")["Activities"]
    assert (activity["StatusCode"], activity["Progress"]) == ("Successful", 100)
    (instance,) = ec2.describe_instances(InstanceIds=[node["id"]])["Reservations"][0]["Instances"]
    assert instance["State"]["Name"] == "running"
    assert {"Key": "gpuinfra:pool", "Value": "gpu"} in instance["Tags"]
    assert "no node host" in ec2.get_console_output(InstanceId=node["id"])["Output"]
    cloud.fleet.terminate(node["id"], "hardware")
    running = [{"Name": "instance-state-name", "Values": ["running"]}]
    assert ec2.describe_instances(Filters=running)["Reservations"] == []
    assert refused(ec2.describe_instances, InstanceIds=["i-00000000000000009"]) == "InvalidInstanceID.NotFound"


def test_offerings_follow_the_catalog(cloud: Cloud, server: Server) -> None:
    """A machine type is offered in the zones of its record."""
    ec2 = client(server, "ec2", credentials.operator(cloud.store))

    def zones(machine: str) -> set[str]:
        wanted = [{"Name": "instance-type", "Values": [machine]}]
        found = ec2.describe_instance_type_offerings(LocationType="availability-zone-id", Filters=wanted)
        return {one["Location"] for one in found["InstanceTypeOfferings"]}

    assert "use1-az4" in zones("p4d.24xlarge")
    assert "use1-az3" not in zones("p4d.24xlarge")


def test_a_node_cannot_describe_other_nodes(cloud: Cloud, server: Server, node: dict[str, Any]) -> None:
    """Only the operator can describe members."""
    scaling = client(server, "autoscaling", node_key(cloud, node))
    assert refused(scaling.describe_auto_scaling_groups) == "AccessDenied"


def test_an_unsupported_action_is_rejected_by_name(cloud: Cloud, server: Server) -> None:
    """An unsupported action is an error, not an empty answer."""
    ec2 = client(server, "ec2", credentials.operator(cloud.store))
    with pytest.raises(ClientError, match="DescribeHosts of ec2 is not supported in a rehearsal"):
        ec2.describe_hosts()


def control(server: Server, path: str, body: dict[str, Any] | None = None, token: str = TOKEN) -> dict[str, Any]:
    """One question to the control interface."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/.control/{path}", data=None if body is None else json.dumps(body).encode(),
        headers={"X-Gpuinfra-Control": token},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.load(reply)


def test_the_control_interface_needs_its_token(server: Server) -> None:
    """Without the token of the rehearsal, every request is denied."""
    with pytest.raises(urllib.error.HTTPError, match="403"):
        control(server, "nodes", token="guess")


def test_accidents_can_be_injected(cloud: Cloud, server: Server, node: dict[str, Any], aws: Client) -> None:
    """Drift by hand shows in the next read, a terminated instance is replaced, and each resource has the operation that created it."""
    control(server, "operation", {"operation": "up-2"})
    made = aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.9.0.0/16", "tags": {"a": "b"}}, "another")
    control(server, "drift", {"type": made.token, "id": made.id, "set": {"tags": {"a": "hand"}}})
    assert aws.read(made.token, made.id).inputs["tags"] == {"a": "hand"}
    (found,) = [one for one in control(server, "resources")["resources"] if one["id"] == made.id]
    assert (found["operation"], found["urn"]) == ("up-2", made.urn)
    control(server, "terminate", {"instance_id": node["id"]})
    cloud.fleet.reconcile()
    assert [(one["label"], one["state"]) for one in control(server, "nodes")["nodes"]] == [
        ("gpu-1", "terminated"),
        ("gpu-2", "running"),
    ]
    control(server, "vanish", {"type": made.token, "id": made.id})
    assert aws.read(made.token, made.id).id == ""
    with pytest.raises(urllib.error.HTTPError, match="400"):
        control(server, "drift", {"type": made.token, "id": "vpc-none", "set": {}})


def test_group_replaces_a_terminated_instance(cloud: Cloud, server: Server, node: dict[str, Any]) -> None:
    """The response has the activity; the group launches another instance; an unknown instance is refused as by AWS."""
    scaling = client(server, "autoscaling", credentials.operator(cloud.store))
    call = scaling.terminate_instance_in_auto_scaling_group
    answer = call(InstanceId=node["id"], ShouldDecrementDesiredCapacity=False)
    assert answer["Activity"]["StatusCode"] == "InProgress"
    cloud.fleet.reconcile()
    assert [one["id"] for one in cloud.fleet.running()] != [node["id"]]
    assert len(cloud.fleet.running()) == 1
    assert refused(call, InstanceId="i-1", ShouldDecrementDesiredCapacity=False) == "ValidationError"


def test_a_node_reads_the_notices_of_its_faults(cloud: Cloud, server: Server, node: dict[str, Any]) -> None:
    """A spot node reads the interruption with its deadline, and the recommendation. Each node reads the scheduled event."""
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{server.port}/.imds/{node['id']}"}
    reader = aws_node.connect({"region": "us-east-1"}, environ)

    def found() -> dict[str, float | None]:
        return {one.kind.value: one.deadline for read in reader.notice_sources().values() for one in read()}

    assert found() == {}
    cloud.faults = Faults([f"node:{node['name']}:spot-notice", f"node:{node['name']}:maintenance"], cloud.store)
    assert list(found()) == ["maintenance"]
    cloud.store.put("instance", node["id"], node | {"kind": "spot"})
    notices = found()
    assert list(notices) == ["reclaim", "rebalance", "maintenance"]
    assert notices["rebalance"] is None
    assert 100 < float(notices["reclaim"] or 0) - time.time() <= 120
    assert 500 < float(notices["maintenance"] or 0) - time.time() <= 600
