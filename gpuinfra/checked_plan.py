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
from gpuinfra.base.findings import Level
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.rules import check
from gpuinfra.spec import ClusterSpec, parse_spec


class RejectedSpec(SpecError, pulumi.RunError):
    """A declaration with findings of level error, which the engine shows without a traceback."""


def make_plan(
    spec: ClusterSpec | Mapping[str, Any],
    today: date | None = None,
    now: datetime | None = None,
    *,
    component: pulumi.Resource | None = None,
) -> Plan:
    """Check a declaration with all rules, and return its plan.

    The findings are those of `gpuinfra plan`: errors end the program, and warnings are logged for `component` or for the stack.
    `today` and `now` default to the current day and time. They determine whether a capacity window is open.
    """
    spec = parsed_spec(spec)
    findings = check(spec, today or current_day())
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
