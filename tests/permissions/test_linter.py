"""The policies of `gpuinfra permissions` on AWS under parliament, an IAM linter of Duo Labs (BSD-3-Clause)."""

from __future__ import annotations

import functools
import gc
import json
import warnings
from typing import Any

import pytest

from gpuinfra.base import naming
from gpuinfra.clouds.aws.instances import buckets
from tests.clouds.stacks import plan_of, shipped_aws_stacks
from tests.permissions.needed import permissions_of


@functools.cache
def _linter() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # parliament leaves its own files open while it is imported
        import parliament

        gc.collect()
    return parliament


_ON_SESSIONS = "ssmmessages:OpenDataChannel"
"""parliament's table lists no resource for this action. The guide of Session Manager restricts it to a session
(https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-restrict-access-quickstart.html, retrieved 2026-11-22)."""


def _documents(stack: str) -> tuple[Any, ...]:
    return permissions_of(plan_of(stack)).documents


def _findings(stack: str, documents: tuple[Any, ...]) -> list[str]:
    """Findings of all documents as one policy, because they are attached to one role."""
    plan = plan_of(stack)
    own = [
        "arn:aws:s3:::"
        + naming.bucket_name(plan.name, one.values["purpose"], "?" * 12, one.values.get("region", plan.region), "?" * 8)
        for one in buckets(plan)
    ]
    whole = {"Version": "2012-10-17", "Statement": [one for document in documents for one in document["Statement"]]}
    whole["Statement"] = [{**one, "Sid": f"S{index}"} for index, one in enumerate(whole["Statement"])]
    found = []
    for one in _linter().analyze_policy_string(json.dumps(whole)).findings:
        bucket = str(one.detail).partition(" on ")[2].partition(" due to ")[0]
        # The stack creates this bucket with its policy, so its operator can set the policy.
        if one.issue == "RESOURCE_POLICY_PRIVILEGE_ESCALATION" and bucket in own:
            continue
        if one.issue == "RESOURCE_MISMATCH" and {detail["action"] for detail in one.detail} == {_ON_SESSIONS}:
            continue
        found.append(f"{one.issue} {one.detail}")
    return found


@pytest.mark.parametrize("stack", shipped_aws_stacks())
def test_an_iam_linter_has_no_finding(stack: str) -> None:
    """parliament has no finding about the policies of a shipped stack."""
    assert _findings(stack, _documents(stack)) == []


@pytest.mark.parametrize(
    ("statement", "issue"),
    [
        ({"Action": ["ec2:DeleteVpc"], "Resource": "*"}, "RESOURCE_STAR"),
        ({"Action": ["iam:PassRole"], "Resource": "arn:aws:s3:::x"}, "RESOURCE_MISMATCH"),
        ({"Action": ["s3:PutBucketPolicy"], "Resource": "arn:aws:s3:::other"}, "RESOURCE_POLICY_PRIVILEGE_ESCALATION"),
    ],
)
def test_the_linter_finds_a_broken_policy(statement: dict[str, Any], issue: str) -> None:
    """A statement that is too wide, or whose resource does not fit, is a finding."""
    broken = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]}
    assert any(one.startswith(issue) for one in _findings("aws-p4d", (*_documents("aws-p4d"), broken)))


@pytest.mark.parametrize("stack", shipped_aws_stacks())
def test_tags_and_policies_are_fenced(stack: str) -> None:
    """Each action that sets a tag, and each that attaches a policy to a role of the stack, has a condition on what it sets."""
    for document in _documents(stack):
        for one in document["Statement"]:
            keys = {key for test in one.get("Condition", {}).values() for key in test}
            if {"ec2:CreateTags", "kms:TagResource", "fsx:TagResource"} & set(one["Action"]):
                assert keys & {"aws:ResourceTag/gpuinfra:cluster", "aws:RequestTag/gpuinfra:cluster", "ec2:CreateAction"}, one  # fmt: skip
            if "iam:AttachRolePolicy" in one["Action"] and "aws-service-role" not in json.dumps(one["Resource"]):
                assert keys == {"iam:PolicyARN"}, one
            if any(action.startswith("ec2:AuthorizeSecurityGroup") for action in one["Action"]):
                assert one["Condition"]["StringEquals"].keys() == {"aws:ResourceTag/gpuinfra:cluster"}, one


ADDS = ("Allocate", "Associate", "Attach", "Create", "Run")
"""Verbs of EC2 that add something to the resource whose tag they would check."""


@pytest.mark.parametrize("stack", shipped_aws_stacks())
def test_existing_resources_of_ec2_are_changed_by_their_tag(stack: str) -> None:
    """Each action that changes or deletes a resource of EC2 has a condition on its tag, if AWS supports the condition."""
    (ec2,) = (service for service in _linter().iam_definition if service["prefix"] == "ec2")
    by_tag = {
        f"ec2:{one['privilege']}"
        for one in ec2["privileges"]
        for resource in one["resource_types"]
        if resource["resource_type"] and any("aws:ResourceTag" in key for key in resource["condition_keys"])
    }
    without = {
        action
        for document in _documents(stack)
        for statement in document["Statement"]
        if "aws:ResourceTag" not in str(statement.get("Condition"))
        for action in statement["Action"]
    }
    assert {
        one for one in without & by_tag if not one.removeprefix("ec2:").startswith((*ADDS, "Describe", "Get"))
    } == set()
