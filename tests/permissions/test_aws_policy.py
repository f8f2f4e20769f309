"""The policies of `gpuinfra permissions` on AWS: shipped stacks are created, read, updated and deleted under them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpuinfra.clouds.aws.permissions import POLICIES_OF_A_ROLE, POLICY_LIMIT, documents_of
from gpuinfra.clouds.aws.profile import USER
from gpuinfra.clouds.aws.requests import Purpose
from gpuinfra.clouds.permissions import Permissions
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.spec import ClusterSpec, parse_spec
from gpuinfra_rehearsal.cloud.aws import operator as judge
from gpuinfra_rehearsal.cloud.aws.policy import decide
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.least_privilege import compare
from tests.clouds.stacks import TODAY, plan_of, recording_of_spec, shipped_aws_stacks, spec_of
from tests.permissions.lives import denied
from tests.permissions.needed import permissions_of

STACKS = shipped_aws_stacks()


def _permissions(stack: str) -> Permissions:
    return permissions_of(plan_of(stack))


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_deploys_under_its_policies(stack: str) -> None:
    """Every request for every resource of a stack is allowed."""
    assert list(denied(stack, Operator(_permissions(stack).documents))) == []


@pytest.mark.parametrize("stack", STACKS)
def test_every_action_is_used(stack: str) -> None:
    """A deployment uses every action, except for those of the program's own requests."""
    permissions = _permissions(stack)
    elsewhere = {need.action for need in permissions.needs if all(operation == "" for _, operation in need.uses)}
    operator = Operator(permissions.documents)
    assert list(denied(stack, operator)) == []
    assert {need.action for need in permissions.needs} - set(operator.summary()["used"]) == elsewhere


@pytest.mark.parametrize(
    "action",
    ["ec2:CreateVpc", "ec2:DeleteSubnet", "iam:PassRole", "s3:PutBucketPolicy", "s3:PutObject", "autoscaling:UpdateAutoScalingGroup",
     "fsx:CreateFileSystem", "kms:CreateKey", "logs:PutRetentionPolicy", "cloudtrail:StartLogging", "ssm:PutParameter", "budgets:ModifyBudget"],
)  # fmt: skip
def test_without_one_action_the_request_is_denied(action: str) -> None:
    """Without one action, only requests that need it are denied, with the message of AWS."""
    without = [_without(document, action) for document in _permissions("aws-p4d").documents]
    refused = list(denied("aws-p4d", Operator(without)))
    assert refused
    for text in refused:
        assert f"is not authorized to perform: {action} on resource: arn:aws:" in text
        assert text.endswith(f"because no identity-based policy allows the {action} action")


def _without(document: Mapping[str, Any], action: str) -> dict[str, Any]:
    statements = [
        {**one, "Action": [other for other in one["Action"] if other != action]} for one in document["Statement"]
    ]
    return {**document, "Statement": statements}


def test_resources_of_another_cluster_are_denied() -> None:
    """The policies of one stack allow no change of resources of another stack, and no resources in another region."""
    refused = "\n".join(denied("aws-p5-block", Operator(_permissions("aws-p4d").documents)))
    for action in ("ec2:DeleteVpc", "s3:PutBucketPolicy", "iam:CreateRole", "ec2:CreateVpc", "autoscaling:UpdateAutoScalingGroup"):  # fmt: skip
        assert f"perform: {action} on" in refused


def _cluster(name: str, mount: str = "/scratch", pool: str = "gpu") -> ClusterSpec:
    whole = spec_of("aws-p4d").model_dump(mode="json", exclude_unset=True)
    storage = [{**whole["storage"][0], "mount": mount}]
    return parse_spec({**whole, "name": name, "storage": storage, "pools": [{**whole["pools"][0], "name": pool}]})


