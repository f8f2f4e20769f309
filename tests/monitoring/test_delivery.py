"""A fault of a GPU reaches a webhook, and metrics reach an existing Prometheus: the configuration of the control node, in the real Prometheus and
Alertmanager, with an independent model of EC2."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.monitoring.config import FOLDER, PROMETHEUS_SECRETS
from gpuinfra.monitoring.config import SECRETS as SECRETS_FOLDER
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import FilePlan
from gpuinfra.spec import parse_spec
from tests.rules.cases import REMOTE, SECRETS, TODAY, declaration
from tests.servers import Answering, free_port, serve

PROGRAMS = {
    "prometheus": ("prometheus",),
    "alertmanager": ("alertmanager", "prometheus-alertmanager"),
}
"""Program -> names in PATH. Debian's package calls Alertmanager `prometheus-alertmanager`."""
POOL = {"name": "gpu", "machine": "g6.xlarge", "capacity": [{"kind": "on_demand", "count": 2}]}
ACCOUNT = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_EC2_METADATA_DISABLED": "true"}
HEALTHY = 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0"} 40\nDCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0",UUID="GPU-0"} 0\n'
FAULTY = HEALTHY.replace("} 0\n", "} 1\n")


def control_files(cloud: str = "aws") -> dict[str, FilePlan]:
    """The files of a control node by name."""
    secret = SECRETS[cloud]
    receivers = [{"kind": "webhook", "secret": secret}, {"kind": "slack", "secret": secret, "at_least": "page"}]
    pool = {"pools.0": POOL} if cloud == "aws" else {}
    remote = {**REMOTE, "secret": secret}
    changes = {**pool, "monitoring.receivers": receivers, "monitoring.remote_write": remote}
    spec = parse_spec(declaration((cloud, changes)))
    (pool,) = [one for one in build_plan(spec, TODAY).pools if one.name == "monitoring"]
    return {one.path.rpartition("/")[2]: one for one in pool.files}


def program(name: str) -> str:
    """The path of a program; the test is skipped without it."""
    path = next((found for one in PROGRAMS[name] if (found := shutil.which(one))), None)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


@contextmanager
def running(*command: str, cwd: Path) -> Iterator[None]:
    """A process that ends with the context. Its output is in the folder, and is shown if the test fails."""
    log = cwd / f"{Path(command[0]).name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=output, env={**os.environ, **ACCOUNT})
        try:
            yield
        except BaseException:
            print(log.read_text()[-3000:])
            raise
        finally:
            process.terminate()
            process.wait(30)


