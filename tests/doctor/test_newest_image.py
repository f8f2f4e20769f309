"""The newest image of a family, asked from the cloud over its own interface.

Names and IDs of the images are those of public records: `ami-028357be7d5b15c53` is the release 20261006 in us-east-1 (a public benchmark record of
2026-10), `ubuntu-accelerator-2404-amd64-with-nvidia-580-v20260820` is named with its driver in a public test report of 2026-08, and the versions
of `microsoft-dsvm:ubuntu-hpc` end with a date and 01 (tags of Azure/azhpc-images), all retrieved 2026-11-23. The fields are validated against
the output shapes of botocore, Google's discovery document and the models of azure-mgmt-compute.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from azure.mgmt.compute import models as compute

from gpuinfra.clouds.aws import preflight as aws
from gpuinfra.clouds.gcp import preflight as gcp
from gpuinfra.clouds.preflight import Unanswered
from gpuinfra.plan.profile import profile_of
from gpuinfra.software.images import ImageFamily
from tests.doctor import aws as account
from tests.doctor.arm import Arm
from tests.doctor.test_azure_live import SUBSCRIPTION, checked
from tests.doctor.test_gcp_live import PATHS, PROJECT, error, google, image

__all__ = ["google"]
NAME = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261006"
AMI = "ami-028357be7d5b15c53"
CURRENT = "ubuntu-accelerator-2404-amd64-with-nvidia-580-v20260820"
_PUBLISHER = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eastus/publishers/microsoft-dsvm"
VERSIONS = f"{_PUBLISHER}/artifacttypes/vmimage/offers/ubuntu-hpc/skus/2404/versions"


def family(cloud: str) -> ImageFamily:
    """The family for Ubuntu 24.04 on x86."""
    return next(one for one in profile_of(cloud).image_families if (one.os, one.arch) == ("ubuntu-24.04", "x86_64"))


def _aws(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> tuple[aws.Preflight, account.Account]:
    known = {
        "sts:GetCallerIdentity": account.caller,
        "ssm:GetParameter": lambda asked: {"Parameter": {"Name": asked["Name"], "Type": "String", "Value": AMI}},
        "ec2:DescribeImages": lambda asked: {"Images": [{"ImageId": AMI, "Name": NAME, "State": "available"}]},
    }
    used = account.use(monkeypatch, known | answers)
    cloud = aws.Preflight("us-east-1", {})
    list(cloud.identity())
    return cloud, used


def test_aws_reads_the_parameter_and_the_name_of_its_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """On AWS, the parameter of the family has the ID of the newest AMI, whose name has the date."""
    cloud, used = _aws(monkeypatch)
    found = cloud.newest_image(family("aws"))
    assert (found, family("aws").day(str(found))) == (NAME, date(2026, 10, 6))
    assert [asked for name, asked in used.requests if name == "ssm:GetParameter"] == [
        {"Name": "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"}
    ]
    assert [asked for name, asked in used.requests if name == "ec2:DescribeImages"] == [{"ImageIds": [AMI]}]


def test_aws_without_the_parameter_or_the_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Region without the family has no newest image, and a denied request has no answer."""
    cloud, _ = _aws(monkeypatch, **{"ssm:GetParameter": account.refuse("ParameterNotFound", "")})
    assert cloud.newest_image(family("aws")) is None
    cloud, _ = _aws(monkeypatch, **{"ssm:GetParameter": account.refuse("AccessDeniedException", "denied")})
    with pytest.raises(Unanswered, match="request is denied"):
        cloud.newest_image(family("aws"))


def test_azure_reads_the_newest_version_of_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Azure, the list of versions is limited to the newest, and its name has the date."""
    entry = checked(compute.VirtualMachineImageResource, {"id": f"{VERSIONS}/24.04.2026072901", "name": "24.04.2026072901", "location": "eastus"})  # fmt: skip
    arm = Arm({VERSIONS: (200, [entry])})
    cloud = arm.preflight(monkeypatch, {"azure-native:subscriptionId": SUBSCRIPTION})
    found = cloud.newest_image(family("azure"))
    assert (found, family("azure").day(str(found))) == ("microsoft-dsvm:ubuntu-hpc:2404:24.04.2026072901", date(2026, 7, 29))  # fmt: skip
    arm.answers[VERSIONS] = (200, [])
    assert cloud.newest_image(family("azure")) is None
    arm.answers[VERSIONS] = (403, {"error": {"code": "AuthorizationFailed", "message": "no"}})
    with pytest.raises(Unanswered, match="request is denied"):
        cloud.newest_image(family("azure"))


def test_google_reads_the_newest_image_of_the_family(google: Any) -> None:
    """On Google Cloud, the name of the newest image of the family has the date."""
    google.answers[PATHS["image"]] = (200, image(name=CURRENT))
    cloud = gcp.Preflight("us-central1", {"gcp:project": PROJECT})
    list(cloud.identity())
    found = cloud.newest_image(family("gcp"))
    assert found == f"projects/ubuntu-os-accelerator-images/global/images/{CURRENT}"
    assert family("gcp").day(str(found)) == date(2026, 8, 20)
    del google.answers[PATHS["image"]]
    assert cloud.newest_image(family("gcp")) is None
    google.answers[PATHS["image"]] = error(
        403, "Required 'compute.images.getFromFamily' permission", "PERMISSION_DENIED"
    )
    with pytest.raises(Unanswered, match="request is denied"):
        cloud.newest_image(family("gcp"))


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_a_reference_of_another_form_has_no_date(cloud: str) -> None:
    """The date is read only from the whole form of a reference, so that another image never passes for a release."""
    one = family(cloud)
    ref = one.ref(date(2026, 10, 6))
    assert one.day(ref) == date(2026, 10, 6)
    for other in (f"{ref}-beta", f"x{ref}", ref.replace("20261006", "20261306"), ref.replace("20261006", "latest")):
        assert one.day(other) is None