@pytest.mark.parametrize(
    ("name", "mount", "pool"),
    [
        ("llm-pretraining-prod", "/checkpoints", "gpu"),
        ("a-very-long-name-of-a-cl", "/checkpoints-of-all-experiments-of-the-year", "a-very-long-name-of-poo"),
        ("a--b", "/scratch", "g"),
        ("x", "/d", "y"),
    ],
)
def test_long_and_short_names_deploy_under_their_policies(name: str, mount: str, pool: str) -> None:
    """The patterns in the policies match the names that the program creates, also where they are shortened."""
    spec = _cluster(name, mount, pool)
    recording = recording_of_spec(spec, stack="prod")
    assert list(denied(recording, Operator(permissions_of(build_plan(spec, TODAY)).documents))) == []


@pytest.mark.parametrize("other", ["training", "train-b", "trainers-org", "trai"])
def test_similar_names_are_denied(other: str) -> None:
    """The policies of `train` allow no change of the named resources of a cluster whose name starts like it."""
    operator = Operator(permissions_of(build_plan(_cluster("train"), TODAY)).documents)
    refused = "\n".join(denied(recording_of_spec(_cluster(other), stack="prod"), operator))
    for action in ("iam:PassRole", "iam:CreateRole", "cloudtrail:DeleteTrail", "s3:PutBucketPolicy", "s3:PutObject", "ssm:PutParameter",
                   "autoscaling:UpdateAutoScalingGroup", "budgets:ModifyBudget", "logs:PutRetentionPolicy", "ec2:DeleteSecurityGroup"):  # fmt: skip
        assert f"perform: {action} on" in refused, action


BOUNDARY, ECR = "arn:aws:iam::123456789012:policy/edge", "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"


def _asks(action: str, resource: str, **context: str) -> AccessRequest:
    return AccessRequest("operator", action, resource, {"aws:RequestedRegion": "us-east-1", **context})


def _allows(plan: Plan, *asked: AccessRequest) -> list[bool]:
    documents = [json.dumps(one) for one in permissions_of(plan).documents]
    return [decide(one, documents)[0] for one in asked]


def test_a_role_with_boundary_and_policies_deploys_under_its_policies() -> None:
    """Roles with a permissions boundary and managed policies are created, changed and deleted under the policies of their plan."""
    whole = spec_of("aws-p4d").model_dump(mode="json", exclude_unset=True)
    spec = parse_spec({**whole, "access": {"permissions_boundary": BOUNDARY, "node_policies": [ECR]}})
    recording = recording_of_spec(spec, stack="prod")
    assert {one.inputs.get("permissionsBoundary") for one in recording.of("aws:iam/role:Role")} == {BOUNDARY}
    assert [one.inputs["policyArn"] for one in recording.of("aws:iam/rolePolicyAttachment:RolePolicyAttachment")] == [ECR]  # fmt: skip
    assert list(denied(recording, Operator(permissions_of(build_plan(spec, TODAY)).documents))) == []


def test_a_boundary_cannot_be_avoided() -> None:
    """With a boundary, roles without it and policies of roles without it are denied, and nothing allows its removal."""
    whole = spec_of("aws-p4d").model_dump(mode="json", exclude_unset=True)
    plan = build_plan(
        parse_spec({**whole, "access": {"permissions_boundary": BOUNDARY, "node_policies": [ECR]}}), TODAY
    )
    role = "arn:aws:iam::000000000000:role/train-node-role-0a1b2c3"
    for action, more in {
        "iam:CreateRole": {},
        "iam:PutRolePermissionsBoundary": {},
        "iam:PutRolePolicy": {},
        "iam:AttachRolePolicy": {"iam:PolicyARN": ECR},
    }.items():
        bound = {"iam:PermissionsBoundary": BOUNDARY, **more}
        asked = [_asks(action, role, **context) for context in (bound, more, {**bound, "iam:PermissionsBoundary": ECR})]
        assert _allows(plan, *asked) == [True, False, False], action
    assert "iam:DeleteRolePermissionsBoundary" not in {one.action for one in permissions_of(plan).needs}
    assert _allows(
        plan,
        _asks("iam:AttachRolePolicy", role, **{"iam:PermissionsBoundary": BOUNDARY, "iam:PolicyARN": BOUNDARY}),
    ) == [False]


