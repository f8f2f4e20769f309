"""The dashboards for Grafana, built with Grafana's own library. gpuinfra does not run Grafana.

The queries read the same metrics as the alert rules. They aggregate labels that change, such as the host name that the DCGM exporter adds, whose name
depends on its version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from grafana_foundation_sdk.builders.dashboard import Dashboard as Document
from grafana_foundation_sdk.builders.dashboard import DatasourceVariable, QueryVariable
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel as Chart
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    VariableOption,
    VariableRefresh,
)

from gpuinfra.monitoring.alerts import MEMORY_IN_USE, RECOVERY_POINT, USD_PER_HOUR

POOLS = 'pool=~"$pool"'
"""Selector of the pools that are selected in Grafana."""
NODE = 'instance="$instance"'
UID_LENGTH = 40
"""Characters that Grafana allows in the ID of a dashboard."""
WIDTH, HEIGHT = 12, 8
"""Size of a chart. A dashboard is 24 units wide."""
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart. `query` contains `@S` for the selector of the pools, and of the node in a dashboard of one node."""

    title: str
    query: str
    legend: str
    unit: str
    """Unit of Grafana: `percentunit`, `bytes`, `Bps`, `watt`, `celsius`, `currencyUSD`, `s`, `short`."""
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """One dashboard. `key` is the name of its file, and part of its ID in Grafana."""

    key: str
    title: str
    panels: tuple[Panel, ...]
    one_node: bool = False
    """Whether the dashboard shows one node, which is selected in Grafana."""
    recovery: bool = False
    """Whether only stacks with `recovery` have the dashboard."""


PRICE = f'count by (pool) (up{{@S, job="node"}}) * on (pool) max by (pool) ({USD_PER_HOUR}{{@S}})'
_NODE, _GPU = "instance, pool", "instance, pool, gpu, UUID"
_FAILED = Panel(
    title="Checks that failed",
    query="count by (pool, check, cause) (gpuinfra_check_failed{@S})",
    legend="{{pool}} {{check}} {{cause}}",
    unit="short",
)
_DEADLINE = Panel(
    title="Time to the deadline of a notice",
    query=f"min by ({_NODE}, kind) (gpuinfra_notice_deadline_timestamp_seconds{{@S}}) - time()",
    legend="{{instance}} {{kind}}",
    unit="s",
)
_LOCAL = Panel(
    title="Local file systems: space in use",
    query="max by (instance, pool, mountpoint) (1 - node_filesystem_avail_bytes{@S} / node_filesystem_size_bytes{@S})",
    legend="{{instance}} {{mountpoint}}",
    unit="percentunit",
)
_TRAFFIC = Panel(
    title="Network traffic",
    query=f"sum by ({_NODE}) (rate(node_network_receive_bytes_total{{@S}}[5m]) + "
    "rate(node_network_transmit_bytes_total{@S}[5m]))",
    legend="{{instance}}",
    unit="Bps",
)
_CHECKPOINT_AGE = "time() - max by (pool, mount) (gpuinfra_checkpoint_timestamp_seconds{@S})"

