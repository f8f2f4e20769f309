"""Lists the calls that the AWS provider makes for an operation, with the resources and context keys that IAM evaluates.

The calls come from the source of the provider (`calls.yaml`), and not from the table of the generated policies. A rehearsal
verifies that the policies allow each call, and that their names, tags, Regions and services match the created resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import calls, policy
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT, OPERATOR, OPERATOR_ID
from gpuinfra_rehearsal.cloud.core import ids
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

_IMAGE_COPY = "ec2/amiCopy:AmiCopy"
_OBJECT = "s3/bucketObjectv2:BucketObjectv2"
_SERVICE_ROLE = {
    "autoscaling/group:Group": "autoscaling.amazonaws.com",
    "efs/fileSystem:FileSystem": "elasticfilesystem.amazonaws.com",
    "fsx/lustreFileSystem:LustreFileSystem": "fsx.amazonaws.com",
    "fsx/openZfsFileSystem:OpenZfsFileSystem": "fsx.amazonaws.com",
    "fsx/dataRepositoryAssociation:DataRepositoryAssociation": "s3.data-source.lustre.fsx.amazonaws.com",
}
_TAKES_ROLE = {
    "autoscaling/group:Group": "ec2.amazonaws.com",
    "iam/instanceProfile:InstanceProfile": "ec2.amazonaws.com",
    "ec2/flowLog:FlowLog": "vpc-flow-logs.amazonaws.com",
    "cloudtrail/trail:Trail": "cloudtrail.amazonaws.com",
    "s3/bucketReplicationConfig:BucketReplicationConfig": "s3.amazonaws.com",
}
_TAGGED_BY = {
    "ec2/route:Route": ("aws:ec2/routeTable:RouteTable", "routeTableId"),
    "ec2/routeTableAssociation:RouteTableAssociation": ("aws:ec2/routeTable:RouteTable", "routeTableId"),
    "efs/fileSystemPolicy:FileSystemPolicy": ("aws:efs/fileSystem:FileSystem", "fileSystemId"),
    "efs/mountTarget:MountTarget": ("aws:efs/fileSystem:FileSystem", "fileSystemId"),
    "efs/replicationConfiguration:ReplicationConfiguration": ("aws:efs/fileSystem:FileSystem", "sourceFileSystemId"),
    "amp/workspaceConfiguration:WorkspaceConfiguration": ("aws:amp/workspace:Workspace", "workspaceId"),
    "amp/alertManagerDefinition:AlertManagerDefinition": ("aws:amp/workspace:Workspace", "workspaceId"),
}
"""Maps types without their own tags to the type and the input of the resource whose tags apply."""


_TAGGING = frozenset({"ec2:CreateTags", "kms:TagResource", "fsx:TagResource", "elasticfilesystem:TagResource"})
_NOT_YET_TAGGED = _TAGGING | {"kms:PutKeyPolicy", "kms:EnableKeyRotation"}
"""Actions on a resource that is being created and whose tags are not yet effective.
On keys, this takes up to five minutes (KMS developer guide, "Using tags to control access to KMS keys")."""
_OF_INTERFACE = {
    "ec2:CreateNetworkInterface": ("groups", "subnet"),
    "ec2:ModifyNetworkInterfaceAttribute": ("groups",),
    "ec2:DeleteNetworkInterface": (),
}
"""Maps an action on a network interface to the other resources that EC2 evaluates."""
_RULES = ("ec2:AuthorizeSecurityGroup", "ec2:RevokeSecurityGroup")
"""Actions whose resource is the group, even if a rule is created (service authorization reference of EC2)."""

OF_STREAMS = frozenset({"logs:PutRetentionPolicy"})
"""Actions on a log group for which IAM evaluates `log-group:NAME:log-stream:` (error messages in public logs of Terraform, retrieved 2026-11-30)."""


def required(
    store: Store, operation: str, token: str, inputs: Mapping[str, Any], region: str, old: Resource | None
) -> Iterator[AccessRequest]:
    """Return the calls of an operation. Creations and updates also read the resource."""
    kind = token.removeprefix("aws:")
    before = old.plain if old else {}
    words = calls.actions(token, operation, before, inputs)
    if words is None:
        yield AccessRequest(OPERATOR, f"{ids.module(token)}:{operation.capitalize()}{ids.class_name(token)}", "*")
        return
    context = {
        "aws:RequestedRegion": region or "us-east-1",
        **_tags(store, kind, before or inputs),
        "kms:GrantIsForAWSResource": "true",
    }
    for word in words:
        more = _context(word, kind, region) | _tag_context(word, operation, kind, before, {**before, **inputs})
        more |= _boundary(store, word, kind, before, inputs)
        if operation == "create" and word in _NOT_YET_TAGGED:
            context_of_word = {key: value for key, value in context.items() if not key.startswith("aws:ResourceTag/")}
        elif word.startswith(_RULES) and "Rule:" in kind:
            group = store.find("aws:ec2/securityGroup:SecurityGroup", str({**before, **inputs}.get("securityGroupId")))
            context_of_word = {"aws:RequestedRegion": context["aws:RequestedRegion"]}
            context_of_word |= _tags(store, "", group.plain) if group else {}
        else:
            context_of_word = context
        if kind == "efs/mountTarget:MountTarget" and word in _OF_INTERFACE:
            yield from _interface(store, word, {**before, **inputs}, region)
            continue
        for resource in _resources(store, word, kind, {**before, **inputs}, region, old.id if old else ""):
            yield AccessRequest(OPERATOR, word, resource, {**context_of_word, **more})


def _interface(store: Store, action: str, inputs: Mapping[str, Any], region: str) -> Iterator[AccessRequest]:
    """Return the requests for the network interface of a mount target. It has no tags. EC2 also evaluates the security groups and
    the subnet, with their tags (service authorization reference of EC2, retrieved 2026-11-22)."""
    where, subnet = f"arn:aws:ec2:{region}:{ACCOUNT}", str(inputs.get("subnetId"))
    subnet_record = store.find("aws:ec2/subnet:Subnet", subnet)
    context = {"aws:RequestedRegion": region}
    if subnet_record and subnet_record.plain.get("vpcId"):
        context["ec2:Vpc"] = f"{where}:vpc/{subnet_record.plain['vpcId']}"
    yield AccessRequest(OPERATOR, action, f"{where}:network-interface/*", context)
    if "groups" in _OF_INTERFACE[action]:
        for id in inputs.get("securityGroups") or ():
            group = store.find("aws:ec2/securityGroup:SecurityGroup", str(id))
            tags = _tags(store, "", group.plain) if group else {}
            yield AccessRequest(OPERATOR, action, f"{where}:security-group/{id}", {**context, **tags})
    if "subnet" in _OF_INTERFACE[action]:
        tags = _tags(store, "", subnet_record.plain) if subnet_record else {}
        yield AccessRequest(OPERATOR, action, f"{where}:subnet/{subnet}", {**context, **tags})


def required_by_function(token: str, args: Mapping[str, Any], region: str) -> Iterator[AccessRequest]:
    """Return the calls of a function. The caller's identity needs no permission. A parameter is read by its name.
    Public AWS parameters have no account."""
    if token == "aws:ssm/getParameter:getParameter":
        name = str(args.get("name"))
        where = f"{region}:" if name.startswith("/aws/service/") else f"{region}:{ACCOUNT}"
        context = {"aws:RequestedRegion": region}
        yield AccessRequest(OPERATOR, "ssm:GetParameter", f"arn:aws:ssm:{where}:parameter{name}", context)
    elif token == "aws:ec2/getAmi:getAmi":
        yield AccessRequest(OPERATOR, "ec2:DescribeImages", "*", {"aws:RequestedRegion": region})
    elif token == "aws:index/getAvailabilityZone:getAvailabilityZone":
        yield AccessRequest(OPERATOR, "ec2:DescribeAvailabilityZones", "*", {"aws:RequestedRegion": region})
    elif token != "aws:index/getCallerIdentity:getCallerIdentity":
        yield AccessRequest(OPERATOR, f"{ids.module(token)}:{ids.class_name(token)}", "*")


def tolerated(operation: str, token: str) -> tuple[AccessRequest, ...]:
    """Return nothing: no denial is known that the provider ignores."""
    return ()


def allows(documents: tuple[str, ...], request: AccessRequest) -> tuple[bool, str]:
    """Evaluate the policies as IAM does."""
    return policy.decide(request, documents)


def denial(request: AccessRequest, reason: str) -> ApiRejected:
    """Return the denial in the service's wording. EC2 has its own error code."""
    service, _, call = request.action.partition(":")
    code = "UnauthorizedOperation" if service == "ec2" else "AccessDenied"
    text = f"User: {request.principal} is not authorized to perform: {request.action} on resource: {request.resource} {reason}"
    return ApiRejected(code, text, f"{service.upper()}: {call}", status=403)


