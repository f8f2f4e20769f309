"""Recorded answers of AWS's own services (`answers/aws.json`): our code reads them, and the stand-in answers alike.

The answers are from the test data of Cloud Custodian, which were recorded in real accounts. Where it has none, they are
the examples of AWS's API reference, which botocore ships (`examples-1.json`, Apache-2.0).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
import botocore
import pytest
from botocore.awsrequest import AWSResponse

import tests.providers
from gpuinfra.clouds.aws import file_systems
from gpuinfra.clouds.aws.handover.ports import AutoScalingMembership, Ec2Console, parse_caller, stopped_at_canary
from gpuinfra.handover.ports import GroupExpected, IdentityRefused
from gpuinfra_rehearsal import endpoints
from gpuinfra_rehearsal.cloud.aws import credentials, refreshes
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from rehearsal.tests.cloud import stacks
from rehearsal.tests.cloud.conftest import Client

RECORDED: dict[str, list[dict[str, Any]]] = {}
for _one in json.loads((Path(tests.providers.__file__).parent / "answers" / "aws.json").read_text(encoding="utf-8"))[
    "answers"
]:
    RECORDED.setdefault(_one["operation"], []).append(_one["answer"])


def examples(service: str, operation: str) -> list[dict[str, Any]]:
    """The answers in the examples of AWS's API reference."""
    file = max((Path(str(botocore.__file__)).parent / "data" / service).glob("*/examples-1.json"))
    known = json.loads(file.read_text(encoding="utf-8"))["examples"]
    return [one["output"] for one in known[operation]]


for _service, _operation in (
    ("autoscaling", "DescribeScalingActivities"),
    ("autoscaling", "DescribeInstanceRefreshes"),
    ("ec2", "GetConsoleOutput"),
):
    RECORDED[_operation] = examples(_service, _operation)


class Recorded:
    """A client of AWS's SDK that answers with the recordings."""

    def get_paginator(self, operation: str) -> Recorded:
        self._operation = "".join(word.capitalize() for word in operation.split("_"))
        return self

    def describe_scaling_activities(self, **_: Any) -> dict[str, Any]:
        return RECORDED["DescribeScalingActivities"][0]

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


def test_a_successful_launch_is_no_problem() -> None:
    """The example's activity launched an instance, so the group has no problem. The same activity as a failure is one."""
    (activity,) = RECORDED["DescribeScalingActivities"][0]["Activities"]
    membership = AutoScalingMembership(Recorded(), Recorded())
    groups = [GroupExpected(group=activity["AutoScalingGroupName"], name="gpu-0", count=1)]
    assert membership.problems(groups) == []
    failed = {**activity, "StatusCode": "Failed", "StatusMessage": "You have requested more vCPU capacity"}
    RECORDED["DescribeScalingActivities"][0]["Activities"] = [failed]
    try:
        (problem,) = membership.problems(groups)
    finally:
        RECORDED["DescribeScalingActivities"][0]["Activities"] = [activity]
    assert (problem.group, problem.message) == ("my-auto-scaling-group", "You have requested more vCPU capacity")
    assert problem.at == activity["StartTime"]


def test_only_a_refresh_that_ended_at_a_checkpoint_goes_on() -> None:
    """Of the example's refreshes, one is in progress and one ended, and neither has checkpoints."""
    running, ended = RECORDED["DescribeInstanceRefreshes"][0]["InstanceRefreshes"]
    assert (running["Status"], ended["Status"]) == ("InProgress", "Successful")
    assert stopped_at_canary([running, ended]) is None
    assert stopped_at_canary([ended]) is None
    canary = {**ended, "Preferences": {**ended["Preferences"], "CheckpointPercentages": [25]}}
    kept = {key: ended["Preferences"][key] for key in ("MinHealthyPercentage", "InstanceWarmup")}
    assert stopped_at_canary([canary]) == kept | {"SkipMatching": True}


CONSOLE = """<GetConsoleOutputResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>59dbff89-35bd-4eac-99ed-be587EXAMPLE</requestId>
  <instanceId>i-1234567890abcdef0</instanceId>
  <timestamp>2022-10-14T01:12:41.000Z</timestamp>
  <output>TGludXggdmVyc2lvbiAyLjYuMTYteGVuVSAo
KQpjbG91ZC1pbml0OiBkb25lCg==</output>
</GetConsoleOutputResponse>"""
"""The documented answer, with a log of two lines. The service breaks the base64 text into lines.
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html, retrieved 2026-11-22."""


def test_the_documented_console_is_read() -> None:
    """The console's log is base64 with line breaks in XML, and its last lines are returned."""
    ec2 = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    ec2.meta.events.register("before-send.ec2.GetConsoleOutput", lambda request, **_: _answer(request.url, CONSOLE))
    assert Ec2Console(ec2).tail("i-1234567890abcdef0", 5) == ["Linux version 2.6.16-xenU ()", "cloud-init: done"]
    assert Ec2Console(ec2).tail("i-1234567890abcdef0", 1) == ["cloud-init: done"]


def _answer(url: str, text: str) -> AWSResponse:
    answer = AWSResponse(url, 200, {"content-type": "text/xml"}, None)
    answer._content = text.encode()  # pyright: ignore[reportPrivateUsage]: otherwise it reads a socket
    return answer


def _caller(example: dict[str, str]) -> bytes:
    """The values of botocore's example in the XML layout of STS. The layout comes from the test data of third parties; AWS's page
    was not read."""
    fields = "".join(f"<{name}>{example[name]}</{name}>" for name in ("Arn", "UserId", "Account"))
    return (
        '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        f"<GetCallerIdentityResult>{fields}</GetCallerIdentityResult>"
        "<ResponseMetadata><RequestId>01234567-89ab-cdef-0123-456789abcdef</RequestId></ResponseMetadata>"
        "</GetCallerIdentityResponse>"
    ).encode()


def test_the_documented_callers_are_read() -> None:
    """A role's session is an identity with its account, role and session. Users and federated users are refused."""
    user, role, federated = examples("sts", "GetCallerIdentity")
    found = parse_caller(_caller(role), "0" * 64)
    assert (found.account, found.role, found.instance_id) == ("123456789012", "my-role-name", "my-role-session-name")
    for one in (user, federated):
        with pytest.raises(IdentityRefused, match="is not a node role"):
            parse_caller(_caller(one), "0" * 64)


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


def test_the_stand_in_answers_in_the_recorded_shape(session: Any, connect: Any, cloud: Cloud) -> None:
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
    cloud.fleet._activity("us-east-1", "gpu", "Launching a new EC2 instance", "a user request", "Failed", "no capacity")  # pyright: ignore[reportPrivateUsage]
    refreshes.start_now(cloud.store, "us-east-1", "gpu", {"minHealthyPercentage": 90, "instanceWarmup": 200})
    scaling = session.client("autoscaling")
    refresh = scaling.describe_instance_refreshes(AutoScalingGroupName="gpu")
    for one in refresh["InstanceRefreshes"]:
        for name in ("CheckpointPercentages", "CheckpointDelay", "MaxHealthyPercentage"):
            one["Preferences"].pop(name, None)  # the example's refreshes have no checkpoints
    activities = scaling.describe_scaling_activities(AutoScalingGroupName="gpu")
    assert [one.pop("StatusMessage") for one in activities["Activities"]], "the example's activity did not fail"
    answers = {
        "DescribeScalingActivities": activities,
        "DescribeInstanceRefreshes": refresh,
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
