"""The dashboard: the real Prometheus, which scraped the exporters of a node, has data for each query."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuinfra.base.shipped import shipped
from gpuinfra.cli.alerts import command
from gpuinfra.monitoring.alerts import ALERTS
from gpuinfra.monitoring.config import FOLDER
from gpuinfra.monitoring.dashboard import DASHBOARD, dashboard
from gpuinfra.node import metrics
from gpuinfra.node.notices import Notice, NoticeKind, dumped
from gpuinfra.plan.make import build_plan
from gpuinfra.spec import parse_spec
from tests.monitoring.test_alerts import stack
from tests.monitoring.test_delivery import free_port, program, running, wait_for
from tests.node.test_metrics import DF, LOST, World, flags
from tests.rules.cases import MONITORING, TODAY, declaration
from tests.servers import Answering, serve

PANELS = [panel for panels in DASHBOARD.values() for panel in panels]
EXPRESSIONS = {**{one.name: one.expression for one in ALERTS}, **{one.title: one.query for one in PANELS}}
GPU = 'gpu="0",UUID="GPU-0",device="nvidia0",modelName="NVIDIA H100",Hostname="ip-10-0-1-11"'


def counters() -> dict[str, str]:
    """Name and type of each counter that the step 77-dcgm-exporter configures."""
    step = (shipped("bootstrap") / "77-dcgm-exporter.sh").read_text(encoding="utf-8")
    body = step[step.index("counters() {") : step.index("\n}\n", step.index("counters() {"))]
    listed = subprocess.run(["bash", "-c", f"{body}\n}}\ncounters"], capture_output=True, text=True, check=True).stdout
    return {name: kind for name, kind, _ in (line.split(", ", 2) for line in listed.splitlines())}


def of_the_node(folder: Path) -> str:
    """The facts of a node that was verified, and now fails a check: all of them exist."""
    world = World(folder)
    mount = folder / "scratch"
    world.expect({**json.loads((folder / "expectation.json").read_text()), "file_systems": [str(mount)], "checkpoints": "*/COMPLETE"})  # fmt: skip
    world.put("scratch/step-1/COMPLETE", "")
    world.put("lfs", f"#!/bin/sh\ncat {folder}/df.txt\n", 0o755)
    world.put("df.txt", DF)
    world.put("infiniband/rdmap79s0/ports/1/hw_counters/rx_drops", "7\n")
    world.put("infiniband/rdmap79s0/ports/1/hw_counters/rx_bytes", "7000\n")
    world.put("notices.json", dumped([Notice(id="a", kind=NoticeKind.RECLAIM, what="x", deadline=time.time() + 120)]))
    world.verified(1)
    world.lines()
    world.verified(2, **LOST)
    for name in ("gpuinfra_lustre", "gpuinfra_checkpoint"):
        world.until(name)
    idle = ("gpuinfra_gpus_idle_since_timestamp_seconds", "All GPUs are idle.", [({}, time.time() - 3600)])
    return world.facts.text() + metrics.rendered([idle])


def configuration(folder: Path, dcgm: str, node: str, own: str) -> str:
    """The configuration of the control node, with one node whose exporters have these addresses, and pauses of one second."""
    spec = parse_spec(declaration(("aws", {"monitoring": MONITORING})))
    (pool,) = [one for one in build_plan(spec, TODAY).pools if one.name == "monitoring"]
    files = {one.path.rpartition("/")[2]: one.content for one in pool.files}
    (folder / "rules.yml").write_text(files["rules.yml"])
    prometheus = json.loads(files["prometheus.yml"].replace(FOLDER, str(folder)).replace("127.0.0.1:9090", own))
    prometheus["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
    labels = {"__meta_ec2_tag_gpuinfra_pool": "gpu", "__meta_ec2_instance_id": "i-1"}
    for job, address in zip(prometheus["scrape_configs"], (dcgm, node), strict=False):
        del job["ec2_sd_configs"]
        job["static_configs"] = [{"targets": [address], "labels": labels}]
    del prometheus["alerting"]
    (folder / "prometheus.yml").write_text(json.dumps(prometheus))
    return str(folder / "prometheus.yml")


def query(url: str, expression: str) -> list[Any]:
    """The series that an instant query returns."""
    with urllib.request.urlopen(
        f"{url}/api/v1/query?" + urllib.parse.urlencode({"query": expression}), timeout=10
    ) as reply:
        return json.load(reply)["data"]["result"]


def test_every_query_has_data(tmp_path: Path) -> None:
    """With the exporters of one node, whose facts all exist, each query of the dashboard returns a series, and Prometheus can evaluate each rule. The
    legend of a panel uses only labels of its series."""
    exporter = shutil.which("prometheus-node-exporter")
    if exporter is None:
        pytest.skip("node exporter is not installed")
    prometheus = program("prometheus")
    served = tmp_path / "served"
    metrics.write(of_the_node(tmp_path), served / "gpuinfra.prom")
    kinds = counters()

    class Dcgm(Answering):
        def do_GET(self) -> None:
            text = "".join(
                f"# TYPE {name} {kind}\n{name}{{{GPU}}} 40\n" for name, kind in kinds.items() if kind != "label"
            )
            self.answer(200, text.encode(), Content_Type="text/plain; version=0.0.4")

    node = f"127.87.{os.getpid() >> 8 & 255}.{os.getpid() & 255}:9100"
    own = f"127.0.0.1:{free_port()}"
    with serve(Dcgm) as dcgm:
        file = configuration(tmp_path, dcgm.partition("://")[2], node, own)
        collects = (
            prometheus,
            f"--config.file={file}",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={own}",
        )
        with running(exporter, *flags(node, served), cwd=tmp_path), running(*collects, cwd=tmp_path):
            for panel in PANELS:
                expression = panel.query.replace("@S", 'pool=~".+"')
                (first, *_) = wait_for(panel.title, lambda asked=expression: query(f"http://{own}", asked), 30)
                assert set(re.findall(r"{{(\w+)}}", panel.legend)) <= set(first["metric"]), panel.title
            with urllib.request.urlopen(f"http://{own}/api/v1/rules", timeout=10) as reply:
                groups = json.load(reply)["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > len(ALERTS) / 2
    assert {(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] == "err"} == set()
    firing = {rule["name"] for rule in rules if rule.get("state") == "firing"}
    assert {"NodeCheckFailed", "NodeNotice"} <= firing


def test_the_dashboard_is_one_that_grafana_loads() -> None:
    """Panels have unique numbers and do not overlap, and each refers to variables that exist."""
    document: Any = dashboard("train")
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [(p["x"] + x, p["y"] + y) for p in places for x in range(p["w"]) for y in range(p["h"])]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    variables = {one["name"] for one in document["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
    assert used == variables
    assert "@S" not in json.dumps(document)


@pytest.mark.parametrize("name", sorted(EXPRESSIONS))
def test_wrong_forms_of_public_rules_do_not_occur(name: str) -> None:
    """Rules and queries do not contain forms that are known to fire wrongly or never: a share of the free memory, the reasons of clock changes as a number,
    functions of time on the last Xid, violations in other units than nanoseconds, fixed temperatures, and labels whose name depends on a version."""
    text = EXPRESSIONS[name]
    assert not re.search(r"FB_USED(\{[^}]*\})? / DCGM_FI_DEV_FB_FREE", text)
    assert not re.search(r"CLOCKS?_(THROTTLE|EVENT)_REASONS", text)
    assert not re.search(r"(changes|increase|delta|rate)\(DCGM_FI_DEV_XID_ERRORS", text)
    assert not re.search(r"unless(?! on)", text)
    assert all("1e9" in text for _ in re.findall(r"_VIOLATION", text))
    assert not re.search(r"GPU_TEMP(\{[^}]*\})?\)* >", text)
    assert not re.search(r"[Hh]ostname|modelName|gpu_uuid", text)


def test_the_command_prints_the_dashboard(tmp_path: Path) -> None:
    """`--dashboard` prints the JSON that Grafana imports, with the name of the cluster."""
    monitoring = "    monitoring: {receivers: [{kind: slack, secret: /alerts/slack}]}\n"
    done = CliRunner().invoke(command, [stack(tmp_path, monitoring), "--dashboard"], standalone_mode=False)
    assert json.loads(done.output)["title"] == "gpuinfra: train", done.exception
