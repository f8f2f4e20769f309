"""The control node on a stand-in machine: Prometheus, Alertmanager and the secrets of its receivers."""

from __future__ import annotations

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.nodes import NodeHost
from gpuinfra_rehearsal.nodes.state import AttachedDisk
from rehearsal.tests.nodes.machines import NAME, TODAY, Machine, Metadata, host, metadata
from rehearsal.tests.nodes.test_containers import judged
from tests.rules.cases import MONITORING, declaration

__all__ = ["host", "metadata"]

SECRET = "/run/gpuinfra-alertmanager/slack-0"
URL = "https://hooks.slack.example.com/services/T0/B0/x"


def control() -> PoolPlan:
    """The pool of the control node of a cluster with one receiver."""
    plan = build_plan(parse_spec(declaration(("aws", {"monitoring": MONITORING}))), TODAY)
    return next(pool for pool in plan.pools if plan.monitoring and pool.name == plan.monitoring.pool)


@pytest.mark.long
def test_the_control_node_waits_for_its_secrets_and_runs_both_programs(host: NodeHost, metadata: Metadata) -> None:
    """Without the declared parameter, the step fails and names it. With the parameter, both programs run, only their user can read the secret, which is
    in no file of the configuration, and a second run of the steps changes nothing. A changed unit, as after an upgrade, starts Prometheus again."""
    node = Machine(host, control())
    node.launch("aws", file_systems=(), data_disk="vol-0a")
    link = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0a"
    host.attach_disk(NAME, AttachedDisk(key="vol-0a", device="/dev/nvme9n1", link=link))
    # As `boot/fetch.py` does after the download of the bundle.
    node.run(
        "bash", "-c", "cp /opt/gpuinfra/current/units/gpuinfra-*.service /etc/systemd/system/; systemctl daemon-reload"
    )
    code, said, _ = node.through()
    assert code == 1, said
    assert "parameter /alerts/slack could not be read: 400 ParameterNotFound" in said, said

    metadata.secrets["/alerts/slack"] = URL
    code, said, _ = node.through()
    assert code == 0, said
    recorded = node.state["recorded"]
    assert (recorded["prometheus"], recorded["alertmanager"]) == ("3.13.2", "0.33.1")
    assert node.run("cat", SECRET)[1] == URL
    assert node.run("stat", "-c", "%a", SECRET)[1].strip() == "400"
    assert node.run("grep", "-r", URL, "/etc/gpuinfra-monitoring", "/opt/gpuinfra", "/var/lib")[0] == 1
    assert "discovery manager found 0 targets" in node.run("journalctl", "-u", "gpuinfra-prometheus", "-b")[1]
    found = judged(node, "M2")["M2"]
    assert (found["outcome"], found.get("reason")) == ("pass", None)
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none made changes" in said, said
    assert node.run("findmnt", "-n", "-o", "SOURCE,FSTYPE", "/var/lib/gpuinfra-monitoring")[1].split() == [
        "/dev/nvme9n1",
        "ext4",
    ]
    node.run("bash", "-c", "echo '# new' >>/etc/systemd/system/gpuinfra-prometheus.service")
    code, said = node.steps("--again")
    assert (code, "94-monitoring done" in said, "1 changes; Prometheus" in said) == (0, True, True), said
    code, said = node.steps("--again")
    assert "none made changes" in said, said

    node.run("systemctl", "stop", "gpuinfra-alertmanager")
    found = judged(node, "M2")["M2"]
    assert (found["outcome"], found["reason"]) == ("warn", "gpuinfra-alertmanager is inactive")
