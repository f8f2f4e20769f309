"""The shipped stacks against claims written by hand from vendor documentation, and the claims against broken states."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.clouds.stacks import recording_of
from tests.oracle.claims import HERE, oracle, problems

ORACLES = sorted(path.stem for path in HERE.glob("*.yaml"))

State = list[dict[str, Any]]


def state_of(stack: str) -> State:
    """The registrations of a program in the format of an exported state."""
    return [
        {"type": one.type, "id": one.id, "inputs": copy.deepcopy(one.inputs), "outputs": {}}
        for one in recording_of(stack).custom
    ]


@pytest.mark.parametrize("stack", ORACLES)
def test_every_claim_holds(stack: str) -> None:
    """What the program registers fulfills every claim about the stack."""
    assert problems(state_of(stack), oracle(stack)) == []


@pytest.mark.parametrize("stack", ORACLES)
def test_no_claim_holds_for_an_empty_state(stack: str) -> None:
    """Every claim about existing resources fails for an empty state."""
    claims = oracle(stack)
    positive = [claim for claim in claims if claim.get("count") != 0]
    assert len(problems([], positive)) == len(positive)


def _all(state: State, type_: str) -> State:
    return [one for one in state if one["type"] == type_]


def _efa_at_device_1(state: State) -> None:
    _all(state, "aws:ec2/launchTemplate:LaunchTemplate")[0]["inputs"]["networkInterfaces"][2]["deviceIndex"] = 1


def _public_address(state: State) -> None:
    _all(state, "aws:ec2/launchTemplate:LaunchTemplate")[0]["inputs"]["networkInterfaces"][0][
        "associatePublicIpAddress"
    ] = "true"


def _no_self_egress(state: State) -> None:
    for one in _all(state, "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"):
        if one["inputs"]["ipProtocol"] == "-1":
            state.remove(one)


def _self_rule_by_address(state: State) -> None:
    for one in _all(state, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"):
        if one["inputs"]["ipProtocol"] == "-1":
            del one["inputs"]["referencedSecurityGroupId"]
            one["inputs"]["cidrIpv4"] = "10.64.0.0/16"


def _old_metadata(state: State) -> None:
    _all(state, "aws:ec2/launchTemplate:LaunchTemplate")[1]["inputs"]["metadataOptions"]["httpTokens"] = "optional"


def _plain_disk(state: State) -> None:
    _all(state, "aws:ec2/launchTemplate:LaunchTemplate")[1]["inputs"]["blockDeviceMappings"][0]["ebs"]["encrypted"] = (
        "false"
    )


def _reserved_in_placement_group(state: State) -> None:
    for one in _all(state, "aws:autoscaling/group:Group"):
        one["inputs"]["placementGroup"] = "somewhere"


def _one_region_trail(state: State) -> None:
    _all(state, "aws:cloudtrail/trail:Trail")[0]["inputs"]["isMultiRegionTrail"] = False


def _unlocked_bucket(state: State) -> None:
    state.remove(_all(state, "aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration")[0])


def _bucket_without_public_access_block(state: State) -> None:
    state.remove(_all(state, "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock")[2])


def _closed_lustre_port(state: State) -> None:
    for one in _all(state, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"):
        if one["inputs"].get("fromPort") == 1018:
            state.remove(one)
            return


def _ssh_from_everywhere(state: State) -> None:
    inputs = {"ipProtocol": "tcp", "fromPort": 22, "toPort": 22, "cidrIpv4": "0.0.0.0/0", "securityGroupId": "sg-1"}
    state.append(
        {
            "type": "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            "id": "sgr-1",
            "inputs": inputs,
            "outputs": {},
        }
    )


def _no_endpoint(state: State) -> None:
    state.remove(_all(state, "aws:ec2/vpcEndpoint:VpcEndpoint")[0])


def _zone_by_name(state: State) -> None:
    inputs = _all(state, "aws:ec2/subnet:Subnet")[0]["inputs"]
    del inputs["availabilityZoneId"]
    inputs["availabilityZone"] = "us-east-1a"


def _role_of_all_powers(state: State) -> None:
    inputs = _all(state, "aws:iam/rolePolicy:RolePolicy")[0]["inputs"]
    inputs["policy"] = (
        '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": "*"}]}'
    )


BREAKS: list[Callable[[State], None]] = [
    _efa_at_device_1,
    _public_address,
    _no_self_egress,
    _self_rule_by_address,
    _old_metadata,
    _plain_disk,
    _reserved_in_placement_group,
    _one_region_trail,
    _unlocked_bucket,
    _bucket_without_public_access_block,
    _closed_lustre_port,
    _ssh_from_everywhere,
    _no_endpoint,
    _zone_by_name,
    _role_of_all_powers,
]


@pytest.mark.parametrize("breaks", BREAKS, ids=lambda breaks: breaks.__name__.strip("_"))
def test_a_broken_state_is_found(breaks: Callable[[State], None]) -> None:
    """At least one claim fails for each common mistake."""
    state = state_of("aws-p4d")
    breaks(state)
    assert problems(state, oracle("aws-p4d"))


TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
ROLE = "aws:iam/role:Role"


def _input(type_: str, key: str, value: Any) -> Callable[[State], None]:
    """Sets one input of the first resource of a type; None removes it."""

    def broken(state: State) -> None:
        inputs = _all(state, type_)[0]["inputs"]
        assert inputs.get(key) != value
        inputs[key] = value

    return broken


def _disk_without_our_key(state: State) -> None:
    del _all(state, TEMPLATE)[1]["inputs"]["blockDeviceMappings"][0]["ebs"]["kmsKeyId"]


def _disk_with_the_audit_key(state: State) -> None:
    trail = _all(state, "aws:cloudtrail/trail:Trail")[0]["inputs"]["kmsKeyId"]
    for one in _all(state, TEMPLATE):
        one["inputs"]["blockDeviceMappings"][0]["ebs"]["kmsKeyId"] = trail


def _interface_left_behind(state: State) -> None:
    _all(state, TEMPLATE)[0]["inputs"]["networkInterfaces"][3]["deleteOnTermination"] = "false"


def _template_by_word(state: State) -> None:
    (one,) = [group for group in _all(state, GROUP) if group["inputs"].get("launchTemplate")]
    one["inputs"]["launchTemplate"]["version"] = "$Latest"


def _spot_with_rebalance(state: State) -> None:
    (one,) = [group for group in _all(state, GROUP) if group["inputs"].get("mixedInstancesPolicy")]
    one["inputs"]["capacityRebalance"] = True


def _tag_not_propagated(state: State) -> None:
    _all(state, GROUP)[0]["inputs"]["tags"][0]["propagateAtLaunch"] = False


def _nat_among_the_nodes(state: State) -> None:
    nodes = _all(state, GROUP)[0]["inputs"]["vpcZoneIdentifiers"][0]
    _all(state, "aws:ec2/natGateway:NatGateway")[0]["inputs"]["subnetId"] = nodes


def _lustre_rule_at_its_own_group(state: State) -> None:
    rules = [one["inputs"] for one in _all(state, EGRESS) if one["inputs"].get("fromPort") == 988]
    crossing = [rule for rule in rules if rule["referencedSecurityGroupId"] != rule["securityGroupId"]]
    crossing[0]["referencedSecurityGroupId"] = crossing[0]["securityGroupId"]


def _everything_outwards(state: State) -> None:
    (web,) = [one["inputs"] for one in _all(state, EGRESS) if one["inputs"].get("fromPort") == 443]
    web.update(ipProtocol="-1", fromPort=None, toPort=None)


def _trusted(principal: Any, **condition: Any) -> str:
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": principal, **condition}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _key_for_every_account(state: State) -> None:
    for key in _all(state, "aws:kms/key:Key"):
        policy = json.loads(key["inputs"]["policy"])
        for statement in policy["Statement"]:
            if statement["Principal"] == {"AWS": "*"}:
                del statement["Condition"]["StringEquals"]["kms:CallerAccount"]
        key["inputs"]["policy"] = json.dumps(policy)


MORE_BREAKS: dict[str, Callable[[State], None]] = {
    "a template without a profile": _input(TEMPLATE, "iamInstanceProfile", None),
    "a profile of another role": _input("aws:iam/instanceProfile:InstanceProfile", "role", "somebody"),
    "a disk without our key": _disk_without_our_key,
    "disks with the audit key": _disk_with_the_audit_key,
    "an interface that outlives its instance": _interface_left_behind,
    "a new version that is not the default": _input(TEMPLATE, "updateDefaultVersion", False),
    "a version by a word": _template_by_word,
    "nothing rolls": _input(GROUP, "instanceRefresh", None),
    "spot with rebalance": _spot_with_rebalance,
    "a floor under a group": _input(GROUP, "minSize", 2),
    "a tag that stays off the nodes": _tag_not_propagated,
    "the NAT gateway among the nodes": _nat_among_the_nodes,
    "a Lustre rule that points at its own group": _lustre_rule_at_its_own_group,
    "everything outwards": _everything_outwards,
    "files go with the link": _input(
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", "deleteDataInFilesystem", True
    ),
    "objects of their writers": _input(
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls", "rule", {"objectOwnership": "ObjectWriter"}
    ),
    "a role for anybody": _input(ROLE, "assumeRolePolicy", _trusted("*")),
    "a role for every account": _input(ROLE, "assumeRolePolicy", _trusted({"Service": "vpc-flow-logs.amazonaws.com"})),
    "a key for every account": _key_for_every_account,
    "a hundredfold budget": _input("aws:budgets/budget:Budget", "limitAmount", "4970000.00"),
}


@pytest.mark.parametrize("name", MORE_BREAKS)
def test_a_broken_setting_is_found(name: str) -> None:
    """At least one claim fails for each wrong setting that AWS accepts."""
    state = state_of("aws-p4d")
    MORE_BREAKS[name](state)
    assert problems(state, oracle("aws-p4d"))
