"""The result of `gpuinfra plan` for one stack: findings and, if there are no errors, the plan, the software and the price.

The JSON form is documented in `docs/reference/plan-json.md` and versioned by its `schema`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinfra.base.errors import SpecError
from gpuinfra.base.findings import Finding, Level
from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.clouds import machines_of
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.timing import ReadyTime, ready_time
from gpuinfra.cost import Cost, price
from gpuinfra.cost.compare import ComparisonRow, compare
from gpuinfra.cost.file import PriceFile
from gpuinfra.plan.model import Plan
from gpuinfra.rules import check_stack
from gpuinfra.spec.load import LoadedStack, read_stack, stack_name

if TYPE_CHECKING:
    from gpuinfra.sizing.planned import WorkloadForecast

SCHEMA = "gpuinfra.plan/1"


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """The findings, plan and price of a stack. No cloud account is required."""

    stack: str
    path: Path
    findings: tuple[Finding, ...]
    plan: Plan | None = None
    cost: Cost | None = None
    ways: tuple[ComparisonRow, ...] = ()
    """Price of the same nodes by purchase option."""
    workload: WorkloadForecast | None = None
    """Forecast of the declared workload, or None if the stack declares none."""
    time: ReadyTime | None = None
    """How long `up` takes until the nodes are verified, or None if no duration is known."""

    @property
    def ok(self) -> bool:
        """True if there are no errors."""
        return not any(finding.level is Level.ERROR for finding in self.findings)

    def as_dict(self) -> dict[str, object]:
        """Return the document for `--json`."""
        return {
            "schema": SCHEMA,
            "stack": self.stack,
            "file": str(self.path),
            "ok": self.ok,
            "findings": [finding.as_dict() for finding in self.findings],
            "plan": plain(self.plan) if self.plan else None,
            "resources": dict(self.plan.resources) if self.plan else {},
            "cost": {**self.cost.as_dict(), "ways": plain(self.ways)} if self.cost else None,
            "time": {"in_words": self.time.in_words, **plain(self.time)} if self.time else None,
            "workload": plain(self.workload) if self.workload else None,
            "software": {pool.name: dict(pool.versions) for pool in self.plan.pools} if self.plan else {},
        }


def plan_report(path: Path, today: date, prices: PriceFile | None = None, now: datetime | None = None) -> PlanReport:
    """Read and validate one stack file, and return its plan and price. Errors are returned as findings. `now` is as in `build_plan`."""
    try:
        stack = read_stack(path)
    except SpecError as problem:
        return unreadable(path, problem)
    return report_of(stack, today, prices, now)


def unreadable(path: Path, problem: SpecError) -> PlanReport:
    """Return the report of a stack file that cannot be parsed."""
    return PlanReport(stack=stack_name(path), path=path, findings=problem.findings)


def report_of(
    stack: LoadedStack, today: date, prices: PriceFile | None = None, now: datetime | None = None
) -> PlanReport:
    """Validate a parsed stack, and return its plan and price. Errors are returned as findings."""
    findings = check_stack(stack, today)
    if prices is not None:
        every = [machine for cloud in CLOUDS for machine in machines_of(cloud)]
        findings = (*findings, *prices.unknown_machines([*every, *(one.name for one in stack.spec.machines)]))
    if any(finding.level is Level.ERROR for finding in findings):
        return PlanReport(stack=stack.name, path=stack.path, findings=findings)
    from gpuinfra.plan.make import build_plan

    plan = build_plan(stack.spec, today, now)
    cost = price(plan, today, prices, duration_hours=stack.spec.duration_hours)
    ways = compare(plan, today)
    time = ready_time(plan, cloud_of(plan.cloud).timing)
    workload = None
    if stack.spec.workload:
        from gpuinfra.sizing.planned import forecast_of

        workload = forecast_of(stack.spec.workload, plan, cost)
    return PlanReport(
        stack=stack.name,
        path=stack.path,
        findings=findings,
        plan=plan,
        cost=cost,
        ways=ways,
        time=time,
        workload=workload,
    )


def plain(value: Any) -> Any:
    """Convert dataclasses, sets and dates to JSON types."""
    if is_dataclass(value) and not isinstance(value, type):
        shown = [one.name for one in fields(value) if one.metadata.get("shown", True)]
        return {name: plain(getattr(value, name)) for name in shown}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value
