"""Inputs that a provider rejects are rejected before a creation, with their path."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuinfra_rehearsal.cloud.core import wire
from rehearsal.tests.cloud.conftest import Client

VPC = "aws:ec2/vpc:Vpc"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def test_a_misspelled_input_is_rejected_with_the_nearest_name(aws: Client) -> None:
    """An unknown input is named, with the closest known one."""
    (reason,) = aws.failures(VPC, {"cidrBlok": "10.0.0.0/16"})
    assert "cidrBlok" in reason
    assert "did you mean cidrBlock?" in reason
    assert "Examine values at 'it.cidrBlok'" in reason


def test_every_missing_input_is_named(aws: Client) -> None:
    """All missing required inputs are reported at once."""
    reasons = aws.failures("aws:autoscaling/group:Group", {"desiredCapacity": 2})
    assert [reason.split()[0] for reason in reasons] == ["maxSize", "minSize"]


@pytest.mark.parametrize(
    ("inputs", "place"),
    [
        ({"networkInterfaces": "eth0"}, "networkInterfaces should be a list"),
        (
            {"networkInterfaces": [{"deviceIndex": "first"}]},
            "networkInterfaces[0].deviceIndex should be a whole number",
        ),
        ({"networkInterfaces": [{"deviceIndx": 1}]}, "networkInterfaces[0].deviceIndx is not an expected property"),
        ({"tags": ["a"]}, "tags should be a map"),
        ({"metadataOptions": {"httpTokens": ["required"]}}, "metadataOptions.httpTokens should be a string"),
    ],
)
def test_a_wrong_type_is_rejected_with_its_path(aws: Client, inputs: dict, place: str) -> None:
    """A value of the wrong type is rejected with its whole path."""
    (reason,) = aws.failures(TEMPLATE, inputs)
    assert reason.startswith(place)


def test_numbers_and_booleans_can_be_strings(aws: Client) -> None:
    """As in the real providers, "8" is a number and true is the text "true"."""
    assert not aws.failures(TEMPLATE, {"networkInterfaces": [{"deviceIndex": "1", "deleteOnTermination": True}]})


def test_a_value_outside_an_enum_is_rejected(connect: Callable[[str], Client]) -> None:
    """A strict enum accepts its values only, and the message lists them."""
    disk = {"resourceGroupName": "g", "creationData": {"createOption": "Empty"}, "osType": "Linus"}
    (reason,) = connect("azure-native").failures("azure-native:compute:Disk", disk)
    assert "expected one of Windows, Linux" in reason
    assert "did you mean Linux?" in reason


def test_a_loose_enum_accepts_any_string(connect: Callable[[str], Client]) -> None:
    """A machine type newer than the SDK passes, because the list only helps editors."""
    machine = {
        "resourceGroupName": "g", "networkProfile": {"networkInterfaces": []},
        "hardwareProfile": {"vmSize": "Standard_ND128isr_NEW"},
    }  # fmt: skip
    assert not connect("azure-native").failures("azure-native:compute:VirtualMachine", machine)


def test_unknown_and_secret_values_pass(aws: Client) -> None:
    """Unknown values pass, and secrets are validated inside their envelope."""
    assert not aws.failures(VPC, {"cidrBlock": wire.UNKNOWN, "enableDnsSupport": wire.secret(True)})
    assert aws.failures(VPC, {"enableDnsSupport": wire.secret("perhaps")})


def test_absent_names_are_generated_and_kept(aws: Client) -> None:
    """An absent name is generated from the logical name and stays the same in the next run."""
    first = wire.read(aws.check("aws:iam/role:Role", {"assumeRolePolicy": '{"Statement": []}'}, "node").inputs)
    assert first["name"].startswith("node-")
    again = wire.read(
        aws.check("aws:iam/role:Role", {"assumeRolePolicy": '{"Statement": []}'}, "node", olds=first).inputs
    )
    assert again["name"] == first["name"]
    chosen = wire.read(
        aws.check("aws:iam/role:Role", {"assumeRolePolicy": "{}", "name": "mine"}, "node", olds=first).inputs
    )
    assert chosen["name"] == "mine"


def test_user_data_must_be_base64(aws: Client) -> None:
    """EC2 accepts the user data of a template in base64 only."""
    (reason,) = aws.failures(TEMPLATE, {"userData": "#!/bin/bash\n"})
    assert "userData must be encoded in base64" in reason
