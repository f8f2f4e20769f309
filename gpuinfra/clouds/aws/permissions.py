"""The least IAM policies for an operator of one plan, from the table of actions and the names that the plan gives to things.

An action is held to resources in the narrowest way that AWS offers for it: by the cluster's name where names are in ARNs, by the cluster's tag where
a change can be held to one, else by region. Nothing is a wildcard over actions. What a destroy keeps may not be deleted.
Pure.
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
"""Characters of a managed policy, white space not counted. IAM quotas, read 2026-11-21."""
POLICIES_OF_A_ROLE = 10
SOURCE = "terraform-provider-aws 6 and AWS's service authorization reference, read 2026-11-21; held against the permissions in CloudFormation's schemas"

ASKED: dict[str, tuple[str, ...]] = {
    "reading an image's parameter": ("ssm:GetParameter",),
    "the handover: who should be there": (
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeScalingActivities",
        "ec2:DescribeInstances",
    ),
    "the handover: what nodes reported": ("s3:ListBucket", "s3:GetObject", "kms:Decrypt"),
    "the handover: why a node is silent": ("ec2:GetConsoleOutput",),
}
"""Requests of the program itself. `sts:GetCallerIdentity` needs no permission."""

ACTIONS = {row.type: row.actions for row in RESOURCES}
"""Type -> actions by operation."""

_NAME_LENGTH = 20
"""A longer name of a cluster is cut in names of buckets, so patterns end before that."""
_GLOBAL = frozenset({"iam", "s3", "budgets", "route53"})
"""Services whose requests have no region of their own, or whose ARNs say enough."""

# Changes that AWS can hold to the tag of what is changed. Service authorization reference, condition aws:ResourceTag, read 2026-11-21.
# Taking rules out of a security group is not among them: the network's default group is emptied before it has a tag of ours.
_BY_TAG = ("ec2:Modify", "ec2:Delete", "ec2:Detach", "ec2:Release", "ec2:Replace", "ec2:Disassociate", "fsx:Update", "fsx:Delete",
           "kms:PutKeyPolicy", "kms:EnableKeyRotation", "kms:UpdateKeyDescription", "kms:ScheduleKeyDeletion", "kms:GetKey", "kms:ListResourceTags")  # fmt: skip
_NOT_BY_TAG = frozenset({"ec2:DeleteTags"})

_SERVICE_ROLES = {
    "autoscaling.amazonaws.com": "autoscaling/group:Group",
    "fsx.amazonaws.com": "fsx/lustreFileSystem:LustreFileSystem",
    "s3.data-source.lustre.fsx.amazonaws.com": "fsx/dataRepositoryAssociation:DataRepositoryAssociation",
}
"""Service -> the type whose first creation in an account makes the service's own role."""

_PASSED_TO = {
    "ec2.amazonaws.com": ("autoscaling/group:Group", "iam/instanceProfile:InstanceProfile"),
    "vpc-flow-logs.amazonaws.com": ("ec2/flowLog:FlowLog",),
    "cloudtrail.amazonaws.com": ("cloudtrail/trail:Trail",),
}


@dataclass(frozen=True)
class _Scope:
    """What a statement is held to."""

    sid: str
    resources: tuple[str, ...]
    conditions: str = "{}"
    """JSON, so that scopes compare."""


def permissions(plan: Plan) -> Permissions:
    """The policies of a plan's operator, with every action's reason."""
    uses = _uses(plan)
    notes = [
        "attach the documents to the role that runs Pulumi; together they are one policy, cut where IAM's limit is",
        "whoever may write the policies of roles that he may pass to machines can give himself more; a permissions boundary on the account's roles ends that",
        "Pulumi's own state is not in them: a bucket of yours needs s3:GetObject, PutObject, DeleteObject and ListBucket",
    ]
    if any(one.retained for one in resources(plan)):
        notes.append("what a destroy keeps may not be deleted with them; whoever deletes it later needs more")
    documents = documents_of(_statements(plan, uses))
    if len(documents) > POLICIES_OF_A_ROLE:
        notes.append(f"{len(documents)} documents are more than the {POLICIES_OF_A_ROLE} that a role takes")
    return Permissions(cloud="aws", needs=collect(uses), documents=tuple(documents), notes=tuple(notes), source=SOURCE)


def documents_of(statements: Iterable[Mapping[str, Any]], limit: int = POLICY_LIMIT) -> list[dict[str, Any]]:
    """Statements in as few policies as IAM's limit allows."""
    made: list[dict[str, Any]] = []
    for statement in statements:
        if not made or _size({**made[-1], "Statement": [*made[-1]["Statement"], statement]}) > limit:
            made.append({"Version": "2012-10-17", "Statement": []})
        made[-1]["Statement"].append(dict(statement))
    return made


def _size(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document, separators=(",", ":")))


def _uses(plan: Plan) -> dict[str, list[tuple[str, str]]]:
    """Action -> what needs it."""
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
    """Where one action is allowed."""
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
    """Buckets of this stack; and where another stack made the evidence bucket, the one that is named so."""
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
    """ARNs by name, for services that have the name in the ARN and take it for this action."""
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
    """A single value without a list around it, as people write policies."""
    held = list(values)
    return held[0] if len(held) == 1 else held
