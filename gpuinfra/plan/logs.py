"""The logs of the nodes in the log service of the cloud, and which kernel lines about Xids the recipients of the budget are notified of."""

from __future__ import annotations

from collections.abc import Iterable

from gpuinfra.node.xids import XIDS, Bucket
from gpuinfra.plan.model import LogsPlan
from gpuinfra.spec.model import ClusterSpec

OWN_FILES = "/var/log/gpuinfra/*"
"""Logs of the bootstrap steps."""
MB_PER_DAY = 20
"""Assumed volume of a node for the price: its kernel log, the log of gpuinfra's units and the logs of the bootstrap. A measured volume is not public."""
XID_LINE = r"^NVRM:\sXid\s"
"""Beginning of a kernel line with an Xid. This expression and `urgent_xids` use only what CloudWatch Logs accepts, which allows neither groups nor spaces
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/regex-expressions.html, retrieved 2026-11-30)."""


def log_files(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the log files that each node sends. Empty if the stack declares no logs."""
    return (OWN_FILES, *spec.logs.files) if spec.logs else ()


def logs_plan(spec: ClusterSpec) -> LogsPlan | None:
    """Return the plan of the logs, or None if the stack sends none."""
    if spec.logs is None or "cluster" not in spec.made_layers:
        return None
    return LogsPlan(
        retention_days=spec.logs.retention_days,
        files=spec.logs.files,
        recipients=tuple(sorted(spec.budget.recipients)),
    )


def urgent_xids() -> str:
    """Return a regular expression for the number and the text of an Xid after which a node must not be used: those that the checks drain a node for.

    The line of Xid 154 names the action, and those of Xids 144 to 150 their severity (`gpuinfra.node.xids`).
    """
    drained = [number for number, one in XIDS.items() if one.severity == "drain" and one.bucket is not Bucket.XID_154]
    fatal = [number for number, one in XIDS.items() if one.bucket is Bucket.WORKFLOW_NVLINK5]
    return "|".join(
        [
            *(rf":\s{one}," for one in _classes(drained)),
            r":\s154,.*to\s0x[1-9]",
            *(rf":\s{one},.*Fatal" for one in _classes(fatal)),
        ]
    )


def _classes(numbers: Iterable[int]) -> list[str]:
    """Return expressions for decimal numbers, one for all numbers that differ only in their last digit: `11[1-8]`. A filter has at most 1,024 characters."""
    tens: dict[int, list[int]] = {}
    for number in sorted(numbers):
        tens.setdefault(number // 10, []).append(number % 10)
    return [f"{ten or ''}{_digits(last)}" for ten, last in tens.items()]


def _digits(digits: list[int]) -> str:
    if len(digits) == 1:
        return str(digits[0])
    return f"[{''.join(map(str, digits))}]"