def test_ssh_is_limited_to_the_nodes_of_the_cluster() -> None:
    """The requests of `gpuinfra ssh` are allowed on instances of the cluster, as the user of the image and with the SSH document only."""
    plan = plan_of("aws-p4d")
    node = "arn:aws:ec2:us-east-1:000000000000:instance/i-0123456789abcdef0"
    mine, other = {"aws:ResourceTag/gpuinfra:cluster": plan.name}, {"aws:ResourceTag/gpuinfra:cluster": "other"}
    send, open_ = "ec2-instance-connect:SendSSHPublicKey", "ssm:StartSession"
    asked = [
        _asks(send, node, **mine, **{"ec2:osuser": USER}),
        _asks(send, node, **mine, **{"ec2:osuser": "root"}),
        _asks(send, node, **other, **{"ec2:osuser": USER}),
        _asks(open_, node, **mine),
        _asks(open_, node, **other),
        _asks(open_, "arn:aws:ssm:us-east-1::document/AWS-StartSSHSession"),
        _asks(open_, "arn:aws:ssm:us-east-1::document/SSM-SessionManagerRunShell"),
    ]
    assert _allows(plan, *asked) == [True, False, False, True, False, True, False]


def test_only_own_sessions_are_used() -> None:
    """A session is resumed and ended only by the caller who started it, and its data channel is opened whatever its ID is.

    The session of an assumed role: `session/user-037a2e6a0b1c2d3e4`, started by `AROA...:user` (aws/amazon-ssm-agent issue 514)."""
    session = "arn:aws:ssm:us-east-1:000000000000:session/user-037a2e6a0b1c2d3e4"
    caller = {"aws:userid": "AROA00000000000000001:user"}
    tag = "ssm:resourceTag/aws:ssmmessages:session-id"
    for action in ("ssm:ResumeSession", "ssm:TerminateSession"):
        asked = [
            _asks(action, session, **caller, **{tag: owner})
            for owner in (caller["aws:userid"], "AROA00000000000000001:x")
        ]
        assert _allows(plan_of("aws-p4d"), *asked, _asks(action, session, **caller)) == [True, False, False], action
    assert _allows(plan_of("aws-p4d"), _asks("ssmmessages:OpenDataChannel", session, **caller)) == [True]


def _with_homes() -> ClusterSpec:
    whole = spec_of("aws-p4d").model_dump(mode="json", exclude_unset=True)
    return parse_spec({**whole, "storage": [{"kind": "home"}]})


def test_home_directories_deploy_under_their_policies() -> None:
    """Every request for a file system for homes and its mount targets is allowed, and each of their permissions is used."""
    permissions = permissions_of(build_plan(_with_homes(), TODAY))
    operator = Operator(permissions.documents)
    assert list(denied(recording_of_spec(_with_homes(), stack="prod"), operator)) == []
    elsewhere = {need.action for need in permissions.needs if all(operation == "" for _, operation in need.uses)}
    assert {need.action for need in permissions.needs} - set(operator.summary()["used"]) == elsewhere


def test_changes_of_home_directories_apply_to_file_systems_only() -> None:
    """Each action that changes a file system of EFS names file systems in the Region as its resources, and no other resource of the account."""
    changes = {
        action: statement["Resource"]
        for document in permissions_of(build_plan(_with_homes(), TODAY)).documents
        for statement in document["Statement"]
        for action in statement["Action"]
        if action.startswith("elasticfilesystem:")
        and not action.endswith(":CreateFileSystem")
        and ":Describe" not in action
    }
    assert len(changes) > 5
    assert {json.dumps(where) for where in changes.values()} == {
        '"arn:aws:elasticfilesystem:us-east-1:*:file-system/*"'
    }


