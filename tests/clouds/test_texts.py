"""Every text that a program emits, held to the characters and the length that its cloud documents."""

from __future__ import annotations

import functools
import html
import re
from typing import Any

import botocore.session
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuinfra.base.errors import SpecError
from gpuinfra.rules import check
from gpuinfra.spec import ClusterSpec, parse_spec
from gpuinfra_rehearsal.cloud.aws.texts import TEXTS as AWS
from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.texts import Text, row_of, texts_of
from tests.clouds.aws.test_homes import recording as homes
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, recording_of, recording_of_spec, shipped_stacks, spec_of

CLOUDS = ("aws", "azure", "gcp")
STACKS = [stack for cloud in CLOUDS for stack in shipped_stacks(cloud)]
LARGEST = {"aws": "aws-p4d", "azure": "azure-ndv4", "gcp": "gcp-a3mega"}


def _problems(recording: Recording) -> list[str]:
    """Texts that the cloud rejects, and texts without a row."""
    found = []
    for one in recording.custom:
        if one.type.startswith("gpuinfra:"):
            continue
        cloud = registry.of_token(one.type)
        names = cloud.own_names(one.type)
        for text in texts_of(one.inputs, names):
            row = row_of(cloud.texts, one.type, text.path)
            if row is None:
                found.append(f"{one.type} {text.path} has no row")
            elif not row.accepts(text.text):
                found.append(f"{one.type} {text.path} is {text.text!r}; {row.page}")
        # The provider generates a name from the logical name and shortens it if necessary.
        for name in names[-1:] if not any(name in one.inputs for name in names) else ():
            row = row_of(cloud.texts, one.type, name)
            if row and not re.fullmatch(row.form, f"{one.name}-0a1b2c3"):
                found.append(f"{one.type} is named {one.name}-0a1b2c3; {row.page}")
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_texts_of_shipped_stacks_are_accepted(stack: str) -> None:
    """Each description, name, tag and label of a shipped stack has a row in the table, and the row accepts it."""
    assert _problems(recording_of(stack)) == []


def test_texts_of_home_directories_on_aws_are_accepted() -> None:
    """No shipped stack has home directories on AWS, which have a security group of their own."""
    recording = homes()
    assert [one.type for one in recording.custom if one.type.startswith("aws:efs/")]
    assert _problems(recording) == []


NAMES = {
    "double hyphen": "a--b",
    "longest": "a-very-long-name-of-a-cl",
    "shortest": "x",
    "azure": "microsoft",
}
TAGS = {"Cost center": "a/b@c=d+e", "team": "R_D-1.2:3", "Kostenstelle": "Ä 42"}


def _generated(cloud: str, name: str, tags: dict[str, str]) -> ClusterSpec:
    whole = spec_of(LARGEST[cloud]).model_dump(mode="json", exclude_unset=True)
    pool = {**whole["pools"][0], "name": (name + "-pool")[:24].rstrip("-")}
    return parse_spec({**whole, "name": name, "tags": tags, "pools": [pool]})


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.parametrize("cloud", CLOUDS)
def test_texts_of_accepted_declarations_are_accepted(cloud: str, case: str) -> None:
    """A declaration with an unusual name that has no error emits texts that the cloud accepts."""
    tags = TAGS if cloud != "azure" else {key.replace("/", "-"): value for key, value in TAGS.items()}
    spec = _generated(cloud, NAMES[case], tags)
    assert [one for one in check(spec, TODAY) if one.level == "error"] == []
    assert _problems(recording_of_spec(spec, stack="prod")) == []


def test_a_name_that_ec2_reserves_is_an_error() -> None:
    """Names of security groups start with the name of the cluster, and EC2 rejects names that start with sg-."""
    spec = _generated("aws", "sg-a", {})
    assert [one.path for one in check(spec, TODAY) if one.level == "error"] == ["name"]
    row = row_of(AWS, "aws:ec2/securityGroup:SecurityGroup", "name")
    assert row
    assert not row.accepts("sg-a-security-nodes-0a1b2c3")


@functools.cache
def _tag_rows(cloud: str) -> tuple[list[Text], list[Text]]:
    rows = registry.of_cloud(cloud).texts
    keys = [row for row in rows if row.path.endswith(("tags.#", "tags[].key"))]
    values = [row for row in rows if row.path.endswith(("tags.*", "tags[].value"))]
    return keys, values


@pytest.mark.parametrize("cloud", ["aws", "azure"])
@given(key=st.text(min_size=1, max_size=140), value=st.text(min_size=1, max_size=300))
@settings(max_examples=200, deadline=None)
def test_accepted_tags_are_accepted_by_the_cloud(cloud: str, key: str, value: str) -> None:
    """A tag that no rule rejects is accepted by every service of the cloud."""
    try:
        spec = _generated(cloud, "train", {key: value})
    except SpecError:
        return
    if any(one.level == "error" and one.path.startswith("tags") for one in check(spec, TODAY)):
        return
    keys, values = _tag_rows(cloud)
    assert all(row.accepts(key) for row in keys)
    assert all(row.accepts(value) for row in values)


@pytest.mark.parametrize("tag", [("a'b", "x"), ("team", "it's"), ("team", "a,b"), ("a;b", "x"), ("k" * 128, "x")])
def test_tags_that_aws_rejects_are_errors(tag: tuple[str, str]) -> None:
    """A tag with characters or a length that AWS rejects is an error of the declaration."""
    spec = _generated("aws", "train", {tag[0]: tag[1]})
    assert [one.path for one in check(spec, TODAY) if one.level == "error"] == ["tags"]


