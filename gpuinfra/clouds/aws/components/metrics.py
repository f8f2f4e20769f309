"""The workspace of Amazon Managed Service for Prometheus to which the control node writes metrics, and the alerts that the control node cannot send."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.aws.components.topics import topic
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.monitoring.alerts import store_rules
from gpuinfra.monitoring.config import sns_config
from gpuinfra.plan.model import EmailPlan, StorePlan


@dataclass(frozen=True, kw_only=True)
class MetricsStoreArgs:
    """Arguments for the workspace."""

    scope: Scope
    plan: StorePlan
    key_arn: pulumi.Input[str]
    """KMS key that encrypts the metrics."""


class MetricsStore(pulumi.ComponentResource):
    """A workspace for the metrics of one cluster."""

    workspace_arn: pulumi.Output[str]
    url: pulumi.Output[str]
    """Address for remote write. Resolves after the settings of the workspace are applied."""

    def __init__(self, name: str, args: MetricsStoreArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:MetricsStore", name, None, args.scope.options(opts))
        self._name, self._scope, self._plan = name, args.scope, args.plan
        workspace = aws.amp.Workspace(
            rows.WORKSPACE.logical(name),
            alias=args.scope.cluster,
            kms_key_arn=args.key_arn,
            opts=child(self, rows.WORKSPACE),
        )
        settings = [
            aws.amp.WorkspaceConfiguration(
                rows.WORKSPACE_SETTINGS.logical(name),
                workspace_id=workspace.id,
                retention_period_in_days=days,
                opts=child(self, rows.WORKSPACE_SETTINGS),
            )
            for days in (args.plan.retention_days,)
            if days is not None
        ]
        if args.plan.watches:
            self._alerts(workspace)
        self.workspace_arn = workspace.arn
        # The endpoint ends with a slash (https://docs.aws.amazon.com/prometheus/latest/APIReference/API_WorkspaceDescription.html, retrieved 2026-11-30).
        endpoint = workspace.prometheus_endpoint.apply(lambda found: f"{found}api/v1/remote_write")
        self.url = ready_after(endpoint, settings)
        self.register_outputs({"workspace_arn": self.workspace_arn, "url": self.url})

    def _alerts(self, workspace: aws.amp.Workspace) -> None:
        """Create the rules, and send their alerts to the recipients."""
        name, scope = self._name, self._scope
        aws.amp.RuleGroupNamespace(
            rows.STORE_RULES.logical(name),
            name="gpuinfra",
            workspace_id=workspace.id,
            data=json.dumps(store_rules(scope.cluster), indent=1, sort_keys=True),
            opts=child(self, rows.STORE_RULES),
        )
        if not self._plan.recipients:
            return
        told = topic(self, name, (rows.STORE_TOPIC, rows.STORE_RECIPIENT), self._plan.recipients)
        allowed = aws.sns.TopicPolicy(
            rows.STORE_TOPIC_POLICY.logical(name),
            arn=told.arn,
            policy=policies.document(policies.notify_of_metrics(told.arn, workspace.arn, scope.account)),
            opts=child(self, rows.STORE_TOPIC_POLICY),
        )
        aws.amp.AlertManagerDefinition(
            rows.STORE_ALERTS.logical(name),
            workspace_id=workspace.id,
            definition=told.arn.apply(lambda arn: alert_manager(scope.cluster, scope.region, arn)),
            opts=child(self, rows.STORE_ALERTS, depends_on=[allowed]),
        )


def alert_manager(cluster: str, region: str, topic_arn: str) -> str:
    """Return the definition of the alert manager, which sends all alerts to one topic. JSON is also YAML.

    `alertmanager_config` is a text (https://docs.aws.amazon.com/prometheus/latest/userguide/AMP-alertmanager-config.html, retrieved 2026-11-30). The
    region is required.
    """
    receiver = {"name": "recipients", "sns_configs": [sns_config(cluster, region, topic_arn)]}
    route = {"receiver": "recipients", "group_by": ["alertname"], "repeat_interval": "12h"}
    return json.dumps({"alertmanager_config": json.dumps({"route": route, "receivers": [receiver]})}, indent=1)


@dataclass(frozen=True, kw_only=True)
class AlertEmailArgs:
    """Arguments for the emails of one receiver."""

    scope: Scope
    plan: EmailPlan


class AlertEmail(pulumi.ComponentResource):
    """A topic to which the control node publishes alerts, and the subscriptions of the recipients."""

    topic_arn: pulumi.Output[str]

    def __init__(self, name: str, args: AlertEmailArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:AlertEmail", name, None, args.scope.options(opts))
        self.topic_arn = topic(self, name, (rows.EMAIL_TOPIC, rows.EMAIL_RECIPIENT), args.plan.recipients).arn
        self.register_outputs({"topic_arn": self.topic_arn})
