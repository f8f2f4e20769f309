"""The real node exporter on stand-in nodes of three clouds, with the facts of the node program."""

from __future__ import annotations

import json
import shutil

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.conftest import wait_for
from rehearsal.tests.nodes.machines import TODAY, Machine, host, metadata
from tests.plan.pools import with_steps
from tests.rules.cases import MONITORINGS, declaration

__all__ = ["host", "metadata"]

DROP_IN = "/etc/systemd/system/prometheus-node-exporter.service.d/gpuinfra.conf"
FOLDER = "/var/lib/gpuinfra-metrics"
UNITS = "cp /opt/gpuinfra/current/units/gpuinfra-*.service /etc/systemd/system/; systemctl daemon-reload"


def pool(cloud: str) -> PoolPlan:
    """A pool of a stack with a control node, with only the steps that node exporter depends on."""
    plan = build_plan(parse_spec(declaration((cloud, {"monitoring": MONITORINGS[cloud]}))), TODAY)
    return with_steps(next(one for one in plan.pools if one.name != "monitoring"), "10-prepare", "78-node-exporter")


def served(node: Machine) -> str:
    """What the exporter serves at the private address."""
    return node.run("curl", "-s", "http://10.0.1.11:9100/metrics")[1]


@pytest.mark.long
@pytest.mark.parametrize("cloud", sorted(MONITORINGS))
def test_the_real_node_exporter_serves_the_facts_of_the_node(host: NodeHost, cloud: str) -> None:
    """Metrics exist at the private address and not on loopback, a user cannot write the facts, a notice appears in them, and a second run changes
    nothing."""
    if shutil.which("prometheus-node-exporter") is None:
        pytest.skip("node exporter is not installed")
    node = Machine(host, pool(cloud))
    node.launch(cloud)
    node.run("bash", "-c", UNITS)
    code, said, _ = node.through()
    assert code == 0, said
    assert node.state["recorded"]["node_exporter"] == "1.3.1-1"
    assert "--web.listen-address=10.0.1.11:9100 " in node.run("cat", DROP_IN)[1]
    log = node.run("cat", "/var/log/gpuinfra/bootstrap.log")[1]
    # The package starts the exporter, which would listen on all addresses without the drop-in.
    assert log.index(f"wrote {DROP_IN}") < log.index("changed: installed prometheus-node-exporter"), log
    assert node.run("curl", "-s", "http://127.0.0.1:9100/metrics")[0] == 7
    found = served(node)
    assert 'node_scrape_collector_success{collector="textfile"} 1' in found
    assert "node_memory_MemAvailable_bytes" in found
    assert node.run("stat", "-c", "%a %U", FOLDER)[1].strip() == "755 root"

    notice = {"id": "a", "kind": "reclaim", "what": "x", "deadline": "2030-01-01T00:00:00Z", "estimated": False}
    text = json.dumps({"schema": "gpuinfra.notices/1", "notices": [{**notice, "stage": "announced"}]})
    node.run(
        "bash",
        "-c",
        f"mkdir -p /run/gpuinfra; echo '{text}' >/run/gpuinfra/notices.json; systemctl restart gpuinfra-metrics",
    )
    line = 'gpuinfra_notice_deadline_timestamp_seconds{kind="reclaim"} 1.893456e+09'
    wait_for(lambda: line in served(node), "the notice is served")
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none made changes" in said, said
