"""The nodes' role in the site, so that a failover in mode `pilot-light` creates no IAM resources."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pytest

from gpuinfra.clouds.aws.components.refs import Existing
from gpuinfra.plan.make import build_plan
from gpuinfra.spec import ClusterSpec
from gpuinfra.spec.policy import LayersUsed
from gpuinfra_rehearsal.cloud.aws import operator, policy
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from tests.clouds.recorder import OTHER_STACKS, Recording, record
from tests.clouds.stacks import TODAY, recording_of_spec, spec_of
from tests.permissions.needed import permissions_of
from tests.region.clone.stacks import cloned, file_of

SITE = LayersUsed(foundation="organization/gpuinfra/base", site="organization/gpuinfra/base")
ROLE: dict[str, Any] = {
    "node_role": "train-node-role-0a1b2c3",
    "node_role_id": "AROA0000000000000000A",
    "node_profile_arn": "arn:aws:iam::000000000000:instance-profile/train-node-profile-0a1b2c3",
}
IAM = {"aws:iam/role:Role", "aws:iam/rolePolicy:RolePolicy", "aws:iam/instanceProfile:InstanceProfile"}


def spec(**changes: Any) -> ClusterSpec:
    """`aws-p4d` whose site creates the nodes' role."""
    found = spec_of("aws-p4d")
    access = found.access.model_copy(update={"node_role_in_site": True})
    return found.model_copy(update={"access": access, **changes})


def node_parts(found: Recording) -> set[str]:
    """The types of the resources of the nodes' role."""
    return {one.type for one in found.custom if one.name.startswith("train-node-")}


def base() -> ClusterSpec:
    """The same stack without nodes."""
    return spec(pools=(), layers=("foundation", "site"))


def nodes() -> ClusterSpec:
    """The stack with only the nodes."""
    return spec(layers=("cluster",), use=SITE)


def inline(one: Recording) -> Any:
    """The inline policy of the nodes' role."""
    (document,) = [
        each.inputs["policy"] for each in one.of("aws:iam/rolePolicy:RolePolicy") if each.name == "train-node-policy"
    ]
    return json.loads(document)


def test_a_site_without_nodes_creates_their_role() -> None:
    """The role has the same permissions as the role that a cluster creates, and the stack has the references to it as outputs."""
    found = recording_of_spec(base())
    assert node_parts(found) == IAM
    assert inline(found) == inline(recording_of_spec(spec_of("aws-p4d")))
    outputs = next(
        one for urn, one in found.outputs.items() if "NodeRole" not in urn and "vpc_id" in one and "kept" in one
    )
    assert set(ROLE) <= set(outputs)
    assert build_plan(base(), TODAY).resources["aws:iam/instanceProfile:InstanceProfile"] == 1


def test_a_stack_with_only_the_nodes_creates_no_iam_resources() -> None:
    """The groups use the instance profile of the site, and the handover accepts evidence of its role only."""

    def program() -> None:
        from gpuinfra import GpuCluster

        GpuCluster("train", nodes(), existing=Existing(**ROLE))

    found = record(program)
    assert [one.type for one in found.custom if one.type.startswith("aws:iam/")] == []
    templates = found.of("aws:ec2/launchTemplate:LaunchTemplate")
    assert {one.inputs["iamInstanceProfile"]["arn"] for one in templates} == {ROLE["node_profile_arn"]}
    (ready,) = [one for one in found.custom if one.type == "gpuinfra:index:NodesReady"]
    assert {pool["nodeRole"] for pool in ready.inputs["pools"]} == {ROLE["node_role"]}
    assert not [one for one in build_plan(nodes(), TODAY).resources if one.startswith("aws:iam/")]


def test_one_stack_can_create_the_site_and_the_nodes() -> None:
    """The role exists once."""
    found = recording_of_spec(spec())
    assert len([one for one in found.custom if one.type == "aws:iam/instanceProfile:InstanceProfile"]) == 1


def test_the_nodes_can_get_the_role_of_the_site() -> None:
    """The identity that deploys only the nodes passes the role to instances and cannot change roles."""
    documents = tuple(json.dumps(one) for one in permissions_of(build_plan(nodes(), TODAY)).documents)
    context = {"iam:PassedToService": "ec2.amazonaws.com"}
    for name, allowed in {ROLE["node_role"]: True, "other-node-role-0a1b2c3": False}.items():
        request = AccessRequest("operator", "iam:PassRole", f"arn:aws:iam::000000000000:role/{name}", context)
        assert policy.decide(request, documents)[0] is allowed, name
    made = AccessRequest("operator", "iam:CreateRole", f"arn:aws:iam::000000000000:role/{ROLE['node_role']}")
    assert not operator.allows(documents, made)[0]


def test_a_site_without_the_role_is_an_error() -> None:
    """The message contains the stack that must create the role."""
    assert not set(ROLE) & set(OTHER_STACKS)

    def program() -> None:
        from gpuinfra import GpuCluster

        GpuCluster("train", nodes())

    with pytest.raises(pulumi.RunError, match="run `pulumi up` on the site stack first"):
        record(program)


def test_a_clone_in_pilot_light_mode_creates_the_role_before_a_failover() -> None:
    """The base stack has the role, the stack with the nodes creates no IAM resources, and each change has its reason."""
    result = cloned(file_of("aws-recovery"), "us-west-2", mode="pilot-light")
    assert result.ok
    found = {one.role: one.declaration for one in result.files}
    assert {role: one["access"]["node_role_in_site"] for role, one in found.items()} == {"base": True, "nodes": True}
    assert all("creates no IAM resources" in one.text for one in result.files)
    plans = {role: build_plan(ClusterSpec.model_validate(one), TODAY).resources for role, one in found.items()}
    assert "aws:iam/instanceProfile:InstanceProfile" in plans["base"]
    assert not [one for one in plans["nodes"] if one.startswith("aws:iam/")]
    for mode in ("cold", "hot"):
        (file,) = cloned(file_of("aws-recovery"), "us-west-2", mode=mode).files
        assert "access" not in file.declaration