def http(
    action: str, resource: str, region: str, context: Mapping[str, str | tuple[str, ...]] | None = None
) -> list[AccessRequest]:
    """Check a request that an SDK signs with the operator's keys. Objects in an encrypted bucket also require the key. `context` contains more context keys."""
    requests = [AccessRequest(OPERATOR, action, resource, {"aws:RequestedRegion": region, **(context or {})})]
    if action in ("s3:GetObject", "s3:PutObject"):
        use = "kms:Decrypt" if action == "s3:GetObject" else "kms:GenerateDataKey"
        key = f"arn:aws:kms:{region}:{ACCOUNT}:key/{ids.uuid(0)}"
        requests.append(AccessRequest(OPERATOR, use, key, {"kms:ViaService": f"s3.{region}.amazonaws.com"}))
    return requests


def on_instance(action: str, instance: Mapping[str, Any], **context: str) -> AccessRequest:
    """Return an operator request for an instance."""
    tags = {f"aws:ResourceTag/{key}": str(value) for key, value in instance["tags"].items()}
    where = f"arn:aws:ec2:{instance['region']}:{ACCOUNT}:instance/{instance['id']}"
    return AccessRequest(OPERATOR, action, where, {"aws:RequestedRegion": instance["region"], **tags, **context})


def own_session(suffix: str) -> str:
    """Return the ID of an operator session. It starts with the user name (`session/user-037a...`, aws/amazon-ssm-agent issue 514)."""
    return f"{OPERATOR.rpartition('/')[2]}-{suffix}"