IMAGE = "ami-0123456789abcdef0"


def _with_image_copies() -> ClusterSpec:
    """The shipped stack with a second region, which copies its image."""
    spec = spec_of("aws-recovery").model_dump(mode="json", exclude_unset=True)
    spec["recovery"]["copy_images"] = True
    spec["software"] = {"image": {"ref": IMAGE, "os": "ubuntu-22.04"}}
    return parse_spec(spec)


def test_image_copies_deploy_under_their_policies() -> None:
    """Every request for the copy of an image is allowed, each permission is used, and the copy is not deleted."""
    permissions = permissions_of(build_plan(_with_image_copies(), TODAY))
    operator = Operator(permissions.documents)
    assert list(denied(recording_of_spec(_with_image_copies(), stack="prod"), operator)) == []
    elsewhere = {need.action for need in permissions.needs if all(operation == "" for _, operation in need.uses)}
    assert {need.action for need in permissions.needs} - set(operator.summary()["used"]) == elsewhere
    assert not {"ec2:DeregisterImage", "ec2:DeleteSnapshot"} & {need.action for need in permissions.needs}


def test_only_the_declared_image_is_copied_to_the_second_region() -> None:
    """The policies allow copies of the image of the declaration to the second region only, and the use of keys only through EC2."""
    plan = build_plan(_with_image_copies(), TODAY)
    source, key = "arn:aws:ec2:us-east-2::image/", "arn:aws:kms:us-west-2:000000000000:key/1"
    copies = [
        _asks("ec2:CopyImage", f"{source}{one}", **{"aws:RequestedRegion": region})
        for one, region in ((IMAGE, "us-west-2"), (IMAGE, "us-east-2"), ("ami-1", "us-west-2"))
    ]
    assert _allows(plan, *copies) == [True, False, False]
    uses = [_asks("kms:ReEncryptTo", key, **{"kms:ViaService": f"{service}.us-west-2.amazonaws.com"}) for service in ("ec2", "rds")]  # fmt: skip
    assert _allows(plan, *uses) == [True, False]
    tags = {"aws:RequestTag/gpuinfra:cluster": plan.name, "aws:RequestedRegion": "us-west-2"}
    other = {**tags, "aws:ResourceTag/gpuinfra:cluster": "other"}
    images = [_asks("ec2:CreateTags", "arn:aws:ec2:us-west-2::image/ami-1", **context) for context in (tags, other)]
    assert _allows(plan, *images) == [True, False]


def test_mount_targets_are_connected_with_groups_of_the_cluster_only() -> None:
    """An interface gets security groups of the cluster only, in subnets of the cluster, and interfaces of other clusters are denied."""
    plan = build_plan(_with_homes(), TODAY)
    arn, own = "arn:aws:ec2:us-east-1:000000000000:", "aws:ResourceTag/gpuinfra:cluster"
    group, interface, subnet = f"{arn}security-group/sg-0", f"{arn}network-interface/eni-0", f"{arn}subnet/subnet-0"
    create, modify, delete = (f"ec2:{call}" for call in ("CreateNetworkInterface", "ModifyNetworkInterfaceAttribute", "DeleteNetworkInterface"))  # fmt: skip
    tags = ({own: plan.name}, {own: "other"}, {})
    for action in (create, modify):
        assert _allows(plan, *(_asks(action, group, **context) for context in tags)) == [True, False, False], action
    assert _allows(plan, *(_asks(create, subnet, **context) for context in tags)) == [True, False, False]
    for action in (create, modify, delete):
        assert _allows(plan, *(_asks(action, interface, **context) for context in tags)) == [True, False, True], action
    assert _allows(plan, _asks(modify, f"{arn}instance/i-0"), _asks(delete, group)) == [False, False]


