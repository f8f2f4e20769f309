"""Least-privilege IAM policies for deploying a plan, generated from the actions in the resource table. Pure.

Each action is restricted by the first of these that AWS supports: the cluster name in the ARN, the cluster tag, or the Region.
Actions contain no wildcards. The policies do not allow the deletion of resources that `destroy` retains.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuinfra.clouds.aws.resources import RESOURCES, resources
from gpuinfra.clouds.permissions import Permissions, collect, uses_of
from gpuinfra.naming import short
from gpuinfra.plan.model import Plan

POLICY_LIMIT = 6144
"""Maximum size of a managed policy in characters, excluding white space. IAM quotas, read 2026-11-21."""
POLICIES_OF_A_ROLE = 10
SOURCE = "terraform-provider-aws 6 and the AWS service authorization reference, read 2026-11-21; compared with the permissions in CloudFormation schemas"

ASKED: dict[str, tuple[str, ...]] = {
    "read the parameter of an image": ("ssm:GetParameter",),
    "handover: list the instances": (
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeScalingActivities",
        "ec2:DescribeInstances",
    ),
    "handover: replace the other nodes after a verified canary": (
        "autoscaling:DescribeInstanceRefreshes",
        "autoscaling:StartInstanceRefresh",
    ),
    "handover: read the evidence": ("s3:ListBucket", "s3:GetObject", "kms:Decrypt"),
    "handover: read the console output of a node without evidence": ("ec2:GetConsoleOutput",),
}
"""Requests that gpuinfra makes. `sts:GetCallerIdentity` requires no permission."""

ACTIONS = {row.type: row.actions for row in RESOURCES}
"""Maps a resource type to its actions by operation."""

_NAME_LENGTH = 20
"""Bucket names, and therefore the patterns, contain at most this many characters of the cluster name."""
_GLOBAL = frozenset({"iam", "s3", "budgets", "route53"})
"""Services whose requests have no Region, or whose ARNs are specific enough."""

# Actions that support the condition aws:ResourceTag. Service authorization reference, read 2026-11-21.
# Revoking security group rules is not listed, because the rules of the default VPC group are removed before the group is tagged.
_BY_TAG = ("ec2:Modify", "ec2:Delete", "ec2:Detach", "ec2:Release", "ec2:Replace", "ec2:Disassociate", "fsx:Update", "fsx:Delete",
           "kms:PutKeyPolicy", "kms:EnableKeyRotation", "kms:UpdateKeyDescription", "kms:ScheduleKeyDeletion", "kms:GetKey", "kms:ListResourceTags")  # fmt: skip
_NOT_BY_TAG = frozenset({"ec2:DeleteTags"})

_SERVICE_ROLES = {
    "autoscaling.amazonaws.com": "autoscaling/group:Group",
    "fsx.amazonaws.com": "fsx/lustreFileSystem:LustreFileSystem",
    "s3.data-source.lustre.fsx.amazonaws.com": "fsx/dataRepositoryAssociation:DataRepositoryAssociation",
}
"""Maps a service to the resource type whose first creation in an account creates the service-linked role."""

_PASSED_TO = {
    "ec2.amazonaws.com": ("autoscaling/group:Group", "iam/instanceProfile:InstanceProfile"),
    "vpc-flow-logs.amazonaws.com": ("ec2/flowLog:FlowLog",),
    "cloudtrail.amazonaws.com": ("cloudtrail/trail:Trail",),
}


@dataclass(frozen=True)
class _Scope:
    """The resources and conditions of a statement."""

    sid: str
    resources: tuple[str, ...]
    conditions: str = "{}"
    """Conditions as JSON, so that scopes are comparable."""


def permissions(plan: Plan) -> Permissions:
    """Return the policies for a plan, with the reason for every action."""
    uses = _uses(plan)
    notes = [
        "attach all documents to the role that runs Pulumi; they are one policy, split at the size limit of IAM",
        "a principal that can edit policies of roles and pass these roles to instances can escalate its privileges; require a permissions boundary to prevent it",
        "access to the Pulumi state is not included: an S3 backend needs s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket",
    ]
    if any(one.retained for one in resources(plan)):
        notes.append(
            "the policies do not allow deletion of resources that destroy retains; to delete them later, add the permissions"
        )
    documents = documents_of(_statements(plan, uses))
    if len(documents) > POLICIES_OF_A_ROLE:
        notes.append(
            f"there are {len(documents)} documents, but a role accepts at most {POLICIES_OF_A_ROLE} managed policies"
        )
    return Permissions(cloud="aws", needs=collect(uses), documents=tuple(documents), notes=tuple(notes), source=SOURCE)


def documents_of(statements: Iterable[Mapping[str, Any]], limit: int = POLICY_LIMIT) -> list[dict[str, Any]]:
    """Pack the statements into as few policies as the IAM size limit allows."""
    made: list[dict[str, Any]] = []
    for statement in statements:
        if not made or _size({**made[-1], "Statement": [*made[-1]["Statement"], statement]}) > limit:
            made.append({"Version": "2012-10-17", "Statement": []})
        made[-1]["Statement"].append(dict(statement))
    return made


def _size(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document, separators=(",", ":")))


def _uses(plan: Plan) -> dict[str, list[tuple[str, str]]]:
    """Action -> its uses."""
    planned = resources(plan)
    unset = set() if plan.network is not None and plan.network.interface_endpoints else {"privateDnsEnabled"}
    if not any(one.type.startswith("aws:s3/bucketObjectLock") for one in planned):
        unset.add("objectLockEnabled")
    return uses_of(planned, ACTIONS, ASKED if plan.pools else {}, frozenset(unset))


def _statements(plan: Plan, uses: Mapping[str, list[tuple[str, str]]]) -> Iterator[dict[str, Any]]:
    scopes: dict[_Scope, set[str]] = defaultdict(set)
    for action, needed in uses.items():
        for scope in _scopes(plan, action, {type_.removeprefix("aws:") for type_, _ in needed}):
            scopes[scope].add(action)
    named: Counter[str] = Counter()
    for scope in sorted(scopes, key=lambda one: (one.sid, one.resources)):
        named[scope.sid] += 1
        sid = scope.sid + (str(named[scope.sid]) if named[scope.sid] > 1 else "")
        statement = {
            "Sid": sid, "Effect": "Allow", "Action": sorted(scopes[scope]), "Resource": _one(scope.resources),
        }  # fmt: skip
        conditions = json.loads(scope.conditions)
        yield {**statement, "Condition": conditions} if conditions else statement


def _scopes(plan: Plan, action: str, types: set[str]) -> Iterator[_Scope]:
    """Return the resources and conditions for an action."""
    service, _, call = action.partition(":")
    own = short(plan.name, _NAME_LENGTH)
    if action == "iam:PassRole":
        to = sorted(service for service, of in _PASSED_TO.items() if types & set(of))
        yield _scope("PassRoles", [f"arn:aws:iam::*:role/{own}*"], StringEquals={"iam:PassedToService": _one(to)})
    elif action == "iam:CreateServiceLinkedRole":
        of = sorted(service for service, type_ in _SERVICE_ROLES.items() if type_ in types)
        where = [f"arn:aws:iam::*:role/aws-service-role/{service}/*" for service in of]
        yield _scope("MakeServicesRoles", where, StringLike={"iam:AWSServiceName": _one(of)})
    elif service == "iam":
        if "fsx/dataRepositoryAssociation:DataRepositoryAssociation" in types:
            linked = "arn:aws:iam::*:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/*"
            yield _scope("LetFileSystemReadItsBucket", [linked])
        yield _scope("Roles", [f"arn:aws:iam::*:role/{own}*", f"arn:aws:iam::*:instance-profile/{own}*"])
    elif service == "s3":
        yield _scope(*_in_buckets(plan, action, own))
    elif action in ("kms:GenerateDataKey", "kms:Decrypt"):
        yield _scope("UseKeysThroughS3", ["*"], StringEquals={"kms:ViaService": f"s3.{plan.region}.amazonaws.com"})
    elif action == "kms:CreateGrant":
        yield _scope("LetFileSystemUseItsKey", ["*"], Bool={"kms:GrantIsForAWSResource": "true"})
    elif service == "budgets":
        yield _scope("Budget", [f"arn:aws:budgets::*:budget/{own}*"])
    elif service == "route53":
        yield _scope("NameEndpoints", ["*"])
    elif named := _named(plan, action, own):
        yield _scope(service.capitalize(), named)
    elif action.startswith(_BY_TAG) and action not in _NOT_BY_TAG:
        yield _scope("ChangeWhatIsTagged", ["*"], StringEquals={"aws:ResourceTag/gpuinfra:cluster": plan.name})
    else:
        sid = "Look" if call.startswith(("Describe", "List", "Get")) else "Make"
        yield _scope(sid, ["*"], StringEquals={"aws:RequestedRegion": plan.region})


def _in_buckets(plan: Plan, action: str, own: str) -> tuple[str, list[str]]:
    """Return the buckets of the stack and, if the stack creates no evidence bucket, the evidence buckets of other stacks."""
    buckets = [f"arn:aws:s3:::{own}*"]
    given = [one.bucket for one in plan.file_systems if one.bucket not in (None, "auto")]
    if "Object" in action.replace("ObjectLock", "") or action == "s3:ListBucketVersions":
        if "foundation" not in plan.layers:
            buckets.append("arn:aws:s3:::*-evidence-*")
        if action == "s3:ListBucketVersions":
            return "FindOldVersions", buckets
        return "Objects", [f"{bucket}/*" for bucket in buckets]
    if action == "s3:ListBucket":
        others = ["arn:aws:s3:::*-evidence-*"] if "foundation" not in plan.layers else []
        return "ListBuckets", [*buckets, *others, *(f"arn:aws:s3:::{bucket}" for bucket in given)]
    return "Buckets", buckets


def _named(plan: Plan, action: str, own: str) -> list[str]:
    """Return ARNs with the cluster name, if the service supports them for this action."""
    service, _, call = action.partition(":")
    where = f"{plan.region}:*"
    if service == "autoscaling" and not call.startswith("Describe"):
        return [f"arn:aws:autoscaling:{where}:autoScalingGroup:*:autoScalingGroupName/{own}*"]
    if service == "logs" and call != "DescribeLogGroups":
        return [f"arn:aws:logs:{where}:log-group:{path}/{own}*" for path in ("/gpuinfra", "/aws/fsx")]
    if service == "ssm" and call != "DescribeParameters":
        own_ones = [f"arn:aws:ssm:{where}:parameter/gpuinfra/{own}*"]
        return (
            [*own_ones, f"arn:aws:ssm:{plan.region}::parameter/aws/service/*"] if call == "GetParameter" else own_ones
        )
    if service == "cloudtrail" and call != "DescribeTrails":
        return [f"arn:aws:cloudtrail:{where}:trail/{own}*"]
    if service == "fsx" and call.startswith(("Create", "TagResource")):
        return [f"arn:aws:fsx:{where}:file-system/*", f"arn:aws:fsx:{where}:association/*"]
    if action in ("kms:CreateAlias", "kms:UpdateAlias", "kms:DeleteAlias"):
        return [f"arn:aws:kms:{where}:alias/gpuinfra/{own}*", f"arn:aws:kms:{where}:key/*"]
    return []


def _scope(sid: str, resources: Iterable[str], **conditions: Mapping[str, Any]) -> _Scope:
    return _Scope(sid, tuple(resources), json.dumps(conditions, sort_keys=True))


def _one(values: Iterable[str]) -> Any:
    """Unwrap a list with a single value, as is usual in policies."""
    held = list(values)
    return held[0] if len(held) == 1 else held
