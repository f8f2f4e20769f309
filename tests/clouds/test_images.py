"""The image of a pool, from the declaration to the template of its nodes."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec import parse_spec
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, recording_of_spec
from tests.rules.cases import declaration

NAME = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261006"
HPC = "microsoft-dsvm:ubuntu-hpc:2404:24.04.2026072901"
ACCELERATOR = (
    "projects/ubuntu-os-accelerator-images/global/images/ubuntu-accelerator-2404-amd64-with-nvidia-580-v20260820"
)


def _image(cloud: str, image: object, **pool: object) -> Any:
    change = {f"pools.0.{field}": value for field, value in {"image": image, **pool}.items()}
    return build_plan(parse_spec(declaration((cloud, change))), TODAY).pools[0].image


@pytest.mark.parametrize(
    ("cloud", "date", "source", "ref"),
    [
        ("aws", "2026-10-06", "name", NAME),
        ("azure", "2026-07-29", "urn", HPC),
        ("gcp", "2026-08-20", "id", ACCELERATOR),
    ],
)
def test_a_date_selects_the_release_of_that_date(cloud: str, date: str, source: str, ref: str) -> None:
    """A date selects the release with that date in its name, with its recorded contents, for the pool's system."""
    image = _image(cloud, date, os="ubuntu-24.04")
    assert (image.source, image.ref, image.os) == (source, ref, "ubuntu-24.04")
    assert image.on == date
    assert image.contains.startswith("driver ")
    assert "retrieved 2026-11-22" in image.contains


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_contents_of_another_release_are_unknown(cloud: str) -> None:
    """The plan of a release without a record states that its contents are not recorded, or the branch in its name."""
    image = _image(cloud, "2026-10-20")
    assert image.release is None
    assert image.contains == (
        "driver branch 580"
        if cloud == "gcp"
        else "contents not recorded; the bootstrap steps accept or reject the installed versions"
    )


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_newest_release_is_selected_at_the_first_deployment(cloud: str) -> None:
    """Without a date, the plan names the newest recorded release, which the deployed one can follow."""
    image = _image(cloud, None)
    assert image.on == "the newest at the first deployment"
    assert "newest recorded release 2026-" in image.contains


@pytest.mark.parametrize(
    ("cloud", "declared", "source", "ref"),
    [
        ("aws", "ami-0123456789abcdef0", "id", "ami-0123456789abcdef0"),
        ("aws", "/aws/service/my/ami-id", "ssm", "/aws/service/my/ami-id"),
        ("azure", "/subscriptions/s/images/i", "id", "/subscriptions/s/images/i"),
        ("azure", HPC, "urn", HPC),
        ("gcp", ACCELERATOR, "id", ACCELERATOR),
        ("gcp", "projects/p/global/images/family/f", "family", "p/f"),
    ],
)
def test_an_id_is_resolved_as_its_cloud_requires(cloud: str, declared: str, source: str, ref: str) -> None:
    """An image by its ID is used as it is; a parameter and a family are resolved once. A recorded release keeps its contents."""
    image = _image(cloud, {"ref": declared, "os": "ubuntu-24.04"})
    assert (image.source, image.ref) == (source, ref)
    assert (image.release is not None) == (declared in (HPC, ACCELERATOR))


def test_arm64_machines_get_images_for_arm64() -> None:
    """A GPU image has the architecture of the machine type, where the cloud publishes one."""
    for cloud in ("aws", "gcp"):
        profile = profile_of(cloud)
        machines = [one.name for one in profile.machines.values() if one.arch == "arm64" and one.gpu]
        for machine in machines:
            image = _image(cloud, None, machine=machine, os="ubuntu-24.04")
            assert (image.arch, image.prebuilt) == ("arm64", True)
            assert "arm64" in image.ref


def _recorded(cloud: str, date: str) -> Recording:
    change = {"software.image": date, "software.os": "ubuntu-24.04", "access": {"evidence_from": ["8.8.8.0/24"]}}
    return recording_of_spec(declaration((cloud, change if cloud == "azure" else {**change, "access": {}})))


def test_a_launch_template_has_the_stored_id_of_the_named_ami() -> None:
    """The AMI is looked up by its name among Amazon's, also if it is deprecated, and its ID is stored."""
    recording = _recorded("aws", "2026-10-06")
    (asked,) = [args for token, args in recording.calls if token == "aws:ec2/getAmi:getAmi"]
    assert asked["owners"] == ["amazon"]
    assert asked["includeDeprecated"] is True
    assert {one["name"]: one["values"] for one in asked["filters"]} == {"name": [NAME], "architecture": ["x86_64"]}
    (parameter,) = recording.of("aws:ssm/parameter:Parameter")
    assert "insecureValue" in parameter.ignored


def test_a_scale_set_has_the_version_of_the_date() -> None:
    """The version is in the model of the scale set, without a lookup."""
    (group,) = _recorded("azure", "2026-07-29").of("azure-native:compute:VirtualMachineScaleSet")
    reference = group.inputs["virtualMachineProfile"]["storageProfile"]["imageReference"]
    assert reference["version"] == "24.04.2026072901"


def test_an_instance_template_has_the_image_of_the_date() -> None:
    """The image is in the template, without a lookup."""
    (template,) = _recorded("gcp", "2026-08-20").of("gcp:compute/instanceTemplate:InstanceTemplate")
    assert template.inputs["disks"][0]["sourceImage"] == ACCELERATOR
