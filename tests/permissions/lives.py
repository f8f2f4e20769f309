"""The requests of the life of a stack on AWS: each resource is created, read, updated and deleted, unless `destroy` retains it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuinfra_rehearsal.cloud.aws import operator as judge
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.cloud.core.store import Resource
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of

GENERATED = (
    "aws:iam/role:Role",
    "aws:iam/instanceProfile:InstanceProfile",
    "aws:autoscaling/group:Group",
    "aws:sns/topic:Topic",
    "aws:cloudwatch/eventRule:EventRule",
    "aws:cloudwatch/metricAlarm:MetricAlarm",
)
_NAME = re.compile(r'(?<=["/:])[\w-]+(?=\\?")')


def _named(name: str, generated: set[str]) -> str:
    """The name as Pulumi's provider generates it from a logical name: with seven hexadecimal digits."""
    return f"{name}-0a1b2c3" if name in generated else name


class Held:
    """The part of a stand-in cloud that the policy evaluation reads: resources by type and id."""

    def __init__(self, recording: Recording) -> None:
        self.store = self
        generated = {one.id for one in recording.custom if one.type in GENERATED and "name" not in one.inputs}
        self._held = {
            (one.type, _named(one.id, generated)): Resource(
                one.type,
                str(one.inputs.get("region", "")),
                _named(one.id, generated),
                json.loads(_NAME.sub(lambda found: _named(found[0], generated), json.dumps(one.inputs, default=str))),
                {},
            )
            for one in recording.custom
        }

    def find(self, token: str, id: str, region: str | None = None) -> Resource | None:
        """One resource."""
        return self._held.get((token, id))

    def every(self) -> list[Resource]:
        """All resources."""
        return [one for one in self._held.values() if one.type.startswith("aws:")]


def requests_of(stack: str | Recording) -> Iterator[AccessRequest]:
    """The requests to create, read, update and delete all resources of a stack."""
    recording = recording_of(stack) if isinstance(stack, str) else stack
    cloud: Any = Held(recording)
    kept = {(one.type, one.id) for one in recording.custom if one.retained and one.type not in GENERATED}
    for one in cloud.every():
        named = {"name": one.id, **one.inputs} if "name" not in one.inputs else one.inputs
        changed = {**named, **_changes(named)}
        for operation, inputs, old in (
            ("create", named, None),
            ("read", named, one),
            ("update", changed, one),
            ("delete", {}, one),
        ):
            if operation == "delete" and (one.type, one.id) in kept:
                continue
            before = Resource(one.type, one.region, one.id, named, {}) if old else None
            yield from judge.required(cloud.store, operation, one.type, inputs, one.region, before)


def denied(stack: str | Recording, operator: Operator) -> Iterator[str]:
    """The errors of the denied requests of a stack's life."""
    for request in requests_of(stack):
        try:
            operator.check(judge, [request])
        except ApiRejected as error:
            yield error.message


def _changes(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Changed values of all inputs that need a permission."""
    found: dict[str, Any] = {
        key: "changed"
        for key in inputs
        if key
        not in (
            "name",
            "tags",
            "bucket",
            "logGroupName",
            "key",
            "role",
            "region",
            "launchTemplate",
            "mixedInstancesPolicy",
            "iamRoleArn",
            "cloudWatchLogsRoleArn",
            "autoscalingGroupName",
            "dataRepositoryPath",
            "routeTableId",
            "permissionsBoundary",
            "arn",
            "rule",
        )
    }
    tags = inputs.get("tags")
    if isinstance(tags, Mapping):
        found["tags"] = {key: value for key, value in tags.items() if key != "Name"} | {"new": "one"}
    if isinstance(tags, list):
        found["tags"] = tags[1:]
    if isinstance(groups := inputs.get("securityGroups"), list):
        found["securityGroups"] = [*groups, *groups]
    if "launchTemplate" in inputs:
        found["launchTemplate"] = {**inputs["launchTemplate"], "version": "9"}
    return found