def test_mount_targets_are_connected_in_the_existing_network_only() -> None:
    """With an existing network, interfaces and subnets of another network are denied."""
    plan = build_plan(_with_homes(), TODAY)
    assert plan.network is not None
    plan = replace(plan, network=replace(plan.network, existing_id="vpc-0"))
    arn = "arn:aws:ec2:us-east-1:000000000000:"
    for action, resource in (("ModifyNetworkInterfaceAttribute", "network-interface/eni-0"), ("DeleteNetworkInterface", "network-interface/eni-0"),
                             ("CreateNetworkInterface", "subnet/subnet-0")):  # fmt: skip
        asked = [_asks(f"ec2:{action}", arn + resource, **{"ec2:Vpc": f"{arn}vpc/{vpc}"}) for vpc in ("vpc-0", "vpc-1")]
        assert _allows(plan, *asked) == [True, False], action


def test_rules_of_other_security_groups_are_denied() -> None:
    """Rules are added and removed in groups of the cluster only. Rules are also removed from a group without a cluster tag, as the default group."""
    plan = plan_of("aws-p4d")
    group = "arn:aws:ec2:us-east-1:000000000000:security-group/sg-0123456789abcdef0"
    mine, other = {"aws:ResourceTag/gpuinfra:cluster": plan.name}, {"aws:ResourceTag/gpuinfra:cluster": "other"}
    for way in ("Ingress", "Egress"):
        for action, default in ((f"ec2:AuthorizeSecurityGroup{way}", False), (f"ec2:RevokeSecurityGroup{way}", True)):
            asked = [_asks(action, group, **context) for context in (mine, other, {})]
            assert _allows(plan, *asked) == [True, False, default], action


def test_a_stack_without_network_removes_no_rules_of_other_groups() -> None:
    """Without a default group, a rule of a group without a cluster tag is not removed."""
    plan = plan_of("aws-p4d")
    assert plan.network is not None
    plan = replace(plan, network=replace(plan.network, existing_id="vpc-0"))
    group = "arn:aws:ec2:us-east-1:000000000000:security-group/sg-0123456789abcdef0"
    assert _allows(plan, _asks("ec2:RevokeSecurityGroupEgress", group)) == [False]


def test_the_policy_of_a_new_key_needs_no_tag() -> None:
    """The policy of a key is set while the key has neither alias nor effective tags, and later only on keys of the cluster.
    New keys of other clusters are denied."""
    plan = plan_of("aws-p4d")
    key = "arn:aws:kms:us-east-1:000000000000:key/x"
    mine, alias = {"aws:ResourceTag/gpuinfra:cluster": plan.name}, {"kms:ResourceAliases": "alias/payroll"}
    other, tag = {"aws:ResourceTag/gpuinfra:cluster": "other"}, {"aws:RequestTag/gpuinfra:cluster": plan.name}
    asked = [_asks("kms:PutKeyPolicy", key, **context) for context in ({}, {**mine, **alias}, alias, other)]
    assert _allows(plan, *asked) == [True, True, False, False]
    asked = [_asks("kms:TagResource", key, **tag, **context) for context in ({}, mine, {**mine, **alias}, alias, other)]
    assert _allows(plan, *asked) == [True, True, True, False, False]


def test_arns_are_of_the_partition_of_the_region() -> None:
    """In GovCloud, each ARN in the policies has the partition aws-us-gov."""
    plan = build_plan(_cluster("train"), TODAY)
    text = json.dumps(permissions_of(replace(plan, region="us-gov-west-1")).documents)
    assert "arn:aws-us-gov:" in text
    assert "arn:aws:" not in text


