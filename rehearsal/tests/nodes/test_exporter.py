"""The DCGM exporter on stand-in nodes of three clouds."""

from __future__ import annotations

import pytest

from gpuinfra.plan.model import PoolPlan
from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import Machine, host, metadata, pool_of
from rehearsal.tests.nodes.test_containers import judged
from tests.plan.pools import with_steps

__all__ = ["host", "metadata"]

STEPS = ("10-prepare", "20-kernel", "30-driver", "75-dcgm", "77-dcgm-exporter")
DROP_IN = "/etc/systemd/system/nvidia-dcgm-exporter.service.d/gpuinfra.conf"


def pool(cloud: str, machine: str) -> PoolPlan:
    """A plain pool with the exporter, and only the steps that it depends on."""
    made = pool_of(cloud, machine, "ubuntu-22.04", "plain", software={"gpu_metrics": "dcgm_exporter"})
    return with_steps(made, *STEPS)


@pytest.mark.long
@pytest.mark.parametrize(
    ("cloud", "machine"),
    [("aws", "g6.12xlarge"), ("azure", "Standard_NC24ads_A100_v4"), ("gcp", "a2-highgpu-1g")],
)
def test_exporter_serves_each_gpu_at_the_private_address_only(host: NodeHost, cloud: str, machine: str) -> None:
    """Metrics exist at the private address and not on loopback, M1 passes and detects a stopped exporter, and the steps start it again."""
    node = Machine(host, pool(cloud, machine))
    node.launch(cloud)
    code, said, _ = node.through()
    assert code == 0, said
    assert node.state["recorded"]["dcgm_exporter"] == "4.8.2-1"
    assert "DCGM_EXPORTER_LISTEN=10.0.1.11:9400" in node.run("cat", DROP_IN)[1]
    log = node.run("cat", "/var/log/gpuinfra/bootstrap.log")[1]
    # The package starts the exporter, which would listen on all addresses without the drop-in.
    assert log.index(f"wrote {DROP_IN}") < log.index("datacenter-gpu-manager-exporter")
    assert node.run("curl", "-s", "http://127.0.0.1:9400/metrics")[0] == 7
    assert (judged(node, "M1")["M1"]["outcome"], judged(node, "M1")["M1"].get("reason")) == ("pass", None)
    code, said = node.steps("--again")
    assert "none made changes" in said, said

    node.run("systemctl", "stop", "nvidia-dcgm-exporter")
    found = judged(node, "M1", environment={"GPUINFRA_METRICS_RETRY_S": "0"})["M1"]
    assert (found["outcome"], found["reason"]) == ("warn", "no exporter responds on port 9400")
    code, said = node.steps("--again")
    assert code == 0, said
    assert judged(node, "M1")["M1"]["outcome"] == "pass"


@pytest.mark.long
def test_an_exporter_that_listens_everywhere_fails_the_step(host: NodeHost) -> None:
    """A later drop-in that opens the port on all addresses is reported with the cause."""
    node = Machine(host, pool("aws", "g6.xlarge"))
    node.launch("aws")
    code, said, _ = node.through()
    assert code == 0, said
    text = "[Service]\\nEnvironment=DCGM_EXPORTER_LISTEN=:9400\\n"
    node.run(
        "bash",
        "-c",
        f"printf '{text}' >{DROP_IN.replace('gpuinfra.conf', 'z.conf')}; systemctl daemon-reload; systemctl restart nvidia-dcgm-exporter",
    )
    code, said = node.steps("--again")
    assert code == 1, said
    assert "also answers on the loopback address" in said