def on_own_session(action: str, session: str, region: str) -> AccessRequest:
    """Return an operator request for a session."""
    context = {"aws:userid": OPERATOR_ID, "aws:RequestedRegion": region}
    return AccessRequest(OPERATOR, action, f"arn:aws:ssm:{region}:{ACCOUNT}:session/{session}", context)


def group_arn(name: str, region: str) -> str:
    """Return the ARN of an Auto Scaling group."""
    return f"arn:aws:autoscaling:{region}:{ACCOUNT}:autoScalingGroup:{ids.uuid(0)}:autoScalingGroupName/{name}"


def _tags(store: Store, kind: str, inputs: Mapping[str, Any]) -> dict[str, str]:
    if kind in _TAGGED_BY:
        other, key = _TAGGED_BY[kind]
        owner = store.find(other, str(inputs.get(key)))
        inputs = owner.plain if owner else {}
    tags = inputs.get("tags")
    return {f"aws:ResourceTag/{key}": str(value) for key, value in tags.items()} if isinstance(tags, Mapping) else {}


def _context(action: str, kind: str, region: str) -> dict[str, str]:
    if action == "iam:PassRole":
        return {"iam:PassedToService": _TAKES_ROLE.get(kind, "")}
    if action == "iam:CreateServiceLinkedRole":
        return {"iam:AWSServiceName": _SERVICE_ROLE.get(kind, "")}
    if action == "kms:DescribeKey" and kind == _OBJECT:
        return {"kms:RequestAlias": "alias/aws/s3"}
    services = {"s3": "s3", "efs": "elasticfilesystem", "ec2": "ec2", "ebs": "ec2", "amp": "aps"}
    via = services.get(kind.partition("/")[0])
    return {"kms:ViaService": f"{via}.{region}.amazonaws.com"} if via else {}


