"""Programs that the tests of components record: the shipped stacks, and declarations made by hand."""

from __future__ import annotations

import functools
from datetime import date
from typing import Any

from gpuinfra.plan import Plan, make_plan
from gpuinfra.shipped import shipped
from gpuinfra.spec import ClusterSpec, parse_spec, read_stack
from tests.clouds.recorder import Recording, record

TODAY = date(2026, 11, 21)
"""The day of every test: `tests/conftest.py` tells programs the same one, so that no declaration with a window runs out."""


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
    return make_plan(spec_of(stack), TODAY)


@functools.cache
def recording_of(stack: str) -> Recording:
    """What the program of a shipped stack registers."""
    return recording_of_spec(spec_of(stack), stack=stack)


def recording_of_spec(spec: ClusterSpec | dict[str, Any], **options: Any) -> Recording:
    """What a declaration's program registers."""
    parsed = spec if isinstance(spec, ClusterSpec) else parse_spec(spec)

    def program() -> None:
        from gpuinfra import GpuCluster

        GpuCluster(parsed.name, parsed)

    return record(program, **options)
