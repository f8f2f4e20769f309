"""The log group of the nodes in CloudWatch Logs, and the alarm about Xids."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.aws.components.topics import topic
from gpuinfra.clouds.aws.instances import NODE_LOGS
from gpuinfra.plan.logs import XID_LINE, urgent_xids
from gpuinfra.plan.model import LogsPlan

NAMESPACE, METRIC = "gpuinfra", "UrgentXids"


@dataclass(frozen=True, kw_only=True)
class NodeLogsArgs:
    """Arguments for the logs of the nodes."""

    scope: Scope
    plan: LogsPlan
    key_arn: pulumi.Input[str] | None = None
    """KMS key for log groups. If unset, CloudWatch Logs encrypts with a key of its own."""


class NodeLogs(pulumi.ComponentResource):
    """A log group for the logs of the nodes, a metric of the kernel lines with an Xid after which a node must not be used, and an alarm on this metric.

    `destroy` deletes the log group with the logs of all nodes.
    """

    group_name: pulumi.Output[str]
    """Name of the log group."""
    group_arn: pulumi.Output[str]

    def __init__(self, name: str, args: NodeLogsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:NodeLogs", name, None, args.scope.options(opts))
        scope, plan = args.scope, args.plan
        group = aws.cloudwatch.LogGroup(
            rows.NODE_LOG_GROUP.logical(name),
            name=f"/gpuinfra/{scope.unique_name(NODE_LOGS)}",
            retention_in_days=plan.retention_days,
            kms_key_id=args.key_arn,
            opts=child(self, rows.NODE_LOG_GROUP),
        )
        metric = f"{METRIC}-{scope.unique_name(NODE_LOGS)}"
        aws.cloudwatch.LogMetricFilter(
            rows.XID_FILTER.logical(name),
            log_group_name=group.name,
            pattern=xid_pattern(),
            metric_transformation=aws.cloudwatch.LogMetricFilterMetricTransformationArgs(
                namespace=NAMESPACE, name=metric, value="1"
            ),
            opts=child(self, rows.XID_FILTER),
        )
        notified = topic(self, name, (rows.XID_TOPIC, rows.XID_RECIPIENT), plan.recipients)
        aws.cloudwatch.MetricAlarm(
            rows.XID_ALARM.logical(name),
            alarm_description=f"A GPU of {scope.cluster} reported an Xid after which its node must not be used; "
            "`gpuinfra logs STACK --grep Xid` prints the lines",
            namespace=NAMESPACE,
            metric_name=metric,
            statistic="Sum",
            period=60,
            evaluation_periods=1,
            comparison_operator="GreaterThanThreshold",
            threshold=0,
            # The metric has values only while lines match.
            treat_missing_data="notBreaching",
            alarm_actions=[notified.arn],
            opts=child(self, rows.XID_ALARM),
        )
        self.group_name, self.group_arn = group.name, group.arn
        self.register_outputs({"group_name": self.group_name, "group_arn": self.group_arn})


def xid_pattern() -> str:
    """Return the filter for the JSON object of a journal entry, as CloudWatch Agent sends it. A filter can contain at most two regular expressions and
    1,024 characters (https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html, retrieved 2026-11-30)."""
    return f"{{ $.body.MESSAGE = %{XID_LINE}% && $.body.MESSAGE = %{urgent_xids()}% }}"
