"""The IAM actions in the table of resources, compared with the handlers of CloudFormation and the calls in botocore."""

from __future__ import annotations

import fnmatch
import functools
from typing import Any

import pytest

from gpuinfra.clouds.aws.permissions import ACTIONS as BY_TYPE
from gpuinfra.clouds.permissions import OPERATIONS
from gpuinfra_rehearsal.cloud.aws.derive import _counterpart, _schemas
from tests.clouds.aws import requests, requests_ec2, requests_other
from tests.clouds.stacks import recording_of, shipped_aws_stacks

assert requests_ec2, requests_other

ACTIONS = {type_.removeprefix("aws:"): actions for type_, actions in BY_TYPE.items() if type_.startswith("aws:")}

COUNTERPARTS = {
    "ec2/internetGateway:InternetGateway": ("AWS::EC2::InternetGateway", "AWS::EC2::VPCGatewayAttachment"),
    "vpc/securityGroupIngressRule:SecurityGroupIngressRule": ("AWS::EC2::SecurityGroupIngress",),
    "vpc/securityGroupEgressRule:SecurityGroupEgressRule": ("AWS::EC2::SecurityGroupEgress",),
    "autoscaling/schedule:Schedule": ("AWS::AutoScaling::ScheduledAction",),
} | {
    kind: ("AWS::S3::Bucket",)
    for kind in ACTIONS
    if kind.startswith("s3/bucket") and not kind.endswith(("Policy", "Objectv2"))
}
"""Types that CloudFormation divides differently."""

NO_HANDLERS = {
    "amp/workspaceConfiguration:WorkspaceConfiguration": "a property of the workspace there",
    "amp/alertManagerDefinition:AlertManagerDefinition": "the same",
    "ec2/amiCopy:AmiCopy": "CloudFormation has no type for images",
    "s3/bucketObjectv2:BucketObjectv2": "CloudFormation makes no objects",
    "efs/fileSystemPolicy:FileSystemPolicy": "a property of the file system there",
    "efs/replicationConfiguration:ReplicationConfiguration": "the same",
    "fsx/lustreFileSystem:LustreFileSystem": "an old schema without handlers",
    "fsx/openZfsFileSystem:OpenZfsFileSystem": "the same",
    "iam/rolePolicyAttachment:RolePolicyAttachment": "a member of a role there",
    "cloudwatch/eventTarget:EventTarget": "a property of the rule there",
    "ec2/defaultSecurityGroup:DefaultSecurityGroup": "a part of the VPC there",
}

THEIRS_ONLY = {
    "a feature that gpuinfra does not use": (
        "ec2:createvpcencryptioncontrol ec2:attachvpngateway ec2:detachvpngateway ec2:describevpngateways ec2:copyvolumes ec2:*volumeattribute "
        "ec2:createsnapshot kms:reencrypt* ec2:acceptaddresstransfer ec2:associateaddress"
        " vpc-lattice:* vpce:allowmultiregion managed-fleets:* cloudwatch:putmetricalarm elasticloadbalancing:describe*"
        " autoscaling:enablemetricscollection autoscaling:putnotificationconfiguration autoscaling:suspendprocesses s3tables:* firehose:tagdeliverystream"
        " s3:putanalyticsconfiguration s3:putbucketabac s3:putbucketcors s3:putaccelerateconfiguration s3:putbucketnotification "
        "s3:*replication* s3:*metadatatable*"
        " s3:putbucketwebsite s3:putintelligenttieringconfiguration s3:putinventoryconfiguration s3:putmetricsconfiguration s3:putobjectacl s3:deleteobject"
        " cloudtrail:puteventconfiguration cloudtrail:putinsightselectors organizations:* billing:getbillingviewdata "
        "logs:*indexpolic* logs:*dataprotectionpolicy"
        " elasticfilesystem:*replication* elasticfilesystem:putbackuppolicy elasticfilesystem:putlifecycleconfiguration "
        "elasticfilesystem:updatefilesystemprotection"
        " logs:*resourcepolic* logs:putbearertokenauthentication s3:rest.put.object ssm:getparameters kms:disablekey"
        " sns:putdataprotectionpolicy aps:*loggingconfiguration logs:getlogdelivery logs:listlogdeliveries"
    ),
    "flow logs into a bucket or a stream, ours go to CloudWatch": (
        "logs:createlogdelivery logs:deletelogdelivery s3:getbucketpolicy s3:putbucketpolicy autoscaling:describetags ec2:describetags"
    ),
    "a role that reports the delivery of messages, or that a subscription of a stream needs": "iam:getrole iam:passrole",
    "an organization's trail or a delivery to a bucket needs the role of the service": "iam:createservicelinkedrole",
    "a member there, a type of its own here": (
        "elasticfilesystem:putfilesystempolicy ec2:authorizesecuritygroup* iam:*rolepolicy iam:passrole s3:putbucketlogging sns:subscribe events:*targets*"
        " s3:putbucketownershipcontrols s3:putbucketpublicaccessblock s3:putencryptionconfiguration s3:putlifecycleconfiguration s3:putobjectlockconfiguration"
        " aps:*alertmanagerdefinition aps:*workspaceconfiguration"
    ),
    "CloudFormation reads more": "ec2:describe* ec2:get* ssm:get*",
}
OURS_ONLY = {
    "the provider reads more": (
        "ec2:describesubnets ec2:describeroutetables ec2:describenetworkinterfaces ec2:describeaddressesattribute "
        "ec2:describeprefixlists ec2:describelaunchtemplateversions"
        " ec2:describesecuritygrouprules iam:getrole ssm:getparameter s3:getbucketpolicy s3:getbucketrequestpayment"
        " iam:listinstanceprofilesforrole sns:gettopicattributes"
    ),
    "the provider changes in place or tags what CloudFormation replaces": (
        "ec2:createtags ec2:deletetags ec2:modifysecuritygrouprules ec2:modifylaunchtemplate iam:taginstanceprofile iam:untaginstanceprofile"
    ),
    "required by the AWS documentation, missing in the schema": (
        "kms:describekey route53:associatevpcwithhostedzone iam:attachrolepolicy ec2:*networkinterface ec2:modifynetworkinterfaceattribute"
    ),
}