# The table against the models of AWS, which contain its documentation.

SHAPES = [
    ("aws:ec2/securityGroup:SecurityGroup", "description", "ec2", "CreateSecurityGroupRequest", "Description"),
    ("aws:ec2/securityGroup:SecurityGroup", "name", "ec2", "CreateSecurityGroupRequest", "GroupName"),
    ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "description", "ec2", "IpRange", "Description"),
    ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "description", "ec2", "UserIdGroupPair", "Description"),
    ("aws:ec2/vpc:Vpc", "tags.#", "fsx", "Tag", "Key"),
    ("aws:ec2/vpc:Vpc", "tags.*", "fsx", "Tag", "Value"),
    ("aws:iam/role:Role", "tags.#", "iam", "Tag", "Key"),
    ("aws:iam/role:Role", "tags.*", "iam", "Tag", "Value"),
    ("aws:ssm/parameter:Parameter", "tags.*", "ssm", "Tag", "Value"),
    ("aws:autoscaling/group:Group", "tags[].key", "autoscaling", "Tag", "Key"),
    ("aws:autoscaling/group:Group", "tags[].value", "autoscaling", "Tag", "Value"),
    ("aws:iam/role:Role", "description", "iam", "CreateRoleRequest", "Description"),
    ("aws:iam/role:Role", "name", "iam", "CreateRoleRequest", "RoleName"),
    ("aws:iam/rolePolicy:RolePolicy", "name", "iam", "PutRolePolicyRequest", "PolicyName"),
    ("aws:iam/instanceProfile:InstanceProfile", "name", "iam", "CreateInstanceProfileRequest", "InstanceProfileName"),
    ("aws:kms/alias:Alias", "name", "kms", "CreateAliasRequest", "AliasName"),
    ("aws:kms/key:Key", "description", "kms", "CreateKeyRequest", "Description"),
    ("aws:cloudwatch/logGroup:LogGroup", "name", "logs", "CreateLogGroupRequest", "logGroupName"),
    ("aws:ssm/parameter:Parameter", "description", "ssm", "PutParameterRequest", "Description"),
    ("aws:budgets/budget:Budget", "name", "budgets", "Budget", "BudgetName"),
    ("aws:cloudtrail/trail:Trail", "advancedEventSelectors[].name", "cloudtrail", "AdvancedEventSelector", "Name"),
    ("aws:cloudtrail/trail:Trail", "tags.*", "cloudtrail", "Tag", "Value"),
    ("aws:ec2/launchTemplate:LaunchTemplate", "name", "ec2", "CreateLaunchTemplateRequest", "LaunchTemplateName"),
    ("aws:ec2/launchTemplate:LaunchTemplate", "description", "ec2", "CreateLaunchTemplateRequest", "VersionDescription"),
    ("aws:autoscaling/schedule:Schedule", "scheduledActionName", "autoscaling", "PutScheduledUpdateGroupActionType", "ScheduledActionName"),
]  # fmt: skip
"""(type, input, service, shape, member)."""


@functools.cache
def _session() -> Any:
    return botocore.session.get_session()


def _documented(service: str, shape: str, member: str) -> tuple[str | None, int | None, int]:
    """Return the allowed characters as a regular expression, the greatest and the least length, from botocore's model."""
    found = _session().get_service_model(service).shape_for(shape).members[member]
    text = html.unescape(html.unescape(re.sub(r"<[^>]+>", "", found.documentation)))
    form = found.metadata.get("pattern")
    if form:
        form = form.replace(r"\p{L}\p{Z}\p{N}", r"\w\s").replace(r"\uD800\uDC00-\uDBFF\uDFFF", "").replace("(?i)", "")
        form = re.sub(r"\\u([0-9A-Fa-f]{4})", lambda one: re.escape(chr(int(one[1], 16))), form)
    elif listed := re.search(r"(?:Allowed|Valid) characters(?: are)?:? a-z, A-Z, 0-9, spaces, and (\S+)", text):
        form = f"[a-zA-Z0-9 {re.escape(listed[1])}]*"
    length = re.search(r"(?:up to|maximum of) (\d+) ", text, re.IGNORECASE)
    return form, found.metadata.get("max") or (int(length[1]) if length else None), found.metadata.get("min", 0)


@pytest.mark.parametrize("row", SHAPES, ids=lambda row: f"{row[0].rsplit(':', 1)[1]}.{row[1]}")
def test_the_table_allows_no_more_than_the_model_of_aws(row: tuple[str, str, str, str, str]) -> None:
    """No row accepts a character or a length that the model or the documentation of AWS excludes."""
    type_, path, *shape = row
    found = row_of(AWS, type_, path)
    form, most, least = _documented(*shape)
    assert found is not None
    if most:
        assert found.most <= most
    assert found.least >= least
    if form:
        for code in range(0x20, 0x180):
            text = f"alias/a{chr(code)}a"
            assert not re.fullmatch(found.form, text) or re.fullmatch(form, text), text


def test_the_forms_of_ec2_are_in_its_documentation() -> None:
    """The documentation of EC2 lists the characters of a description, and an apostrophe is not one of them."""
    form, most, _ = _documented("ec2", "IpRange", "Description")
    assert form
    assert most == 255
    assert re.fullmatch(form, "nodes to nodes, EFA included (all)")
    assert not re.fullmatch(form, "the cloud's own services")
