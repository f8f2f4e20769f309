"""The dashboard for Grafana, as data. gpuinfra does not run Grafana.

The queries read the same metrics as the alert rules. They aggregate labels that change, such as the host name that the DCGM exporter adds, whose name
depends on its version. The JSON is Grafana's dashboard model with the panel `timeseries`
(https://grafana.com/docs/grafana/latest/visualizations/dashboards/build-dashboards/view-dashboard-json-model/, retrieved 2026-11-29).
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuinfra.monitoring.alerts import MEMORY_IN_USE, USD_PER_HOUR

POOLS = 'pool=~"$pool"'
"""Selector of the pools that are selected in Grafana."""
SCHEMA_VERSION = 39
"""Version of the dashboard model of Grafana 11. Later versions convert it when they load it."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart. `query` contains `@S` for the selector of the pools."""

    title: str
    query: str
    legend: str
    unit: str
    """Unit of Grafana: `percentunit`, `bytes`, `Bps`, `watt`, `celsius`, `currencyUSD`, `s`, `short`."""
    about: str = ""


PRICE = f'count by (pool) (up{{@S, job="node"}}) * on (pool) max by (pool) ({USD_PER_HOUR}{{@S}})'
_NODE, _GPU = "instance, pool", "instance, pool, gpu, UUID"

DASHBOARD: dict[str, tuple[Panel, ...]] = {
    "Fleet": (
        Panel(
            title="Nodes that are verified",
            query="sum by (pool) (gpuinfra_node_verified{@S})",
            legend="{{pool}}",
            unit="short",
        ),
        Panel(
            title="Nodes that are not verified",
            query="count by (pool) (gpuinfra_node_verified{@S}) - sum by (pool) (gpuinfra_node_verified{@S})",
            legend="{{pool}}",
            unit="short",
        ),
        Panel(
            title="Checks that failed",
            query="count by (pool, check, cause) (gpuinfra_check_failed{@S})",
            legend="{{pool}} {{check}} {{cause}}",
            unit="short",
        ),
        Panel(
            title="Notices",
            query="sum by (pool, kind) (gpuinfra_notices{@S})",
            legend="{{pool}} {{kind}}",
            unit="short",
        ),
        Panel(
            title="Time to the deadline of a notice",
            query=f"min by ({_NODE}, kind) (gpuinfra_notice_deadline_timestamp_seconds{{@S}}) - time()",
            legend="{{instance}} {{kind}}",
            unit="s",
        ),
        Panel(
            title="Nodes that Prometheus reads",
            query="sum by (pool, job) (up{@S})",
            legend="{{pool}} {{job}}",
            unit="short",
        ),
        Panel(
            title="Price per hour",
            query=PRICE,
            legend="{{pool}}",
            unit="currencyUSD",
            about="Public price of all nodes that exist. Capacity without a price of its own has the on-demand price.",
        ),
        Panel(
            title="Price per hour of GPUs in use",
            query=f"{PRICE} / on (pool) (sum by (pool) (DCGM_FI_DEV_GPU_UTIL{{@S}}) / 100 > 0)",
            legend="{{pool}}",
            unit="currencyUSD",
            about="The price of all nodes, divided by the number of GPUs on which kernels run.",
        ),
    ),
    "GPUs": (
        Panel(
            title="Utilization",
            query="avg by (pool) (DCGM_FI_DEV_GPU_UTIL{@S}) / 100",
            legend="{{pool}}",
            unit="percentunit",
            about="Share of the time in which any kernel ran.",
        ),
        Panel(
            title="Tensor cores active",
            query="avg by (pool) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{@S})",
            legend="{{pool}}",
            unit="percentunit",
        ),
        Panel(
            title="Memory in use",
            query=f"max by ({_NODE}) ({MEMORY_IN_USE})",
            legend="{{instance}}",
            unit="percentunit",
            about="Of the GPU of each node that uses most.",
        ),
        Panel(title="Power", query="sum by (pool) (DCGM_FI_DEV_POWER_USAGE{@S})", legend="{{pool}}", unit="watt"),
        Panel(
            title="Temperature",
            query=f"max by ({_NODE}) (DCGM_FI_DEV_GPU_TEMP{{@S}})",
            legend="{{instance}}",
            unit="celsius",
        ),
        Panel(
            title="Time throttled by heat",
            query=f"max by ({_GPU}) (rate(DCGM_FI_DEV_THERMAL_VIOLATION{{@S}}[5m])) / 1e9",
            legend="{{instance}} {{gpu}}",
            unit="percentunit",
        ),
        Panel(
            title="Last Xid",
            query=f"max by ({_GPU}) (DCGM_FI_DEV_XID_ERRORS{{@S}})",
            legend="{{instance}} {{gpu}}",
            unit="short",
        ),
        Panel(
            title="Rows of memory replaced after uncorrectable errors",
            query=f"max by ({_GPU}) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{@S}})",
            legend="{{instance}} {{gpu}}",
            unit="short",
        ),
    ),
    "Fabric": (
        Panel(
            title="NVLink replays and recoveries",
            query=f"max by ({_GPU}) (increase(DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{{@S}}[15m])) + "
            f"max by ({_GPU}) (increase(DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL{{@S}}[15m]))",
            legend="{{instance}} {{gpu}}",
            unit="short",
        ),
        Panel(
            title="PCIe replays per second",
            query=f"max by ({_GPU}) (rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{@S}}[15m]))",
            legend="{{instance}} {{gpu}}",
            unit="short",
        ),
        Panel(
            title="RDMA errors",
            query="sum by (instance, pool, counter) "
            '(increase(gpuinfra_rdma_hw_counter_total{@S, counter!~"[rt]x_bytes|np_cnp_sent|rp_cnp_handled"}[15m]))',
            legend="{{instance}} {{counter}}",
            unit="short",
        ),
        Panel(
            title="RDMA traffic of EFA",
            query=f'sum by ({_NODE}, counter) (rate(gpuinfra_rdma_hw_counter_total{{@S, counter=~"[rt]x_bytes"}}[5m]))',
            legend="{{instance}} {{counter}}",
            unit="Bps",
        ),
        Panel(
            title="Network traffic",
            query=f"sum by ({_NODE}) (rate(node_network_receive_bytes_total{{@S}}[5m]) + "
            "rate(node_network_transmit_bytes_total{@S}[5m]))",
            legend="{{instance}}",
            unit="Bps",
        ),
    ),
    "Storage": (
        Panel(
            title="Lustre: use of each OST",
            query="max by (pool, mount, ost) (gpuinfra_lustre_ost_used_ratio{@S})",
            legend="{{mount}} {{ost}}",
            unit="percentunit",
        ),
        Panel(
            title="Age of the newest checkpoint",
            query="time() - max by (pool, mount) (gpuinfra_checkpoint_timestamp_seconds{@S})",
            legend="{{mount}}",
            unit="s",
        ),
        Panel(
            title="Local file systems: space in use",
            query="max by (instance, pool, mountpoint) (1 - node_filesystem_avail_bytes{@S} / node_filesystem_size_bytes{@S})",
            legend="{{instance}} {{mountpoint}}",
            unit="percentunit",
        ),
    ),
    "Nodes": (
        Panel(
            title="CPU in use",
            query=f'1 - avg by ({_NODE}) (rate(node_cpu_seconds_total{{@S, mode="idle"}}[5m]))',
            legend="{{instance}}",
            unit="percentunit",
        ),
        Panel(
            title="Memory in use",
            query=f"max by ({_NODE}) (1 - node_memory_MemAvailable_bytes{{@S}} / node_memory_MemTotal_bytes{{@S}})",
            legend="{{instance}}",
            unit="percentunit",
        ),
        Panel(
            title="Processes that the kernel ended for lack of memory",
            query=f"max by ({_NODE}) (increase(node_vmstat_oom_kill{{@S}}[15m]))",
            legend="{{instance}}",
            unit="short",
        ),
        Panel(
            title="GPUs idle for",
            query=f"time() - max by ({_NODE}) (gpuinfra_gpus_idle_since_timestamp_seconds{{@S}})",
            legend="{{instance}}",
            unit="s",
        ),
    ),
}
"""Row -> panels."""


