"""Checks a declaration and creates its plan, for Pulumi programs.

`GpuCluster` and programs of single components use it. The commands check a stack with `gpuinfra.rules.load_stack`, and then create the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import pulumi

from gpuinfra.base.day import now as current_time
from gpuinfra.base.day import today as current_day
from gpuinfra.base.errors import SpecError
from gpuinfra.base.findings import Finding, Level, error
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.rules import check
from gpuinfra.spec import ClusterSpec, parse_spec

ONLY_CLUSTER = ("monitoring", "logs")
"""Sections whose resources are not components of their own: the control node with its disk, and the log group. Nodes without them are never verified."""


class RejectedSpec(SpecError, pulumi.RunError):
    """A declaration with findings of level error, which the engine shows without a traceback."""


def make_plan(
    spec: ClusterSpec | Mapping[str, Any],
    today: date | None = None,
    now: datetime | None = None,
    *,
    component: pulumi.Resource | None = None,
) -> Plan:
    """Check a declaration with all rules, and return its plan for a program of single components.

    The findings are those of `gpuinfra plan`, and one for each section that only `GpuCluster` creates: errors end the program, and warnings are logged for
    `component` or for the stack. `today` and `now` default to the current day and time. They determine whether a capacity window is open.
    """
    spec = parsed_spec(spec)
    missing = [
        error(name, "is not possible in a program of single components", "use GpuCluster, or remove the section")
        for name in ONLY_CLUSTER
        if getattr(spec, name) is not None
    ]
    return _checked(spec, today, now, component, missing)


def cluster_plan(spec: ClusterSpec, component: pulumi.Resource) -> Plan:
    """Check a declaration with all rules, and return its plan for a `GpuCluster`."""
    return _checked(spec, None, None, component, [])


def _checked(
    spec: ClusterSpec, today: date | None, now: datetime | None, component: pulumi.Resource | None, more: list[Finding]
) -> Plan:
    findings = [*check(spec, today or current_day()), *more]
    if any(finding.level is Level.ERROR for finding in findings):
        raise RejectedSpec(findings)
    for finding in findings:
        if finding.level is Level.WARN:
            pulumi.log.warn(str(finding), component)
    return build_plan(spec, today or current_day(), now or (None if today else current_time()))


def parsed_spec(spec: ClusterSpec | Mapping[str, Any]) -> ClusterSpec:
    """Return a declaration that can be a mapping, as in a stack file."""
    if isinstance(spec, ClusterSpec):
        return spec
    try:
        return parse_spec(dict(spec))
    except SpecError as problem:
        raise RejectedSpec(problem.findings) from None
