"""Every resource type and function of the installed SDKs works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuinfra_rehearsal.cloud.core import behaviors, registry, wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior
from gpuinfra_rehearsal.cloud.core.check import check
from gpuinfra_rehearsal.cloud.core.sdk import NotDeclared, fields, has, members, sdk
from rehearsal.tests.cloud import samples
from rehearsal.tests.cloud.conftest import Client

WITHOUT_OUTPUTS = {"aws:ram/sharingWithOrganization:SharingWithOrganization"}

SAMPLED = 250
"""Types of each SDK that are created; spread evenly over all of them."""

NEEDS_OTHERS = {
    # Types that a cloud refuses without the resources that they refer to, or without a value of a list.
    "aws:autoscaling/group:Group", "aws:ec2/subnet:Subnet", "aws:ec2/route:Route", "aws:ec2/routeTable:RouteTable",
    "aws:ec2/routeTableAssociation:RouteTableAssociation", "aws:ec2/vpcEndpoint:VpcEndpoint", "aws:cloudtrail/trail:Trail",
    "aws:iam/instanceProfile:InstanceProfile", "aws:iam/rolePolicy:RolePolicy", "aws:iam/role:Role",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment", "aws:kms/alias:Alias", "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem", "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
    "azure-native:authorization:RoleDefinition",
}  # fmt: skip


def spread(items: list[str], count: int) -> list[str]:
    """About `count` of them, evenly."""
    return items[:: max(1, len(items) // count)]


@pytest.mark.parametrize("package", ["aws", "azure-native", "gcp"])
def test_any_type_can_be_created_read_and_deleted(package: str, connect: Callable[[str], Client]) -> None:
    """Hundreds of types of each SDK accept their required inputs and return every declared output in its declared type."""
    client, known = connect(package), sdk(package)
    chosen = [
        token
        for token in spread(known.tokens, SAMPLED)
        if token not in NEEDS_OTHERS
        and not (token.startswith("aws:s3/bucket") and token != "aws:s3/bucket:Bucket")
        # Google's that do something of their own are asked for in test_gcp_rules.py.
        and not (package == "gcp" and type(behaviors.of(token)) is not Behavior)
    ]
    assert len(chosen) >= SAMPLED
    for token in chosen:
        declared = known.resource(token)
        made = client.create(token, samples.required(declared.inputs), name=token.rsplit(":", 1)[1].lower())
        assert made.id, token
        empty = [name for name, value in registry.of_token(token).filled(token).items() if value is None]
        wrong = [one for one in check(made.outputs, declared.outputs) if one.path not in empty]
        assert not wrong, (token, wrong[:3])
        missing = [name for name in declared.outputs if name not in declared.inputs and name not in made.outputs]
        assert not missing, (token, missing)
        assert client.read(token, made.id).outputs == made.outputs, token
        assert not client.diff(made, made.inputs).detailedDiff, token
        client.delete(made)
        assert client.read(token, made.id).id == "", token


def _functions(root: Path) -> list[str]:
    """All functions of an SDK, which are found by the `invoke` call in their code."""
    pattern = re.compile(r"pulumi\.runtime\.invoke\('([^']+)'")
    found: dict[str, None] = {}
    for path in sorted(root.rglob("*.py")):
        if path.name.startswith(("get_", "list_")):
            found.update(dict.fromkeys(pattern.findall(path.read_text())))
    return list(found)


@pytest.mark.parametrize("package", ["aws", "azure-native", "gcp"])
def test_any_function_answers_in_its_declared_type(package: str, connect: Callable[[str], Client]) -> None:
    """Functions of each SDK accept their required arguments and return every declared value in its declared type."""
    client, known = connect(package), sdk(package)
    asked = 0
    for token in spread(_functions(known.root), 120):
        declared = known.function(token)
        if behaviors.answer(token):
            continue  # has something of its own to say, which test_rules.py asks for
        answer = client.invoke(token, **samples.required(declared.inputs))
        wrong = list(check(answer, declared.outputs))
        assert not wrong, (token, wrong[:3])
        asked += 1
    assert asked >= 100


def test_every_type_of_every_sdk_is_readable() -> None:
    """Every registered type has outputs, and the types of its properties are classes that exist."""
    for package in ("aws", "azure-native", "gcp"):
        known = sdk(package)
        for number, token in enumerate(known.tokens):
            declared = known.resource(token)
            assert declared.outputs or token in WITHOUT_OUTPUTS, token
            if number % 7:
                continue  # nested types of every seventh: the large files take their time
            for prop in (*declared.inputs.values(), *declared.outputs.values()):
                item = prop.type
                while item.kind in ("list", "map") and item.item:
                    item = item.item
                if item.kind == "object" and item.folder:
                    assert has(item.folder, item.name), (token, prop.name, item.name)
                if item.kind == "enum" and item.folder:
                    assert members(item.folder, item.name), (token, prop.name)


def test_an_unknown_type_is_refused_by_name(aws: Client) -> None:
    """A type that the SDK does not declare is rejected with its token."""
    with pytest.raises(NotDeclared, match="aws:ec2/nothing:Nothing"):
        sdk("aws").resource("aws:ec2/nothing:Nothing")


def test_fields_of_a_nested_type_are_found() -> None:
    """The fields of a nested input come from the module's `_inputs`, with their names in the protocol."""
    mapping = sdk("aws").resource("aws:ec2/launchTemplate:LaunchTemplate").inputs["blockDeviceMappings"].type
    assert mapping.kind == "list"
    assert mapping.item is not None
    assert mapping.item.folder is not None
    assert {"deviceName", "ebs", "noDevice", "virtualName"} <= set(fields(mapping.item.folder, mapping.item.name))


def test_outputs_are_deterministic_and_visibly_synthetic(aws: Client) -> None:
    """ARNs have the account of zeros, ids are counted, and a resource has the same outputs in each read."""
    made = aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"})
    assert made.id == "vpc-00000000000000001"
    assert made.outputs["arn"] == "arn:aws:ec2:us-east-1:000000000000:vpc/vpc-00000000000000001"
    assert aws.read(made.token, made.id).outputs == made.outputs
    assert aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"}, "other").id == "vpc-00000000000000002"


def test_generated_outputs_are_unknown_in_a_preview(aws: Client) -> None:
    """In a preview, inputs are returned and every other output is unknown."""
    seen = aws.preview("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "tags": {"a": "b"}})
    assert seen["cidrBlock"] == "10.0.0.0/16"
    assert wire.is_unknown(seen["arn"])
    assert wire.is_unknown(seen["mainRouteTableId"])
    assert seen["tagsAll"] == {"a": "b"}


def test_secrets_stay_secret(aws: Client) -> None:
    """A secret input is a secret output, after creation and in reads."""
    secret = wire.secret("hunter2")
    made = aws.create("aws:rds/instance:Instance", {"instanceClass": "db.t3.micro", "password": secret})
    assert made.outputs["password"] == secret
    assert aws.read(made.token, made.id).outputs["password"] == secret


def test_outputs_that_the_sdk_declares_secret_are_secret() -> None:
    """Computed labels on Google Cloud and the password of a database are always secret; a network has no secret output."""
    assert sdk("gcp").resource("gcp:storage/bucket:Bucket").secrets == {"effectiveLabels", "pulumiLabels"}
    assert "password" in sdk("aws").resource("aws:rds/instance:Instance").secrets
    assert sdk("aws").resource("aws:ec2/vpc:Vpc").secrets == frozenset()
