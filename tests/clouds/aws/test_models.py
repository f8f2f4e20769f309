"""Two independent models of AWS: cfn-lint for properties, moto for references.

cfn-lint contains the schemas of CloudFormation types, instance types by region, and the grammar of policies with all actions.
moto is an account in memory that looks up every reference.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from typing import Any

import moto
import pytest

from tests.clouds.aws import requests_ec2, requests_other
from tests.clouds.aws.accounts import NOT_IN_MOTO, REFUSED, Model
from tests.clouds.aws.templates import NO_TYPE, regions, template
from tests.clouds.recorder import Recording
from tests.clouds.stacks import peer_recording_of, peer_specs, recording_of, shipped_aws_stacks, spec_of

assert requests_ec2, requests_other

STACKS = shipped_aws_stacks()
WHOLE = "aws-p4d"
PEERS = peer_specs("aws")


def _lint(document: dict[str, Any], region: str) -> list[str]:
    from cfnlint import ManualArgs
    from cfnlint.api import lint

    # Informational findings concern the description of templates.
    found = lint(json.dumps(document), config=ManualArgs(regions=[region]))
    return [f"{one.rule.id} {one.message} at {one.path}" for one in found if one.rule.severity != "informational"]


@pytest.mark.parametrize("stack", STACKS)
def test_cfn_lint_accepts_all_resources(stack: str) -> None:
    """cfn-lint has no finding about properties, exclusions and policies of a shipped stack."""
    recording, own = recording_of(stack), spec_of(stack).where.region
    found = {region: _lint(template(recording, region), region or own) for region in regions(recording)}
    assert not any(found.values()), found


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.long
def test_cfn_lint_accepts_peer_clusters(name: str) -> None:
    """cfn-lint has no finding about clusters on AWS that other projects publish."""
    assert _lint(template(peer_recording_of("aws", name)), PEERS[name].where.region) == []


Break = Callable[[dict[str, Any]], Any]


def _of(document: dict[str, Any], type_: str) -> dict[str, Any]:
    return next(one["Properties"] for one in document["Resources"].values() if one["Type"] == type_)


def _statement(document: dict[str, Any]) -> dict[str, Any]:
    return _of(document, "AWS::IAM::RolePolicy")["PolicyDocument"]["Statement"][0]


BROKEN: dict[str, Break] = {
    "a property that does not exist": lambda t: _of(t, "AWS::EC2::VPC").update(CidrBlok="10.0.0.0/16"),
    "a file system without a subnet": lambda t: _of(t, "AWS::FSx::FileSystem").pop("SubnetIds"),
    "a machine that the region does not have": lambda t: _of(t, "AWS::EC2::LaunchTemplate")["LaunchTemplateData"].update(InstanceType="p4d.2xlarge"),
    "an address that is none": lambda t: _of(t, "AWS::EC2::Subnet").update(CidrBlock="10.0.0.0.0/16"),
    "a retention that is not offered": lambda t: _of(t, "AWS::Logs::LogGroup").update(RetentionInDays=91),
    "a trail without a bucket": lambda t: _of(t, "AWS::CloudTrail::Trail").pop("S3BucketName"),
    "an action that does not exist": lambda t: _statement(t).update(Action="s3:GetObjekt"),
    "an effect that does not exist": lambda t: _statement(t).update(Effect="Permit"),
    "a statement without a resource": lambda t: _statement(t).pop("Resource"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_cfn_lint_finds_an_invalid_property(case: str) -> None:
    """cfn-lint reports each invalid property."""
    whole = copy.deepcopy(template(recording_of(WHOLE)))
    before = json.dumps(whole["Resources"])
    BROKEN[case](whole)
    sound = json.loads(before)
    broken = {name: one for name, one in whole["Resources"].items() if one != sound[name]}
    assert _lint({**whole, "Resources": broken}, "us-east-1")


def test_types_without_a_template_have_a_reason() -> None:
    """Every type of a shipped stack is in its template or has a reason."""
    for stack in STACKS:
        recording, document = recording_of(stack), template(recording_of(stack))
        seen = {one["Type"] for one in document["Resources"].values()}
        assert seen or {one.type for one in recording.custom} <= set(NO_TYPE)
    assert all(NO_TYPE.values())
    recordings = [*map(recording_of, STACKS), peer_recording_of("aws", "20-one-click")]
    assert set(NO_TYPE) <= {one.type for recording in recordings for one in recording.custom}


def _made(recording: Recording, region: str, *, managed: bool) -> tuple[list[str], set[str]]:
    """(calls that moto rejects, calls that it does not support)."""
    policies = {"load_aws_managed_policies": managed}
    with moto.mock_aws(config={"iam": policies}), warnings.catch_warnings():  # pyright: ignore[reportArgumentType]: its type lists no single service
        warnings.simplefilter("ignore")  # warnings of moto itself
        model = Model(region, managed=managed)
        return list(model.make(recording)), model.missing


@pytest.mark.parametrize("stack", STACKS)
def test_moto_creates_every_stack(stack: str) -> None:
    """moto creates each resource in the order of the program and finds its references; unsupported calls have a reason."""
    refused, missing = _made(recording_of(stack), spec_of(stack).where.region, managed=stack == WHOLE)
    assert refused == []
    assert missing <= set(NOT_IN_MOTO) | set(REFUSED)


@pytest.mark.long
def test_moto_creates_every_peer_cluster() -> None:
    """moto creates the clusters that other projects publish, and every listed call is still unsupported: one of them only a managed store needs."""
    lacking = _made(recording_of("aws-monitoring"), "us-east-1", managed=False)[1]
    for name, spec in PEERS.items():
        refused, missing = _made(peer_recording_of("aws", name), spec.where.region, managed=True)
        assert refused == [], name
        lacking |= missing
    assert lacking == set(NOT_IN_MOTO) | set(REFUSED)


def _without(recording: Recording, type_: str) -> Recording:
    return Recording([one for one in recording.resources if one.type != type_], recording.outputs, recording.calls)


@pytest.mark.parametrize(
    "type_",
    [
        "aws:ec2/routeTable:RouteTable",
        "aws:iam/role:Role",
        "aws:s3/bucket:Bucket",
        "aws:ec2/launchTemplate:LaunchTemplate",
    ],
)
def test_moto_rejects_a_missing_reference(type_: str) -> None:
    """Without the resources of one type, moto rejects the resources that refer to them."""
    refused, _ = _made(_without(recording_of(WHOLE), type_), "us-east-1", managed=False)
    assert refused
    assert not any(one.startswith(f"{type_} ") for one in refused)
