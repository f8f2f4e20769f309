"""Two more opinions on what AWS would say that are not ours: cfn-lint about every property, moto about what refers to what.

cfn-lint carries the schemas of CloudFormation's types, AWS's lists of instance types and regions, and the grammar of policies with every action in them.
moto is an account in memory: what a call names has to be there.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from typing import Any

import moto
import pytest
from cfnlint import ManualArgs
from cfnlint.api import lint

from tests.clouds.aws import requests_ec2, requests_other
from tests.clouds.aws.accounts import NOT_IN_MOTO, REFUSED, Model
from tests.clouds.aws.templates import NO_TYPE, template
from tests.clouds.recorder import Recording
from tests.clouds.stacks import peer_recording_of, peer_specs, recording_of, shipped_aws_stacks, spec_of

assert requests_ec2, requests_other

STACKS = shipped_aws_stacks()
WHOLE = "aws-p4d"
PEERS = peer_specs("aws")


def _lint(document: dict[str, Any], region: str) -> list[str]:
    # What is informational is advice on how a template describes itself, and there is no template here.
    found = lint(json.dumps(document), config=ManualArgs(regions=[region]))
    return [f"{one.rule.id} {one.message} at {one.path}" for one in found if one.rule.severity != "informational"]


@pytest.mark.parametrize("stack", STACKS)
def test_a_linter_finds_nothing_in_any_resource_or_policy(stack: str) -> None:
    """cfn-lint knows each property of each type, which of them exclude each other, and every action of a policy with its resources."""
    assert _lint(template(recording_of(stack)), spec_of(stack).where.region) == []


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.long
def test_nor_in_a_peer_s_cluster(name: str) -> None:
    """The same for every cluster on AWS that other projects publish."""
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
def test_the_linter_sees_what_is_broken(case: str) -> None:
    """The linter that has to be silent about ours is not silent about these."""
    whole = copy.deepcopy(template(recording_of(WHOLE)))
    before = json.dumps(whole["Resources"])
    BROKEN[case](whole)
    sound = json.loads(before)
    broken = {name: one for name, one in whole["Resources"].items() if one != sound[name]}
    assert _lint({**whole, "Resources": broken}, "us-east-1")


def test_what_is_in_no_template_has_a_reason() -> None:
    """Every type of a shipped stack is in its template, but for those that are listed."""
    for stack in STACKS:
        recording, document = recording_of(stack), template(recording_of(stack))
        seen = {one["Type"] for one in document["Resources"].values()}
        assert seen or {one.type for one in recording.custom} <= set(NO_TYPE)
    assert all(NO_TYPE.values())
    assert set(NO_TYPE) <= {one.type for stack in STACKS for one in recording_of(stack).custom}


def _made(recording: Recording, region: str, *, managed: bool) -> tuple[list[str], set[str]]:
    """(what moto refuses, which calls it does not have)."""
    policies = {"load_aws_managed_policies": managed}
    with moto.mock_aws(config={"iam": policies}), warnings.catch_warnings():  # pyright: ignore[reportArgumentType]: its type lists no single service
        warnings.simplefilter("ignore")  # moto's own about moto
        model = Model(region, managed=managed)
        return list(model.make(recording)), model.missing


@pytest.mark.parametrize("stack", STACKS)
def test_a_model_of_aws_makes_every_stack(stack: str) -> None:
    """Each resource is made in moto, in the program's order and with references to what moto made before; what moto lacks has its reason."""
    refused, missing = _made(recording_of(stack), spec_of(stack).where.region, managed=stack == WHOLE)
    assert refused == []
    assert missing <= set(NOT_IN_MOTO) | set(REFUSED)


@pytest.mark.long
def test_a_model_of_aws_makes_every_peer_s_cluster_and_no_reason_is_kept_in_vain() -> None:
    """The same for every cluster that other projects publish; a call that moto has learnt in the meantime is taken off the lists."""
    lacking: set[str] = set()
    for name, spec in PEERS.items():
        refused, missing = _made(peer_recording_of("aws", name), spec.where.region, managed=True)
        assert refused == [], name
        lacking |= missing
    assert lacking == set(NOT_IN_MOTO) | set(REFUSED)


def _without(recording: Recording, type_: str) -> Recording:
    return Recording([one for one in recording.resources if one.type != type_], recording.outputs, recording.calls)


@pytest.mark.parametrize("type_", ["aws:ec2/routeTable:RouteTable", "aws:iam/role:Role", "aws:s3/bucket:Bucket", "aws:ec2/launchTemplate:LaunchTemplate"])  # fmt: skip
def test_the_model_misses_what_is_not_there(type_: str) -> None:
    """Leave one type out, and what refers to it is refused: references are looked up and not only written."""
    refused, _ = _made(_without(recording_of(WHOLE), type_), "us-east-1", managed=False)
    assert refused
    assert not any(one.startswith(f"{type_} ") for one in refused)
