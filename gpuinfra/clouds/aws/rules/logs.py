"""AWS rule for the retention of log groups."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in

RETENTION_DAYS = (
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
)  # fmt: skip
"""https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html, as in pulumi_aws 7.51.1, retrieved 2026-11-30."""


def log_groups_have_a_period_of_cloudwatch(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """CloudWatch Logs keeps logs only for certain numbers of days."""
    layers = spec.made_layers
    periods = {
        "logs.retention_days": spec.logs.retention_days if spec.logs else None,
        "audit.log_retention_days": spec.audit.log_retention_days if "foundation" in layers else None,
        "network.flow_log_days": spec.network.flow_log_days if "site" in layers else None,
    }
    for path, days in periods.items():
        if days is not None and days not in RETENTION_DAYS:
            longer = RETENTION_DAYS[bisect(RETENTION_DAYS, days)]
            allowed = ", ".join(map(str, RETENTION_DAYS))
            yield error(path, f"is {days}; CloudWatch Logs accepts {allowed} days", f"use {longer}")


RULES = rules_in(vars())
