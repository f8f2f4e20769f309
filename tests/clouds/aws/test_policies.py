"""Restrictions in the policy documents of all shipped stacks. `test_models.py` checks the documents with cfn-lint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clouds.aws import resources
from gpuinfra_rehearsal.cloud.aws import policy
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from tests.clouds.recorder import ACCOUNT, Registered
from tests.clouds.stacks import recording_of, shipped_aws_stacks

PAGE = Path(__file__).parents[3] / "docs/reference/aws.md"
STACKS = shipped_aws_stacks()
SESSIONS = {"ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"}  # fmt: skip
"""https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AWSCloud9SSMInstanceProfile.html, retrieved 2026-11-22."""


def _lint(resources: dict[str, dict[str, Any]]) -> list[str]:
    template = {"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources}
    from cfnlint.api import lint_all

    # Informational findings concern the description of templates.
    found = [match for match in lint_all(json.dumps(template)) if match.rule.severity != "informational"]
    return [f"{match.rule.id} {match.message} at {match.path}" for match in found]


def _documents(stack: str) -> Iterator[tuple[Registered, dict[str, Any]]]:
    for one in recording_of(stack).custom:
        for key in ("policy", "assumeRolePolicy"):
            if one.type.startswith("aws:") and key in one.inputs:
                yield one, json.loads(one.inputs[key])


BROKEN: dict[str, dict[str, Any]] = {
    "an action that does not exist": {"Effect": "Allow", "Action": "s3:GetObjekt", "Resource": "*"},
    "an effect that does not exist": {"Effect": "Permit", "Action": "s3:GetObject", "Resource": "*"},
    "no resource": {"Effect": "Allow", "Action": "s3:GetObject"},
}


@pytest.mark.parametrize("case", BROKEN)
def test_the_linter_finds_an_invalid_policy(case: str) -> None:
    """cfn-lint reports each invalid policy."""
    document = {"Version": "2012-10-17", "Statement": [BROKEN[case]]}
    properties = {"PolicyName": "broken", "Roles": ["somebody"], "PolicyDocument": document}
    assert _lint({"Broken": {"Type": "AWS::IAM::Policy", "Properties": properties}})


_ELEMENTS = {"Sid", "Effect", "Principal", "Action", "Resource", "NotResource", "Condition"}
"""https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html, retrieved 2026-11-28."""


@pytest.mark.parametrize("stack", STACKS)
def test_each_statement_follows_the_grammar_of_policies(stack: str) -> None:
    """Each element, effect and resource exists in the grammar, and the resource of a key policy is the key itself."""
    for one, document in _documents(stack):
        assert (set(document), document["Version"]) == ({"Version", "Statement"}, "2012-10-17")
        for statement in document["Statement"]:
            assert set(statement) <= _ELEMENTS, f"{one.name}: {statement}"
            assert {"Sid", "Effect", "Action"} <= set(statement), f"{one.name}: {statement}"
            assert statement["Effect"] in ("Allow", "Deny"), f"{one.name}: {statement['Sid']}"
            where = [arn for key in ("Resource", "NotResource") for arn in _list(statement.get(key, []))]
            assert all(arn == "*" or arn.startswith("arn:aws:") for arn in where), f"{one.name}: {statement['Sid']}"
            if one.type == "aws:kms/key:Key":
                assert where == ["*"], f"{one.name}: {statement['Sid']}"
            principal = statement.get("Principal")
            named = (
                [value for given in principal.values() for value in _list(given)] if isinstance(principal, dict) else []
            )
            assert all(
                value == "*" or value.startswith("arn:aws:iam::") or value.endswith(".amazonaws.com") for value in named
            ), f"{one.name}: {statement['Sid']}"


@pytest.mark.parametrize("stack", STACKS)
def test_actions_and_resources_of_a_role_are_of_one_service(stack: str) -> None:
    """The actions of each statement apply to its resources. cfn-lint does not check this, and AWS accepts such a statement without effect.
    The resource of the heartbeat of the Systems Manager agent is an instance (service authorization reference, retrieved 2026-11-28)."""
    for one in recording_of(stack).of("aws:iam/rolePolicy:RolePolicy"):
        for statement in json.loads(one.inputs["policy"])["Statement"]:
            services = {action.split(":")[0] for action in _list(statement["Action"])}
            named = {arn.split(":")[2] for arn in _list(statement["Resource"]) if arn != "*"}
            if services == {"ssm"} and statement["Sid"] != "ReadSecrets":
                assert _list(statement["Action"]) == ["ssm:UpdateInstanceInformation"], (
                    "other actions have resources of Systems Manager"
                )
                services = {"ec2"}
            assert named <= services, f"{one.name}: {statement['Sid']}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("stack", STACKS)
def test_a_statement_for_every_principal_requires_this_account(stack: str) -> None:
    """A statement for every principal denies, or has conditions on this account and on role ARNs."""
    for one, document in _documents(stack):
        for statement in document["Statement"]:
            if statement.get("Principal") not in ("*", {"AWS": "*"}) or statement["Effect"] == "Deny":
                continue
            condition = statement["Condition"]
            assert condition["StringEquals"]["kms:CallerAccount"] == ACCOUNT, one.name
            arns = _list(condition["ArnLike"]["aws:PrincipalArn"])
            assert all(arn.startswith(f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/") for arn in arns), one.name


@pytest.mark.parametrize("stack", STACKS)
def test_services_act_for_this_account(stack: str) -> None:
    """Every service principal has a condition on this account, against the confused deputy problem.
    The trust policies of EC2, of CloudTrail's log role and of S3 Replication have none in their guides (`test_service_roles.py`), and the policy of a
    topic for EventBridge has none in its guide (`policies.notify`)."""
    for one, document in _documents(stack):
        for statement in document["Statement"]:
            service = (
                statement.get("Principal", {}).get("Service") if isinstance(statement.get("Principal"), dict) else None
            )
            if (
                service is None
                or service in ("ec2.amazonaws.com", "events.amazonaws.com")
                or one.name.endswith(("-audit-log-role", "-replication-role"))
            ):
                continue
            assert ACCOUNT in json.dumps(statement["Condition"]), f"{one.name}: {statement['Sid']}"


NODE_ACTIONS = {"s3:GetObject", "s3:PutObject", "kms:Decrypt", "kms:GenerateDataKey", *SESSIONS}
"""Actions of every node."""
LOG_ACTIONS = {"logs:CreateLogStream", "logs:PutLogEvents"}
"""Actions of the nodes of a stack with logs."""


@pytest.mark.parametrize("stack", STACKS)
def test_a_node_has_few_permissions(stack: str) -> None:
    """A node reads bundles, writes below its own name, lists nothing, uses the key of the bucket through S3, and accepts sessions. Only the actions for
    the channels of sessions apply to all resources."""
    owns = [one for one in recording_of(stack).of("aws:iam/rolePolicy:RolePolicy") if one.name.endswith("-node-policy")]
    for one in owns:
        statements = json.loads(one.inputs["policy"])["Statement"]
        assert {action for statement in statements for action in _list(statement["Action"])} == (
            NODE_ACTIONS | (LOG_ACTIONS if stack == "aws-monitoring" else set())
        )
        (written,) = [statement["Resource"] for statement in statements if statement["Action"] == "s3:PutObject"]
        assert re.search(r"/evidence/[a-z0-9-]+/\$\{aws:userid\}/\*$", written)
        everywhere = [set(_list(statement["Action"])) for statement in statements if statement["Resource"] == "*"]
        assert everywhere == [SESSIONS - {"ssm:UpdateInstanceInformation"}]
    assert len(owns) == (
        1 if any(one.type.startswith("aws:autoscaling/group") for one in recording_of(stack).custom) else 0
    )


def test_only_the_control_node_finds_instances_and_reads_its_secrets() -> None:
    """The role of the control node has the rights of a node, lists instances of its Region, reads only the declared parameters, attaches only its data
    disk and only to its pool, writes metrics to its workspace and one object with orders, and terminates instances only in groups of its cluster."""
    policies = recording_of("aws-monitoring").of("aws:iam/rolePolicy:RolePolicy")
    (one,) = [one for one in policies if one.name.endswith("-control-policy")]
    statements = {found["Sid"]: found for found in json.loads(one.inputs["policy"])["Statement"]}
    actions = {action for found in statements.values() for action in _list(found["Action"])}
    assert actions == {
        *NODE_ACTIONS,
        "aps:RemoteWrite",
        *LOG_ACTIONS,
        "autoscaling:TerminateInstanceInAutoScalingGroup",
        "ec2:AttachVolume",
        "ec2:DescribeInstances",
        "kms:CreateGrant",
        "sns:Publish",
        "ssm:GetParameter",
    }
    assert re.fullmatch(rf"arn:aws:ec2:us-east-1:{ACCOUNT}:volume/vol-\w+", statements["AttachDataDisk"]["Resource"])
    own = {"aws:ResourceTag/gpuinfra:cluster": "watched", "aws:ResourceTag/gpuinfra:pool": "monitoring"}
    assert statements["AttachToControlNode"]["Condition"] == {"StringEquals": own}
    assert statements["LetEbsUseKey"]["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    assert str(statements["GiveOrders"]["Resource"]).endswith("/bootstrap/watched/monitoring/repair/orders.json")
    assert statements["ReplaceNodes"]["Condition"] == {"StringEquals": {"aws:ResourceTag/gpuinfra:cluster": "watched"}}
    nodes = next(one for one in policies if one.name.endswith("-node-policy"))
    assert "autoscaling:" not in nodes.inputs["policy"]
    assert "orders.json" not in nodes.inputs["policy"]
    assert "ec2:AttachVolume" not in nodes.inputs["policy"]
    assert statements["FindNodes"]["Condition"] == {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}
    assert statements["WriteMetrics"]["Resource"].startswith(f"arn:aws:aps:us-east-1:{ACCOUNT}:workspace/ws-")
    assert statements["ReadSecrets"]["Resource"] == [f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/alerts/slack"]


ORDERS = "/bootstrap/train/monitoring/repair/orders.json"
CONTEXT = {"aws:userid": "AROA1:i-1", "aws:SecureTransport": "true", "aws:PrincipalTag/gpuinfra:cluster": "train"}


@pytest.mark.parametrize(
    ("action", "path", "changed", "denied"),
    [
        ("s3:PutObject", "/evidence/train/AROA1:i-1/node.json", {}, False),
        ("s3:PutObject", "/evidence/train/AROA1:i-2/node.json", {}, True),
        ("s3:PutObject", "/evidence/train/AROA1:i-2/AROA1:i-1/node.json", {}, True),
        ("s3:PutObject", "/evidence/other/AROA1:i-1/node.json", {}, True),
        ("s3:PutObject", "/bootstrap/bundle.tar.gz", {}, True),
        ("s3:PutObject", ORDERS, {}, True),
        ("s3:PutObject", ORDERS, {"aws:PrincipalTag/gpuinfra:role": "control"}, False),
        ("s3:PutObject", ORDERS.replace("train", "other"), {"aws:PrincipalTag/gpuinfra:role": "control"}, True),
        ("s3:PutObject", ORDERS.replace("orders", "maintenance"), {"aws:PrincipalTag/gpuinfra:role": "control"}, True),
        ("s3:PutObject", "/bootstrap/train/gpu/bundle.tar.gz", {"aws:PrincipalTag/gpuinfra:role": "control"}, True),
        ("s3:DeleteObject", "/evidence/train/AROA1:i-2/node.json", {}, True),
        ("s3:DeleteObjectVersion", "/evidence/train/AROA1:i-2/node.json", {}, True),
        ("s3:PutBucketPolicy", "", {}, True),
        ("s3:DeleteBucketPolicy", "", {}, True),
        ("s3:GetObject", "/evidence/train/AROA1:i-2/rendezvous/0", {}, False),
        ("s3:PutObject", "/bootstrap/bundle.tar.gz", {"aws:userid": "AROA2:pulumi"}, False),
        ("s3:PutObject", "/bootstrap/bundle.tar.gz", {"aws:PrincipalTag/gpuinfra:cluster": None}, False),
    ],
)
def test_a_node_with_more_permissions_writes_to_its_own_folder_only(
    action: str, path: str, changed: dict[str, str | None], denied: bool
) -> None:
    """The policy of the evidence bucket denies writes of a node outside its folder, also if its role allows them.
    It denies nothing to people, or to instances that are not nodes."""
    found = [one for one in recording_of("aws-p4d").of("aws:s3/bucketPolicy:BucketPolicy") if "evidence" in one.name]
    (document,) = [str(one.inputs["policy"]) for one in found]
    everything = json.dumps({"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]})
    bucket = json.loads(document)["Statement"][0]["Resource"][0]
    context = {key: value for key, value in {**CONTEXT, **changed}.items() if value is not None}
    request = AccessRequest("arn:aws:sts::000000000000:assumed-role/r/i-1", action, f"{bucket}{path}", context)
    assert policy.decide(request, [everything], [document])[0] is not denied


ROLES = {
    "TRAIL_LOG_ROLE": "the trail's log group",
    "REPLICATION_ROLE": "the replication to a second Region",
    "FLOW_LOG_ROLE": "the flow logs",
    "NODE_ROLE": "the nodes",
}


def test_the_page_names_every_role_with_the_boundary() -> None:
    """The sentence about `permissions_boundary` on the AWS page names each role that a stack creates."""
    found = {name for name, row in vars(resources).items() if getattr(row, "type", "") == "aws:iam/role:Role"}
    assert found == set(ROLES)
    (line,) = [one for one in PAGE.read_text().splitlines() if one.startswith("`permissions_boundary` applies")]
    named = line.partition(": the roles for ")[2].partition(".")[0]
    assert sorted(named.replace(", and ", ", ").split(", ")) == sorted(ROLES.values())
