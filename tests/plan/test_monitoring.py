"""The plan of the control node."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.cost.price import price
from gpuinfra.monitoring.alerts import ALERTS
from gpuinfra.monitoring.config import BODY_LIMIT, SAMPLE_LIMIT, sns_config
from gpuinfra.node.data_disk import RESERVE
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan, PoolPlan
from gpuinfra.plan.monitoring import _series
from gpuinfra.plan.profile import planned_cloud, profile_of
from gpuinfra.spec import parse_spec
from tests.rules.cases import MONITORING, MONITORINGS, REMOTE, TODAY, declaration, user
from tests.typed import present


def planned(**changes: Any) -> Plan:
    """The plan of the usual cluster on AWS with a control node; `__` in a name stands for a dot."""
    fields = {name.replace("__", "."): value for name, value in changes.items()}
    return build_plan(parse_spec(declaration(("aws", {"monitoring": MONITORING, **fields}))), TODAY)


def control(plan: Plan) -> PoolPlan:
    """The pool of the control node."""
    return next(pool for pool in plan.pools if plan.monitoring and pool.name == plan.monitoring.pool)


def content(pool: PoolPlan, name: str) -> Any:
    """The content of a file of the control node."""
    (file,) = [one for one in pool.files if one.path == f"/etc/gpuinfra-monitoring/{name}"]
    return json.loads(file.content)


def test_the_control_node_has_nothing_of_the_declared_pools() -> None:
    """Users, packages, steps, variables and file systems of the declaration are only on the declared pools."""
    plan = planned(
        access__users=[user("alice", 2001)],
        software__packages=["htop"],
        software__environment={"HF_HOME": "/scratch/hf"},
        storage=[{"kind": "lustre", "mount": "/scratch", "capacity_gib": 1200}],
    )
    pool = control(plan)
    assert [step.id for step in pool.steps] == [
        "10-prepare", "20-kernel", "78-node-exporter", "90-holds", "92-files", "94-monitoring",
    ]  # fmt: skip
    assert pool.expectation["file_systems"] == []
    assert all(file.path.startswith("/etc/gpuinfra-monitoring/") for file in pool.files)
    (gpu,) = [one for one in plan.pools if one is not pool]
    assert {"60-lustre", "64-users", "77-dcgm-exporter", "78-node-exporter", "92-files", "95-packages"} <= {
        step.id for step in gpu.steps
    }


def test_a_cluster_without_nodes_has_no_control_node() -> None:
    """While no pool has nodes, the control node has none, so that an empty cluster is not billed for it."""
    assert control(planned()).count == 1
    assert control(planned(pools__0__capacity__0__count=0)).count == 0


def test_the_data_disk_follows_from_gpus_and_retention() -> None:
    """The data disk holds the metrics of all GPUs and nodes for the retention, of which Prometheus uses the rest. The root disk has only the system."""
    small, long = planned(), planned(pools__0__capacity__0__count=100, monitoring__retention_days=365)
    assert small.monitoring
    assert long.monitoring
    assert small.monitoring.disk.size_gib == 10
    # 100 nodes x (8 GPUs x 60 series + 400 + 96 vCPUs + 4 EFA devices x 20) x 2,880 samples x 2 bytes x 365 days, and half as much again, are 311 GiB.
    assert math.ceil(207.3 * RESERVE) == 311
    assert long.monitoring.disk.size_gib == 320
    more = planned(pools__0__capacity__0__count=102, monitoring__retention_days=365)
    assert present(more.monitoring).disk == long.monitoring.disk
    assert control(long).disk.size_gib == control(small).disk.size_gib == 30
    (environment,) = [file.content for file in control(long).files if file.path.endswith("/environment")]
    assert environment == "RETENTION_TIME=365d\n"


def test_the_answer_of_a_node_is_limited() -> None:
    """Each job refuses an answer with more than three times the series of the largest node that a stack can have, and not that of a healthy one."""
    (text,) = [file.content for file in control(planned()).files if file.path.endswith("/prometheus.yml")]
    jobs = [job for job in json.loads(text)["scrape_configs"] if "static_configs" not in job]
    limits = {(job["sample_limit"], job["body_size_limit"]) for job in jobs}
    largest = max(_series(machine) for cloud in CLOUDS for machine in profile_of(cloud).machines.values())
    assert limits == {(SAMPLE_LIMIT, BODY_LIMIT)}
    assert 3 * largest <= SAMPLE_LIMIT


def test_the_control_node_ends_before_the_next_one_starts() -> None:
    """The data disk is in the zone of the control node. Only one node can attach it, so its group never runs two."""
    plan = planned(pools__0__capacity__0__count=0)
    (group,) = control(plan).groups
    assert plan.monitoring
    assert (plan.monitoring.disk.zone, group.terminate_first, group.count) == (group.zone, True, 0)


def test_the_data_disk_has_a_price() -> None:
    """The price has a line for the data disk, with the rate of its type, also while no pool has nodes."""
    for plan in (planned(), planned(pools__0__capacity__0__count=0)):
        (line,) = [one for one in price(plan, TODAY).lines if one.what == "monitoring: data disk of 10 GiB"]
        assert (line.quantity, line.unit, line.usd_per_unit_hour) == (10, "GiB-month", pytest.approx(0.08 / 730))


def test_the_default_machine_type_follows_from_the_number_of_series() -> None:
    """The small default holds the metrics of 1,000 nodes. For more series, it is the cheapest machine type whose memory is sufficient."""
    assert [control(planned(pools__0__capacity__0__count=nodes)).machine for nodes in (1, 1000, 4000)] == [
        "m7i.xlarge", "m7i.xlarge", "m7i.2xlarge",
    ]  # fmt: skip


def test_prometheus_searches_only_pools_with_exporters() -> None:
    """A pool without GPUs serves no GPU metrics, so its nodes are targets and have alerts only of node exporter, as the control node."""
    login = {"name": "login", "machine": "m7i.xlarge", "capacity": [{"kind": "on_demand", "count": 1}]}
    pool = control(planned(pools__1=login))
    job, node, *_ = content(pool, "prometheus.yml")["scrape_configs"]
    found = {"source_labels": ["__meta_ec2_tag_gpuinfra_pool"], "action": "keep"}
    assert job["relabel_configs"][0] == {**found, "regex": "gpu"}
    assert node["relabel_configs"][0] == {**found, "regex": "gpu|login|monitoring"}
    assert (job["ec2_sd_configs"][0]["port"], node["ec2_sd_configs"][0]["port"]) == (9400, 9100)
    assert {one["name"]: one["values"] for one in job["ec2_sd_configs"][0]["filters"]} == {
        "tag:gpuinfra:cluster": ["train"],
        "instance-state-name": ["running"],
    }
    groups = {group["name"].removeprefix("gpuinfra-train-"): group for group in content(pool, "rules.yml")["groups"]}
    assert list(groups) == ["gpu", "login", "monitoring", "values"]
    assert "GpuMissing" not in json.dumps(groups["login"])
    assert "DiscoveryFails" in json.dumps(groups["monitoring"])


def test_google_searches_each_zone_with_nodes() -> None:
    """One search of `gce_sd_configs` covers one zone, so each zone of a pool with exporters has its own, without the zones of other pools."""
    spec = declaration(("gcp", {"monitoring": MONITORINGS["gcp"]}))
    (gpu,) = spec["pools"]
    login = {**gpu, "name": "login", "machine": "n2-standard-4", "zone": "us-central1-f"}
    spec["pools"] = [gpu, {**gpu, "name": "far", "zone": "us-central1-c"}, login]
    pool = control(build_plan(parse_spec(spec), TODAY))
    job, node, *_ = content(pool, "prometheus.yml")["scrape_configs"]
    assert [one["zone"] for one in job["gce_sd_configs"]] == ["us-central1-a", "us-central1-c"]
    zones = {"us-central1-a", "us-central1-c", "us-central1-f", pool.groups[0].zone}
    assert [one["zone"] for one in node["gce_sd_configs"]] == sorted(zones)
    assert {one["filter"] for one in job["gce_sd_configs"]} == {
        '(labels.gpuinfra-cluster = "train") (status = "RUNNING")'
    }
    assert set(job["relabel_configs"][0]["regex"].split("|")) == {"gpu", "far"}


@pytest.mark.parametrize(
    ("username", "sent"),
    [
        (None, {"authorization": {"credentials_file": "/run/gpuinfra-prometheus/remote-write"}}),
        ("gpu", {"basic_auth": {"username": "gpu", "password_file": "/run/gpuinfra-prometheus/remote-write"}}),
    ],
    ids=["bearer token", "basic authentication"],
)
def test_metrics_are_sent_to_an_existing_prometheus(username: str | None, sent: dict[str, Any]) -> None:
    """The control node reads the secret of the endpoint, and its configuration contains only a path."""
    plan = planned(monitoring__remote_write={**REMOTE, **({"username": username} if username else {})})
    pool = control(plan)
    assert content(pool, "prometheus.yml")["remote_write"] == [{"url": REMOTE["url"], **sent}]
    assert content(pool, "prometheus-secrets.json") == {"remote-write": "/metrics/token"}
    assert plan.monitoring
    assert (plan.monitoring.secrets, plan.monitoring.remote_write) == (
        ("/alerts/slack", "/metrics/token"),
        REMOTE["url"],
    )
    assert "remote_write" not in content(control(planned()), "prometheus.yml")


def test_a_receiver_gets_its_severity_and_higher() -> None:
    """`at_least` selects severities, and no file contains more of a secret than its name."""
    receivers = [{"kind": "webhook", "secret": f"/alerts/{least}", "at_least": least} for least in ("info", "warn", "page")]  # fmt: skip
    pool = control(planned(monitoring__receivers=receivers))
    routes = content(pool, "alertmanager.yml")["route"]["routes"]
    assert [one["matchers"] for one in routes] == [
        ['severity=~"info|warn|page"'],
        ['severity=~"warn|page"'],
        ['severity=~"page"'],
    ]
    assert all(one["continue"] for one in routes)
    assert content(pool, "secrets.json") == {
        "webhook-0": "/alerts/info",
        "webhook-1": "/alerts/warn",
        "webhook-2": "/alerts/page",
    }


def test_alerts_by_email_have_a_topic_and_no_secret() -> None:
    """Alertmanager publishes to a topic, whose address only the control node learns, and signs with the role of its machine. The recipients are declared,
    or those of the budget."""
    receivers = [{"kind": "email", "to": ["gpu@example.com"]}, {"kind": "slack", "secret": "/alerts/slack"}, {"kind": "email", "at_least": "page"}]  # fmt: skip
    plan = planned(monitoring__receivers=receivers, budget__recipients=["ops@example.com"])
    assert plan.monitoring
    assert [(one.receiver, one.recipients) for one in plan.monitoring.emails] == [
        ("email-0", ("gpu@example.com",)),
        ("email-2", ("ops@example.com",)),
    ]
    assert plan.monitoring.secrets == ("/alerts/slack",)
    pool = control(plan)
    assert content(pool, "secrets.json") == {"slack-1": "/alerts/slack"}
    _, first, _, last = content(pool, "alertmanager.yml")["receivers"]
    assert (first["name"], last["name"]) == ("email-0", "email-2")
    (sns,) = first["sns_configs"]
    assert (sns["topic_arn"], sns["sigv4"], sns["send_resolved"]) == ("${email_0}", {"region": "us-east-1"}, True)


def test_a_subject_fits_into_an_email_of_sns() -> None:
    """SNS accepts at most 100 characters (API_Publish.html, retrieved 2026-11-30), also for the longest names."""
    subject = sns_config("a" * 40, "us-east-1", "arn")["subject"]
    longest = max((one.name for one in ALERTS), key=len)
    shown = str(subject).replace("{{ .CommonLabels.alertname }}", longest).replace("{{ .Status }}", "resolved")
    assert "{{" not in shown
    assert len(shown) <= 100


def test_the_rules_contain_the_price_of_each_pool() -> None:
    """A node does not know its price, so Prometheus gets the highest price of the pool's capacity: without a price of its own, that of on-demand."""
    kinds = [{"kind": "on_demand", "count": 1}, {"kind": "spot", "count": 1}]
    plan = planned(pools__0__capacity=kinds)
    prices = {one["labels"]["pool"]: one["expr"] for one in content(control(plan), "rules.yml")["groups"][-1]["rules"]}
    machine = profile_of("aws").machines[plan.pools[0].machine]
    usual = machine.price(CapacityKind.ON_DEMAND, plan.region)
    assert usual
    assert prices == {"gpu": f"vector({usual.usd_per_hour:g})"}


