"""The alert rules, tried with the real promtool: each fires, stays silent for a healthy GPU, and survives a restart and a missing series."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuinfra.base.errors import UsageError
from gpuinfra.base.shipped import shipped
from gpuinfra.cli.alerts import command
from gpuinfra.monitoring.alerts import ALERTS, AlertPool, Needs, rule_file, store_rules
from gpuinfra.node.xids import XIDS
from gpuinfra.reference.explain import explain
from tests.node import real

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
POOL = AlertPool(name="gpu", gpus=2, node=True, infiniband=True, checkpoint_s=3600, control=True, repair=True)
GPU = 'instance="a:9400",pool="gpu",gpu="0",UUID="GPU-0",modelName="H100"'
OTHER = 'instance="a:9400",pool="gpu",gpu="1",UUID="GPU-1",modelName="H100"'
HOUR = 60
RECORDED = {one.name: one for one in real.outputs()}
RECORDED_LOGS = [name for name, one in RECORDED.items() if "NVRM: Xid (" in one.text and one.probe == "kernel-log"]
OF_GPUS = {one.name for one in ALERTS if one.needs in (Needs.GPUS, Needs.WHOLE_GPUS)} - {"GpuMetricsMissing"}


def series(metric: str, values: str, labels: str = GPU) -> dict[str, str]:
    """One series with a value for each minute, in the notation of promtool."""
    return {"series": f"{metric}{{{labels}}}", "values": values}


@dataclass(frozen=True)
class Case:
    """Series that fire one alert, series of a healthy GPU, and the minute at which both are judged."""

    alert: str
    sick: tuple[dict[str, str], ...]
    healthy: tuple[dict[str, str], ...]
    minute: int


def memory(used: int) -> tuple[dict[str, str], ...]:
    """The framebuffer of one GPU with 81,000 MiB."""
    return (
        series("DCGM_FI_DEV_FB_USED", f"{used}x300"),
        series("DCGM_FI_DEV_FB_FREE", f"{81_000 - used}x300"),
        series("DCGM_FI_DEV_FB_RESERVED", "600x300"),
    )


TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
REMAPPED = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
THROTTLED = "DCGM_FI_DEV_THERMAL_VIOLATION"
REPLAYED, RECOVERED = (f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL" for kind in ("REPLAY", "RECOVERY"))
TARGET = 'instance="a:9400",pool="gpu",job="dcgm"'
NODE = 'instance="a:9400",pool="gpu"'
NODE_TARGET = f'{NODE},job="node"'
VERIFIED, FIRST = "gpuinfra_node_verified", "gpuinfra_node_first_verified_timestamp_seconds"
FAILED = f'{NODE},check="G5",cause="gpu-lost",outcome="fail"'
DEADLINE = "gpuinfra_notice_deadline_timestamp_seconds"
WRITTEN = "node_textfile_mtime_seconds"
PORT = f'{NODE},device="mlx5_0",port="1"'
COUNTER = f'{NODE},device="rdmap79s0",port="1",counter="retrans_timeout_events"'

OWN, SENDER = 'job="prometheus",cluster="train"', 'job="alertmanager",cluster="train"'
UNSENT, SLACK = "alertmanager_notifications_failed_total", f'{SENDER},integration="slack"'


def node(metric: str, values: str) -> dict[str, str]:
    """One series of a node."""
    return series(metric, values, NODE)


def disk(used: int) -> tuple[dict[str, str], ...]:
    """The root disk of a node, of which a share is in use."""
    labels = f'{NODE},device="/dev/root",fstype="ext4",mountpoint="/"'
    return (
        series("node_filesystem_size_bytes", "100x300", labels),
        series("node_filesystem_avail_bytes", f"{100 - used}x300", labels),
    )


def ost(used: float) -> dict[str, str]:
    """A storage target of a file system, of which a share is in use."""
    return series("gpuinfra_lustre_ost_used_ratio", f"{used}x300", f'{NODE},mount="/scratch",ost="s-OST0000"')


def xid(number: int, values: str) -> dict[str, str]:
    """The last Xid of a GPU. Its label `err_code` starts a new series with each other Xid."""
    return series("DCGM_FI_DEV_XID_ERRORS", values, f'{GPU},err_code="{number}"')


CASES = [
    Case("GpuXidDrain", (xid(0, "0x10 stale"), xid(79, "_x11 79x300")), (xid(31, "_x11 31x300"),), 200),
    Case("GpuXidDrain", (xid(48, "_x5 48x300"), xid(94, "94x5")), (xid(0, "0x300"),), 12),
    Case(
        "GpuRowRemapFailed",
        (series("DCGM_FI_DEV_ROW_REMAP_FAILURE", "0x5 1x300"),),
        (series("DCGM_FI_DEV_ROW_REMAP_FAILURE", "0x300"),),
        200,
    ),
    Case(
        "GpuEccUncorrectable",
        (series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "0x5 2x300"),),
        (series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "0x300"), series("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "9x300")),
        200,
    ),
    Case(
        "GpuRowRemapPending",
        (series("DCGM_FI_DEV_ROW_REMAP_PENDING", "0x5 1x300"),),
        (series("DCGM_FI_DEV_ROW_REMAP_PENDING", "0x5 1x5 0x300"),),
        200,
    ),
    # Nanoseconds: 30 % and 1 % of each minute. A unit that is wrong by a factor of 1,000 fires for the healthy GPU.
    Case("GpuThermalThrottle", (series(THROTTLED, "0+18000000000x300"),), (series(THROTTLED, "0+600000000x300"),), 120),
    Case("GpuNvlinkErrors", (series(REPLAYED, "7x190 8x300"),), (series(REPLAYED, "7x300"),), 200),
    Case("GpuNvlinkErrors", (series(RECOVERED, "0x190 1x300"),), (series(RECOVERED, "1x300"),), 200),
    Case("GpuRowRemapped", (series(REMAPPED, "3x5 4x300"),), (series(REMAPPED, "4x300"),), 200),
    Case(
        "GpuMissing",
        (series(TEMPERATURE, "40x300"), series(TEMPERATURE, "40x5 stale", OTHER)),
        (series(TEMPERATURE, "40x300"), series(TEMPERATURE, "40x300", OTHER)),
        20,
    ),
    Case("GpuMetricsMissing", (series("up", "1x5 0x300", TARGET),), (series("up", "1x300", TARGET),), 20),
    Case("GpuMetricsMissing", (), (series("up", "1x300", TARGET),), 20),
    Case("GpuPcieReplays", (series(REPLAYS, "0+600x300"),), (series(REPLAYS, "9+1x300"),), 120),
    Case("GpuMemoryHigh", memory(79_000), memory(40_500), 60),
    Case(
        "GpuIdle",
        (series("DCGM_FI_DEV_GPU_UTIL", "0x300"),),
        (series("DCGM_FI_DEV_GPU_UTIL", "0x18 80 " * 15),),
        200,
    ),
    # The check fails at minute 5, after the node was verified. A failed check before the node is verified is another alert.
    Case(
        "NodeCheckFailed",
        (series("gpuinfra_check_failed", "_x5 1x300", f'{FAILED},blocks="true"'), node(FIRST, "1x300")),
        (series("gpuinfra_check_failed", "_x5 1x300", f'{FAILED},blocks="true"'),),
        200,
    ),
    Case(
        "NodeCheckFailed",
        (series("gpuinfra_check_failed", "_x5 1x300", f'{FAILED},blocks="true"'), node(FIRST, "1x300")),
        (series("gpuinfra_check_failed", "_x5 1x300", f'{FAILED},blocks="false"'), node(FIRST, "1x300")),
        200,
    ),
    Case("NodeNotVerified", (node(VERIFIED, "0x300"),), (node(VERIFIED, "1x300"), node(FIRST, "1x300")), 200),
    Case("NodeNotVerified", (node(VERIFIED, "0x300"),), (node(VERIFIED, "0x300"), node(FIRST, "1x300")), 200),
    # Minute 200 is second 12,000: the deadline is ten minutes later, or two days later.
    Case(
        "NodeNotice",
        (series(DEADLINE, "12600x300", f'{NODE},kind="reclaim"'),),
        (
            series(DEADLINE, "12600x300", f'{NODE},kind="rebalance"'),
            series(DEADLINE, "184800x300", f'{NODE},kind="maintenance"'),
        ),
        200,
    ),
    Case("NodeMetricsMissing", (series("up", "1x5 0x300", NODE_TARGET),), (series("up", "1x300", NODE_TARGET),), 20),
    Case("NodeMetricsMissing", (series("up", "1x300", TARGET),), (series("up", "1x300", NODE_TARGET),), 20),
    Case(
        "NodeFactsStale",
        (series("up", "1x300", NODE_TARGET), node(WRITTEN, "0x300")),
        (series("up", "1x300", NODE_TARGET), node(WRITTEN, "0+60x300")),
        200,
    ),
    Case(
        "NodeFactsStale",
        (series("up", "1x300", NODE_TARGET),),
        (series("up", "1x300", NODE_TARGET), node(WRITTEN, "0+60x300")),
        200,
    ),
    Case("NodeDiskFull", disk(91), disk(89), 60),
    Case(
        "NodeOutOfMemory", (node("node_vmstat_oom_kill", "3x190 4x300"),), (node("node_vmstat_oom_kill", "4x300"),), 200
    ),
    Case("LustreOstFull", (ost(0.91),), (ost(0.89),), 60),
    Case(
        "CheckpointOld",
        (series("gpuinfra_checkpoint_timestamp_seconds", "60x300", f'{NODE},mount="/scratch"'),),
        (series("gpuinfra_checkpoint_timestamp_seconds", "-1800+60x300", f'{NODE},mount="/scratch"'),),
        200,
    ),
    Case(
        "InfinibandPortDown",
        (series("node_infiniband_state_id", "4x5 1x300", PORT),),
        (series("node_infiniband_state_id", "4x300", PORT),),
        200,
    ),
    Case(
        "InfinibandPortDown",
        (series("node_scrape_collector_success", "1x5 0x300", f'{NODE},collector="infiniband"'),),
        (series("node_scrape_collector_success", "0x300", f'{NODE},collector="cpu"'),),
        200,
    ),
    Case(
        "RdmaTimeouts",
        (series("gpuinfra_rdma_hw_counter_total", "0+2x300", COUNTER),),
        (
            series("gpuinfra_rdma_hw_counter_total", "7x300", COUNTER),
            series("gpuinfra_rdma_hw_counter_total", "0+2x300", COUNTER.replace("retrans_timeout_events", "rx_bytes")),
        ),
        200,
    ),
    Case(
        "DiscoveryFails",
        (series("prometheus_sd_refresh_failures_total", "0+1x300", 'mechanism="ec2"'),),
        (series("prometheus_sd_refresh_failures_total", "5x300", 'mechanism="ec2"'),),
        200,
    ),
    Case(
        "RepairUntouched",
        (series("gpuinfra_repair_untouched", "1x300", f'{NODE},node="i-1"'),),
        (series("gpuinfra_repair_taken", "1x300", NODE),),
        200,
    ),
    Case(
        "RepairFailed",
        (series("gpuinfra_repair_current", "1x300", f'{NODE},node="i-1",step="failed"'),),
        (series("gpuinfra_repair_current", "1x300", f'{NODE},node="i-1",step="wait"'),),
        200,
    ),
    Case(
        "RepairStale",
        (series("gpuinfra_repair_read_timestamp_seconds", "6000x300", NODE),),
        (series("gpuinfra_repair_read_timestamp_seconds", "0+60x300", NODE),),
        200,
    ),
    Case(
        "RepairEventsNotUploaded",
        (series("gpuinfra_repair_events_not_uploaded", "2x300", NODE),),
        (series("gpuinfra_repair_events_not_uploaded", "0x100 1x5 0x300", NODE),),
        200,
    ),
    Case("ControlNodeMissing", (), (series("up", "1x300", OWN),), 200),
    Case("ControlNodeMissing", (series("up", "1x5 stale", OWN),), (series("up", "1x300", OWN),), 60),
    Case("AlertsNotSent", (series("up", "1x5 0x300", SENDER),), (series("up", "1x300", SENDER),), 60),
    Case("AlertsNotSent", (series(UNSENT, "0+1x300", SLACK),), (series(UNSENT, "5x300", SLACK),), 60),
]
COUNTED = (
    "NodeMetricsMissing", "NodeFactsStale", "NodeOutOfMemory", "CheckpointOld", "RdmaTimeouts", "DiscoveryFails",
    "RepairStale", "GpuIdle", "GpuPcieReplays", "GpuMetricsMissing", "GpuThermalThrottle", "GpuNvlinkErrors",
)  # fmt: skip
"""Alerts about what happens in a period, which do not depend on the metrics before a gap."""
RESTARTED = [case for case in CASES if case.alert not in COUNTED]
IDS = [f"{case.alert}-{number}" for number, case in enumerate(CASES)]


def fired(folder: Path, inputs: tuple[dict[str, str], ...], minute: int, only: str = "") -> set[str]:
    """Return the alerts that fire at a minute, of all rules or of one. Promtool expects no alert, and lists those that fire."""
    in_store = any(one.name == only and one.needs is Needs.STORE for one in ALERTS)
    rules: Any = store_rules("train") if in_store else rule_file("train", [POOL])
    names = [only] if only else [one.name for one in ALERTS]
    for group in rules["groups"]:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") in names]
    (folder / "rules.yml").write_text(yaml.safe_dump(rules, width=1000))
    wanted = [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []} for name in names]
    test = {"interval": "1m", "input_series": list(inputs), "alert_rule_test": wanted}
    (folder / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}, width=1000))  # fmt: skip
    done = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    output = done.stdout + done.stderr
    assert ("SUCCESS" in output) is (done.returncode == 0), output
    return set(re.findall(r"alertname: ?(\w+), time: [^\n]*\n\s+exp:", output))


@promtool
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_an_alert_fires_and_its_healthy_twin_does_not(tmp_path: Path, case: Case) -> None:
    """The faulty series fire the alert, and the same metrics of a healthy GPU do not."""
    assert case.alert in fired(tmp_path, case.sick, case.minute, case.alert)
    assert case.alert not in fired(tmp_path, case.healthy, case.minute, case.alert)


@promtool
@pytest.mark.parametrize("case", RESTARTED, ids=[case.alert for case in RESTARTED])
def test_an_alert_survives_a_restart(tmp_path: Path, case: Case) -> None:
    """After a gap in which nothing was read, the alert fires again, and the healthy twin does not."""

    def gap(inputs: tuple[dict[str, str], ...]) -> tuple[dict[str, str], ...]:
        return tuple({**one, "values": re.sub(r"(\S+?)x300$", r"\1x10 _x8 \1x300", one["values"])} for one in inputs)

    assert case.alert in fired(tmp_path, gap(case.sick), 200, case.alert)
    assert case.alert not in fired(tmp_path, gap(case.healthy), 200, case.alert)


@promtool
def test_missing_metrics_fire_only_the_alert_about_them(tmp_path: Path) -> None:
    """If the exporters are lost, only the two alerts about missing metrics fire, and no other alert claims that a GPU or a node is faulty."""
    assert fired(tmp_path, (), 200) == {"GpuMetricsMissing", "NodeMetricsMissing"}


@promtool
@pytest.mark.parametrize("name", RECORDED_LOGS)
def test_a_recorded_xid_fires_the_alert_if_it_blocks_the_node(tmp_path: Path, name: str) -> None:
    """The Xids in the kernel log of a real machine fire `GpuXidDrain` if check X1 fails for this log, and otherwise no alert about the GPU.

    The severity of the Xids 144 to 150 is in their message, which no exporter serves: `NodeCheckFailed` is their alert, from the result of X1."""
    codes = {int(code) for code in re.findall(r"NVRM: Xid \([^)]*\): (\d+)", RECORDED[name].text)}
    series_of = tuple(xid(code, f"_x{minute} {code}x300") for minute, code in enumerate(sorted(codes), start=5))
    drains = real.CASES[name].verdicts["X1"] == "fail" and codes - set(range(144, 151))
    found = fired(tmp_path, (xid(0, "0x4 stale"), *series_of), 20) & OF_GPUS
    assert found == ({"GpuXidDrain"} if drains else set())


@promtool
@pytest.mark.parametrize("name", ["a800-dcgm-exporter-1", "h100-dcgm-exporter-1"])
def test_recorded_metrics_of_healthy_gpus_fire_no_alert(tmp_path: Path, name: str) -> None:
    """What the exporter of a healthy real machine served, for hours, fires no alert about a GPU, except that it is idle."""
    lines = [line for line in RECORDED[name].text.splitlines() if line and not line.startswith("#")]
    assert lines
    inputs = [re.fullmatch(r"(\w+)\{(.*)\} ([0-9.]+)", line) for line in lines]
    served = tuple(series(one[1], f"{one[3]}x300", f"{one[2]},{TARGET}") for one in inputs if one)
    assert len(served) == len(lines)
    assert fired(tmp_path, served, 200) & OF_GPUS <= {"GpuIdle"}


@promtool
def test_half_used_memory_is_not_high(tmp_path: Path) -> None:
    """The share is of the whole memory. A ratio of used to free memory would fire at 49 % (40,000 and 41,000 MiB)."""
    assert "GpuMemoryHigh" not in fired(tmp_path, memory(40_000), 60)


@promtool
def test_rules_apply_to_their_pool(tmp_path: Path) -> None:
    """A fault in another pool fires only the alerts about the missing targets of this pool."""
    inputs = tuple({**one, "series": one["series"].replace('pool="gpu"', 'pool="cpu"')} for one in CASES[2].sick)
    assert fired(tmp_path, inputs, 200) == {"GpuMetricsMissing", "NodeMetricsMissing"}


def test_the_exporter_serves_each_metric_of_the_rules() -> None:
    """Each metric of the DCGM exporter in a rule is a counter that the step 77-dcgm-exporter configures, with a type that its use requires."""
    step = (shipped("bootstrap") / "77-dcgm-exporter.sh").read_text(encoding="utf-8")
    body = step[step.index("counters() {") : step.index("\n}\n", step.index("counters() {"))]
    listed = subprocess.run(["bash", "-c", f"{body}\n}}\ncounters"], capture_output=True, text=True, check=True).stdout
    types = {name: kind for name, kind, _ in (line.split(", ", 2) for line in listed.splitlines())}
    assert len(types) == len(listed.splitlines())
    assert all(line.count(",") == 2 for line in listed.splitlines()), "the exporter accepts exactly two commas"
    for rule in ALERTS:
        used = set(re.findall(r"DCGM_\w+", rule.expression))
        assert used <= set(types), rule.name
        for name in re.findall(r"(?:rate|increase)\((DCGM_\w+)", rule.expression):
            assert types[name] == "counter", rule.name


@pytest.mark.parametrize(
    ("pool", "left_out"),
    [
        (AlertPool(name="gpu", gpus=8), set(Needs) - {Needs.GPUS, Needs.WHOLE_GPUS}),
        (AlertPool(name="gpu", gpus=8, mig=True), set(Needs) - {Needs.GPUS}),
        (AlertPool(name="login", gpus=0, node=True), set(Needs) - {Needs.NODE}),
        (AlertPool(name="monitoring", gpus=0, node=True, control=True), set(Needs) - {Needs.NODE, Needs.CONTROL}),
        (
            AlertPool(name="monitoring", gpus=0, node=True, control=True, repair=True),
            set(Needs) - {Needs.NODE, Needs.CONTROL, Needs.REPAIR},
        ),
        (AlertPool(name="store", gpus=0, store=True), set(Needs) - {Needs.STORE}),
    ],
    ids=["own Prometheus", "MIG", "no GPUs", "control node", "repair", "store"],
)
def test_a_pool_has_only_the_alerts_whose_metrics_it_serves(pool: AlertPool, left_out: set[Needs]) -> None:
    """An alert about missing metrics would fire forever in a pool that does not serve them."""
    (group,) = rule_file("train", [pool])["groups"]  # type: ignore[misc]
    assert {rule["alert"] for rule in group["rules"]} == {one.name for one in ALERTS if one.needs not in left_out}


def test_the_page_lists_each_alert() -> None:
    """The tables of docs/guides/alerts.md have each alert once, with its severity and its duration."""
    page = (shipped("bootstrap").parent / "docs" / "guides" / "alerts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \| `(\w+)` \|$", page, re.MULTILINE)
    words = {
        0: "at once",
        60: "1 minute",
        300: "5 minutes",
        600: "10 minutes",
        900: "15 minutes",
        1800: "30 minutes",
        7200: "2 hours",
    }
    assert sorted(rows) == sorted((one.name, words[one.for_s], one.severity.value) for one in ALERTS)


def test_every_alert_has_a_case() -> None:
    """No rule is untested, and names are unique."""
    assert {case.alert for case in CASES} == {one.name for one in ALERTS}
    assert max(Counter(one.name for one in ALERTS).values()) == 1


def test_the_drain_list_follows_the_table_of_xids() -> None:
    """Each Xid that drains a node is in the rule, and no other."""
    (rule,) = [one for one in ALERTS if one.name == "GpuXidDrain"]
    listed = re.findall(r"\d+", rule.expression.partition("err_code=~")[2])[: len(XIDS)]
    assert {int(one) for one in listed if int(one)} == {
        number for number, xid in XIDS.items() if xid.severity == "drain"
    }


def test_mig_has_no_alerts_of_whole_gpus() -> None:
    """GPU instances have neither a utilization nor a framebuffer of the whole GPU."""
    names = json.dumps(rule_file("train", [AlertPool(name="gpu", gpus=2, mig=True)]))
    assert "GpuIdle" not in names
    assert "GpuMissing" in names


@pytest.mark.parametrize("name", [one.name for one in ALERTS])
def test_an_alert_is_explained(name: str) -> None:
    """`gpuinfra explain` states the cause and what to do."""
    (rule,) = [one for one in ALERTS if one.name == name]
    assert rule.action in explain(name)


def stack(folder: Path, metrics: str) -> str:
    """A stack file."""
    path = folder / "Pulumi.s.yaml"
    path.write_text(
        "config:\n  aws:region: us-east-1\n  gpuinfra:cluster:\n    name: train\n    where: {cloud: aws, region: us-east-1, zone: use1-az6}\n"
        f"    pools: [{{name: gpu, machine: p4d.24xlarge, capacity: {{kind: on_demand, count: 1}}}}]\n{metrics}"
    )
    return str(path)


def test_the_command_prints_the_rules_of_a_stack(tmp_path: Path) -> None:
    """The file contains one group for the pool, with the number of GPUs of its machine."""
    done = CliRunner().invoke(
        command, [stack(tmp_path, "    software: {gpu_metrics: dcgm_exporter}\n")], standalone_mode=False
    )
    document: Any = yaml.safe_load(done.output)
    assert [one["name"] for one in document["groups"]] == ["gpuinfra-train-gpu"], done.exception
    assert any(one["expr"].endswith('DCGM_FI_DEV_GPU_TEMP{pool="gpu"})) < 8') for one in document["groups"][0]["rules"])


def test_a_stack_without_metrics_has_no_rules(tmp_path: Path) -> None:
    """Rules that never fire would look like health, so the command fails."""
    done = CliRunner().invoke(command, [stack(tmp_path, "")], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert "set software.gpu_metrics to dcgm_exporter" in str(done.exception)
