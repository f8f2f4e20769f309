"""An image that is selected by its ID is rehearsed to a verified node on each cloud, and an image with another operating system is one clear finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse
from .test_users import MACHINES, WHERE

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

_GALLERY = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/shared/providers/Microsoft.Compute/galleries/shared"
IMAGES = {
    "aws": "ami-0123456789abcdef0",
    "azure": f"{_GALLERY}/images/train-ubuntu-22.04/versions/1.0.0",
    "gcp": "projects/shared/global/images/train-ubuntu-2204",
}
"""Cloud -> an image outside the stack with Ubuntu 22.04 and without GPU software.
The name of an AMI does not describe its content, and the stand-in cloud treats it as such an image."""
STACK = """\
config:
  gpuinfra:cluster:
    name: lab
    where: {where}
    pools:
      - {{name: gpu, machine: {machine}, image: {{ref: {image}, os: {os}, prebuilt: false}}, capacity: {{kind: on_demand, count: 1}}}}
    access: {{evidence_from: {evidence_from}}}
"""


def written(folder: Path, cloud: str, os: str) -> str:
    """The stack file of a cloud whose image is declared with this operating system."""
    path = folder / "Pulumi.lab.yaml"
    ranges = "[203.0.113.0/24]" if cloud == "azure" else "[]"
    text = STACK.format(where=WHERE[cloud], machine=MACHINES[cloud], image=IMAGES[cloud], os=os, evidence_from=ranges)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("cloud", WHERE)
def test_a_node_with_an_image_by_its_id_is_verified_under_least_permissions(
    rehearse: Rehearse, tmp_path: Path, cloud: str
) -> None:
    """The steps install what the image does not contain, and the generated permissions allow every call."""
    path = written(tmp_path, cloud, "ubuntu-22.04")
    result = rehearse("up", path, "--under-least-permissions")
    assert result.code == 0, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["verified"]
    result = rehearse("destroy", path, "--under-least-permissions")
    assert result.code == 0, result.out + result.err


@pytest.mark.parametrize("cloud", WHERE)
def test_an_image_with_another_operating_system_is_the_finding(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """The first step fails, and the finding names both operating systems."""
    result = rehearse("up", written(tmp_path, cloud, "ubuntu-24.04"), "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    for words in ("10-prepare is failed: ", "ubuntu-22.04", "ubuntu-24.04", "what to do: "):
        assert words in result.out, (words, result.out)
