"""The table of alert rules, and the rule file for Prometheus.

The rules read `up`, the counters of the DCGM exporter that the step 77-dcgm-exporter configures, and on the control node also the metrics of node
exporter, which contain the facts of each node (`node/metrics.py`). The names of the counters are those of the exporter's own file
(`etc/default-counters.csv` in NVIDIA/dcgm-exporter, retrieved 2026-11-28).

The rules select the targets of a pool with the label `pool`, and compare only labels that do not change: `err_code` changes with each Xid, so a series
of an Xid can start at its first error, and functions such as `increase` do not see this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuinfra.node.cause import Action
from gpuinfra.node.xids import XIDS

GPU_LABELS = "instance, pool, gpu, UUID"
NODE_LABELS = "instance, pool"
MEMORY_IN_USE = (
    "DCGM_FI_DEV_FB_USED{@S} / (DCGM_FI_DEV_FB_USED{@S} + DCGM_FI_DEV_FB_FREE{@S} + DCGM_FI_DEV_FB_RESERVED{@S})"
)
"""Share of the whole memory of a GPU. A share of the free memory exceeds 0.9 at 49 %."""


class AlertSeverity(StrEnum):
    """How urgent an alert is."""

    PAGE = "page"
    """A job fails, or a GPU must not get new work."""
    WARN = "warn"
    INFO = "info"


class Needs(StrEnum):
    """What the nodes of a pool must have, so that a rule applies to them."""

    GPUS = "GPUs"
    WHOLE_GPUS = "GPUs without MIG"
    NODE = "node exporter"
    INFINIBAND = "InfiniBand"
    CHECKPOINTS = "a pattern of checkpoints"
    CONTROL = "Prometheus"
    REPAIR = "repair"
    STORE = "a managed store"
    """The rule runs in the managed store, because the control node cannot report it."""


@dataclass(frozen=True, kw_only=True)
class AlertRule:
    """One alert. `expression` contains `@S` for the selector of a pool, `@N` for the number of GPUs of a node, and `@C` for the maximum age of a
    checkpoint in seconds."""

    name: str
    expression: str
    for_s: int
    """Seconds for which the expression must hold."""
    severity: AlertSeverity
    cause: str
    action: str
    needs: Needs = Needs.GPUS
    repair: Action | None = None
    """What the control node does with the node if the stack declares `repair`. None if the alert is no reason to take the node out of use."""
    value: str = ""
    """Template of Prometheus for what the value of the expression says, for the notification."""


@dataclass(frozen=True, kw_only=True)
class AlertPool:
    """What the rules of one pool depend on."""

    name: str
    gpus: int
    """Number of GPUs of a node that runs the DCGM exporter."""
    mig: bool = False
    node: bool = False
    """Whether the nodes run node exporter."""
    infiniband: bool = False
    checkpoint_s: int = 0
    """Maximum age of the newest checkpoint, or 0 if the nodes do not report it."""
    control: bool = False
    """Whether this is the pool of the control node."""
    repair: bool = False
    """Whether the control node repairs nodes."""
    store: bool = False
    """Whether these are the rules of the managed store, which reads what the control node writes."""

    def has(self, needs: Needs) -> bool:
        """Return whether the nodes have what a rule needs."""
        return {
            Needs.GPUS: self.gpus > 0,
            Needs.WHOLE_GPUS: self.gpus > 0 and not self.mig,
            Needs.NODE: self.node,
            Needs.INFINIBAND: self.node and self.infiniband,
            Needs.CHECKPOINTS: self.node and self.checkpoint_s > 0,
            Needs.CONTROL: self.control,
            Needs.REPAIR: self.repair,
            Needs.STORE: self.store,
        }[needs]


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
        repair=Action.RESET,
    ),
    AlertRule(
        name="GpuRowRemapFailed",
        expression=f"max by ({GPU_LABELS}) (DCGM_FI_DEV_ROW_REMAP_FAILURE{{@S}}) > 0",
        for_s=0,
        severity=AlertSeverity.PAGE,
        cause="a GPU cannot replace a defective row of its memory",
        action="drain and replace the node: `gpuinfra replace STACK NODE`",
        repair=Action.REPLACE,
    ),
    AlertRule(
        name="GpuEccUncorrectable",
        expression=f"max by ({GPU_LABELS}) (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{@S}}) > 0",
        for_s=0,
        severity=AlertSeverity.PAGE,
        cause="the memory of a GPU had an uncorrectable error since the driver was loaded",
        action="stop the jobs on the node, reset the GPU or reboot the node, and run `gpuinfra check`; the alert ends with the reset",
        repair=Action.RESET,
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
        repair=Action.REBOOT,
    ),
    AlertRule(
        name="GpuMetricsMissing",
        expression='up{@S, job!="node"} == 0 or absent(up{@S, job!="node"}) == 1',
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
        expression=f"max by ({GPU_LABELS}) ({MEMORY_IN_USE}) > 0.9",
        for_s=600,
        severity=AlertSeverity.INFO,
        cause="more than 90 % of the memory of a GPU is in use, which is normal for training and for inference servers",
        action="if jobs fail for lack of memory, lower the batch size or use more GPUs",
        needs=Needs.WHOLE_GPUS,
    ),
    AlertRule(
        name="GpuIdle",
        expression=f"max by ({GPU_LABELS}) (max_over_time(DCGM_FI_DEV_GPU_UTIL{{@S}}[30m])) < 5",
        for_s=7200,
        severity=AlertSeverity.INFO,
        cause="a GPU runs no kernels for two hours",
        action="remove nodes that are not needed, or set idle_stop",
        needs=Needs.WHOLE_GPUS,
    ),
    AlertRule(
        name="NodeCheckFailed",
        expression=f'max by ({NODE_LABELS}, check, cause) (gpuinfra_check_failed{{@S, blocks="true"}}) > 0 '
        f"and on ({NODE_LABELS}) gpuinfra_node_first_verified_timestamp_seconds{{@S}} > 0",
        for_s=0,
        severity=AlertSeverity.PAGE,
        cause="a node that was verified fails a check, and must not get new work",
        action="run `gpuinfra nodes STACK`, which states what to do for this cause; `gpuinfra explain CHECK` describes the check",
        needs=Needs.NODE,
    ),
    AlertRule(
        name="NodeNotVerified",
        expression=f"gpuinfra_node_verified{{@S}} == 0 unless on ({NODE_LABELS}) gpuinfra_node_first_verified_timestamp_seconds{{@S}}",
        for_s=600,
        severity=AlertSeverity.WARN,
        cause="a node was never verified, because its bootstrap or a check failed",
        action="run `gpuinfra nodes STACK`; then fix the cause, or replace the node: `gpuinfra replace STACK NODE`",
        needs=Needs.NODE,
    ),
    AlertRule(
        name="NodeNotice",
        expression=f'min by ({NODE_LABELS}, kind) (gpuinfra_notice_deadline_timestamp_seconds{{@S, kind!="rebalance"}}) - time() < 86400',
        for_s=0,
        severity=AlertSeverity.WARN,
        cause="the cloud or the operator announces the end or the maintenance of a node within a day",
        action="run `gpuinfra nodes STACK`, and save the state of the jobs; jobs of `gpuinfra run -N` are signaled 15 minutes before the deadline",
        value="{{ $value | humanizeDuration }} until the deadline",
        needs=Needs.NODE,
    ),
    AlertRule(
        name="NodeMetricsMissing",
        expression='up{@S, job="node"} == 0 or absent(up{@S, job="node"}) == 1',
        for_s=300,
        severity=AlertSeverity.WARN,
        cause="Prometheus cannot read node exporter of a node, or has no target in the pool, so the alerts about nodes cannot fire",
        action="run `gpuinfra nodes STACK`, then `journalctl -u prometheus-node-exporter` on the node",
        needs=Needs.NODE,
    ),
    AlertRule(
        name="NodeFactsStale",
        expression=f'(time() - max by ({NODE_LABELS}) (node_textfile_mtime_seconds{{@S}}) > 600) or (up{{@S, job="node"}} == 1 '
        f"unless on ({NODE_LABELS}) node_textfile_mtime_seconds{{@S}})",
        for_s=300,
        severity=AlertSeverity.WARN,
        cause="a node does not write its facts, so the alerts about checks and notices cannot fire",
        action="run `journalctl -u gpuinfra-metrics` on the node",
        needs=Needs.NODE,
    ),
    AlertRule(
        name="NodeDiskFull",
        expression="max by (instance, pool, mountpoint) (1 - node_filesystem_avail_bytes{@S} / node_filesystem_size_bytes{@S}) > 0.9",
        for_s=900,
        severity=AlertSeverity.WARN,
        cause="more than 90 % of a local file system of a node is in use",
        action="delete files on the node; the scratch file system is deleted with the node",
        value="{{ $value | humanizePercentage }} in use",
        needs=Needs.NODE,
    ),
    AlertRule(
        name="NodeOutOfMemory",
        expression=f"max by ({NODE_LABELS}) (increase(node_vmstat_oom_kill{{@S}}[15m])) > 0",
        for_s=0,
        severity=AlertSeverity.INFO,
        cause="the kernel of a node ended a process in the last 15 minutes, because the memory of the host was used up",
        action="lower the number of data loaders, or the size of their buffers; `journalctl -k` on the node names the process",
        needs=Needs.NODE,
    ),
    AlertRule(
        name="LustreOstFull",
        expression="max by (pool, mount, ost) (gpuinfra_lustre_ost_used_ratio{@S}) > 0.9",
        for_s=900,
        severity=AlertSeverity.WARN,
        cause="more than 90 % of an object storage target of a Lustre file system is in use; files on it cannot grow when it is full",
        action="delete files, increase capacity_gib, or distribute files with `lfs migrate`",
        value="{{ $value | humanizePercentage }} in use",
        needs=Needs.NODE,
    ),
    AlertRule(
        name="CheckpointOld",
        expression="time() - max by (pool, mount) (gpuinfra_checkpoint_timestamp_seconds{@S}) > @C",
        for_s=300,
        severity=AlertSeverity.WARN,
        cause="the newest complete checkpoint on a file system is older than recovery.rpo_minutes",
        action="run `gpuinfra ready STACK`, which also shows the newest checkpoint in the second region",
        value="{{ $value | humanizeDuration }} old",
        needs=Needs.CHECKPOINTS,
    ),
    AlertRule(
        name="InfinibandPortDown",
        expression="max by (instance, pool, device, port) (node_infiniband_state_id{@S}) < 4 or "
        'max by (instance, pool) (node_scrape_collector_success{@S, collector="infiniband"}) == 0',
        for_s=60,
        severity=AlertSeverity.PAGE,
        cause="an InfiniBand port of a node is not active, or node exporter cannot read the ports",
        action="run `gpuinfra check STACK`; if a check of InfiniBand fails, replace the node: `gpuinfra replace STACK NODE`",
        needs=Needs.INFINIBAND,
        repair=Action.REPLACE,
    ),
    AlertRule(
        name="RdmaTimeouts",
        expression="sum by (instance, pool, device) "
        '(increase(gpuinfra_rdma_hw_counter_total{@S, counter=~"retrans_timeout_events|local_ack_timeout_err"}[15m])) > 0',
        for_s=900,
        severity=AlertSeverity.INFO,
        cause="an RDMA device of a node waited in vain for the acknowledgement of packets for 15 minutes",
        action="run the fabric checks when no job runs on the node: `gpuinfra check STACK`",
        needs=Needs.NODE,
    ),
    AlertRule(
        name="DiscoveryFails",
        expression="increase(prometheus_sd_refresh_failures_total[15m]) > 0",
        for_s=600,
        severity=AlertSeverity.WARN,
        cause="Prometheus cannot ask the cloud for the nodes, so it does not find new nodes",
        action="run `journalctl -u gpuinfra-prometheus` on the control node",
        needs=Needs.CONTROL,
    ),
    AlertRule(
        name="RepairUntouched",
        expression="max by (instance, pool, node) (gpuinfra_repair_untouched{@S}) > 0",
        for_s=0,
        severity=AlertSeverity.WARN,
        cause="the repair does not touch a node: it is faulty and the mode or a limit prevents the repair, or its instance ID is not confirmed",
        action="run `gpuinfra nodes STACK`, which states why; then replace the node: `gpuinfra replace STACK NODE`",
        needs=Needs.REPAIR,
    ),
    AlertRule(
        name="RepairFailed",
        expression='max by (instance, pool, node) (gpuinfra_repair_current{@S, step="failed"}) > 0',
        for_s=0,
        severity=AlertSeverity.PAGE,
        cause="a replaced or rebooted node was not verified in time, so no other node is repaired",
        action="run `gpuinfra nodes STACK`, fix the cause, then run `gpuinfra maintenance STACK NODE --release`",
        needs=Needs.REPAIR,
    ),
    AlertRule(
        name="RepairStale",
        expression="time() - max by (instance, pool) (gpuinfra_repair_read_timestamp_seconds{@S}) > 900",
        for_s=300,
        severity=AlertSeverity.WARN,
        cause="the control node could not read the metrics or its state for 15 minutes, so it repairs no node",
        action="run `journalctl -u gpuinfra-repair` on the control node",
        needs=Needs.REPAIR,
    ),
    AlertRule(
        name="RepairEventsNotUploaded",
        expression="max by (instance, pool) (gpuinfra_repair_events_not_uploaded{@S}) > 0",
        for_s=900,
        severity=AlertSeverity.WARN,
        cause="the control node cannot upload events of the repair, so the evidence bucket has no record of them; the repair continues",
        action="run `journalctl -u gpuinfra-repair` on the control node, which logs the reason as `repair: events`",
        needs=Needs.REPAIR,
    ),
    AlertRule(
        name="ControlNodeMissing",
        expression='absent(up{job="prometheus"}) == 1',
        for_s=900,
        severity=AlertSeverity.PAGE,
        cause="the control node writes no metrics to the managed store, so no other alert is sent",
        action="run `gpuinfra nodes STACK`; if the control node is verified, run `journalctl -u gpuinfra-prometheus` on it",
        needs=Needs.STORE,
    ),
    AlertRule(
        name="AlertsNotSent",
        expression='up{job="alertmanager"} == 0 or max by (integration) (increase(alertmanager_notifications_failed_total[15m])) > 0',
        for_s=600,
        severity=AlertSeverity.PAGE,
        cause="Alertmanager on the control node does not run, or cannot send alerts to a receiver",
        action="run `journalctl -u gpuinfra-alertmanager` on the control node",
        needs=Needs.STORE,
    ),
)
"""All rules. Names are unique."""


USD_PER_HOUR = "gpuinfra_node_usd_per_hour"
"""Metric with the price of one node of a pool. A node does not know its price, so the rules of the control node contain it."""
RECOVERY_POINT = "gpuinfra_recovery_point_seconds"
"""Metric with the declared maximum age of the newest checkpoint of a pool, from the rules for the same reason."""


def rule_file(
    cluster: str, pools: Sequence[AlertPool], usd_per_hour: Mapping[str, float] | None = None
) -> dict[str, object]:
    """Return the content of a rule file of Prometheus, with one group for each pool, and one with the known prices and the recovery points of the pools."""
    values = [(USD_PER_HOUR, pool, price) for pool, price in (usd_per_hour or {}).items()]
    values += [(RECOVERY_POINT, pool.name, pool.checkpoint_s) for pool in pools if pool.has(Needs.CHECKPOINTS)]
    records = [
        {"record": metric, "expr": f"vector({value:g})", "labels": {"pool": pool}} for metric, pool, value in values
    ]
    return {
        "groups": [
            *({"name": f"gpuinfra-{cluster}-{pool.name}", "rules": [_rule(one, pool) for one in _of(pool)]} for pool in pools),
            *([{"name": f"gpuinfra-{cluster}-values", "rules": records}] if records else []),
        ]
    }  # fmt: skip


def store_rules(cluster: str) -> dict[str, object]:
    """Return the content of a rule file for the managed store of a cluster. The control node evaluates all other rules."""
    return rule_file(cluster, [AlertPool(name="store", gpus=0, store=True)])


def _of(pool: AlertPool) -> list[AlertRule]:
    return [one for one in ALERTS if pool.has(one.needs)]


def _rule(rule: AlertRule, pool: AlertPool) -> dict[str, object]:
    expression = rule.expression.replace("@S", f'pool="{pool.name}"').replace("@N", str(pool.gpus))
    expression = expression.replace("@C", str(pool.checkpoint_s))
    return {
        "alert": rule.name,
        "expr": expression,
        "for": f"{rule.for_s}s",
        "labels": {"severity": rule.severity.value},
        "annotations": {"summary": rule.cause, "action": rule.action, **({"value": rule.value} if rule.value else {})},
    }
