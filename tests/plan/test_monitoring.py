"""The plan of the control node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan, PoolPlan
from gpuinfra.spec import parse_spec
from tests.rules.cases import MONITORING, MONITORINGS, REMOTE, TODAY, declaration, user


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
    assert [step.id for step in pool.steps] == ["10-prepare", "20-kernel", "90-holds", "92-files", "94-monitoring"]
    assert pool.expectation["file_systems"] == []
    assert all(file.path.startswith("/etc/gpuinfra-monitoring/") for file in pool.files)
    (gpu,) = [one for one in plan.pools if one is not pool]
    assert {"60-lustre", "64-users", "77-dcgm-exporter", "92-files", "95-packages"} <= {step.id for step in gpu.steps}


def test_a_cluster_without_nodes_has_no_control_node() -> None:
    """While no pool has nodes, the control node has none, so that an empty cluster is not billed for it."""
    assert control(planned()).count == 1
    assert control(planned(pools__0__capacity__0__count=0)).count == 0


def test_the_disk_follows_from_gpus_and_retention() -> None:
    """The disk holds the metrics of all GPUs for the retention, and Prometheus may use two thirds of this space."""
    small, long = control(planned()), control(planned(pools__0__capacity__0__count=100, monitoring__retention_days=365))
    assert small.disk.size_gib == 20 + 10
    # 800 GPUs x 60 series x 2,880 samples x 2 bytes x 365 days, and half as much again.
    assert long.disk.size_gib == 20 + 141
    (environment,) = [file.content for file in long.files if file.path.endswith("/environment")]
    assert environment == "RETENTION_TIME=365d\nRETENTION_SIZE=94GB\n"


def test_prometheus_searches_only_pools_with_exporters() -> None:
    """A pool without GPUs serves no GPU metrics, so its nodes are no targets and have no rules."""
    login = {"name": "login", "machine": "m7i.xlarge", "capacity": [{"kind": "on_demand", "count": 1}]}
    pool = control(planned(pools__1=login))
    job = content(pool, "prometheus.yml")["scrape_configs"][0]
    assert job["relabel_configs"][0] == {
        "source_labels": ["__meta_ec2_tag_gpuinfra_pool"],
        "regex": "gpu",
        "action": "keep",
    }
    assert {one["name"]: one["values"] for one in job["ec2_sd_configs"][0]["filters"]} == {
        "tag:gpuinfra:cluster": ["train"],
        "instance-state-name": ["running"],
    }
    assert [group["name"] for group in content(pool, "rules.yml")["groups"]] == ["gpuinfra-train-gpu"]


def test_google_searches_each_zone_with_nodes() -> None:
    """One search of `gce_sd_configs` covers one zone, so each zone of a pool with exporters has its own, without the zones of other pools."""
    spec = declaration(("gcp", {"monitoring": MONITORINGS["gcp"]}))
    (gpu,) = spec["pools"]
    login = {**gpu, "name": "login", "machine": "n2-standard-4", "zone": "us-central1-f"}
    spec["pools"] = [gpu, {**gpu, "name": "far", "zone": "us-central1-c"}, login]
    job = content(control(build_plan(parse_spec(spec), TODAY)), "prometheus.yml")["scrape_configs"][0]
    assert [one["zone"] for one in job["gce_sd_configs"]] == ["us-central1-a", "us-central1-c"]
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