@pytest.mark.parametrize("stack", STACKS)
def test_iam_accepts_the_policies(stack: str) -> None:
    """cfn-lint accepts grammar and actions, and size and number of documents are within the limits of IAM."""
    documents = _permissions(stack).documents
    assert len(documents) <= POLICIES_OF_A_ROLE
    resources = {}
    for index, document in enumerate(documents):
        assert len(json.dumps(document, separators=(",", ":"))) <= POLICY_LIMIT
        assert len({one["Sid"] for one in document["Statement"]}) == len(document["Statement"])
        properties = {"Path": "/", "PolicyDocument": document}
        resources[f"Policy{index}"] = {"Type": "AWS::IAM::ManagedPolicy", "Properties": properties}
    template = json.dumps({"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources})
    from cfnlint.api import lint_all

    found = [match for match in lint_all(template) if match.rule.severity != "informational"]
    assert [f"{match.rule.id} {match.message} at {match.path}" for match in found] == []


@pytest.mark.parametrize("stack", STACKS)
def test_no_action_is_a_wildcard_and_every_statement_is_restricted(stack: str) -> None:
    """No action is a wildcard, and a statement for all resources has a condition, except for hosted zones."""
    for document in _permissions(stack).documents:
        for statement in document["Statement"]:
            assert all("*" not in action for action in statement["Action"])
            if statement["Resource"] == "*":
                assert statement.get("Condition") or statement["Sid"] == "NameEndpoints", statement["Sid"]


def test_statements_are_packed_below_the_limit() -> None:
    """Statements are packed into few documents, and none is lost."""
    statements = [{"Sid": f"S{index}", "Action": ["a:b"] * 30} for index in range(40)]
    made = documents_of(statements, 1000)
    assert [one for document in made for one in document["Statement"]] == statements
    assert all(len(json.dumps(one, separators=(",", ":"))) <= 1000 for one in made)
    assert len(made) < 20


def test_an_unused_permission_of_a_completed_operation_is_a_finding() -> None:
    """An unused permission is reported if its operation ran, and counted separately if it did not."""
    permissions = _permissions("aws-p4d")
    asked = {"ec2:CreateVpc"}
    seen = {"used": sorted(asked), "refused": [], "operations": [["aws:ec2/vpc:Vpc", "create"]], "restricted": True}
    found = compare(permissions, seen)
    assert "ec2:ModifyVpcAttribute" in found["unused"]
    assert "ec2:DescribeVpcs" in found["unused"]
    assert "ec2:DeleteVpc" in found["not_exercised"]
    assert "ec2:CreateVpc" not in found["unused"] + found["not_exercised"]


def test_requests_of_the_handover_are_checked() -> None:
    """Signed requests of an SDK are checked by the same policies: evidence is readable, another bucket is not."""
    operator = Operator(_permissions("aws-p4d").documents)
    mine = "arn:aws:s3:::train-evidence-000000000000-us-east-1-06011db7/evidence/train/x"
    operator.check(judge, judge.http("s3:GetObject", mine, "us-east-1"))
    assert operator.summary()["used"] == ["kms:Decrypt", "s3:GetObject"]
    with pytest.raises(
        ApiRejected, match=r"is not authorized to perform: s3:GetObject on resource: arn:aws:s3:::payroll/x"
    ):
        operator.check(judge, judge.http("s3:GetObject", "arn:aws:s3:::payroll/x", "us-east-1"))


def test_an_ami_is_looked_up_by_name_only_for_a_release_date() -> None:
    """A release of a date is looked up, and the lookup is allowed."""
    base = spec_of("aws-p4d")
    dated = base.model_copy(update={"software": base.software.model_copy(update={"image": "2026-09-29"})})
    permissions = permissions_of(build_plan(dated, TODAY))
    uses = {use for need in permissions.needs if need.action == "ec2:DescribeImages" for use in need.uses}
    assert (Purpose.BY_NAME, "") in uses
    assert not any((Purpose.BY_NAME, "") in need.uses for need in _permissions("aws-p4d").needs)
    (request,) = judge.required_by_function("aws:ec2/getAmi:getAmi", {}, "us-east-1")
    assert judge.allows(_texts(permissions), request)[0]


def _texts(permissions: Permissions) -> tuple[str, ...]:
    return tuple(json.dumps(document) for document in permissions.documents)
