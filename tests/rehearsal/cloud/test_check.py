"""Inputs that a provider would refuse are refused before anything is made, in words that name the place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuinfra.rehearsal.cloud.core import wire
from tests.rehearsal.cloud.conftest import Client

VPC = "aws:ec2/vpc:Vpc"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def test_a_misspelt_input_is_refused_with_the_nearest_name(aws: Client) -> None:
    """An input that the type does not have is named, with the one that was probably meant."""
    (reason,) = aws.failures(VPC, {"cidrBlok": "10.0.0.0/16"})
    assert "cidrBlok" in reason
    assert "did you mean cidrBlock?" in reason
    assert "Examine values at 'it.cidrBlok'" in reason


def test_every_missing_input_is_named(aws: Client) -> None:
    """All required inputs that are missing are told at once."""
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
def test_a_wrong_type_is_refused_at_its_place(aws: Client, inputs: dict, place: str) -> None:
    """A value of the wrong type is refused with its whole path."""
    (reason,) = aws.failures(TEMPLATE, inputs)
    assert reason.startswith(place)


def test_numbers_and_booleans_may_be_written_as_text(aws: Client) -> None:
    """As in the real providers, "8" is a number and true is the text "true"."""
    assert not aws.failures(TEMPLATE, {"networkInterfaces": [{"deviceIndex": "1", "deleteOnTermination": True}]})


def test_a_value_outside_an_enum_is_refused(connect: Callable[[str], Client]) -> None:
    """A strict enum takes its values only, and the answer lists them."""
    disk = {"resourceGroupName": "g", "creationData": {"createOption": "Empty"}, "osType": "Linus"}
    (reason,) = connect("azure-native").failures("azure-native:compute:Disk", disk)
    assert "expected one of Windows, Linux" in reason
    assert "did you mean Linux?" in reason


def test_a_loose_enum_takes_what_its_sdk_does_not_know_yet(connect: Callable[[str], Client]) -> None:
    """A machine type newer than the SDK passes: the list is a help for editors there."""
    machine = {
        "resourceGroupName": "g", "networkProfile": {"networkInterfaces": []},
        "hardwareProfile": {"vmSize": "Standard_ND128isr_NEW"},
    }  # fmt: skip
    assert not connect("azure-native").failures("azure-native:compute:VirtualMachine", machine)


def test_unknown_and_secret_values_pass(aws: Client) -> None:
    """What is known only later, or is secret, is judged by what is inside its envelope."""
    assert not aws.failures(VPC, {"cidrBlock": wire.UNKNOWN, "enableDnsSupport": wire.secret(True)})
    assert aws.failures(VPC, {"enableDnsSupport": wire.secret("perhaps")})


def test_names_are_made_up_and_kept(aws: Client) -> None:
    """A name that nobody gave is made from the resource's name, and stays on the next run."""
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
    """EC2 takes the user data of a template in base64 only."""
    (reason,) = aws.failures(TEMPLATE, {"userData": "#!/bin/bash\n"})
    assert "userData must be encoded in base64" in reason
