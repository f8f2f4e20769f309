"""Trust policies and permissions of the roles that AWS services assume, compared with the guide of each service."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.clouds.recorder import Registered
from tests.clouds.stacks import recording_of, shipped_aws_stacks


@dataclass(frozen=True, kw_only=True)
class Guide:
    """What the guide of a service describes."""

    page: str
    conditions: frozenset[str]
    """Context keys that the trust policy has. The service sends no others."""
    actions: frozenset[str] | None
    """Actions of the role's policy. None if the guide leaves them to the user."""


GUIDES = {
    "cloudtrail.amazonaws.com": Guide(
        page="https://docs.aws.amazon.com/awscloudtrail/latest/userguide/cloudtrail-required-policy-for-cloudwatch-logs.html",
        conditions=frozenset(),
        actions=frozenset({"logs:CreateLogStream", "logs:PutLogEvents"}),
    ),
    "vpc-flow-logs.amazonaws.com": Guide(
        page="https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html",
        conditions=frozenset({"aws:SourceAccount", "aws:SourceArn"}),
        # The guide also has CreateLogGroup; the group exists.
        actions=frozenset({"logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogGroups", "logs:DescribeLogStreams"}),
    ),
    "s3.amazonaws.com batchoperations.s3.amazonaws.com": Guide(
        page="https://docs.aws.amazon.com/AmazonS3/latest/userguide/replication-config-for-kms-objects.html",
        conditions=frozenset(),
        # The guide leaves the actions for batch jobs and for keys to the user; tests/permissions/test_service_roles.py lists them.
        actions=None,
    ),
    "ec2.amazonaws.com": Guide(
        page="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/iam-roles-for-amazon-ec2.html",
        conditions=frozenset(),
        actions=None,
    ),
}  # fmt: skip
"""The pages were retrieved 2026-11-22. The note of CloudTrail's page excludes aws:SourceArn and aws:SourceAccount."""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _conditions(document: dict[str, Any]) -> set[str]:
    return {key for one in document["Statement"] for test in one.get("Condition", {}).values() for key in test}


def _policies(stack: str, role: Registered) -> list[dict[str, Any]]:
    own = [one for one in recording_of(stack).of("aws:iam/rolePolicy:RolePolicy") if one.inputs["role"] == role.id]
    return [json.loads(one.inputs["policy"]) for one in own]


@pytest.mark.parametrize("stack", shipped_aws_stacks())
def test_each_service_role_is_as_its_guide_describes(stack: str) -> None:
    """The trust policy has the conditions of the guide, and the role has its actions and no others."""
    for role in recording_of(stack).of("aws:iam/role:Role"):
        trust = json.loads(role.inputs["assumeRolePolicy"])
        (named,) = [one["Principal"]["Service"] for one in trust["Statement"]]
        service = named if isinstance(named, str) else " ".join(named)
        guide = GUIDES[service]
        assert _conditions(trust) == guide.conditions, (role.name, guide.page)
        actions = {
            action for one in _policies(stack, role) for part in one["Statement"] for action in _list(part["Action"])
        }
        assert guide.actions in (None, actions), (role.name, guide.page)
