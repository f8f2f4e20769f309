"""Restrictions in the policy documents of all shipped stacks. `test_models.py` checks the documents with cfn-lint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cfnlint.api import lint_all

from tests.clouds.recorder import ACCOUNT, Registered
from tests.clouds.stacks import recording_of, shipped_aws_stacks

STACKS = shipped_aws_stacks()
SESSIONS = {"ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"}  # fmt: skip
"""https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AWSCloud9SSMInstanceProfile.html, read 2026-11-22."""


def _lint(resources: dict[str, dict[str, Any]]) -> list[str]:
    template = {"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources}
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


@pytest.mark.parametrize("stack", STACKS)
def test_actions_and_resources_of_a_role_are_of_one_service(stack: str) -> None:
    """The actions of each statement apply to its resources. cfn-lint does not check this, and AWS accepts such a statement without effect."""
    for one in recording_of(stack).of("aws:iam/rolePolicy:RolePolicy"):
        for statement in json.loads(one.inputs["policy"])["Statement"]:
            services = {action.split(":")[0] for action in _list(statement["Action"])}
            named = {arn.split(":")[2] for arn in _list(statement["Resource"]) if arn != "*"}
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
    """Every service principal has a condition on this account, against the confused deputy problem. The trust policies of EC2, of CloudTrail's log role and of S3 Replication have none in their guides (`test_service_roles.py`)."""
    for one, document in _documents(stack):
        for statement in document["Statement"]:
            service = (
                statement.get("Principal", {}).get("Service") if isinstance(statement.get("Principal"), dict) else None
            )
            if (
                service is None
                or service == "ec2.amazonaws.com"
                or one.name.endswith(("-audit-log-role", "-replication-role"))
            ):
                continue
            assert ACCOUNT in json.dumps(statement["Condition"]), f"{one.name}: {statement['Sid']}"


@pytest.mark.parametrize("stack", STACKS)
def test_a_node_has_few_permissions(stack: str) -> None:
    """A node reads bundles, writes to its own folder, uses the key of the bucket through S3, and accepts sessions. Only the actions for sessions apply to all resources."""
    owns = [one for one in recording_of(stack).of("aws:iam/rolePolicy:RolePolicy") if one.name.endswith("-node-policy")]
    for one in owns:
        statements = json.loads(one.inputs["policy"])["Statement"]
        assert {action for statement in statements for action in _list(statement["Action"])} == {
            "s3:GetObject",
            "s3:PutObject",
            "kms:Decrypt",
            "kms:GenerateDataKey",
            *SESSIONS,
        }
        written = next(statement["Resource"] for statement in statements if statement["Action"] == "s3:PutObject")
        assert written.endswith("/${aws:userid}/*")
        everywhere = [set(_list(statement["Action"])) for statement in statements if statement["Resource"] == "*"]
        assert everywhere == [SESSIONS]
    assert len(owns) == (
        1 if any(one.type.startswith("aws:autoscaling/group") for one in recording_of(stack).custom) else 0
    )