def _tag_context(
    action: str, operation: str, kind: str, old: Mapping[str, Any], inputs: Mapping[str, Any]
) -> dict[str, str | tuple[str, ...]]:
    """Return the context keys of a request that sets tags. EC2 sends the name of the action that creates the resource with its tags."""
    if action == "iam:AttachRolePolicy" or action == "iam:DetachRolePolicy":
        return {"iam:PolicyARN": str(inputs.get("policyArn") or "")}
    if operation == "update" and action == "kms:PutKeyPolicy":
        return {"kms:ResourceAliases": "alias"}
    if action == "s3:ListBucketVersions" and inputs.get("key"):
        return {"s3:prefix": str(inputs["key"])}
    if action not in _TAGGING:
        return {}
    tags = inputs.get("tags")
    context: dict[str, str | tuple[str, ...]] = {}
    if isinstance(tags, Mapping):
        context |= {f"aws:RequestTag/{key}": str(value) for key, value in tags.items()}
    before = old.get("tags") if operation == "update" else None
    given = tags if isinstance(tags, Mapping) else {}
    context["aws:TagKeys"] = tuple(key for key, value in given.items() if not before or before.get(key) != value)
    if operation == "create" and action == "ec2:CreateTags" and (creating := calls.creating(f"aws:{kind}")):
        context["ec2:CreateAction"] = creating
    if operation == "update" and action == "kms:TagResource":
        context["kms:ResourceAliases"] = "alias"
    return context


