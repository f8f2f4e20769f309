"""The machine types that a wrong name probably means."""

from __future__ import annotations

import pytest

from gpuinfra.plan.machines import similar
from gpuinfra.plan.profile import profile_of


@pytest.mark.parametrize(
    ("cloud", "name", "proposed"),
    [
        ("aws", "m5.xlarge", "m7i.xlarge"),
        ("aws", "m6i.2xlarge", "m7i.2xlarge"),
        ("aws", "t3.medium", "m7i.xlarge"),
        ("aws", "c7g.4xlarge", "c7i.4xlarge"),
        ("aws", "g4dn.xlarge", "g6.xlarge"),
        ("aws", "p4d", "p4d.24xlarge, p4de.24xlarge"),
        ("aws", "p4", "p4d.24xlarge, p4de.24xlarge"),
        ("aws", "p", None),
        ("aws", "p4d.24xlrage", "p4d.24xlarge"),
        ("aws", "a3-megagpu-8g", None),
        ("aws", "8xA100", None),
        ("aws", "", None),
        ("azure", "Standard_F16s_v2", "Standard_D16s_v5"),
        ("azure", "ND96isr_H100_v5", "Standard_ND96isr_H100_v5"),
        ("azure", "Standard_NC24s_v3", "Standard_NC24ads_A100_v4"),
        ("azure", "p5.48xlarge", None),
        ("gcp", "e2-standard-4", "n2-standard-4"),
        ("gcp", "c3-highmem-176", "n2-standard-4"),
        ("gcp", "a3-highgpu-16g", "a3-highgpu-1g"),
        ("gcp", "a4", "a4-highgpu-8g, a4x-highgpu-4g"),
        ("gcp", "nvidia-h100-80gb", None),
    ],
)
def test_a_wrong_name_means_a_machine_of_the_same_kind(cloud: str, name: str, proposed: str | None) -> None:
    """A name of a machine without GPUs proposes one without GPUs, a part of a name the names that contain it, and a name without a similar one none."""
    assert similar(name, profile_of(cloud).machines) == proposed


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_kind_of_each_known_name_is_recognized(cloud: str) -> None:
    """With one letter missing at its end, each name of the catalog proposes itself or a machine of its kind."""
    machines = profile_of(cloud).machines
    for name, machine in machines.items():
        found = similar(f"{name[:-2]}x{name[-1]}", machines)
        assert found is None or {machines[one].gpu is None for one in found.split(" and ")[0].split(", ")} == {
            machine.gpu is None
        }
