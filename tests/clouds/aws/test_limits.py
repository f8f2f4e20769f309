"""Limits of AWS, compared with the API models in botocore (Apache-2.0)."""

from __future__ import annotations

import re

import botocore.session
import pytest

from gpuinfra.spec.pool import DiskSpec


def _range(member: str) -> tuple[int, int]:
    """The range for gp3 in the documentation of a launch template's disk."""
    model = botocore.session.get_session().get_service_model("ec2")
    text = model.shape_for("LaunchTemplateEbsBlockDeviceRequest").members[member].documentation
    form = (
        r"gp3</code>: ([\d,]+) - ([\d,]+) IOPS"
        if member == "Iops"
        else r"Minimum value of (\d+)\. Maximum value of ([\d,]+)\."
    )
    found = re.search(form, text)
    assert found, text
    low, high = (int(one.replace(",", "")) for one in found.groups())
    return low, high


@pytest.mark.parametrize(("field", "member"), [("iops", "Iops"), ("throughput_mib_s", "Throughput")])
def test_the_root_disk_has_the_range_of_gp3(field: str, member: str) -> None:
    """A declaration accepts the IOPS and throughput of gp3 volumes."""
    limits = {type(one).__name__: one for one in DiskSpec.model_fields[field].metadata}
    assert (limits["Ge"].ge, limits["Le"].le) == _range(member)