@functools.cache
def _every() -> dict[str, dict[str, Any]]:
    return _schemas()


@functools.cache
def _handlers(kind: str) -> dict[str, set[str]]:
    """Operation -> permissions of the CloudFormation handlers."""
    found: dict[str, set[str]] = {}
    schemas = _every()
    for name in COUNTERPARTS.get(kind, (_counterpart(f"aws:{kind}"),)):
        for operation, handler in schemas.get(name.lower(), {}).get("handlers", {}).items():
            found.setdefault(operation, set()).update(one.lower() for one in handler.get("permissions", ()))
    return found


def _ours(kind: str, *operations: str) -> set[str]:
    return {word.partition("?")[0].lower() for one in operations for word in ACTIONS[kind].of(one)}


def _explained(action: str, reasons: dict[str, str]) -> bool:
    return any(fnmatch.fnmatch(action, pattern) for words in reasons.values() for pattern in words.split())


@pytest.mark.parametrize("kind", ACTIONS)
def test_creation_and_deletion_agree_with_cloudformation(kind: str) -> None:
    """The table has every permission of the CloudFormation handlers for creation and deletion, or a reason."""
    handlers = _handlers(kind)
    assert bool(handlers) == (kind not in NO_HANDLERS), kind
    ours = _ours(kind, *OPERATIONS)
    theirs = handlers.get("create", set()) | handlers.get("delete", set())
    missing = {one for one in theirs if not any(fnmatch.fnmatch(action, one) for action in ours)}
    part_of_a_bucket = COUNTERPARTS.get(kind) == ("AWS::S3::Bucket",) and kind != "s3/bucket:Bucket"
    assert part_of_a_bucket or {one for one in missing if not _explained(one, THEIRS_ONLY)} == set()


@pytest.mark.parametrize("kind", [kind for kind in ACTIONS if kind not in NO_HANDLERS])
def test_every_action_is_used_by_cloudformation(kind: str) -> None:
    """An action that no handler of the type has needs a reason."""
    theirs = set().union(*_handlers(kind).values())
    extra = {one for one in _ours(kind, *OPERATIONS) if not any(fnmatch.fnmatch(one, other) for other in theirs)}
    assert {one for one in extra if not _explained(one, OURS_ONLY)} == set()


def test_no_reason_is_stale() -> None:
    """Each pattern matches an existing difference."""
    theirs, ours = set(), set()
    for kind in ACTIONS:
        handlers = _handlers(kind)
        own = _ours(kind, *OPERATIONS)
        every = set().union(*handlers.values())
        theirs |= {
            one
            for one in handlers.get("create", set()) | handlers.get("delete", set())
            if not any(fnmatch.fnmatch(action, one) for action in own)
        }
        ours |= {one for one in own if not any(fnmatch.fnmatch(one, other) for other in every)}
    for reasons, real in ((THEIRS_ONLY, theirs), (OURS_ONLY, ours)):
        for pattern in " ".join(reasons.values()).split():
            assert fnmatch.filter(real, pattern), pattern


# The operation's name is the action's name but for these. Service authorization reference, retrieved 2026-11-21.
OTHER_NAMES = {
    "s3:PutBucketReplication": "s3:PutReplicationConfiguration",
    "s3:PutBucketEncryption": "s3:PutEncryptionConfiguration",
    "s3:PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
    "s3:PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
    "s3:PutObjectLockConfiguration": "s3:PutBucketObjectLockConfiguration",
    "budgets:CreateBudget": "budgets:ModifyBudget",
    "amp:CreateWorkspace": "aps:CreateWorkspace",
    "amp:CreateRuleGroupsNamespace": "aps:CreateRuleGroupsNamespace",
    "amp:CreateAlertManagerDefinition": "aps:CreateAlertManagerDefinition",
}
ON_UPDATE = {
    "ec2:ModifySubnetAttribute": "what is false by default is not set at creation",
    "autoscaling:StartInstanceRefresh": "a new group has nothing to refresh",
}


def test_every_call_of_a_creation_is_in_the_table() -> None:
    """Each API call for a shipped stack is allowed by an action of its type."""
    seen = 0
    for stack in shipped_aws_stacks():
        for resource in recording_of(stack).custom:
            kind = resource.type.removeprefix("aws:")
            if resource.type in requests.NO_CALL:
                continue
            for call in requests.calls(resource):
                action = f"{call.service}:{call.operation}"
                action = OTHER_NAMES.get(action, action)
                where = _ours(kind, "update") if action in ON_UPDATE else _ours(kind, "create")
                assert action.lower() in where, f"{resource.name}: {action}"
                seen += 1
    assert seen > 200


def test_every_type_of_a_shipped_stack_has_a_row() -> None:
    """Every type of a shipped stack is in the table."""
    used = {one.type for stack in shipped_aws_stacks() for one in recording_of(stack).custom}
    assert {one for one in used if one.startswith("aws:")} == {f"aws:{kind}" for kind in ACTIONS} & used
    assert {one.removeprefix("aws:") for one in used if one.startswith("aws:")} - set(ACTIONS) == set()
