"""What the real policy of the control node allows on the stand-in cloud: to list instances and to read its secrets, which other nodes cannot."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from gpuinfra.clouds.aws.components import policies
from gpuinfra.node import aws as node_aws
from gpuinfra.node.cloud import CloudError
from gpuinfra.plan.model import DataDisk, MonitoringPlan
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core import receiver
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.nodes import endpoints
from gpuinfra_rehearsal.tools import signed
from rehearsal.tests.cloud import stacks
from rehearsal.tests.cloud.conftest import Client
from rehearsal.tests.cloud.test_http import BUCKET, server

__all__ = ["server"]

SCOPE: Any = SimpleNamespace(
    region="us-east-1", arn=lambda service, resource: f"arn:aws:{service}:us-east-1:000000000000:{resource}"
)
DISK = DataDisk(size_gib=10, kind="gp3", zone="use1-az1")
MONITORING = MonitoringPlan(pool="monitoring", retention_days=30, disk=DISK, secrets=("/alerts/slack",))
RUNNING = [("instance-state-name", ["running"])]


def environment(cloud: Cloud, aws: Client, monkeypatch: pytest.MonkeyPatch, statements: list[Any]) -> dict[str, str]:
    """The environment of an instance whose role has these statements."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    monkeypatch.setattr(signed, "read_state", lambda: {"instance": {"region": "us-east-1"}})
    stacks.bucket(aws)
    profile = stacks.role(aws, BUCKET)
    document = json.dumps({"Statement": statements})
    aws.create("aws:iam/rolePolicy:RolePolicy", {"role": "node", "name": "own", "policy": document}, "own")
    _, subnet = stacks.network(aws)
    template = stacks.template(aws, iamInstanceProfile={"arn": profile.outputs["arn"]}, metadataOptions={"httpTokens": "required"})  # fmt: skip
    stacks.group(aws, template, 1, subnet)
    cloud.fleet.reconcile()
    (instance,) = cloud.fleet.instances().values()
    return dict(endpoints.of_node("aws", cloud.endpoint, instance["id"]))


def test_the_control_node_finds_instances_and_reads_declared_secrets(
    cloud: Cloud, aws: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role of the control node lists instances and reads the declared parameter, which is the address of a receiver, and no other parameter."""
    environ = environment(cloud, aws, monkeypatch, policies.control(SCOPE, MONITORING, "arn:aws:s3:::b"))
    assert signed.describe_instances(RUNNING, environ).count("<instanceId>") == 1
    node = node_aws.AwsNode("us-east-1", environ)
    address = node.secret("/alerts/slack")
    assert urlopen(Request(address, b'{"text": "gpu-1"}'), timeout=10).read() == b"ok"
    assert [(one["receiver"], one["body"]) for one in receiver.received(cloud)] == [("alerts/slack", {"text": "gpu-1"})]
    with pytest.raises(CloudError, match="parameter /alerts/other could not be read: 400 AccessDeniedException"):
        node.secret("/alerts/other")


def test_other_nodes_find_no_instances_and_read_no_secrets(
    cloud: Cloud, aws: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the statements of the control node, both requests are denied."""
    allowed = {"Sid": "S", "Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    environ = environment(cloud, aws, monkeypatch, [allowed])
    with pytest.raises(HTTPError, match="403"):
        signed.describe_instances(RUNNING, environ)
    with pytest.raises(CloudError, match="400 AccessDeniedException"):
        node_aws.AwsNode("us-east-1", environ).secret("/alerts/slack")
