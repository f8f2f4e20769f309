"""CloudWatch Agent on a stand-in machine: its installation, its configuration, and what it selects."""

from __future__ import annotations

import json

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import NAME, TODAY, Machine, Metadata, host, metadata
from tests.plan.pools import with_steps
from tests.rules.cases import declaration

__all__ = ["host", "metadata"]

CONFIG = "/opt/aws/amazon-cloudwatch-agent/etc/amazon-cloudwatch-agent.d/file_cloudwatch-agent.json"


def pool() -> PoolPlan:
    """A pool of a stack with logs, with the step of the agent and the step that it depends on."""
    plan = build_plan(parse_spec(declaration(("aws", {"logs": {"files": ["/var/log/app/*.log"]}}))), TODAY)
    return with_steps(plan.pools[0], "10-prepare", "15-cloudwatch-agent")


@pytest.mark.long
def test_the_agent_is_installed_and_selects_kernel_units_and_files(host: NodeHost, metadata: Metadata) -> None:
    """The package is verified, the agent accepts the configuration and runs at each boot, and a second run of the steps changes nothing. Without a log group
    in node.json, the step names the fix."""
    node = Machine(host, pool())
    node.launch("aws")
    node.run("bash", "-c", "cp /opt/gpuinfra/current/units/gpuinfra-* /etc/systemd/system/; systemctl daemon-reload")
    code, said, _ = node.through()
    assert code == 1, said
    assert "node.json has no log group; run `pulumi up` with this version of gpuinfra" in said
    path = host._nodes[NAME].root / "etc/gpuinfra/node.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "log_group": "/gpuinfra/train-nodes-0"}))
    code, said, _ = node.through()
    assert code == 0, said
    assert node.state["recorded"]["cloudwatch_agent"] == "1.300072.0b1766-1"
    config = json.loads(node.run("cat", CONFIG)[1])["logs"]["logs_collected"]
    assert [one["file_path"] for one in config["files"]["collect_list"]] == [
        "/var/log/gpuinfra/*",
        "/var/log/app/*.log",
    ]
    (journal,) = config["journald"]["collect_list"]
    assert (journal["log_group_name"], journal["log_stream_name"]) == (
        "/gpuinfra/train-nodes-0",
        "{instance_id}/journal",
    )
    assert {"_TRANSPORT": "kernel"} in journal["matches"]
    assert {"_SYSTEMD_UNIT": "gpuinfra-notices.service"} in journal["matches"]
    assert node.run("systemctl", "is-active", "amazon-cloudwatch-agent")[1].strip() == "active"
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none made changes" in said, said
