"""Machine types that a declaration defines by their differences from a machine type in the catalog."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.plan.machines import machines_of
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from tests.rules.cases import TODAY, declaration


def planned(machine: dict[str, Any], cloud: str = "aws") -> Any:
    """The plan of a pool with a machine type of the declaration."""
    spec = parse_spec(declaration((cloud, {"machines": [machine], "pools.0.machine": machine["name"]})))
    assert not [one for one in check(spec, TODAY) if one.level == "error"]
    return build_plan(spec, TODAY).pools[0]


def test_the_architecture_determines_the_image() -> None:
    """A machine type with ARM CPUs gets an image for arm64, although it is based on one for x86_64."""
    pool = planned({"name": "c7g.4xlarge", "like": "c7i.4xlarge", "arch": "arm64"})
    assert pool.image.arch == "arm64"
    assert "/arm64/" in pool.image.ref


def test_the_gpu_determines_the_expectation() -> None:
    """The nodes are judged by the declared GPU, and not by the measured minimums of another GPU."""
    pool = planned({"name": "g4dn.xlarge", "like": "g5.xlarge", "gpu": "T4"})
    assert pool.expectation["gpu_name"] == "Tesla T4"
    assert not pool.expectation.get("floors")


def test_a_machine_without_gpus_gets_no_gpu_software() -> None:
    """With `gpus: 0`, the nodes have no driver and no GPU checks."""
    pool = planned({"name": "p4x.24xlarge", "like": "p4d.24xlarge", "gpus": 0})
    assert not [step.id for step in pool.steps if step.id in ("30-driver", "35-fabric-manager", "45-nccl")]
    assert "G1" not in pool.expectation["required"]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_machine_of_the_catalog_has_the_name_of_another_architecture(cloud: str) -> None:
    """The pattern for names of machine types with ARM CPUs matches no machine type of the catalog with x86 CPUs."""
    import re

    profile = profile_of(cloud)
    wrong = [
        one.name for one in profile.machines.values() if one.arch != "arm64" and re.match(profile.arm64_names, one.name)
    ]
    assert wrong == []


def test_a_record_changes_only_the_given_fields() -> None:
    """A record without differences equals its base, except for the name, the prices and the zones."""
    spec = parse_spec(declaration(("aws", {"machines": [{"name": "p4x.24xlarge", "like": "p4d.24xlarge"}]})))
    machines = machines_of(spec)
    one, base = machines["p4x.24xlarge"], machines["p4d.24xlarge"]
    assert (one.gpu, one.gpus, one.arch, one.floors, one.nics) == (
        base.gpu,
        base.gpus,
        base.arch,
        base.floors,
        base.nics,
    )
