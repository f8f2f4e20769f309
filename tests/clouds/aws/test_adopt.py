"""`gpuinfra adopt` finds retained resources in a model of AWS, with the ids and parents of the program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import moto
import pulumi
import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner

from gpuinfra.base import naming
from gpuinfra.cli.adopt import command
from gpuinfra.clouds import already_exists
from gpuinfra.clouds.adopt import import_file, retained
from gpuinfra.clouds.aws import file_systems
from gpuinfra.clouds.aws.adopt import Account, retained_in
from gpuinfra.clouds.aws.components import one_file_system
from gpuinfra.clouds.aws.resources import resources
from gpuinfra.plan.make import build_plan
from gpuinfra.spec import parse_spec
from tests.clouds.stacks import TODAY, plan_of, recording_of, recording_of_spec, spec_of

REGION = "us-east-1"
PLAN = plan_of("aws-p4d")
TOKEN = naming.stack_token("organization", "gpuinfra", "aws-p4d", PLAN.name)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The id of an empty account in moto."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with moto.mock_aws():
        yield boto3.client("sts", region_name=REGION).get_caller_identity()["Account"]


def _fill(account: str) -> dict[str, str]:
    """Create the retained resources in moto; returns key ids by purpose."""
    s3, kms, logs = (boto3.client(service, region_name=REGION) for service in ("s3", "kms", "logs"))
    for purpose in ("access", "audit", "evidence", "scratch-0"):
        s3.create_bucket(Bucket=naming.bucket_name(PLAN.name, purpose, account, REGION, TOKEN))
    keys = {}
    for purpose in ("audit", "data"):
        keys[purpose] = kms.create_key()["KeyMetadata"]["KeyId"]
        alias = f"alias/gpuinfra/{naming.unique_name(PLAN.name, purpose, TOKEN)}"
        kms.create_alias(AliasName=alias, TargetKeyId=keys[purpose])
    for purpose in ("trail", "flow"):
        logs.create_log_group(logGroupName=f"/gpuinfra/{naming.unique_name(PLAN.name, purpose, TOKEN)}")
    return keys


def test_all_retained_resources_are_found(account: str) -> None:
    """Buckets with their settings, keys with their aliases, and log groups are found with their ids."""
    keys = _fill(account)
    found = {
        (one.resource.type, one.resource.name): one.id
        for one in retained_in(Account(boto3.Session(), PLAN, TOKEN), PLAN)
    }
    assert set(found) == {(one.type, one.name) for one in resources(PLAN) if one.retained}
    assert found["aws:kms/key:Key", "train-foundation-data-key"] == keys["data"]
    assert found["aws:kms/key:Key", "train-foundation-audit-key-key"] == keys["audit"]


def test_ids_are_the_names_in_the_program(account: str) -> None:
    """Names of buckets, aliases and log groups are those of the inputs of the components."""
    _fill(account)
    found = {
        (one.resource.type, one.resource.name): one.id
        for one in retained_in(Account(boto3.Session(), PLAN, TOKEN), PLAN)
    }
    compared = 0
    for one in recording_of_spec(spec_of("aws-p4d"), stack="aws-p4d").custom:
        named = str(one.inputs.get("bucket") or one.inputs.get("name"))
        if (one.type, one.name) in found and one.type != "aws:kms/key:Key":
            assert found[one.type, one.name] == named.replace("000000000000", account), one.name
            compared += 1
    assert compared > 30


def test_nothing_is_found_in_an_empty_account(account: str) -> None:
    """An empty account has no retained resources."""
    assert retained_in(Account(boto3.Session(), PLAN, TOKEN), PLAN) == []


def test_a_denied_request_is_an_error() -> None:
    """A denied lookup is an error, and not a missing resource."""

    class Refusing:
        def client(self, service: str, **_: Any) -> Any:
            return self

        def get_caller_identity(self) -> dict[str, str]:
            return {"Account": "000000000000"}

        def __getattr__(self, question: str) -> Any:
            def refuse(**_: Any) -> None:
                raise ClientError({"Error": {"Code": "403", "Message": "Forbidden"}}, question)

            return refuse

    account: Any = Refusing()
    with pytest.raises(ClientError, match="403"):
        retained_in(Account(account, PLAN, TOKEN), PLAN)


def test_parents_are_those_of_the_program(account: str) -> None:
    """Each row of the import file has the parent of the program; otherwise the next `pulumi up` replaces the resource."""
    _fill(account)
    document = import_file(retained(retained_in(Account(boto3.Session(), PLAN, TOKEN), PLAN)))
    rows = {row["name"]: row for row in document["resources"]}
    program = {(one.type, one.name): one for one in recording_of("aws-p4d").resources}
    by_urn = {one.urn: one for one in program.values()}
    for row in rows.values():
        parent = by_urn.get(program[row["type"], row["logicalName"]].parent)
        if parent is None or parent.type == "pulumi:pulumi:Stack":
            assert "parent" not in row
        else:
            assert (rows[row["parent"]]["type"], rows[row["parent"]]["logicalName"]) == (parent.type, parent.name)
    names = [row["name"] for row in document["resources"]]
    assert len(names) == len(set(names))
    assert all(
        names.index(row["parent"]) < names.index(row["name"]) for row in document["resources"] if "parent" in row
    )


def test_the_command_writes_the_file_and_prints_the_next_command(account: str, tmp_path: Path) -> None:
    """The output contains the path of the file and the command to import it."""
    _fill(account)
    out = tmp_path / "adopt.json"
    result = CliRunner().invoke(command, ["aws-p4d", "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"pulumi import --stack aws-p4d --file {out}" in result.output
    rows = json.loads(out.read_text())["resources"]
    assert sum("id" in row for row in rows) == len(PLAN.kept)


def test_the_command_reports_that_no_resource_was_found(account: str, tmp_path: Path) -> None:
    """Without retained resources, the command writes no file."""
    out = tmp_path / "adopt.json"
    result = CliRunner().invoke(command, ["aws-p4d", "--out", str(out)], catch_exceptions=False)
    assert "no retained resources of aws-p4d to import" in result.output
    assert not out.exists()


def _failed(*errors: str, operation: str = "create") -> pulumi.ErrorHookArgs:
    return pulumi.ErrorHookArgs(
        urn="urn",
        id="",
        name="train-foundation-data-key",
        type="aws:kms/key:Key",
        failed_operation=operation,
        errors=list(errors),
    )


def test_the_error_for_an_existing_name_contains_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook adds `gpuinfra adopt` to the error once, requests no retry, and ignores other errors."""
    said: list[str] = []
    monkeypatch.setattr(already_exists, "_reported", set())
    monkeypatch.setattr(pulumi.log, "error", lambda message, *_: said.append(message))
    monkeypatch.setattr(pulumi, "get_stack", lambda: "aws-p4d")
    assert not already_exists.explain(_failed("api error BucketAlreadyOwnedByYou: you have it"))
    assert "gpuinfra adopt aws-p4d" in said[0]
    assert not already_exists.explain(_failed("AlreadyExistsException: an alias"))
    assert not already_exists.explain(_failed("AccessDenied: not you"))
    assert not already_exists.explain(_failed("BucketAlreadyOwnedByYou", operation="update"))
    assert len(said) == 1


