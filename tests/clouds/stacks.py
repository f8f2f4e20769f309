"""Programs that the tests of components record: shipped stacks, and declarations in tests."""

from __future__ import annotations

import functools
from datetime import date
from pathlib import Path
from typing import Any

from gpuinfra.base.shipped import shipped
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.rules import check
from gpuinfra.spec import ClusterSpec, parse_spec, read_stack
from gpuinfra.spec.policy import LayersUsed
from tests.clouds.recorder import Recording, record

TODAY = date(2026, 11, 21)
"""The date of every test; `conftest.py` sets the same date for programs, so that time windows do not expire."""


def shipped_stacks(cloud: str) -> list[str]:
    """Names of the stacks in `stacks/` that are on a cloud."""
    found = shipped("stacks").glob(f"Pulumi.{cloud}-*.yaml")
    return sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in found)


def shipped_aws_stacks() -> list[str]:
    """Names of the stacks in `stacks/` that are on AWS."""
    return shipped_stacks("aws")


def spec_of(stack: str) -> ClusterSpec:
    """The declaration of a shipped stack."""
    return read_stack(shipped("stacks") / f"Pulumi.{stack}.yaml").spec


def plan_of(stack: str) -> Plan:
    """The plan of a shipped stack."""
    return build_plan(spec_of(stack), TODAY)


@functools.cache
def recording_of(stack: str) -> Recording:
    """The registrations of the program of a shipped stack."""
    return recording_of_spec(spec_of(stack), stack=stack)


def recording_of_spec(spec: ClusterSpec | dict[str, Any], **options: Any) -> Recording:
    """The registrations of the program of a declaration."""
    parsed = spec if isinstance(spec, ClusterSpec) else parse_spec(spec)

    def program() -> None:
        from gpuinfra import GpuCluster

        GpuCluster(parsed.name, parsed)

    return record(program, **options)


@functools.cache
def peer_specs(cloud: str) -> dict[str, ClusterSpec]:
    """Clusters that other projects publish, on one cloud, without storage that gpuinfra does not support."""
    found = {}
    for path in sorted((Path(__file__).parents[1] / "peers/specs").glob("*.yaml")):
        spec = read_stack(path).spec
        if spec.where.cloud == cloud:
            errors = [finding for finding in check(spec, TODAY) if finding.level == "error"]
            waits = {n for n in range(len(spec.storage)) if any(f"storage[{n}]." in one.path for one in errors)}
            made = tuple(one for n, one in enumerate(spec.storage) if n not in waits)
            found[path.stem] = spec.model_copy(update={"storage": made})
    return found


@functools.cache
def peer_recording_of(cloud: str, name: str) -> Recording:
    """The registrations of such a cluster; another stack creates the layers that it does not contain."""
    spec = peer_specs(cloud)[name]
    if spec.layers and "foundation" not in spec.layers and not spec.use.foundation:
        spec = spec.model_copy(update={"use": LayersUsed(foundation="organization/gpuinfra/base")})
    return recording_of_spec(spec)
