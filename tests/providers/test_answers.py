"""Recorded answers of AWS's own services (`answers/aws.json`): our code reads them, and the stand-in answers alike.

The answers are from the test data of Cloud Custodian, which were recorded in real accounts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from gpuinfra.clouds.aws import file_systems
from gpuinfra.handover.aws import AutoScalingMembership
from gpuinfra.handover.ports import GroupExpected
from gpuinfra.rehearsal import endpoints
from gpuinfra.rehearsal.cloud.aws import credentials
from gpuinfra.rehearsal.cloud.core.cloud import Cloud
from gpuinfra.rehearsal.cloud.core.server import Server
from tests.rehearsal.cloud import stacks
from tests.rehearsal.cloud.conftest import Client, cloud, connect

__all__ = ["cloud", "connect"]

RECORDED: dict[str, list[dict[str, Any]]] = {}
for _one in json.loads((Path(__file__).parent / "answers" / "aws.json").read_text(encoding="utf-8"))["answers"]:
    RECORDED.setdefault(_one["operation"], []).append(_one["answer"])


class Recorded:
    """A client of AWS's SDK that answers with the recordings."""

    def get_paginator(self, operation: str) -> Recorded:
        self._operation = "".join(word.capitalize() for word in operation.split("_"))
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        return RECORDED[self._operation]


def test_members_of_recorded_groups_are_read() -> None:
    """A member has its instance, group, template version and zone from the recorded answers of Auto Scaling."""
    members = AutoScalingMembership(Recorded(), Recorded()).members(
        [GroupExpected(group="test2", name="gpu-0", count=1)]
    )
    assert len(members) > 1
    assert all(one.instance_id.startswith("i-") and one.zone and one.group for one in members)
    assert (members[0].instance_id, members[0].group) == ("i-0aca1d4f8f943d73e", "test2")
    assert (members[0].template_version, members[0].zone, members[0].leaving) == ("4", "us-east-1d", False)


def test_a_recorded_file_system_is_found_by_its_log_group() -> None:
    """FSx returns the log stream behind the name of the group. The name must be equal, not only begin alike."""
    assert file_systems.find(Recorded(), "/aws/fsx/lustre") == "fs-0123fa8a4567ac2eb"
    assert file_systems.find(Recorded(), "/aws/fsx/lust") is None


@pytest.fixture
def session(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[boto3.Session]:
    """AWS's SDK with the operator's environment in a rehearsal."""
    server = Server(cloud, "control-token")
    server.start()
    key = credentials.operator(cloud.store)
    known = {"aws": {"access_key_id": key.id, "secret_access_key": key.secret}}
    for name, value in endpoints.of_operator(cloud.endpoint, known, "aws", "us-east-1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield boto3.Session(region_name="us-east-1")
    server.shutdown()
    server.server_close()


def test_the_stand_in_answers_in_the_recorded_shape(session: Any, connect: Any) -> None:
    """Each key of an answer of the stand-in is in the recorded answer of the service, with a value of the same type."""
    aws: Client = connect("aws")
    _, subnet = stacks.network(aws)
    logs = aws.create("aws:cloudwatch/logGroup:LogGroup", {"name": "/aws/fsx/train"})
    aws.create(
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        {
            "storageCapacity": 4800, "subnetIds": subnet.id, "deploymentType": "PERSISTENT_2", "perUnitStorageThroughput": 250,
            "tags": {"Name": "train"}, "logConfiguration": {"destination": logs.outputs["arn"], "level": "WARN_ERROR"},
        },
    )  # fmt: skip
    key = aws.create("aws:kms/key:Key", {})
    stacks.group(aws, stacks.template(aws), 0, subnet)
    answers = {
        "DescribeFileSystems": session.client("fsx").describe_file_systems(),
        "DescribeKey": session.client("kms").describe_key(KeyId=key.id),
        "DescribeLogGroups": session.client("logs").describe_log_groups(),
        "GetCallerIdentity": session.client("sts").get_caller_identity(),
        "DescribeAutoScalingGroups": session.client("autoscaling").describe_auto_scaling_groups(),
    }
    for operation, answer in answers.items():
        del answer["ResponseMetadata"]
        assert set(paths(answer)) - {one for other in RECORDED[operation] for one in paths(other)} == set(), operation


def paths(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each leaf of an answer, with the type of its value."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from paths(item, f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from paths(item, f"{path}[]")
    else:
        yield path, "str" if isinstance(value, datetime) else type(value).__name__