def test_nodes_report_checkpoints_only_where_they_can() -> None:
    """The expectation has the pattern of the checkpoints if the stack has recovery targets with a pattern, and the nodes mount a Lustre file system."""
    recovery = {"region": "us-west-2", "rpo_minutes": 600, "rto_minutes": 600, "checkpoint_gib": 10, "checkpoint_minutes": 60, "site_minutes": 60}  # fmt: skip
    lustre = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 1200}
    pattern = "runs/*/COMPLETE"
    with_pattern = planned(recovery={**recovery, "checkpoints": pattern}, storage=[lustre])
    assert [pool.expectation.get("checkpoints") for pool in with_pattern.pools] == [pattern, None]
    assert "checkpoints" not in planned(recovery=recovery, storage=[lustre]).pools[0].expectation
    assert "checkpoints" not in planned(recovery={**recovery, "checkpoints": pattern}).pools[0].expectation


def test_the_managed_store_is_written_with_the_role_of_the_machine() -> None:
    """Prometheus signs for the region, and the address is not part of the plan, because the cloud assigns it. An endpoint of your own is written too."""
    plan = planned(monitoring__store="managed", monitoring__remote_write=REMOTE)
    own, managed = content(control(plan), "prometheus.yml")["remote_write"]
    assert own["url"] == REMOTE["url"]
    assert managed == {"url": "${metrics_url}", "sigv4": {"region": "us-east-1"}}


def test_the_managed_store_reports_only_a_control_node_that_exists() -> None:
    """A rule about the absence of the control node would always fire while no pool has nodes."""
    for count, watched in ((1, True), (0, False)):
        plan = planned(monitoring__store="managed", pools__0__capacity__0__count=count)
        assert plan.monitoring
        assert plan.monitoring.store
        assert plan.monitoring.store.watches is watched
        kinds = {one.type for one in planned_cloud("aws").resources(plan)}
        assert ("aws:amp/ruleGroupNamespace:RuleGroupNamespace" in kinds) is watched


def test_the_samples_of_the_managed_store_have_a_price() -> None:
    """Two p4d.24xlarge with 8 x 60 + 400 + 96 + 4 x 20 series each write 185 million samples a month, at 0.90 USD for 10 million."""
    plan = planned(monitoring__store="managed", pools__0__capacity__0__count=2)
    (line,) = [one for one in price(plan, TODAY).lines if one.what.startswith("metrics in the managed store")]
    assert line.quantity * 10 == pytest.approx(185.0, abs=0.1)
    assert line.usd_per_unit_hour == pytest.approx(0.9 / 730)
