"""The table of alert rules, and the rule file for Prometheus.

The rules read `up` and the counters of the DCGM exporter that the step 77-dcgm-exporter configures. The names are those of the exporter's own file
(`etc/default-counters.csv` in NVIDIA/dcgm-exporter, retrieved 2026-11-28). They
select the targets of a pool with the label `pool`, and compare only labels that do not change: `err_code` changes with each Xid, so a series
of an Xid can start at its first error, and functions such as `increase` do not see this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuinfra.node.xids import XIDS

GPU_LABELS = "instance, pool, gpu, UUID"


class AlertSeverity(StrEnum):
    """How urgent an alert is."""

    PAGE = "page"
    """A job fails, or a GPU must not get new work."""
    WARN = "warn"
    INFO = "info"


@dataclass(frozen=True, kw_only=True)
class AlertRule:
    """One alert. `expression` contains `@S` for the selector of a pool, and `@N` for the number of GPUs of a node."""

    name: str
    expression: str
    for_s: int
    """Seconds for which the expression must hold."""
    severity: AlertSeverity
    cause: str
    action: str
    whole_gpus: bool = False
    """Whether the metric exists only for GPUs without MIG."""


@dataclass(frozen=True, kw_only=True)
class AlertPool:
    """What the rules of one pool depend on."""

    name: str
    gpus: int
    """Number of GPUs of a node."""
    mig: bool


def _drain_xids() -> str:
    return "|".join(str(number) for number, xid in sorted(XIDS.items()) if xid.severity == "drain")


ALERTS = (
    AlertRule(
        name="GpuXidDrain",
        expression=f'max by ({GPU_LABELS}, err_code) (DCGM_FI_DEV_XID_ERRORS{{@S, err_code=~"{_drain_xids()}"}}) > 0',
        for_s=0,
        severity=AlertSeverity.PAGE,
        cause="the last Xid of a GPU requires that the node is drained; err_code is the Xid",
        action="run `gpuinfra explain xid-NUMBER`; the alert ends when the driver is loaded again or the GPU reports another Xid",
    ),
    AlertRule(
        name="GpuRowRemapFailed",
        expression=f"max by ({GPU_LABELS}) (DCGM_FI_DEV_ROW_REMAP_FAILURE{{@S}}) > 0",
        for_s=0,
        severity=AlertSeverity.PAGE,
        cause="a GPU cannot replace a defective row of its memory",
        action="drain and replace the node: `gpuinfra replace STACK NODE`",
    ),
    AlertRule(
        name="GpuEccUncorrectable",
        expression=f"max by ({GPU_LABELS}) (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{@S}}) > 0",
        for_s=0,
        severity=AlertSeverity.PAGE,
        cause="the memory of a GPU had an uncorrectable error since the driver was loaded",
        action="stop the jobs on the node, reset the GPU or reboot the node, and run `gpuinfra check`; the alert ends with the reset",
    ),
    AlertRule(
        name="GpuRowRemapPending",
        expression=f"max by ({GPU_LABELS}) (DCGM_FI_DEV_ROW_REMAP_PENDING{{@S}}) > 0",
        for_s=600,
        severity=AlertSeverity.WARN,
        cause="a GPU replaces a defective row of its memory at the next reset",
        action="reset the GPU, or reboot the node, when no job runs",
    ),
    AlertRule(
        name="GpuThermalThrottle",
        expression=f"max by ({GPU_LABELS}) (rate(DCGM_FI_DEV_THERMAL_VIOLATION{{@S}}[5m])) / 1e9 > 0.1",
        for_s=600,
        severity=AlertSeverity.WARN,
        cause="a GPU lowers its clocks more than 10 % of the time, because it is too hot",
        action="run `gpuinfra check STACK`; if check G7 or G8 fails again after a pause of the jobs, replace the node: `gpuinfra replace STACK NODE`",
    ),
    AlertRule(
        name="GpuNvlinkErrors",
        expression=f"max by ({GPU_LABELS}) (increase(DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{{@S}}[15m])) > 0 or "
        f"max by ({GPU_LABELS}) (increase(DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL{{@S}}[15m])) > 0",
        for_s=0,
        severity=AlertSeverity.WARN,
        cause="an NVLink of a GPU repeated packets or recovered from errors in the last 15 minutes",
        action="run `gpuinfra check STACK` when no job runs on the node; if check F3, F4 or B2 fails, replace the node",
    ),
    AlertRule(
        name="GpuRowRemapped",
        expression=f"max by ({GPU_LABELS}) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{@S}}) - min by ({GPU_LABELS}) "
        "(min_over_time(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{@S}[1d])) > 0",
        for_s=0,
        severity=AlertSeverity.WARN,
        cause="a GPU replaced a row of its memory after an uncorrectable error in the last day",
        action="reset the GPU when no job runs, and run `gpuinfra check`",
    ),
    AlertRule(
        name="GpuMissing",
        expression="count by (instance, pool) (count by (instance, pool, UUID) (DCGM_FI_DEV_GPU_TEMP{@S})) < @N",
        for_s=300,
        severity=AlertSeverity.PAGE,
        cause="a node serves metrics of fewer GPUs than its machine type has",
        action="run `gpuinfra check STACK`, then reboot or replace the node",
    ),
    AlertRule(
        name="GpuMetricsMissing",
        expression="up{@S} == 0 or absent(up{@S}) == 1",
        for_s=300,
        severity=AlertSeverity.WARN,
        cause="Prometheus cannot read the exporter of a node, or has no target in the pool, so the other alerts cannot fire",
        action="run `gpuinfra nodes STACK`, then `journalctl -u nvidia-dcgm-exporter` on the node",
    ),
    AlertRule(
        name="GpuPcieReplays",
        expression=f"max by ({GPU_LABELS}) (rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{@S}}[30m])) > 5",
        for_s=1800,
        severity=AlertSeverity.WARN,
        cause="the PCIe link of a GPU repeats more than five packets in a second",
        action="run the B5 check on the node when no job runs: `gpuinfra check STACK --also B5`",
    ),
    AlertRule(
        name="GpuMemoryHigh",
        expression=f"max by ({GPU_LABELS}) (DCGM_FI_DEV_FB_USED{{@S}} / (DCGM_FI_DEV_FB_USED{{@S}} + DCGM_FI_DEV_FB_FREE{{@S}} + "
        "DCGM_FI_DEV_FB_RESERVED{@S})) > 0.9",
        for_s=600,
        severity=AlertSeverity.INFO,
        cause="more than 90 % of the memory of a GPU is in use, which is normal for training and for inference servers",
        action="if jobs fail for lack of memory, lower the batch size or use more GPUs",
        whole_gpus=True,
    ),
    AlertRule(
        name="GpuIdle",
        expression=f"max by ({GPU_LABELS}) (max_over_time(DCGM_FI_DEV_GPU_UTIL{{@S}}[30m])) < 5",
        for_s=7200,
        severity=AlertSeverity.INFO,
        cause="a GPU runs no kernels for two hours",
        action="remove nodes that are not needed, or set idle_stop",
        whole_gpus=True,
    ),
)
"""All rules. Names are unique."""


USD_PER_HOUR = "gpuinfra_node_usd_per_hour"
"""Metric with the price of one node of a pool. A node does not know its price, so the rules of the control node contain it."""


def rule_file(
    cluster: str, pools: Sequence[AlertPool], usd_per_hour: Mapping[str, float] | None = None
) -> dict[str, object]:
    """Return the content of a rule file of Prometheus, with one group for each pool, and one with the known prices of the pools."""
    prices = [
        {"record": USD_PER_HOUR, "expr": f"vector({price:g})", "labels": {"pool": pool}}
        for pool, price in (usd_per_hour or {}).items()
    ]
    return {
        "groups": [
            *({"name": f"gpuinfra-{cluster}-{pool.name}", "rules": [_rule(one, pool) for one in _of(pool)]} for pool in pools),
            *([{"name": f"gpuinfra-{cluster}-prices", "rules": prices}] if prices else []),
        ]
    }  # fmt: skip


def _of(pool: AlertPool) -> list[AlertRule]:
    return [one for one in ALERTS if not (one.whole_gpus and pool.mig)]


def _rule(rule: AlertRule, pool: AlertPool) -> dict[str, object]:
    expression = rule.expression.replace("@S", f'pool="{pool.name}"').replace("@N", str(pool.gpus))
    return {
        "alert": rule.name,
        "expr": expression,
        "for": f"{rule.for_s}s",
        "labels": {"severity": rule.severity.value},
        "annotations": {"summary": rule.cause, "action": rule.action},
    }
