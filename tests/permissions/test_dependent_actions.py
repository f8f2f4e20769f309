"""The policies of `gpuinfra permissions` on AWS, compared with the dependent actions in AWS's service authorization reference."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from gpuinfra.clouds.aws.permissions import permissions
from gpuinfra.plan.model import FileSystemPlan, Lifetime, Plan
from tests.clouds.stacks import plan_of, shipped_aws_stacks
from tests.permissions.reference import dependent_actions

NOT_REQUIRED = {
    ("cloudtrail:*Trail", "organizations:ListAWSServiceAccessForOrganization"): "only for the trail of an organization",
    ("cloudtrail:*Trail", "iam:CreateServiceLinkedRole"): "only for the trail of an organization",
    ("ec2:CreateFlowLogs", "ecs:List*"): "only if the log format has the fields of ECS",
    ("ec2:*LaunchTemplate*", "ssm:GetParameters"): "only if the template names a parameter; gpuinfra resolves it first",
    ("ec2:RunInstances", "ssm:GetParameters"): "only if the template names a parameter; gpuinfra resolves it first",
    ("ec2:CreateVpcEndpoint", "route53:AssociateVPCWithHostedZone"): "only for an interface endpoint with private DNS names",
    ("fsx:DeleteFileSystem", "fsx:CreateBackup"): "only for a final backup, which the provider does not take for Lustre (skipFinalBackup is true by default)",
    ("kms:CreateKey", "iam:CreateServiceLinkedRole"): "only for a multi-Region key",
    ("resource-groups:ListGroupResources", "cloudformation:*"): "only for a group of the resources of a CloudFormation stack",
    ("resource-groups:ListGroupResources", "tag:GetResources"): "only for a group by tags; a group of reservations has its members",
    ("servicequotas:GetServiceQuota", "*"): "each only for the quotas of its service; gpuinfra reads those of EC2, FSx and EFS",
}  # fmt: skip
"""(pattern of an action, pattern of a dependent action) -> why our requests do not require it."""


def _home(service: str, lifetime: Lifetime) -> FileSystemPlan:
    openzfs = service == "openzfs"
    return FileSystemPlan(
        name=f"{service}-0", kind="home", service=service, mount=f"/{service}", capacity_gib=64, deployment="SINGLE_AZ_2" if openzfs else "elastic",
        throughput_mb_s_per_tib=None, throughput_mb_s=160 if openzfs else None, subnet="private-0", lifetime=lifetime,
    )  # fmt: skip


def _plans() -> dict[str, Plan]:
    plans = {stack: plan_of(stack) for stack in shipped_aws_stacks()}
    homes = (_home("efs", Lifetime.KEPT), _home("openzfs", Lifetime.KEPT))
    p4d = plans["aws-p4d"]
    restored = tuple(replace(one, restore_from="backup-0123456789abcdef0") for one in p4d.file_systems)
    return {
        **plans,
        "with homes": replace(p4d, file_systems=(*p4d.file_systems, *homes)),
        "with a restored file system": replace(p4d, file_systems=restored),
    }


PLANS = _plans()


def _absent(plan: Plan) -> set[tuple[str, str]]:
    """(action of the policies, dependent action that they do not allow)."""
    allowed = {need.action for need in permissions(plan).needs}
    return {(one, other) for one in allowed for other in dependent_actions().get(one, set()) - allowed}


def _excused(pair: tuple[str, str]) -> bool:
    return any(fnmatchcase(pair[0], action) and fnmatchcase(pair[1], other) for action, other in NOT_REQUIRED)


@pytest.mark.parametrize("name", PLANS)
def test_dependent_actions_are_allowed(name: str) -> None:
    """The policies allow each action that another action requires, or there is a reason."""
    assert {pair for pair in _absent(PLANS[name]) if not _excused(pair)} == set()


def test_each_reason_is_used() -> None:
    """No exception is obsolete."""
    pairs = {pair for plan in PLANS.values() for pair in _absent(plan)}
    unused = [
        (action, other)
        for action, other in NOT_REQUIRED
        if not any(fnmatchcase(one, action) and fnmatchcase(two, other) for one, two in pairs)
    ]
    assert unused == []
