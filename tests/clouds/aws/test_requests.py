"""The API calls of every shipped stack and peer cluster on AWS, validated with the request models in botocore.

The models contain required members, types, lengths, ranges, patterns and enumerations. Combinations of members are tested in
`test_models.py`, by the rules, by the oracle and in a real account.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import botocore.session
import pytest
import regex
from botocore.model import Shape
from botocore.validate import ParamValidator

from tests.clouds.aws import requests, requests_ec2, requests_other
from tests.clouds.recorder import Recording
from tests.clouds.stacks import peer_recording_of, peer_specs, recording_of, shipped_aws_stacks

assert requests_ec2, requests_other

STACKS = shipped_aws_stacks()


@functools.cache
def _service(name: str) -> Any:
    return botocore.session.get_session().get_service_model(name)


def findings(call: requests.Call) -> list[str]:
    """Errors of a request by the model of AWS."""
    shape = _service(call.service).operation_model(call.operation).input_shape
    report = ParamValidator().validate(call.params, shape)
    found = [report.generate_report()] if report.has_errors() else []
    return [f"{call.service} {call.operation}: {one}" for one in (*found, *_closer(call.params, shape, call.operation))]


def _closer(value: Any, shape: Shape, path: str) -> list[str]:
    """Errors that botocore does not check: enumerations, upper limits, patterns."""
    if shape.type_name == "structure" and isinstance(value, dict):
        members: dict[str, Shape] = shape.members  # pyright: ignore[reportAttributeAccessIssue]
        return [
            one for key, item in value.items() if key in members for one in _closer(item, members[key], f"{path}.{key}")
        ]
    if shape.type_name == "list" and isinstance(value, list):
        most = shape.metadata.get("max")
        own = [f"{path} has {len(value)} entries, at most {most}"] if most is not None and len(value) > most else []
        return own + [one for i, item in enumerate(value) for one in _closer(item, shape.member, f"{path}[{i}]")]  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, str):
        return _text(value, shape, path)
    most = shape.metadata.get("max")
    if isinstance(value, int) and not isinstance(value, bool) and most is not None and value > most:
        return [f"{path} is {value}, at most {most}"]
    return []


def _text(value: str, shape: Shape, path: str) -> list[str]:
    found = []
    enum: list[str] = getattr(shape, "enum", [])
    if enum and value not in enum:
        found.append(f"{path} is {value!r}, one of {enum}")
    most = shape.metadata.get("max")
    if most is not None and len(value) > most:
        found.append(f"{path} has {len(value)} characters, at most {most}")
    pattern = shape.metadata.get("pattern")
    if pattern and not _matches(pattern, value):
        found.append(f"{path} is {value!r}, does not match {pattern}")
    return found


def _matches(pattern: str, value: str) -> bool:
    # The patterns are Java patterns: inline flags, `\\uXXXX`, Unicode classes. `regex` supports all of them but surrogate pairs.
    pattern = re.sub(r"\\uD800\\uDC00-\\uDBFF\\uDFFF", lambda _: "\U00010000-\U0010ffff", pattern, flags=re.IGNORECASE)
    return regex.fullmatch(pattern, value, regex.VERSION0) is not None


@pytest.mark.parametrize("stack", STACKS)
def test_the_models_accept_the_requests_of_shipped_stacks(stack: str) -> None:
    """The requests match the shapes, ranges, patterns and enumerations of the models."""
    assert _refused(recording_of(stack)) == []


@pytest.mark.parametrize("name", peer_specs("aws"))
def test_the_models_accept_the_requests_of_peer_clusters(name: str) -> None:
    """The requests for clusters that other projects publish match the models."""
    assert _refused(peer_recording_of("aws", name)) == []


def _refused(recording: Recording) -> list[str]:
    made = [one for one in recording.custom if one.type not in requests.NO_CALL]
    assert made
    return [f"{one.name}: {found}" for one in made for call in requests.calls(one) for found in findings(call)]


def test_every_type_has_a_mapping_or_a_reason() -> None:
    """Every resource type has a mapping or a reason, not both."""
    recordings = [recording_of(one) for one in STACKS] + [peer_recording_of("aws", one) for one in peer_specs("aws")]
    used = {one.type for recording in recordings for one in recording.custom}
    assert used - set(requests.MAPPERS) - set(requests.NO_CALL) == set()
    assert not set(requests.MAPPERS) & set(requests.NO_CALL)
    assert all(reason for reason in requests.NO_CALL.values())


BROKEN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a word that is no interface type": (
        "ec2",
        "CreateLaunchTemplate",
        {"LaunchTemplateName": "abc", "LaunchTemplateData": {"NetworkInterfaces": [{"DeviceIndex": "one"}]}},
    ),
    "an unknown retention": ("logs", "PutRetentionPolicy", {"logGroupName": "a"}),
    "a tenancy that is not sold": ("ec2", "CreateVpc", {"CidrBlock": "10.0.0.0/16", "InstanceTenancy": "shared"}),
    "a trail without a bucket": ("cloudtrail", "CreateTrail", {"Name": "abc"}),
    "a throughput beyond the range": (
        "fsx",
        "CreateFileSystem",
        {
            "FileSystemType": "LUSTRE",
            "SubnetIds": ["subnet-0123456789abcdef0"],
            "LustreConfiguration": {"PerUnitStorageThroughput": 5000},
        },
    ),
    "a health percentage above two hundred": (
        "autoscaling",
        "StartInstanceRefresh",
        {"AutoScalingGroupName": "a", "Preferences": {"MaxHealthyPercentage": 250}},
    ),
    "a role name with a space": ("iam", "CreateRole", {"RoleName": "two words", "AssumeRolePolicyDocument": "{}"}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_invalid_request_is_found(case: str) -> None:
    """The check finds wrong types, missing members, unknown values, ranges and patterns."""
    assert findings(requests.Call(*BROKEN[case]))