DASHBOARDS = (
    Dashboard(
        key="fleet",
        title="fleet",
        panels=(
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
            _FAILED,
            Panel(
                title="Notices",
                query="sum by (pool, kind) (gpuinfra_notices{@S})",
                legend="{{pool}} {{kind}}",
                unit="short",
            ),
            _DEADLINE,
            Panel(
                title="Nodes that Prometheus reads",
                query="sum by (pool, job) (up{@S})",
                legend="{{pool}} {{job}}",
                unit="short",
            ),
            Panel(
                title="GPU utilization",
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
            Panel(title="Power", query="sum by (pool) (DCGM_FI_DEV_POWER_USAGE{@S})", legend="{{pool}}", unit="watt"),
            Panel(
                title="GPUs idle for",
                query=f"time() - max by ({_NODE}) (gpuinfra_gpus_idle_since_timestamp_seconds{{@S}})",
                legend="{{instance}}",
                unit="s",
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
    ),
    Dashboard(
        key="node",
        title="node",
        one_node=True,
        panels=(
            Panel(
                title="Verified",
                query=f"max by ({_NODE}) (gpuinfra_node_verified{{@S}})",
                legend="{{instance}}",
                unit="short",
                about="1 if the newest checks of this boot passed.",
            ),
            _FAILED,
            Panel(
                title="GPU utilization",
                query=f"max by ({_GPU}) (DCGM_FI_DEV_GPU_UTIL{{@S}}) / 100",
                legend="{{gpu}}",
                unit="percentunit",
                about="Share of the time in which any kernel ran.",
            ),
            Panel(
                title="Tensor cores active",
                query=f"max by ({_GPU}) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{@S}})",
                legend="{{gpu}}",
                unit="percentunit",
            ),
            Panel(
                title="GPU memory in use",
                query=f"max by ({_GPU}) ({MEMORY_IN_USE})",
                legend="{{gpu}}",
                unit="percentunit",
            ),
            Panel(
                title="Power",
                query=f"max by ({_GPU}) (DCGM_FI_DEV_POWER_USAGE{{@S}})",
                legend="{{gpu}}",
                unit="watt",
            ),
            Panel(
                title="Temperature",
                query=f"max by ({_GPU}) (DCGM_FI_DEV_GPU_TEMP{{@S}})",
                legend="{{gpu}}",
                unit="celsius",
            ),
            Panel(
                title="Time throttled by heat",
                query=f"max by ({_GPU}) (rate(DCGM_FI_DEV_THERMAL_VIOLATION{{@S}}[5m])) / 1e9",
                legend="{{gpu}}",
                unit="percentunit",
            ),
            Panel(
                title="Last Xid",
                query=f"max by ({_GPU}) (DCGM_FI_DEV_XID_ERRORS{{@S}})",
                legend="{{gpu}}",
                unit="short",
            ),
            Panel(
                title="Rows of memory replaced after uncorrectable errors",
                query=f"max by ({_GPU}) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{@S}})",
                legend="{{gpu}}",
                unit="short",
            ),
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
            _LOCAL,
            _TRAFFIC,
            _DEADLINE,
        ),
    ),
    Dashboard(
        key="fabric",
        title="fabric",
        panels=(
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
                title="Traffic of InfiniBand and RoCE ports",
                query=f"sum by ({_NODE}, device) (rate(node_infiniband_port_data_received_bytes_total{{@S}}[5m]) + "
                "rate(node_infiniband_port_data_transmitted_bytes_total{@S}[5m]))",
                legend="{{instance}} {{device}}",
                unit="Bps",
            ),
            Panel(
                title="Lost links of InfiniBand and RoCE ports",
                query="sum by (instance, pool, device, port) (increase(node_infiniband_link_downed_total{@S}[1h]))",
                legend="{{instance}} {{device}} {{port}}",
                unit="short",
            ),
            _TRAFFIC,
        ),
    ),
    Dashboard(
        key="storage",
        title="storage",
        panels=(
            Panel(
                title="Lustre: use of each OST",
                query="max by (pool, mount, ost) (gpuinfra_lustre_ost_used_ratio{@S})",
                legend="{{mount}} {{ost}}",
                unit="percentunit",
            ),
            Panel(
                title="Lustre: use of the fullest OST minus that of the emptiest one",
                query="max by (pool, mount) (gpuinfra_lustre_ost_used_ratio{@S}) - "
                "min by (pool, mount) (gpuinfra_lustre_ost_used_ratio{@S})",
                legend="{{mount}}",
                unit="percentunit",
                about="A large difference means that files with few stripes are large. A file cannot grow when one of its OSTs is full.",
            ),
            Panel(title="Age of the newest checkpoint", query=_CHECKPOINT_AGE, legend="{{mount}}", unit="s"),
            _LOCAL,
        ),
    ),
    Dashboard(
        key="recovery",
        title="second region",
        recovery=True,
        panels=(
            Panel(
                title="Age of the newest checkpoint in the first region",
                query=_CHECKPOINT_AGE,
                legend="{{mount}}",
                unit="s",
                about="`gpuinfra ready` shows the age of the newest checkpoint in the second region, which nodes cannot read.",
            ),
            Panel(
                title="Time until the newest checkpoint is older than recovery.rpo_minutes",
                query=f"min by (pool) ({RECOVERY_POINT}{{@S}}) - on (pool) group_right () ({_CHECKPOINT_AGE})",
                legend="{{mount}}",
                unit="s",
                about="Negative: a failover now would lose more work than declared, even if everything is replicated.",
            ),
            Panel(
                title="Checkpoints that were completed within a day",
                query="sum by (pool, mount) (changes(gpuinfra_checkpoint_timestamp_seconds{@S}[1d]))",
                legend="{{mount}}",
                unit="short",
            ),
        ),
    ),
)


def documents(cluster: str, *, recovery: bool) -> dict[str, dict[str, object]]:
    """Return the dashboards of a cluster as Grafana imports them, by their keys. Their variables are the data source, and the pools or the node."""
    return {one.key: _document(cluster, one) for one in DASHBOARDS if recovery or not one.recovery}


def _document(cluster: str, dashboard: Dashboard) -> dict[str, object]:
    built = (
        Document(f"gpuinfra: {cluster}, {dashboard.title}")
        .uid(f"gpuinfra-{dashboard.key}-{cluster}"[:UID_LENGTH])
        .tags(["gpuinfra", cluster])
        .editable()
        .refresh("1m")
        .time("now-6h", "now")
        .with_variable(DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .with_variable(_choice("pool", "Pool", "label_values(up, pool)"))
    )
    selector = POOLS
    if dashboard.one_node:
        built.with_variable(_choice("instance", "Node", f"label_values(up{{{POOLS}}}, instance)", one=True))
        selector = f"{POOLS}, {NODE}"
    for number, panel in enumerate(dashboard.panels, start=1):
        built.with_panel(
            Chart()
            .id(number)
            .title(panel.title)
            .description(panel.about)
            .datasource(SOURCE)
            .unit(panel.unit)
            .span(WIDTH)
            .height(HEIGHT)
            .with_target(
                Dataquery()
                .ref_id("A")
                .datasource(SOURCE)
                .expr(panel.query.replace("@S", selector))
                .legend_format(panel.legend)
                .range()
            )
        )
    return json.loads(json.dumps(built.build(), cls=JSONEncoder))


def _choice(name: str, label: str, query: str, *, one: bool = False) -> QueryVariable:
    """A variable whose values Grafana reads from Prometheus: one value, or several."""
    choice = (
        QueryVariable(name).label(label).datasource(SOURCE).query(query).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )
    if one:
        return choice
    every = VariableOption(text="All", value="$__all", selected=True)
    return choice.multi(True).include_all(True).all_value(".+").current(every)