def test_a_retained_file_system_is_found_with_its_network(account: str) -> None:
    """VPC, subnet, security group, log group and file system of this stack are found, although another stack has the same tags."""
    plan = build_plan(
        parse_spec(
            {
                **spec_of("aws-p4d").model_dump(mode="json", exclude_none=True),
                "storage": [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800}],
            }
        ),
        TODAY,
    )
    ec2, fsx, logs = (boto3.client(service, region_name=REGION) for service in ("ec2", "fsx", "logs"))
    made: dict[str, str] = {}
    log, tags = "", {**plan.tags, "Name": "train-scratch-0-lustre"}
    for token in ("another-token", TOKEN):
        vpc = ec2.create_vpc(CidrBlock="10.64.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.64.0.0/24")["Subnet"]["SubnetId"]
        ec2.create_tags(Resources=[vpc], Tags=[{"Key": "Name", "Value": "train-network"}])
        ec2.create_tags(Resources=[subnet], Tags=[{"Key": "Name", "Value": "train-network-private-4"}])
        name = naming.unique_name(plan.name, "storage", token)
        group = ec2.create_security_group(GroupName=name, Description="storage", VpcId=vpc)["GroupId"]
        made = {"aws:ec2/vpc:Vpc": vpc, "aws:ec2/subnet:Subnet": subnet, "aws:ec2/securityGroup:SecurityGroup": group}
        log = f"/aws/fsx/{naming.unique_name(plan.name, 'scratch-0', token)}"
        logs.create_log_group(logGroupName=log)
        made["aws:fsx/lustreFileSystem:LustreFileSystem"] = fsx.create_file_system(
            FileSystemType="LUSTRE",
            StorageCapacity=4800,
            SubnetIds=[subnet],
            LustreConfiguration={"LogConfiguration": {"Level": "WARN_ERROR", "Destination": _log_arn(log)}},
            Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        )["FileSystem"]["FileSystemId"]
    made["aws:cloudwatch/logGroup:LogGroup"] = log
    assert {one.resource.type: one.id for one in retained_in(Account(boto3.Session(), plan, TOKEN), plan)} == made


def _log_arn(group: str) -> str:
    """The destination as FSx answers it (tests/providers/answers/aws.json)."""
    return f"arn:aws:logs:{REGION}:123456789012:log-group:{group}:log-stream:datarepo_fs-0123fa8a4567ac2eb"


def test_a_second_file_system_is_refused(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system is not created while the stack's file system exists. Other stacks, and file systems that are deleted
    or failed, do not count."""
    monkeypatch.setattr(pulumi, "get_stack", lambda: "aws-p4d")
    fsx = boto3.client("fsx", region_name=REGION)
    group = file_systems.log_group("train", "scratch-0", TOKEN)
    for name in (file_systems.log_group("train", "scratch-0", "another-token"), f"{group}-1"):
        _file_system(fsx, name)
    one_file_system.check_absent(group, REGION, {}, "train-scratch-0-lustre")
    made = _file_system(fsx, group)
    with pytest.raises(
        RuntimeError, match=f"train-scratch-0-lustre exists: {made}.*gpuinfra adopt aws-p4d.*only increase"
    ):
        one_file_system.check_absent(group, REGION, {}, "train-scratch-0-lustre")
    fsx.delete_file_system(FileSystemId=made)
    one_file_system.check_absent(group, REGION, {}, "train-scratch-0-lustre")


def _file_system(fsx: Any, group: str) -> str:
    return fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=4800,
        SubnetIds=["subnet-0123456789abcdef0"],
        LustreConfiguration={"LogConfiguration": {"Level": "WARN_ERROR", "Destination": _log_arn(group)}},
    )["FileSystem"]["FileSystemId"]


def test_a_file_system_is_not_created_if_fsx_cannot_be_asked(account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an answer of FSx, the error names the missing credentials and the permission."""

    def refuse(*_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeFileSystems")

    monkeypatch.setattr(one_file_system, "find", refuse)
    with pytest.raises(RuntimeError, match=r"cannot check whether train-scratch-0-lustre.*fsx:DescribeFileSystems"):
        one_file_system.check_absent("/aws/fsx/train", REGION, {}, "train-scratch-0-lustre")