def wait_for(what: str, found: Callable[[], Any], seconds: float = 60) -> Any:
    """Return the first true result of a function."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if result := found():
                return result
        except OSError:
            pass
        time.sleep(0.1)
    pytest.fail(f"{what} did not happen in {seconds:g} s")


class Fleet:
    """The exporters of all nodes, and the webhook."""

    def __init__(self) -> None:
        self.metrics = HEALTHY
        self.notifications: list[dict[str, Any]] = []
        self.written: list[tuple[str | None, str | None]] = []
        """Authorization and encoding of each request with metrics."""
        self.arrived = threading.Event()

    def handler(self) -> type[Answering]:
        fleet = self

        class Handler(Answering):
            def do_GET(self) -> None:
                self.answer(200, fleet.metrics.encode(), Content_Type="text/plain; version=0.0.4")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/api/v1/write":
                    fleet.written.append((self.headers["Authorization"], self.headers["Content-Encoding"]))
                else:
                    fleet.notifications.append(json.loads(body))
                self.answer(200)

        return Handler


@contextmanager
def instances() -> Iterator[tuple[str, list[str]]]:
    """The URL of a model of EC2 (moto), and the IDs of the nodes that Prometheus must find: running nodes of this cluster in pools with GPUs."""
    import boto3
    import requests
    from moto import mock_aws

    class Ec2(Answering):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = requests.post("https://ec2.us-east-1.amazonaws.com/", data=body, headers=dict(self.headers), timeout=30)  # fmt: skip
            self.answer(answer.status_code, answer.content, Content_Type="text/xml")

    with mock_aws(), serve(Ec2) as there:
        ec2 = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing")
        image = ec2.describe_images()["Images"][0]["ImageId"]

        def launch(cluster: str, pool: str) -> str:
            tags = [{"Key": "gpuinfra:cluster", "Value": cluster}, {"Key": "gpuinfra:pool", "Value": pool}]
            made = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}])  # fmt: skip
            return str(made["Instances"][0]["InstanceId"])

        wanted = [launch("train", "gpu"), launch("train", "gpu")]
        for cluster, pool in (("other", "gpu"), ("train", "monitoring")):
            launch(cluster, pool)
        ec2.terminate_instances(InstanceIds=[launch("train", "gpu")])
        yield there, wanted


def write_configuration(folder: Path, cloud: str, fleet: str, ports: dict[str, int]) -> None:
    """Write the files of the control node with the addresses of this test, and with pauses of one second.

    Debian's Alertmanager 0.25 reads the URL of a webhook only from its configuration (`url_file` exists since 0.26).
    """
    files = control_files()
    prometheus = json.loads(files["prometheus.yml"].content)
    prometheus["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in prometheus["scrape_configs"][:2]:
        job["ec2_sd_configs"][0] |= {"endpoint": cloud, "refresh_interval": "1s"}
        job["relabel_configs"].append({"target_label": "__address__", "replacement": fleet.partition("://")[2]})
    prometheus["remote_write"][0]["url"] = f"{fleet}/api/v1/write"
    (folder / "remote-write").write_text("the-token")
    text = (
        json.dumps(prometheus)
        .replace(FOLDER, str(folder))
        .replace(PROMETHEUS_SECRETS, str(folder))
        .replace("127.0.0.1:9090", f"127.0.0.1:{ports['prometheus']}")
    )
    (folder / "prometheus.yml").write_text(text.replace("127.0.0.1:9093", f"127.0.0.1:{ports['alertmanager']}"))
    (folder / "rules.yml").write_text(files["rules.yml"].content)
    alerts = files["alertmanager.yml"].content.replace('"group_wait": "10s"', '"group_wait": "1s"')
    alerts = alerts.replace(f'"url_file": "{SECRETS_FOLDER}/webhook-0"', f'"url": "{fleet}/hook"')
    (folder / "alertmanager.yml").write_text(alerts.replace(SECRETS_FOLDER, str(folder)))
    (folder / "slack-1").write_text(f"{fleet}/slack")


@pytest.mark.long
def test_a_fault_reaches_the_receivers(tmp_path: Path) -> None:
    """Prometheus finds the running nodes of the cluster with GPUs. A fault of a GPU reaches the webhook and Slack within 30 s, with the node and its
    pool. Its end is reported too. The metrics are sent to the remote endpoint with its token."""
    fleet = Fleet()
    ports = {"prometheus": free_port(), "alertmanager": free_port()}
    listen = {name: f"--web.listen-address=127.0.0.1:{port}" for name, port in ports.items()}
    prometheus, alertmanager = program("prometheus"), program("alertmanager")
    with (
        serve(fleet.handler()) as there,
        instances() as (cloud, wanted),
    ):
        write_configuration(tmp_path, cloud, there, ports)
        sends = (alertmanager, "--config.file=alertmanager.yml", f"--storage.path={tmp_path}/alerts", "--cluster.listen-address=")  # fmt: skip
        collects = (prometheus, "--config.file=prometheus.yml", f"--storage.tsdb.path={tmp_path}/data")
        with (
            running(*sends, listen["alertmanager"], cwd=tmp_path),
            running(*collects, listen["prometheus"], cwd=tmp_path),
        ):
            up = functools.partial(query, ports["prometheus"], 'up{job="dcgm"} == 1')
            found = wait_for("a scrape of both nodes", lambda: len(held := up()) == len(wanted) and held)
            assert sorted(one["instance"] for one in found) == sorted(wanted)
            assert {one["pool"] for one in found} == {"gpu"}
            assert fleet.notifications == []
            wait_for("metrics at the remote endpoint", lambda: fleet.written)
            assert set(fleet.written) == {("Bearer the-token", "snappy")}

            fleet.metrics, broken = FAULTY, time.monotonic()
            wait_for("the alert", lambda: len(fleet.notifications) >= 2, 30)
            print(f"from fault to webhook: {time.monotonic() - broken:.1f} s with a scrape each second")
            hook = next(one for one in fleet.notifications if "alerts" in one)
            assert {one["labels"]["instance"] for one in hook["alerts"]} <= set(wanted)
            labels = hook["alerts"][0]["labels"]
            assert (labels["alertname"], labels["pool"], labels["severity"], labels["gpu"]) == ("GpuRowRemapFailed", "gpu", "page", "0")  # fmt: skip
            assert labels["cluster"] == "train"
            slack = next(one for one in fleet.notifications if "attachments" in one)
            assert "gpuinfra replace" in slack["attachments"][0]["text"]


def query(port: int, expression: str) -> list[dict[str, str]]:
    """The labels of each series that an instant query returns."""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=5) as reply:
        return [one["metric"] for one in json.load(reply)["data"]["result"]]


@pytest.mark.parametrize("cloud", sorted(SECRETS))
def test_the_configuration_is_valid(tmp_path: Path, cloud: str) -> None:
    """The real promtool and amtool accept the files of the control node of each cloud, with the names of an account."""
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    if not shutil.which("amtool"):
        pytest.skip("alertmanager is not installed")
    for name, file in control_files(cloud).items():
        content = file.content.replace('"url_file": "', '"url": "http://localhost').replace(FOLDER, str(tmp_path))
        (tmp_path / name).write_text(re.sub(r"\$\{(\w+)\}", r"\1-0", content))
    for command in (("promtool", "check", "config", "prometheus.yml"), ("amtool", "check-config", "alertmanager.yml")):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
