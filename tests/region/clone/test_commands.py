"""The commands that a clone prints exist: AWS in botocore's service models, Google Cloud's quota fields in the provider."""

from __future__ import annotations

import inspect
import shlex

import botocore.session
import pulumi_gcp as gcp
import pytest

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds.aws.region.second_region import SECOND_REGION as AWS
from gpuinfra.clouds.azure.region.second_region import SECOND_REGION as AZURE
from gpuinfra.clouds.gcp.region.second_region import SECOND_REGION as GCP
from gpuinfra.clouds.region.second_region import SecondRegion
from gpuinfra.plan.profile import profile_of

AWS_SERVICES = {"ec2": "ec2", "service-quotas": "service-quotas", "s3api": "s3"}


def commands(facts: SecondRegion, cloud: str, machine: str, kinds: set[CapacityKind]) -> list[str]:
    """Every kind of command of a cloud."""
    record = profile_of(cloud).machines[machine]
    region = profile_of(cloud).regions[0]
    found = [facts.purchase(kind, record, 4, region, None) for kind in kinds & record.capacity]
    for kind in record.capacity:
        if quota := facts.quota(record, kind):
            found.append(facts.request(quota, 4 * quota.per_node, region, None))
    found += [facts.network(region), facts.bucket("data", region, region)]
    if image := facts.image("ami-0123456789abcdef0", region, region):
        found.append(image[1])
    return found


def _aws_problems(command: str) -> list[str]:
    words = shlex.split(command)
    assert words[0] == "aws"
    model = botocore.session.get_session().get_service_model(AWS_SERVICES[words[1]])
    operation = "".join(part.title() for part in words[2].split("-"))
    if operation not in model.operation_names:
        return [f"{words[2]} does not exist"]
    shape = model.operation_model(operation).input_shape
    assert shape is not None
    names = {_cli(name) for name in shape.members} | {"region"}
    given = [word[2:].removeprefix("no-") for word in words if word.startswith("--")]
    missing = {_cli(name) for name in shape.required_members} - set(given)
    return [
        *(f"--{one} does not exist" for one in given if one not in names),
        *(f"--{one} is missing" for one in missing),
    ]


def _cli(name: str) -> str:
    from botocore import xform_name

    return xform_name(name, "-")


@pytest.mark.parametrize("machine", ["p4d.24xlarge", "p5.48xlarge", "g6.xlarge", "p6-b200.48xlarge"])
def test_aws_commands_match_the_service_models(machine: str) -> None:
    """Each AWS command names an operation, its required parameters, and no unknown parameter."""
    found = commands(AWS, "aws", machine, {CapacityKind.RESERVED, CapacityKind.BLOCK})
    assert [problem for one in found for problem in _aws_problems(one)] == []


def test_a_wrong_aws_command_is_found() -> None:
    """A misspelled operation, a misspelled parameter, and a missing one are problems."""
    assert _aws_problems("aws ec2 copy-picture --region x") == ["copy-picture does not exist"]
    assert "--image does not exist" in _aws_problems("aws ec2 copy-image --image x --region y")
    assert "--source-region is missing" in _aws_problems("aws ec2 copy-image --region y")


def test_google_quota_command_uses_the_fields_of_the_api() -> None:
    """The flags of the quota command are arguments of the provider's quota preference, which has the fields of the API."""
    preference = set(inspect.signature(gcp.cloudquota.SQuotaPreferenceArgs).parameters)
    config = set(inspect.signature(gcp.cloudquota.SQuotaPreferenceQuotaConfigArgs).parameters)
    record = profile_of("gcp").machines["a3-megagpu-8g"]
    quota = GCP.quota(record, CapacityKind.ON_DEMAND)
    assert quota is not None
    words = shlex.split(GCP.request(quota, 32, "us-east4", "my-project"))
    flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
    fields = {"email": "contact_email"}
    assert {fields.get(one, one.replace("-", "_")) for one in flags} - {"project"} <= preference | config
    assert flags == {
        "service": "compute.googleapis.com",
        "project": "my-project",
        "quota-id": "GPUS-PER-GPU-FAMILY-per-project-region",
        "preferred-value": "32",
        "dimensions": "region=us-east4,gpu_family=NVIDIA_H100_MEGA",
        "email": "EMAIL",
    }


def test_azure_quota_command_counts_the_vcpus_of_the_family() -> None:
    """The Azure command requests the vCPUs of the nodes in the family's quota of the region."""
    record = profile_of("azure").machines["Standard_ND96isr_H100_v5"]
    quota = AZURE.quota(record, CapacityKind.ON_DEMAND)
    assert quota is not None
    command = AZURE.request(quota, 4 * quota.per_node, "eastus2", None)
    assert "--resource-name standardNDSH100v5Family" in command.replace("'", "")
    assert "value=384" in command
    assert command.endswith("/providers/Microsoft.Compute/locations/eastus2")


HOSTILE = "a; reboot $(id) `id` 'x"


@pytest.mark.parametrize("facts", [AWS, AZURE, GCP], ids=["aws", "azure", "gcp"])
def test_a_value_of_the_declaration_is_one_word_of_a_command(facts: SecondRegion) -> None:
    """No value of the declaration ends a word of a command, starts another command, or is expanded by the shell."""
    gallery = f"/subscriptions/s/resourceGroups/{HOSTILE}/providers/Microsoft.Compute/galleries/{HOSTILE}/images/{HOSTILE}/versions/{HOSTILE}"
    found = [facts.bucket(HOSTILE, "a", "b")]
    for image in (facts.image(HOSTILE, "a", "b"), facts.image(gallery, "a", "b")):
        found += [image[1]] if image else []
    if registry := facts.registry(f"us-central1-docker.pkg.dev/p/{HOSTILE}", "us-central1", "us-east4"):
        found.append(registry[1])
    for command in found:
        assert "reboot" in command
        plain = command
        for word in (HOSTILE, gallery):
            for form in (
                word,
                f"{word}-copy",
                f"gs://{word}",
                *(f"{r}-docker.pkg.dev/p/{word}" for r in ("us-central1", "us-east4")),
            ):
                plain = plain.replace(shlex.quote(form), "WORD")
        assert "reboot" not in plain, command
