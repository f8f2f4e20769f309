"""Alerts by email: the real Alertmanager publishes to the stand-in SNS with the role of the control node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from gpuinfra.clouds.aws.components import policies
from gpuinfra.monitoring.alerts import AlertSeverity
from gpuinfra.monitoring.config import AlertReceiver, ReceiverKind, alertmanager_file, sns_config
from gpuinfra_rehearsal.cloud.aws.http.logs import MESSAGE
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.tools import signed
from rehearsal.tests.cloud.conftest import Client
from rehearsal.tests.cloud.test_control_node import MONITORING, SCOPE, environment
from rehearsal.tests.cloud.test_http import server
from tests.monitoring.test_delivery import PROGRAMS, free_port, wait_for

__all__ = ["server"]

ALERT = {"alertname": "GpuMissing", "severity": "page", "pool": "gpu", "instance": "i-1"}


@pytest.mark.parametrize("allowed", [True, False])
def test_alertmanager_sends_emails_with_the_role_of_the_control_node(
    cloud: Cloud, aws: Client, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: bool
) -> None:
    """The message has the cluster, the alert and the action, and reaches the recipient. Without the right to publish to this topic, SNS refuses it."""
    program = next((found for one in PROGRAMS["alertmanager"] if (found := shutil.which(one))), None)
    if program is None:
        pytest.skip("alertmanager is not installed")
    topic = aws.create("aws:sns/topic:Topic", {"name": "watched-email-0-recipients-0a1b2c3"}, "topic").id
    recipient = {"topic": topic, "protocol": "email", "endpoint": "gpu-oncall@example.com"}
    aws.create("aws:sns/topicSubscription:TopicSubscription", recipient, "recipient")
    own = policies.control(SCOPE, MONITORING, "arn:aws:s3:::b", topic_arns=[topic if allowed else f"{topic}-other"])
    environ = environment(cloud, aws, monkeypatch, own)
    section = {"sns_configs": [{**sns_config("watched", "us-east-1", topic), "api_url": environ["AWS_ENDPOINT_URL"]}]}
    email = AlertReceiver(name="email-0", kind=ReceiverKind.EMAIL, at_least=AlertSeverity.PAGE, email=section)
    config = json.dumps(alertmanager_file([email])).replace('"group_wait": "10s"', '"group_wait": "1s"')
    (tmp_path / "alertmanager.yml").write_text(config)
    port = free_port()
    words = (
        f"--config.file={tmp_path}/alertmanager.yml",
        f"--storage.path={tmp_path}/data",
        "--cluster.listen-address=",
    )
    log = tmp_path / "alertmanager.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [program, *words, f"--web.listen-address=127.0.0.1:{port}"],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **signed.role_keys(environ)},
            stdout=output,
            stderr=output,
        )
        try:
            body = json.dumps(
                [{"labels": ALERT, "annotations": {"summary": "fewer GPUs", "action": "reboot the node"}}]
            ).encode()
            url, kind = f"http://127.0.0.1:{port}/api/v2/alerts", {"Content-Type": "application/json"}
            wait_for("Alertmanager", lambda: urllib.request.urlopen(urllib.request.Request(url, body, kind), timeout=5))
            if allowed:
                (sent,) = wait_for("the email", lambda: list(cloud.store.all(MESSAGE).values()))
                assert sent["to"] == ["gpu-oncall@example.com"]
                assert sent["subject"] == "watched: GpuMissing (firing)"
                assert sent["text"] == "GpuMissing i-1: fewer GPUs. reboot the node\n"
            else:
                wait_for("the refusal", lambda: "not authorized to perform: sns:Publish" in log.read_text())
                assert cloud.store.all(MESSAGE) == {}
        finally:
            process.terminate()
            process.wait(30)
