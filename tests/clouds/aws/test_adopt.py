"""After a destroy: what was kept is found in a model of AWS, under the ids and parents that the program has for it."""

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

from gpuinfra import naming
from gpuinfra.adopt import import_file, retained
from gpuinfra.cli.adopt import command
from gpuinfra.clouds import already_exists as taken
from gpuinfra.clouds.aws.adopt import Account, retained_in
from gpuinfra.clouds.aws.resources import resources
from gpuinfra.planning import make_plan
from gpuinfra.spec import parse_spec
from tests.clouds.stacks import TODAY, plan_of, recording_of, recording_of_spec, spec_of

REGION = "us-east-1"
PLAN = plan_of("aws-p4d")
TOKEN = naming.stack_token("organization", "gpuinfra", "aws-p4d", PLAN.name)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty account of a model of AWS; its id."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with moto.mock_aws():
        yield boto3.client("sts", region_name=REGION).get_caller_identity()["Account"]


def _fill(account: str) -> dict[str, str]:
    """Make in the model what a destroy keeps; answers key ids by purpose."""
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


def test_everything_that_was_kept_is_found(account: str) -> None:
    """Buckets with their settings, keys with their aliases, and log groups: all that the plan keeps, each with its id."""
    keys = _fill(account)
    found = {
        (one.resource.type, one.resource.name): one.id
        for one in retained_in(Account(boto3.Session(), PLAN, TOKEN), PLAN)
    }
    assert set(found) == {(one.type, one.name) for one in resources(PLAN) if one.retained}
    assert found["aws:kms/key:Key", "train-foundation-data-key"] == keys["data"]
    assert found["aws:kms/key:Key", "train-foundation-audit-key-key"] == keys["audit"]


def test_the_ids_are_the_names_that_the_program_gives(account: str) -> None:
    """What is searched for is what the components make: bucket, alias and group names are those of their inputs."""
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
    """A first `up` has nothing to take back."""
    assert retained_in(Account(boto3.Session(), PLAN, TOKEN), PLAN) == []


def test_a_refusal_is_not_taken_for_an_absence() -> None:
    """Where the account forbids to look, adopt says so and does not claim that nothing is there."""

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
    """The import file puts each thing under the components that the program has it in, or the next `up` would replace it."""
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


def test_the_command_writes_the_file_and_says_what_to_type(account: str, tmp_path: Path) -> None:
    """A person gets the file and the two commands that go on from there."""
    _fill(account)
    out = tmp_path / "adopt.json"
    result = CliRunner().invoke(command, ["aws-p4d", "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"pulumi import --stack aws-p4d --file {out}" in result.output
    rows = json.loads(out.read_text())["resources"]
    assert sum("id" in row for row in rows) == len(PLAN.kept)


def test_the_command_says_when_there_is_nothing(account: str, tmp_path: Path) -> None:
    """No file is written for nothing."""
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


def test_a_plain_up_that_meets_what_was_kept_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's words alone do not say what to do; nothing is tried again, and other failures are left alone."""
    said: list[str] = []
    monkeypatch.setattr(taken, "_reported", set())
    monkeypatch.setattr(pulumi.log, "error", lambda message, *_: said.append(message))
    monkeypatch.setattr(pulumi, "get_stack", lambda: "aws-p4d")
    assert not taken.explain(_failed("api error BucketAlreadyOwnedByYou: you have it"))
    assert "gpuinfra adopt aws-p4d" in said[0]
    assert not taken.explain(_failed("AlreadyExistsException: an alias"))
    assert not taken.explain(_failed("AccessDenied: not you"))
    assert not taken.explain(_failed("BucketAlreadyOwnedByYou", operation="update"))
    assert len(said) == 1


def test_a_kept_file_system_is_found_with_what_it_stands_in(account: str) -> None:
    """VPC, subnet, group, log and file system have the ids of this stack's, though another stack's carry the same tags."""
    plan = make_plan(
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
    for token in ("another-token", TOKEN):
        vpc = ec2.create_vpc(CidrBlock="10.64.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.64.0.0/24")["Subnet"]["SubnetId"]
        ec2.create_tags(Resources=[vpc], Tags=[{"Key": "Name", "Value": "train-network"}])
        ec2.create_tags(Resources=[subnet], Tags=[{"Key": "Name", "Value": "train-network-private-4"}])
        name = naming.unique_name(plan.name, "storage", token)
        group = ec2.create_security_group(GroupName=name, Description="storage", VpcId=vpc)["GroupId"]
        made = {"aws:ec2/vpc:Vpc": vpc, "aws:ec2/subnet:Subnet": subnet, "aws:ec2/securityGroup:SecurityGroup": group}
    tags = [{"Key": key, "Value": value} for key, value in {**plan.tags, "Name": "train-scratch-0-lustre"}.items()]
    file_system = fsx.create_file_system(
        FileSystemType="LUSTRE", StorageCapacity=4800, SubnetIds=[made["aws:ec2/subnet:Subnet"]], Tags=tags
    )["FileSystem"]
    made["aws:fsx/lustreFileSystem:LustreFileSystem"] = file_system["FileSystemId"]
    log = f"/aws/fsx/{naming.unique_name(plan.name, 'scratch-0', TOKEN)}"
    logs.create_log_group(logGroupName=log)
    made["aws:cloudwatch/logGroup:LogGroup"] = log
    assert {one.resource.type: one.id for one in retained_in(Account(boto3.Session(), plan, TOKEN), plan)} == made
