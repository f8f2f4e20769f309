"""The real engine works on the stand-in cloud as on a real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.engine import Engine, find_engine

PROGRAM = """
import json
import pulumi
import pulumi_aws as aws

config = pulumi.Config()
vpc = aws.ec2.Vpc("vpc", cidr_block=config.get("range") or "10.0.0.0/16", tags={"a": config.get("tag") or "b"})
subnet = aws.ec2.Subnet("subnet", vpc_id=vpc.id, cidr_block="10.0.1.0/24", availability_zone_id="use1-az4")
template = aws.ec2.LaunchTemplate(
    "template", instance_type="p4d.24xlarge", image_id=aws.ssm.get_parameter_output(name="/aws/service/x/ami-id").insecure_value)
group = aws.autoscaling.Group(
    "group", min_size=0, max_size=8, desired_capacity=int(config.get("nodes") or 2), vpc_zone_identifiers=[subnet.id],
    launch_template={"id": template.id, "version": template.latest_version.apply(str)}, wait_for_capacity_timeout="0",
    tags=[{"key": "gpuinfra:pool", "value": "gpu", "propagate_at_launch": True}])
kept = aws.s3.Bucket("kept", bucket="kept-000000000000", opts=pulumi.ResourceOptions(
    retain_on_delete=True, import_=config.get("import")))
database = aws.rds.Instance("database", instance_class="db.t3.micro", password=pulumi.Output.secret("hunter2"))
pulumi.export("vpc", vpc.id)
pulumi.export("password", database.password)
"""


class Rehearsal:
    """A stack, its engine and its cloud."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.folder = folder
        self.cloud: subprocess.Popen[str] | None = None
        for name in ("state", "project"):
            (folder / name).mkdir()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "AWS_"))}
        self.environment = engine.environ(clean) | {
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "only a test",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_PYTHON_CMD": sys.executable,
        }
        about = {"name": "trial", "runtime": {"name": "python", "options": {"virtualenv": sys.prefix}}}
        (folder / "project" / "Pulumi.yaml").write_text(json.dumps(about))
        (folder / "project" / "__main__.py").write_text(PROGRAM)

    def start(self, *faults: str) -> None:
        argv = [sys.executable, "-m", "gpuinfra_rehearsal.cloud", "--no-nodes", "--folder", str(self.folder / "cloud")]
        for fault in faults:
            argv += ["--fault", fault]
        self.cloud = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.cloud.stdout is not None
        self.ready = json.loads(self.cloud.stdout.readline())
        self.environment["PULUMI_DEBUG_PROVIDERS"] = ",".join(
            f"{name}:{port}" for name, port in self.ready["providers"].items()
        )

    def stop(self) -> None:
        if self.cloud is not None:
            if self.cloud.poll() is None:
                self.cloud.send_signal(signal.SIGTERM)
            self.cloud.wait(300)
            assert self.cloud.stdout is not None
            self.cloud.stdout.close()
            self.cloud = None

    def pulumi(self, *arguments: str, code: int = 0) -> str:
        """What the engine prints; its exit code is checked."""
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--color=never"], cwd=self.folder / "project", env=self.environment,
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        text = done.stdout + done.stderr
        assert done.returncode == code, text
        return text

    def up(self, **config: str) -> str:
        for key, value in config.items():
            self.pulumi("config", "set", key, value)
        return self.pulumi("up", "--yes", "--skip-preview")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ready['http']}/.control/{path}", data=None if body is None else json.dumps(body).encode(),
            headers={"X-Gpuinfra-Control": self.ready["control_token"]},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=300) as reply:
            return json.load(reply)

    def running(self, count: int) -> list[str]:
        """The labels of the running nodes, once there are so many."""
        labels: list[str] = []
        limit = time.monotonic() + 300
        while time.monotonic() < limit:
            labels = [one["label"] for one in self.ask("nodes")["nodes"] if one["state"] == "running"]
            if len(labels) == count:
                return labels
            time.sleep(0.1)
        raise AssertionError(labels)


@pytest.fixture
def rehearsal(tmp_path: Path) -> Iterator[Rehearsal]:
    """An empty stack and a cloud that is not started."""
    made = Rehearsal(find_engine(lambda line: print(line, file=sys.stderr)), tmp_path)
    made.pulumi("stack", "init", "dev")
    yield made
    made.stop()


def test_operations_of_the_engine_work_as_on_a_real_cloud(rehearsal: Rehearsal) -> None:
    """Preview, up, a second up, change, replacement, drift, secrets, destroy and import have the results of a real cloud."""
    rehearsal.start()
    assert "+ 7 to create" in rehearsal.pulumi("preview")
    assert rehearsal.ask("resources")["resources"] == []
    assert "+ 7 created" in rehearsal.up()
    assert rehearsal.running(2) == ["gpu-1", "gpu-2"]
    assert "7 unchanged" in rehearsal.up()
    assert "password" in rehearsal.pulumi("stack", "output")
    assert "hunter2" not in rehearsal.pulumi("stack", "export")

    assert "~ 1 updated" in rehearsal.up(nodes="3")
    assert rehearsal.running(3) == ["gpu-1", "gpu-2", "gpu-3"]
    shown = rehearsal.pulumi("preview", "--diff", "--config", "range=10.0.0.0/20")
    rehearsal.pulumi("config", "rm", "range")  # the engine keeps what --config said
    assert "+-2 to replace" in shown  # the network, and the subnet that would be in a network not known yet

    rehearsal.ask("drift", {"type": "aws:ec2/vpc:Vpc", "id": "vpc-00000000000000001", "set": {"tags": {"a": "hand"}}})
    assert "~ 1 updated" in rehearsal.pulumi("refresh", "--yes", "--skip-preview")
    assert '"hand" => "b"' in rehearsal.pulumi("preview", "--diff")
    assert "~ 1 updated" in rehearsal.up()

    rehearsal.pulumi("destroy", "--yes", "--skip-preview")
    assert [one["id"] for one in rehearsal.ask("resources")["resources"]] == ["kept-000000000000"]
    assert rehearsal.running(0) == []
    assert "BucketAlreadyOwnedByYou" in rehearsal.pulumi(
        "up", "--yes", "--skip-preview", "--target", f"{urn('aws:s3/bucket:Bucket', 'kept')}", code=1
    )
    assert "= 1 imported" in rehearsal.up(**{"import": "kept-000000000000"})


@pytest.mark.long
def test_resources_survive_a_killed_cloud(rehearsal: Rehearsal) -> None:
    """After a kill and a new start the engine finds its resources; an injected error ends after its count."""
    rehearsal.start("cloud:error:Subnet:1")
    assert "api error ServiceUnavailable" in rehearsal.pulumi("up", "--yes", "--skip-preview", code=1)
    assert rehearsal.cloud is not None
    rehearsal.cloud.kill()
    rehearsal.stop()
    rehearsal.start("cloud:error:Subnet:1")
    assert "Subnet subnet created" in rehearsal.up()
    assert "7 unchanged" in rehearsal.pulumi("refresh", "--yes", "--skip-preview")
    assert len(rehearsal.ask("resources")["resources"]) == 6


def urn(token: str, name: str) -> str:
    """The engine's name for a resource of the trial."""
    return f"urn:pulumi:dev::trial::{token}::{name}"
