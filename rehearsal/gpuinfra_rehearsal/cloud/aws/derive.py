"""Derives `replacements.json` from CloudFormation's resource schemas: the inputs that force replacement.

    python -m gpuinfra_rehearsal.cloud.aws.derive

The schemas are part of the package cfn-lint and list these inputs as `createOnlyProperties`. CloudFormation and Pulumi
use different types and property names for some services, so only properties that map by name, or by the small tables
below, are used. `replacements.py` contains the remaining properties, with their sources.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import json
from pathlib import Path
from typing import Any

from gpuinfra.clouds.aws.resources import RESOURCES
from gpuinfra_rehearsal.cloud.core.sdk import Sdk, sdk

TABLE = Path(__file__).parent / "replacements.json"

_TYPES = {
    "aws:amp/workspace:Workspace": "AWS::APS::Workspace",
    "aws:amp/ruleGroupNamespace:RuleGroupNamespace": "AWS::APS::RuleGroupsNamespace",
    "aws:autoscaling/group:Group": "AWS::AutoScaling::AutoScalingGroup",
    "aws:cloudwatch/eventRule:EventRule": "AWS::Events::Rule",
    "aws:cloudwatch/logGroup:LogGroup": "AWS::Logs::LogGroup",
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": "AWS::Logs::MetricFilter",
    "aws:cloudwatch/metricAlarm:MetricAlarm": "AWS::CloudWatch::Alarm",
    "aws:ebs/volume:Volume": "AWS::EC2::Volume",
    "aws:ec2/internetGateway:InternetGateway": "AWS::EC2::InternetGateway",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "AWS::EC2::SubnetRouteTableAssociation",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "AWS::FSx::FileSystem",
    "aws:sns/topicSubscription:TopicSubscription": "AWS::SNS::Subscription",
}


def derive() -> dict[str, Any]:
    """Return the inputs that force replacement, keyed by type. Only types that gpuinfra creates are in the table."""
    schemas = _schemas()
    aws = sdk("aws")
    table = {}
    for token in sorted({row.type for row in RESOURCES if row.type in aws.tokens}):
        if (schema := schemas.get(_counterpart(token).lower())) and (properties := _properties(aws, token, schema)):
            table[token] = properties
    return {
        "source": f"createOnlyProperties of the CloudFormation resource schemas in cfn-lint {importlib.metadata.version('cfn-lint')}"
        f" ({_schema_date()}), mapped to pulumi-aws {aws.version}",
        "types": table,
    }


def _counterpart(token: str) -> str:
    if token in _TYPES:
        return _TYPES[token]
    _, middle, name = token.split(":")
    return f"AWS::{middle.split('/')[0]}::{name}"


def _root() -> Path:
    return Path(str(importlib.resources.files("cfnlint"))) / "data" / "schemas"


def _schemas() -> dict[str, dict]:
    root = _root()
    index = json.loads((root / "providers" / "us-east-1.json").read_text())
    return {name.lower(): json.loads((root / "resources" / f"{file}.json").read_text()) for name, file in index.items()}


def _schema_date() -> str:
    version = json.loads((_root() / "version.json").read_text())
    return f"schemas of {version['schema_date'][:10]}"


def _properties(aws: Sdk, token: str, schema: dict) -> list[str]:
    inputs = aws.resource(token).inputs
    name = token.rsplit(":", 1)[1]
    properties = set()
    for pointer in schema.get("createOnlyProperties", []):
        parts = pointer.removeprefix("/properties/").split("/")
        if "*" in parts:
            continue
        first = _lower(parts[0])
        if len(parts) > 1 and first not in inputs:
            parts, first = parts[1:], _lower(parts[1])  # a wrapper that the provider lacks: LustreConfiguration
        options = (first, f"{first}s", f"{first}es", first.removesuffix("s"), first.replace("ID", "Id"))
        if parts[0].lower() in (f"{name}name".lower(), "groupname", "autoscalinggroupname", "name"):
            options += ("name",)
        match = next((option for option in options if option in inputs), None)
        if match:
            properties.add(match if len(parts) == 1 else ".".join([match, *map(_lower, parts[1:])]))
    return sorted(properties)


def _lower(name: str) -> str:
    """Convert `VPCZoneIdentifier` to `vpcZoneIdentifier`."""
    run = len(name) - len(name.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    head = max(1, run - 1) if run < len(name) else run
    return name[:head].lower() + name[head:]


if __name__ == "__main__":
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(json.dumps(derive(), indent=1, sort_keys=True) + "\n")
    print(f"{TABLE}: {len(json.loads(TABLE.read_text())['types'])} types")
