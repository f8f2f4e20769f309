"""Trails, subscriptions to alerts, and parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import access, service_roles
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.aws.images import image_id
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Store

TRAIL = "aws:cloudtrail/trail:Trail"
SUBSCRIPTION = "aws:sns/topicSubscription:TopicSubscription"
TRAILS_PER_REGION = 5
"""A hard quota. https://docs.aws.amazon.com/awscloudtrail/latest/userguide/WhatIsCloudTrail-Limits.html,
retrieved 2026-11-21."""


@behaves
class Trail(Behavior):
    """A trail. It checks that it can write to its bucket, and writes its first record immediately."""

    types = (TRAIL,)
    taken = ApiRejected(
        "TrailAlreadyExistsException",
        f"Trail {{inputs[name]}} already exists for customer: {ACCOUNT}",
        "CloudTrail: CreateTrail",
    )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        name = str(plain.get("s3BucketName"))
        bucket_record = access.bucket(cloud.store, name)
        if bucket_record is None and cloud.external(name) is None:
            raise self._refused("S3BucketDoesNotExistException", f"S3 bucket {name} does not exist!")
        policies = [
            str(one.plain.get("policy"))
            for one in cloud.store.list("aws:s3/bucketPolicy:BucketPolicy")
            if one.id == name
        ]
        if bucket_record and not any(_lets_trails_write(text) for text in policies):
            raise self._refused(
                "InsufficientS3BucketPolicyException", f"Incorrect S3 bucket policy is detected for bucket: {name}"
            )
        self._check_log_role(cloud, plain)
        here = [
            one for one in cloud.store.list(TRAIL) if one.region == call.region or one.plain.get("isMultiRegionTrail")
        ]
        if len(here) >= TRAILS_PER_REGION:
            raise self._refused(
                "MaximumNumberOfTrailsExceededException",
                f"User: {ACCOUNT} already has {len(here)} trails in {call.region}.",
            )

    def _check_log_role(self, cloud: Cloud, plain: Mapping[str, Any]) -> None:
        """CloudTrail assumes the role, without a source account or source ARN, and writes to the log group."""
        role, group = str(plain.get("cloudWatchLogsRoleArn") or ""), str(plain.get("cloudWatchLogsGroupArn") or "")
        if not role or not service_roles.exists(cloud.store, role):
            return
        code = "InvalidCloudWatchLogsRoleArnException"
        if not service_roles.can_assume(cloud.store, role, "cloudtrail.amazonaws.com", {}):
            raise self._refused(code, "Access denied. Check the trust relationships for your role.")
        stream = group.removesuffix("*") + f"log-stream:{ACCOUNT}_CloudTrail_{plain.get('region') or 'us-east-1'}"
        if service_roles.missing(cloud.store, role, stream, ("logs:CreateLogStream", "logs:PutLogEvents")):
            raise self._refused(code, "Access denied. Check the permissions for your role.")

    @staticmethod
    def _refused(code: str, text: str) -> ApiRejected:
        return ApiRejected(code, text, "CloudTrail: CreateTrail")

    def before_update(self, cloud: Cloud, call: Call) -> None:
        self._check_log_role(cloud, call.plain)

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs["homeRegion"] = call.region

    def kept(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        name, prefix = str(plain.get("s3BucketName")), str(plain.get("s3KeyPrefix") or "")
        if call.old is None and access.bucket(cloud.store, name):
            key = "/".join(
                part
                for part in (
                    prefix,
                    "AWSLogs",
                    ACCOUNT,
                    "CloudTrail",
                    call.region,
                    "2026/01/01",
                    "standin_CloudTrail_first.json",
                )
                if part
            )
            cloud.store.put_object(
                name, key, json.dumps({"Records": []}).encode(), {"content-type": "application/json"}
            )


def _lets_trails_write(text: str) -> bool:
    try:
        statements = json.loads(text).get("Statement", [])
    except (ValueError, AttributeError):
        return False
    return any(
        one.get("Effect") == "Allow"
        and "cloudtrail.amazonaws.com" in json.dumps(one.get("Principal"))
        and "s3:PutObject" in json.dumps(one.get("Action"))
        for one in (statements if isinstance(statements, list) else [statements])
    )


@behaves
class Budget(Behavior):
    types = ("aws:budgets/budget:Budget",)
    taken = ApiRejected(
        "DuplicateRecordException",
        "Error creating budget: {inputs[name]} - the budget already exists.",
        "Budgets: CreateBudget",
    )


@behaves
class Parameter(Behavior):
    types = ("aws:ssm/parameter:Parameter",)
    taken = ApiRejected(
        "ParameterAlreadyExists",
        "The parameter already exists. To overwrite this value, set the overwrite option in the request to true.",
        "SSM: PutParameter",
    )

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        given = [key for key in ("value", "insecureValue", "valueWo") if call.inputs.get(key) is not None]
        if len(given) > 1:
            yield RejectedInput(
                "value", f"conflicts with {' and '.join(given[1:])}: give one of value, insecureValue, valueWo"
            )

    def created(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        value: Any = plain.get("value") if plain.get("value") is not None else plain.get("insecureValue")
        # `value` is always secret; `insecureValue` is readable.
        call.outputs |= {"value": wire.secret(value), "version": 1, "dataType": plain.get("dataType", "text")}
        if plain.get("insecureValue") is None:
            call.outputs["insecureValue"] = (
                value if plain.get("type") == "String" and not wire.has_secret(call.inputs.get("value")) else ""
            )
        else:
            call.outputs["insecureValue"] = plain["insecureValue"]

    def updated(self, cloud: Cloud, call: Call) -> None:
        self.created(cloud, call)
        assert call.old is not None
        call.outputs["version"] = int(call.old.outputs.get("version", 1)) + 1


def parameter_value(store: Store, name: str, region: str) -> str | None:
    """Return the value of a parameter: one created in the rehearsal, or a public AWS parameter that names an image."""
    parameter = store.find("aws:ssm/parameter:Parameter", name, region)
    if parameter is not None:
        return str(wire.plain(parameter.outputs["value"]))
    if not name.startswith("/aws/service/"):
        return None
    if any(word in name for word in ("/ami-id", "/image_id", "/ami/", "ami-amazon-linux")) or name.endswith("/ami-id"):
        return image_id(store, name, region)
    return f"standin:{name}"


@behaves
class FlowLog(Behavior):
    """A flow log. EC2 assumes its role when the flow log is created."""

    types = ("aws:ec2/flowLog:FlowLog",)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        role = str(call.plain.get("iamRoleArn") or "")
        source = f"arn:aws:ec2:{call.region}:{ACCOUNT}:vpc-flow-log/fl-00000000000000001"
        context = {"aws:SourceAccount": ACCOUNT, "aws:SourceArn": source}
        if not role or not service_roles.exists(cloud.store, role):
            return
        if not service_roles.can_assume(cloud.store, role, "vpc-flow-logs.amazonaws.com", context):
            raise ApiRejected("InvalidParameter", f"Unable to assume given IAM role: {role}", "EC2: CreateFlowLogs")


@behaves
class TopicSubscription(Behavior):
    """A subscription. `Subscribe` returns the existing subscription of an endpoint (API reference of SNS, retrieved 2026-11-29)."""

    types = (SUBSCRIPTION,)
    joins = True

    def identify(self, cloud: Cloud, call: Call) -> str | None:
        wanted = {key: call.plain.get(key) for key in ("topic", "protocol", "endpoint")}
        held = (one.id for one in cloud.store.where(SUBSCRIPTION, **wanted) if one.region == call.region)
        return next(held, None)


@behaves
class Replaced(Behavior):
    """The policy of a topic, or a target of a rule. `SetTopicAttributes` and `PutTargets` replace an existing one
    (API references of SNS and EventBridge, retrieved 2026-11-29)."""

    types = ("aws:cloudwatch/eventTarget:EventTarget", "aws:sns/topicPolicy:TopicPolicy")
    joins = True
