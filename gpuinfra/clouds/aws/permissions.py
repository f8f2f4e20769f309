"""Least-privilege IAM policies for deploying a plan, generated from the actions in the resource table. Pure.

Each action is restricted by the first of the following that AWS supports: the names that the plan creates, the cluster tag, or the Region.
Actions contain no wildcards. The policies do not allow the deletion of resources that `destroy` retains.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.base.naming import TOKEN_LENGTH, bucket_name, evidence_prefix, unique_name
from gpuinfra.clouds.aws import instances, pending
from gpuinfra.clouds.aws.profile import USER
from gpuinfra.clouds.aws.region.recovery import NAMESPACE
from gpuinfra.clouds.aws.regions import partition
from gpuinfra.clouds.aws.requests import CHANGES, IN_BOTH, NAMES, OWN_PERMISSIONS, RECORD, SSH, Purpose, asked
from gpuinfra.clouds.aws.resources import NODE_ROLE, RESOURCES, resources
from gpuinfra.clouds.pending import SEARCH
from gpuinfra.clouds.permissions import Permissions, collect, reads_of, uses_of
from gpuinfra.clouds.region.active import OWN_KEYS
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import PlannedResource
from gpuinfra.plan.recovery_model import NamesPlan

POLICY_LIMIT = 6144
"""Maximum size of a managed policy in characters, excluding white space. IAM quotas, retrieved 2026-11-21."""
POLICIES_OF_A_ROLE = 10
SOURCE = "terraform-provider-aws 6 and the AWS service authorization reference, retrieved 2026-11-21; compared with the permissions in CloudFormation schemas"

ACTIONS = {row.type: row.actions for row in RESOURCES}
"""Maps a resource type to its actions by operation."""

_CLUSTER = "gpuinfra:cluster"
_ACCOUNT, _TOKEN = "?" * 12, "?" * TOKEN_LENGTH
"""IAM patterns for the account and the stack token in a name. These values are unknown when the policy is generated."""
_PROFILE = "aws:iam/instanceProfile:InstanceProfile"
_DESCRIBED_BY_ID = frozenset({"DescribeVpcAttribute"})
"""EC2 Describe actions that support resource-level permissions."""
_BY_BOUNDARY = frozenset(
    {
        "iam:CreateRole",
        "iam:PutRolePolicy",
        "iam:DeleteRolePolicy",
        "iam:AttachRolePolicy",
        "iam:DetachRolePolicy",
        "iam:PutRolePermissionsBoundary",
    }
)
"""Actions that support the `iam:PermissionsBoundary` condition. Service authorization reference, retrieved 2026-11-22."""
_TAGGING = frozenset({"ec2:CreateTags", "ec2:DeleteTags", "kms:TagResource", "kms:UntagResource", "fsx:TagResource", "fsx:UntagResource",
                      "elasticfilesystem:TagResource", "elasticfilesystem:UntagResource"})  # fmt: skip

# Actions that support the condition aws:ResourceTag. Service authorization reference, retrieved 2026-11-21.
# Requests that the provider sends right after it creates a key are not listed either, because a tag can take minutes to take effect
# (KMS developer guide, "Using tags to control access to KMS keys").
_BY_TAG = ("ec2:Authorize", "ec2:Revoke", "ec2:Modify", "ec2:Delete", "ec2:Detach", "ec2:Release", "ec2:Replace", "ec2:Disassociate", "fsx:Update",
    "fsx:Delete",
           "elasticfilesystem:CreateMountTarget", "elasticfilesystem:CreateReplicationConfiguration",
           "elasticfilesystem:Put", "elasticfilesystem:Update", "elasticfilesystem:Modify",
           "elasticfilesystem:Delete", "kms:UpdateKeyDescription", "kms:ScheduleKeyDeletion",
           "aps:CreateAlertManager", "aps:Put", "aps:Update", "aps:Delete")  # fmt: skip

_INTERFACES = frozenset(
    {"ec2:CreateNetworkInterface", "ec2:ModifyNetworkInterfaceAttribute", "ec2:DeleteNetworkInterface"}
)

_OBJECT = "s3/bucketObjectv2:BucketObjectv2"
IMAGE_COPY = "ec2/amiCopy:AmiCopy"
_IMAGE_KEY_USE = frozenset({"kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:CreateGrant"})  # fmt: skip
"""Actions on keys that EC2 performs with the permissions of a caller that copies an image."""

WORKSPACE = "amp/workspace:Workspace"
_WORKSPACE_KEY_USE = frozenset({"kms:DescribeKey", "kms:CreateGrant", "kms:GenerateDataKey", "kms:Decrypt"})
"""Actions on the key of a workspace for metrics that the service performs with the permissions of the caller
(https://docs.aws.amazon.com/prometheus/latest/userguide/encryption-at-rest-Amazon-Service-Prometheus.html, retrieved 2026-11-30)."""

_SERVICE_ROLES = {
    "autoscaling.amazonaws.com": {"autoscaling/group:Group"},
    "elasticfilesystem.amazonaws.com": {"efs/fileSystem:FileSystem"},
    "fsx.amazonaws.com": {"fsx/lustreFileSystem:LustreFileSystem", "fsx/openZfsFileSystem:OpenZfsFileSystem"},
    "s3.data-source.lustre.fsx.amazonaws.com": {"fsx/dataRepositoryAssociation:DataRepositoryAssociation"},
}
"""Maps a service to the resource types whose first creation in an account creates the service-linked role."""

_WITHOUT_PLAINTEXT = {"ec2": "ebs/volume:Volume", "elasticfilesystem": "efs/fileSystem:FileSystem"}
"""Maps a service that gets data keys without plaintext to the resource type."""

_PASSED_TO = {
    "ec2.amazonaws.com": ("autoscaling/group:Group", "iam/instanceProfile:InstanceProfile"),
    "vpc-flow-logs.amazonaws.com": ("ec2/flowLog:FlowLog",),
    "cloudtrail.amazonaws.com": ("cloudtrail/trail:Trail",),
    "s3.amazonaws.com": ("s3/bucketReplicationConfig:BucketReplicationConfig",),
}


_Planned = Sequence[PlannedResource]
"""The resources of a plan. They are listed once, because every action needs them."""


@dataclass(frozen=True)
class _Scope:
    """The resources and conditions of a statement."""

    sid: str
    resources: tuple[str, ...]
    conditions: str = "{}"
    """Conditions as JSON, so that scopes are comparable."""


def permissions(plan: Plan, *, read_only: bool = False) -> Permissions:
    """Return the policies for a plan, with the reason for every action. With `read_only`, they allow no changes."""
    uses = _uses(plan)
    if read_only:
        uses = reads_of(uses, CHANGES)
        notes = [
            (
                "access to the Pulumi state is not included: `pulumi preview` and `gpuinfra drift` need s3:GetObject, s3:PutObject, "
                "s3:DeleteObject and s3:ListBucket on an S3 backend, which stores a lock during each command"
            )
        ]
        return _permissions(plan, uses, notes)
    notes = [
        "attach all documents to the role that runs Pulumi; together, they form one policy that is split because of the IAM size limit",
        _escalation(plan),
        (
            "the policies contain the names of this declaration; before you remove a pool or file system, "
            "keep the previous policies until `pulumi up` has deleted it"
        ),
        "access to the Pulumi state is not included: an S3 backend needs s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket",
    ]
    kept = list(denials(plan))
    if any(one.retained for one in resources(plan)) or kept:
        notes.append(
            "the policies deny the deletion of what `destroy` retains, also if other policies of the identity allow it; to delete it later, "
            "use a different identity"
        )
        notes.append(
            "docs/reference/retained-data.md lists the ways to lose retained data that AWS cannot deny to an operator"
        )
    return _permissions(plan, uses, notes, kept)


def _permissions(
    plan: Plan, uses: Mapping[str, list[tuple[str, str]]], notes: list[str], kept: Iterable[Mapping[str, Any]] = ()
) -> Permissions:
    documents = documents_of((*_statements(plan, uses), *kept))
    if len(documents) > POLICIES_OF_A_ROLE:
        notes.append(
            f"there are {len(documents)} documents, but a role accepts at most {POLICIES_OF_A_ROLE} managed policies"
        )
    return Permissions(cloud="aws", needs=collect(uses), documents=tuple(documents), notes=tuple(notes), source=SOURCE)


def statements(plan: Plan) -> Iterator[dict[str, Any]]:
    """Return the statements of the policies for a plan that allow actions."""
    return _statements(plan, _uses(plan))


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
    """Maps an action to its uses."""
    planned = resources(plan)
    unset = set() if plan.roles.permissions_boundary else {"permissionsBoundary"}
    unset |= set() if plan.network is not None and plan.network.interface_endpoints else {"privateDnsEnabled"}
    unset |= set() if any(one.restore_from for one in plan.file_systems) else {"backupId"}
    if not any(one.type.startswith("aws:s3/bucketObjectLock") for one in planned):
        unset.add("objectLockEnabled")
    requests = {**asked(plan), **pending.requests({one.type for one in planned})}
    return uses_of(planned, ACTIONS, requests, frozenset(unset))


def _escalation(plan: Plan) -> str:
    can = "a principal that can edit role policies and pass these roles to instances can escalate its privileges"
    if plan.roles.permissions_boundary is None:
        return f"{can}; set access.permissions_boundary to prevent it"
    return f"{can}; the permissions boundary {plan.roles.permissions_boundary} limits the roles, and the policies do not allow its removal"


def _statements(plan: Plan, uses: Mapping[str, list[tuple[str, str]]]) -> Iterator[dict[str, Any]]:
    scopes: dict[_Scope, set[str]] = defaultdict(set)
    planned = tuple(resources(plan))
    for action, needed in uses.items():
        for scope in _scopes(plan, planned, action, {type_.removeprefix("aws:") for type_, _ in needed}):
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


def _scopes(plan: Plan, planned: _Planned, action: str, types: set[str]) -> Iterator[_Scope]:
    """Return the resources and conditions for an action."""
    if IMAGE_COPY in types and (action == "ec2:CopyImage" or action in _IMAGE_KEY_USE):
        yield _image_copies(plan, action)
        types = types - {IMAGE_COPY}
        if not types:
            return
    if WORKSPACE in types and action in _WORKSPACE_KEY_USE:
        keys = [f"arn:{partition(plan.region)}:kms:{plan.region}:*:key/*"]
        yield _scope("LetWorkspaceUseItsKey", keys, StringEquals={"kms:ViaService": f"aps.{plan.region}.amazonaws.com"})
        types = types - {WORKSPACE}
        if not types:
            return
    if action == "kms:DescribeKey" and _OBJECT in types:
        default = {"kms:RequestAlias": "alias/aws/s3"}
        yield _scope("FindDefaultKeyOfS3", _regional(action, [plan.region]), StringEquals=default)
        types = types - {_OBJECT}
        if not types:
            return
    if OWN_PERMISSIONS in types:
        own_identity = [f"arn:{partition(plan.region)}:iam::*:{kind}/*" for kind in ("role", "user")]
        yield _scope("ReadOwnPermissions", own_identity if action != "iam:GetRole" else own_identity[:1])
        types = types - {OWN_PERMISSIONS}
        if not types:
            return
    service, _, call = action.partition(":")
    arn = f"arn:{partition(plan.region)}:"
    own = {f"aws:ResourceTag/{_CLUSTER}": plan.name}
    regions = _regions(plan, planned, types)
    roles = [f"{arn}iam::*:role/{name}" for name in _generated(planned, "aws:iam/role:Role")]
    passed = [f"{arn}iam::*:role/{NODE_ROLE.logical(instances.node_component(plan))}-{'?' * 7}"]
    if action == "iam:PassRole":
        to = sorted(service for service, of in _PASSED_TO.items() if types & set(of))
        used = [] if any(instances.shared_roles(plan)) or not plan.pools else passed
        yield _scope("PassRoles", [*roles, *used], StringEquals={"iam:PassedToService": _one(to)})
    elif action == "iam:CreateServiceLinkedRole":
        of = sorted(service for service, creators in _SERVICE_ROLES.items() if creators & types)
        where = [f"{arn}iam::*:role/aws-service-role/{service}/*" for service in of]
        yield _scope("MakeServicesRoles", where, StringLike={"iam:AWSServiceName": _one(of)})
    elif service == "iam":
        if "fsx/dataRepositoryAssociation:DataRepositoryAssociation" in types:
            yield _scope(
                "LetFileSystemReadItsBucket",
                [f"{arn}iam::*:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/*"],
            )
        profiles = [f"{arn}iam::*:instance-profile/{name}" for name in _generated(planned, _PROFILE)]
        boundary = plan.roles.permissions_boundary if action in _BY_BOUNDARY else None
        limit = {"StringEquals": {"iam:PermissionsBoundary": boundary}} if boundary else {}
        if call in ("AttachRolePolicy", "DetachRolePolicy"):
            # Only the node role has managed policies.
            if plan.roles.node_policies:
                attached = {"iam:PolicyARN": _one(plan.roles.node_policies)}
                yield _scope("AttachPolicies", roles, ArnEquals=attached, **limit)
        elif limit:
            yield _scope("RolesWithBoundary", roles, **limit)
        elif roles or profiles:
            yield _scope("Roles", [*roles, *profiles])
    elif service == "s3":
        yield from _in_buckets(plan, action, types)
    elif action in ("kms:GenerateDataKey", "kms:Decrypt"):
        for region in regions if types & {Purpose.COPY, *RECORD} else [plan.region]:
            via = {"kms:ViaService": f"s3.{region}.amazonaws.com"}
            yield _scope("UseKeysThroughS3", [f"{arn}kms:{region}:*:key/*"], StringEquals=via)
    elif action == "kms:CreateGrant":
        keys = [f"{arn}kms:{region}:*:key/*" for region in regions]
        yield _scope("LetServicesUseKeys", keys, Bool={"kms:GrantIsForAWSResource": "true"})
    elif action in _REQUESTED_BY_SSH:
        yield from _ssh(plan, action, own)
    elif action == "kms:PutKeyPolicy":
        yield _scope("ChangeWhatIsTagged", _regional(action, regions), StringEquals=own)
        # KMS verifies the permission while it creates a key, and a tag can take minutes to take effect.
        yield _scope(
            "SetPolicyOfNewKeys",
            _regional(action, regions),
            **_new_key(own),
            StringEquals={"aws:RequestedRegion": _one(regions)},
        )
    elif action == "kms:GenerateDataKeyWithoutPlaintext":
        keys = [f"{arn}kms:{region}:*:key/*" for region in regions]
        users = [name for name, type_ in _WITHOUT_PLAINTEXT.items() if type_ in types]
        via = [f"{name}.{region}.amazonaws.com" for region in regions for name in users]
        yield _scope("UseKeysOfServices", keys, StringEquals={"kms:ViaService": _one(via)})
    elif action in _INTERFACES:
        yield from _interfaces(plan, action, own, regions)
    elif action == "cloudwatch:PutMetricData" and plan.recovery:
        where = {"cloudwatch:namespace": NAMESPACE, "aws:RequestedRegion": plan.recovery.region}
        yield _scope("ReportReadiness", ["*"], StringEquals=where)
    elif service == "route53" and types & NAMES.keys() and plan.recovery and plan.recovery.names:
        zone = [f"{arn}route53:::hostedzone/{plan.recovery.names.zone}"]
        if call.startswith("Change"):
            yield _scope("MoveNames", zone, **{"ForAllValues:StringEquals": _records(plan.recovery.names)})
        else:
            yield _scope("ReadNames", zone)
    elif service == "route53":
        yield _scope("NameEndpoints", [f"{arn}route53:::hostedzone/*"])
    elif action in _TAGGING:
        yield from _tagging(plan, action, own, regions)
    elif named := _named(plan, planned, action, regions):
        yield _scope(service.capitalize(), named)
        if Purpose.STOP_SECOND in types and plan.recovery and not call.startswith("Describe"):
            # In the second Region, the group of a pool can have another kind of capacity, which is part of the group's name.
            group = f"{arn}autoscaling:{plan.recovery.region}:*:autoScalingGroup:*:autoScalingGroupName/"
            yield _scope("StopSecondRegion", [f"{group}{plan.name}-{pool.name}-*" for pool in plan.pools])
    elif action == "elasticfilesystem:DeleteReplicationConfiguration" and plan.recovery:
        # The request names the file system of the other Region, which has no tags in this one.
        both = (plan.region, plan.recovery.region)
        yield _scope("EndHomeReplication", _regional(action, both), StringEquals={"aws:RequestedRegion": list(both)})
    elif action.startswith(_BY_TAG):
        yield _scope("ChangeWhatIsTagged", _regional(action, regions), StringEquals=own)
        if action.startswith("ec2:Revoke") and "ec2/defaultSecurityGroup:DefaultSecurityGroup" in types:
            # The default group of the VPC has no tags. Removing a rule does not allow additional traffic.
            untagged = {f"aws:ResourceTag/{_CLUSTER}": "true"}
            yield _scope("EmptyDefaultGroup", _regional(action, regions), Null=untagged)
    else:
        sid = "Look" if call.startswith(("Describe", "List", "Get")) else "Make"
        yield _scope(sid, _regional(action, regions), StringEquals={"aws:RequestedRegion": _one(regions)})


def _image_copies(plan: Plan, action: str) -> _Scope:
    """Return the scope of a request that copies images to the second Region. ARNs of images and snapshots have no account.

    The source can be encrypted with a key in the first Region. EC2 uses both keys (https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html;
    resources: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/copy-ami-permissions.html; both retrieved 2026-11-27).
    """
    assert plan.recovery is not None
    arn, first, second = f"arn:{partition(plan.region)}:", plan.region, plan.recovery.region
    if action == "ec2:CopyImage":
        sources = [f"{arn}ec2:{first}::image/{one.ref}" for one in plan.recovery.images if one.copied]
        made = [f"{arn}ec2:{second}::{kind}/*" for kind in ("image", "snapshot")]
        where = [*sources, f"{arn}ec2:{first}::snapshot/*", *made]
        return _scope("CopyImages", where, StringEquals={"aws:RequestedRegion": second})
    keys = [f"{arn}kms:{region}:*:key/*" for region in (first, second)]
    via = {"kms:ViaService": [f"ec2.{region}.amazonaws.com" for region in (first, second)]}
    if action == "kms:CreateGrant":
        return _scope("LetImageCopiesUseKeys", keys, StringEquals=via, Bool={"kms:GrantIsForAWSResource": "true"})
    return _scope("UseKeysThroughEc2", keys, StringEquals=via)


def _records(names: NamesPlan) -> dict[str, Any]:
    """Return the conditions for the records that gpuinfra changes. Names have no trailing dot
    (https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/specifying-rrset-conditions.html, retrieved 2026-11-27)."""
    key, hosts = "route53:ChangeResourceRecordSets", [*names.hosts, *(one.source for one in names.mounts)]
    return {f"{key}NormalizedRecordNames": hosts, f"{key}RecordTypes": ["A", "TXT"], f"{key}Actions": "UPSERT"}


_REQUESTED_BY_SSH = frozenset(action for group in SSH.values() for action in group)
_ON_OWN_SESSION = frozenset({"ssm:ResumeSession", "ssm:TerminateSession"})


def _new_key(own: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """Return the conditions for a new key: it has no alias and, as soon as its tags take effect, the cluster tag."""
    return {"Null": {"kms:ResourceAliases": "true"}, "StringEqualsIfExists": own}


def _interfaces(plan: Plan, action: str, own: Mapping[str, str], regions: Iterable[str]) -> Iterator[_Scope]:
    """Return the scopes of a request for the network interfaces of mount targets (service authorization reference of EC2, retrieved 2026-11-22).

    EFS does not tag these interfaces. The security groups, and the subnets that the stack creates, have the cluster tag.
    """
    where = [f"arn:{partition(region)}:ec2:{region}:*:" for region in regions]
    vpc = plan.network.existing_id if plan.network else None
    in_vpc = {"ec2:Vpc": [f"{one}vpc/{vpc}" for one in where]}
    limit = {"ArnLikeIfExists": in_vpc} if vpc else {}
    interfaces = [f"{one}network-interface/*" for one in where]
    yield _scope("ConnectMountTargets", interfaces, StringEqualsIfExists=own, **limit)
    if action == "ec2:DeleteNetworkInterface":
        return
    yield _scope("ConnectWithTaggedGroups", [f"{one}security-group/*" for one in where], StringEquals=own)
    if action == "ec2:CreateNetworkInterface":
        subnets = [f"{one}subnet/*" for one in where]
        yield _scope("ConnectInSubnets", subnets, **({"ArnLike": in_vpc} if vpc else {"StringEquals": own}))


def _ssh(plan: Plan, action: str, own: Mapping[str, str]) -> Iterator[_Scope]:
    """Return the scopes of a `gpuinfra ssh` request: the instances of the cluster, the SSH document, and sessions.

    The ID of a session starts with the name of the IAM user or of the role session, which is not in `aws:userid` alone
    (`session/user-037a...`, aws/amazon-ssm-agent issue 514). The `aws:ssmmessages:session-id` tag contains the user ID
    (https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-restrict-access-examples.html, example 4, retrieved 2026-11-22).
    A data channel also needs the token of its session, which only `ssm:StartSession` and `ssm:ResumeSession` return."""
    arn, region = f"arn:{partition(plan.region)}:", plan.region
    nodes = [f"{arn}ec2:{region}:*:instance/*"]
    if action in _ON_OWN_SESSION:
        tag = {"ssm:resourceTag/aws:ssmmessages:session-id": "${aws:userid}"}
        yield _scope("UseOwnSessions", [f"{arn}ssm:*:*:session/*"], StringLike=tag)
    elif action == "ssmmessages:OpenDataChannel":
        yield _scope("ConnectSessions", [f"{arn}ssm:*:*:session/*"])
    elif action == "ssm:StartSession":
        yield _scope("OpenSessions", nodes, StringEquals=own)
        yield _scope("OpenSshSessions", [f"{arn}ssm:{region}::document/AWS-StartSSHSession"])
    else:
        yield _scope("SendKeys", nodes, StringEquals={**own, "ec2:osuser": USER})


def _tagging(plan: Plan, action: str, own: Mapping[str, str], regions: list[str]) -> Iterator[_Scope]:
    """Return the scopes of an action that sets tags. A cluster tag grants permissions, so it is set only when a resource is created,
    and changed only on resources that have it."""
    service = action.partition(":")[0]
    where = _regional(action, regions)
    request = {f"aws:RequestTag/{_CLUSTER}": plan.name}
    yield _scope(f"ChangeTags{service.capitalize()}", where, StringEquals=own)
    if action == "ec2:DeleteTags":
        return
    if service == "ec2":
        yield _scope("TagWhatIsMade", where, Null={"ec2:CreateAction": "false"})
        # The provider tags security group rules after it creates them.
        rules = [f"arn:{partition(plan.region)}:ec2:{plan.region}:*:security-group-rule/*"]
        yield _scope("TagRules", rules, StringEquals=request)
        if plan.recovery and any(one.copied for one in plan.recovery.images):
            # The provider also tags the copy of an image after it creates the copy.
            copies = [f"arn:{partition(plan.region)}:ec2:{plan.recovery.region}::image/*"]
            yield _scope("TagImageCopies", copies, StringEquals=request, Null={f"aws:ResourceTag/{_CLUSTER}": "true"})
    elif service == "kms":
        yield _scope("TagNewKeys", where, StringEquals=request, **_new_key(own))
    else:
        # The scope includes only resources without a cluster tag, so the resources of a different cluster keep their tags.
        untagged = {f"aws:ResourceTag/{_CLUSTER}": "true"}
        yield _scope("TagFileSystems", where, StringEquals=request, Null=untagged)


def _regions(plan: Plan, planned: _Planned, types: set[str]) -> list[str]:
    """Return the Regions of the resources of these types and of gpuinfra's own requests. The Region of the plan is first."""
    regions = {one.region or plan.region for one in planned if one.type.removeprefix("aws:") in types}
    if plan.recovery and types & {*IN_BOTH, SEARCH}:
        regions |= {plan.region, plan.recovery.region}
    return sorted(regions or {plan.region}, key=lambda region: (region != plan.region, region))


def _regional(action: str, regions: Iterable[str]) -> list[str]:
    """Return the ARNs of a service in the Regions, or `*` for actions that do not support resources."""
    service, _, call = action.partition(":")
    wheres = [f"arn:{partition(region)}:{service}:{region}:*" for region in regions]
    if service == "ec2" and call.startswith(("Authorize", "Revoke")):
        return [f"{where}:security-group/*" for where in wheres]
    if service == "ec2" and (not call.startswith("Describe") or call in _DESCRIBED_BY_ID):
        return [f"{where}:*" for where in wheres]
    if service == "kms" and call not in ("CreateKey", "ListAliases", "ListKeys"):
        return [f"{where}:key/*" for where in wheres]
    if action == "fsx:CreateFileSystemFromBackup":
        return [f"{where}:{kind}/*" for where in wheres for kind in ("backup", "file-system")]
    if action == "fsx:UpdateVolume":
        return [f"{where}:volume/*" for where in wheres]
    if service == "fsx" and not call.startswith("Describe"):
        return [f"{where}:{kind}/*" for where in wheres for kind in ("file-system", "association")]
    if service == "aps" and call not in ("CreateWorkspace", "ListWorkspaces"):
        return [f"{where}:{kind}/*" for where in wheres for kind in ("workspace", "rulegroupsnamespace")]
    if service == "resource-groups":
        return [f"{where}:group/*" for where in wheres]
    if service == "elasticfilesystem" and not call.startswith("Describe") and call != "CreateFileSystem":
        return [f"{where}:file-system/*" for where in wheres]
    return ["*"]


def _generated(planned: _Planned, type_: str) -> list[str]:
    """Return the names that the provider generates for resources of a type: the logical name, a hyphen and seven characters."""
    return [f"{one.name}-{'?' * 7}" for one in planned if one.type == type_]


def _buckets(plan: Plan, *purposes: str) -> list[str]:
    """Return the ARNs of the buckets of the stack, or of those with these purposes. `?` stands for the account and the stack token."""
    return [
        f"arn:{partition(plan.region)}:s3:::"
        + bucket_name(plan.name, one.values["purpose"], _ACCOUNT, one.values.get("region", plan.region), _TOKEN)
        for one in instances.buckets(plan)
        if not purposes or one.values["purpose"] in purposes
    ]


def _evidence_buckets(plan: Plan) -> list[str]:
    """Return the evidence buckets of the stack or, if it creates none, those of all stacks in the Region, because a plan has no name of another stack."""
    others = f"arn:{partition(plan.region)}:s3:::*-evidence-{_ACCOUNT}-{plan.region}-{_TOKEN}"
    return _buckets(plan, "evidence") if "foundation" in plan.layers else [others]


def _in_buckets(plan: Plan, action: str, types: set[str]) -> Iterator[_Scope]:
    """Return the scopes of an action of S3. Objects are the bundles and the evidence of this cluster and, for a failover, the replicated objects."""
    evidence, call = _evidence_buckets(plan), action.partition(":")[2]
    existing = [f"arn:{partition(plan.region)}:s3:::{one.bucket}" for one in plan.file_systems if one.replicated]
    bundles = f"bootstrap/{plan.name}/*"
    replicated = _buckets(plan, *(one.name for one in plan.recovery.replicas)) + existing if plan.recovery else []
    if call == "ListBucketVersions":
        if _OBJECT in types:
            yield _scope("FindOldBundles", evidence, StringLike={"s3:prefix": bundles})
        if types & {Purpose.COMPARE, Purpose.COPY}:
            yield _scope("CompareReplicas", replicated)
    elif "Object" in call.replace("ObjectLock", ""):
        if types & {_OBJECT, Purpose.REPLICAS}:
            yield _scope("Bundles", [f"{bucket}/{bundles}" for bucket in evidence])
        if Purpose.EVIDENCE in types:
            yield _scope("ReadEvidence", [f"{bucket}/{evidence_prefix(plan.name)}/*" for bucket in evidence])
        if types & {*RECORD}:
            yield _scope("Record", [f"{bucket}/{key}" for bucket in evidence for key in OWN_KEYS])
        if Purpose.COMPARE in types:
            yield _scope("CompareCopies", [f"{bucket}/*" for bucket in replicated])
        if Purpose.COPY in types:
            yield _scope("CopyReplicas", [f"{bucket}/*" for bucket in replicated])
    elif call == "ListBucket":
        arn = f"arn:{partition(plan.region)}:s3:::"
        given = [
            arn + one.bucket for one in plan.file_systems if one.kind == "lustre" and one.bucket not in (None, "auto")
        ]
        yield _scope("ListBuckets", dict.fromkeys((*_buckets(plan), *evidence, *given)))
    elif buckets := [*_buckets(plan), *existing]:
        yield _scope("Buckets", buckets)


_LOSES_OBJECTS = (
    "s3:BypassGovernanceRetention",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:PutObjectLegalHold",
    "s3:PutObjectRetention",
)
_FILE_SYSTEMS = {
    "aws:fsx/lustreFileSystem:LustreFileSystem": "fsx",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": "fsx",
    "aws:efs/fileSystem:FileSystem": "elasticfilesystem",
}


def denials(plan: Plan) -> Iterator[dict[str, Any]]:
    """Return statements that deny the loss of what `destroy` retains, also if a policy of a bucket, of a key or of the identity allows it.

    An explicit deny overrides each allow (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html, retrieved 2026-11-28).
    """

    def deny(sid: str, actions: Iterable[str], where: Iterable[str], **conditions: Mapping[str, Any]) -> dict[str, Any]:
        statement = {"Sid": sid, "Effect": "Deny", "Action": sorted(actions), "Resource": _one(where)}
        return {**statement, "Condition": conditions} if conditions else statement

    planned = [one for one in resources(plan) if one.retained]
    evidence = _evidence_buckets(plan) if plan.pools or "foundation" in plan.layers else []
    evidence_objects = [f"{bucket}/evidence/*" for bucket in evidence]
    others = [bucket for bucket in _buckets(plan) if bucket not in evidence]
    if objects := [*(f"{bucket}/*" for bucket in others), *evidence_objects]:
        yield deny("KeepObjects", _LOSES_OBJECTS, objects)
    records = [f"{bucket}/*" for bucket in _buckets(plan, "access", "audit")]
    if written := [*records, *([] if plan.recovery else evidence_objects)]:
        yield deny("KeepRecordsAsTheyAre", ("s3:PutObject",), written)
    if buckets := dict.fromkeys((*_buckets(plan), *evidence)):
        yield deny("KeepBuckets", ("s3:DeleteBucket",), buckets)
    if any(one.type == "aws:kms/key:Key" for one in planned):
        regions = _regions(plan, planned, {"kms/key:Key"})
        keys = [f"arn:{partition(region)}:kms:{region}:*:key/*" for region in regions]
        yield deny("KeepKeys", ("kms:DeleteImportedKeyMaterial", "kms:DisableKey", "kms:ScheduleKeyDeletion"), keys)
        lockout = {"Bool": {"kms:BypassPolicyLockoutSafetyCheck": "true"}}
        yield deny("KeepAccessToKeys", ("kms:PutKeyPolicy",), keys, **lockout)
    folders = {"log-group": "gpuinfra", "file-system-log-group": "aws/fsx"}
    groups = [
        f"arn:{partition(plan.region)}:logs:{plan.region}:*:log-group:/{folders[one.lookup.kind]}/{unique_name(plan.name, one.lookup.purpose, _TOKEN)}"
        for one in planned
        if one.lookup is not None and one.lookup.kind in folders
    ]
    if groups:
        streams = [f"{group}:log-stream:*" for group in groups]
        yield deny("KeepLogs", ("logs:DeleteLogGroup", "logs:DeleteLogStream"), [*groups, *streams])
    names: dict[str, list[str]] = {}
    for instance in planned:
        if instance.type in _FILE_SYSTEMS:
            names.setdefault(_FILE_SYSTEMS[instance.type], []).append(instance.name)
    for service, kept in sorted(names.items()):
        regions = _regions(
            plan, planned, {type_.removeprefix("aws:") for type_, of in _FILE_SYSTEMS.items() if of == service}
        )
        where = [f"arn:{partition(region)}:{service}:{region}:*:file-system/*" for region in regions]
        ours = {f"aws:ResourceTag/{_CLUSTER}": plan.name}
        sid = "KeepFileSystems" if service == "fsx" else "KeepHomes"
        yield deny(sid, (f"{service}:DeleteFileSystem",), where, StringEquals={**ours, "aws:ResourceTag/Name": kept})
        # Without this statement, a different name would make the file system deletable.
        tags = {"ForAnyValue:StringEquals": {"aws:TagKeys": ["Name", _CLUSTER]}}
        actions = (f"{service}:TagResource", f"{service}:UntagResource")
        yield deny(f"{sid}Named", actions, where, StringEquals={**ours, "aws:ResourceTag/Name": kept}, **tags)


def _named(plan: Plan, planned: _Planned, action: str, regions: Iterable[str]) -> list[str]:
    """Return the ARNs of the resources that the plan creates, if the service supports them for this action."""
    service, _, call = action.partition(":")
    arn, where = f"arn:{partition(plan.region)}:", f"{plan.region}:*"

    def unique(purpose: str, limit: int = 64) -> str:
        return unique_name(plan.name, purpose, _TOKEN, limit)

    if service == "autoscaling" and not call.startswith("Describe"):
        groups = _generated(planned, "aws:autoscaling/group:Group")
        return [f"{arn}autoscaling:{where}:autoScalingGroup:*:autoScalingGroupName/{name}" for name in groups]
    if service == "logs" and call != "DescribeLogGroups":
        names = [f"/gpuinfra/{unique('trail')}"] if any(instances.trails(plan)) else []
        names += [f"/gpuinfra/{unique('flow')}"] if any(instances.networks(plan)) else []
        names += [f"/gpuinfra/{unique(instances.NODE_LOGS)}"] if any(instances.node_logs(plan)) else []
        names += [f"/aws/fsx/{unique(one.values['purpose'])}" for one in instances.file_systems(plan)]
        # CloudWatch Logs checks some actions, such as PutRetentionPolicy and FilterLogEvents, for `NAME:log-stream:`, and others for `NAME` (public error
        # messages, retrieved 2026-11-30).
        return [f"{arn}logs:{where}:log-group:{name}{streams}" for name in names for streams in ("", ":*")]
    if service == "ssm" and call != "DescribeParameters":
        names = [f"{unique(pool.name)}/image-*" for pool in plan.pools]
        own = [f"{arn}ssm:{where}:parameter/gpuinfra/{name}" for name in names]
        public = [f"{arn}ssm:{region}::parameter/aws/service/*" for region in regions]
        return [*own, *public] if call == "GetParameter" else own
    if service == "cloudtrail" and call != "DescribeTrails":
        return [f"{arn}cloudtrail:{where}:trail/{instances.trail_name(unique('trail', 128))}"]
    if service == "budgets":
        return [f"{arn}budgets::*:budget/{unique('month', 100)}"]
    if action == "fsx:CreateDataRepositoryTask":
        kinds = ("file-system", "task")
        return [f"{arn}fsx:{region}:*:{kind}/*" for region in regions for kind in kinds]
    if service == "fsx" and call.startswith("Create"):
        return _regional(action, regions)
    if action in ("kms:CreateAlias", "kms:UpdateAlias", "kms:DeleteAlias"):
        names = [
            f"{one.values.get('region', plan.region)}:*:alias/gpuinfra/{unique(one.values['purpose'])}"
            for one in instances.keys(plan)
        ]
        return [f"{arn}kms:{name}" for name in (*names, *(f"{region}:*:key/*" for region in regions))]
    if service == "sns" and call not in ("GetSubscriptionAttributes", "Unsubscribe"):
        topics = _generated(planned, "aws:sns/topic:Topic")
        return [f"{arn}sns:{region}:*:{name}" for region in regions for name in topics]
    if service == "events":
        return [
            f"{arn}events:{where}:rule/{name}" for name in _generated(planned, "aws:cloudwatch/eventRule:EventRule")
        ]
    if service == "cloudwatch" and call != "GetMetricStatistics":
        # CloudWatch lists alarms before it filters them by name.
        alarms = ["*"] if call == "DescribeAlarms" else _generated(planned, "aws:cloudwatch/metricAlarm:MetricAlarm")
        return [f"{arn}cloudwatch:{region}:*:alarm:{name}" for region in regions for name in alarms]
    return []


def _scope(sid: str, resources: Iterable[str], **conditions: Mapping[str, Any]) -> _Scope:
    return _Scope(sid, tuple(resources), json.dumps(conditions, sort_keys=True))


def _one(values: Iterable[str]) -> Any:
    """Unwrap a list that contains a single value, as is common in policies."""
    held = list(values)
    return held[0] if len(held) == 1 else held