def _boundary(store: Store, action: str, kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Return the permissions boundary that IAM evaluates: the boundary in the request, or the current boundary of the role."""
    if action in ("iam:CreateRole", "iam:PutRolePermissionsBoundary"):
        boundary = new.get("permissionsBoundary")
    elif kind in ("iam/rolePolicy:RolePolicy", "iam/rolePolicyAttachment:RolePolicyAttachment"):
        role = store.find("aws:iam/role:Role", str(new.get("role") or old.get("role")))
        boundary = role.plain.get("permissionsBoundary") if role else None
    else:
        boundary = None
    return {"iam:PermissionsBoundary": str(boundary)} if boundary else {}


def _resources(store: Store, action: str, kind: str, inputs: Mapping[str, Any], region: str, id: str) -> Iterator[str]:
    """Return the ARNs of the resources that a call affects."""
    account, where = ACCOUNT, f"{region}:{ACCOUNT}"
    name = str(inputs.get("name") or id)
    if action == "iam:PassRole":
        yield from _passed(store, kind, inputs)
    elif action == "iam:CreateServiceLinkedRole" or (kind.startswith(("fsx/", "efs/")) and action.startswith("iam:")):
        yield f"arn:aws:iam::{account}:role/aws-service-role/{_SERVICE_ROLE[kind]}/AWSServiceRole"
    elif kind == "fsx/dataRepositoryAssociation:DataRepositoryAssociation" and action.startswith("s3:"):
        yield f"arn:aws:s3:::{str(inputs.get('dataRepositoryPath')).removeprefix('s3://').split('/')[0]}"
    elif action.startswith("s3:"):
        bucket = f"arn:aws:s3:::{inputs.get('bucket')}"
        yield f"{bucket}/{inputs['key']}" if "key" in inputs and action != "s3:ListBucketVersions" else bucket
    elif action == "iam:GetRole" and inputs.get("cloudWatchLogsRoleArn"):
        yield str(inputs["cloudWatchLogsRoleArn"])
    elif action.startswith("iam:"):
        own = "instance-profile" if "InstanceProfile" in kind else "role"
        yield f"arn:aws:iam::{account}:{own}/{inputs.get('role') if own == 'role' and inputs.get('role') else name}"
    elif action.startswith("route53:"):
        yield "arn:aws:route53:::hostedzone/*"
    elif action.startswith("autoscaling:"):
        group = inputs.get("autoscalingGroupName") or name
        yield f"arn:aws:autoscaling:{where}:autoScalingGroup:{ids.uuid(0)}:autoScalingGroupName/{group}"
    elif action.startswith("logs:"):
        group = f"arn:aws:logs:{where}:log-group:{inputs.get('logGroupName') or name}"
        yield f"{group}:log-stream:" if action in OF_STREAMS else group
    elif action.startswith("ssm:"):
        yield f"arn:aws:ssm:{where}:parameter{name}"
    elif action.startswith("cloudtrail:"):
        yield f"arn:aws:cloudtrail:{where}:trail/{name}"
    elif action.startswith("budgets:"):
        yield f"arn:aws:budgets::{account}:budget/{name}"
    elif action.startswith("sns:"):
        of_policy = inputs.get("arn") if kind == "sns/topicPolicy:TopicPolicy" else None
        yield str(of_policy or inputs.get("topic") or f"arn:aws:sns:{where}:{name.rpartition(':')[2]}")
    elif action.startswith("aps:"):
        within = inputs.get("workspaceId") or id or "*"
        rules = kind == "amp/ruleGroupNamespace:RuleGroupNamespace"
        yield f"arn:aws:aps:{where}:" + (
            f"rulegroupsnamespace/{within}/{inputs.get('name')}" if rules else f"workspace/{within}"
        )
    elif action.startswith("events:"):
        yield f"arn:aws:events:{where}:rule/{inputs.get('rule') or name}"
    elif action.startswith("cloudwatch:"):
        yield f"arn:aws:cloudwatch:{where}:alarm:{name}"
    elif action.startswith("kms:") and "Alias" in action:
        yield f"arn:aws:kms:{where}:{name}"
        yield f"arn:aws:kms:{where}:key/{inputs.get('targetKeyId')}"
    elif action.startswith("elasticfilesystem:"):
        yield f"arn:aws:elasticfilesystem:{where}:file-system/{inputs.get('fileSystemId') or id or '*'}"
    elif action.startswith("fsx:"):
        shape = "association" if "Association" in kind else "file-system"
        # The ARN of a volume contains the IDs of its file system and of the volume.
        yield f"arn:aws:fsx:{where}:{'volume' if action == 'fsx:UpdateVolume' else shape}/{id or '*'}"
    elif kind == _IMAGE_COPY and not action.startswith("kms:"):
        if action == "ec2:CopyImage":
            yield f"arn:aws:ec2:{inputs.get('sourceAmiRegion')}::image/{inputs.get('sourceAmiId')}"
            yield f"arn:aws:ec2:{region}::snapshot/*"
        yield f"arn:aws:ec2:{region}::image/{id or '*'}"
    elif action.startswith(_RULES):
        yield f"arn:aws:ec2:{where}:security-group/{inputs.get('securityGroupId') or id or '*'}"
    else:
        shape = "security-group-rule" if "Rule:" in kind else ids.kebab(ids.class_name("aws:" + kind))
        shape = "key" if action.startswith("kms:") else shape
        yield f"arn:aws:{action.partition(':')[0]}:{where}:{shape}/{id or '*'}"


def _passed(store: Store, kind: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Return the roles that an operation passes to a service."""
    roles = [inputs.get(key) for key in ("iamRoleArn", "cloudWatchLogsRoleArn") if inputs.get(key)]
    if kind == "s3/bucketReplicationConfig:BucketReplicationConfig":
        roles.append(inputs.get("role"))
    if kind == "iam/instanceProfile:InstanceProfile" and inputs.get("role"):
        roles.append(f"arn:aws:iam::{ACCOUNT}:role/{inputs['role']}")
    if kind == "autoscaling/group:Group":
        roles += [f"arn:aws:iam::{ACCOUNT}:role/{role}" for role in _node_roles(store, inputs)]
    yield from (str(role) for role in roles)


def _node_roles(store: Store, inputs: Mapping[str, Any]) -> Iterator[str]:
    mixed = (inputs.get("mixedInstancesPolicy") or {}).get("launchTemplate") or {}
    given = inputs.get("launchTemplate") or mixed.get("launchTemplateSpecification") or {}
    template = store.find(
        "aws:ec2/launchTemplate:LaunchTemplate", str(given.get("id") or given.get("launchTemplateId"))
    )
    profile = (template.plain.get("iamInstanceProfile") or {}) if template else {}
    named = str(profile.get("name") or str(profile.get("arn") or "").rsplit("/", 1)[-1])
    instance_profile = store.find("aws:iam/instanceProfile:InstanceProfile", named)
    if instance_profile:
        yield str(instance_profile.plain.get("role"))