def dashboard(cluster: str) -> dict[str, object]:
    """Return the dashboard of a cluster. Its variables are the data source, and the pools that the panels show."""
    panels: list[dict[str, object]] = []
    top = 0
    for row, charts in DASHBOARD.items():
        panels.append({"type": "row", "title": row, "collapsed": False, "panels": [], "gridPos": _place(top, 0, 24, 1)})
        for number, chart in enumerate(charts):
            place = _place(top + 1 + number // 2 * 8, number % 2 * 12, 12, 8)
            panels.append({**_chart(chart), "gridPos": place})
        top += 1 + (len(charts) + 1) // 2 * 8
    return {
        "uid": f"gpuinfra-{cluster}"[:40],
        "title": f"gpuinfra: {cluster}",
        "tags": ["gpuinfra"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_SOURCE, _POOL]},
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, start=1)],
    }  # fmt: skip


_DATA = {"type": "prometheus", "uid": "${source}"}
_SOURCE = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
_POOL = {
    "name": "pool", "label": "Pool", "type": "query", "datasource": _DATA, "query": "label_values(up, pool)", "refresh": 2,
    "multi": True, "includeAll": True, "allValue": ".+", "current": {"text": "All", "value": "$__all"},
}  # fmt: skip


def _chart(panel: Panel) -> dict[str, object]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _DATA,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": "A", "datasource": _DATA, "expr": panel.query.replace("@S", POOLS), "legendFormat": panel.legend}
        ],
    }


def _place(top: int, left: int, width: int, height: int) -> dict[str, int]:
    return {"h": height, "w": width, "x": left, "y": top}
