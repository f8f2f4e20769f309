"""The control node, which collects the metrics of the nodes and sends alerts."""

from typing import Annotated, Literal

from pydantic import Field

from gpuinfra.spec.base import Days, Line, SpecModel
from gpuinfra.spec.formats import text
from gpuinfra.spec.policy import Email

CONTROL_POOL = "monitoring"
"""Name of the pool of the control node, which no declared pool has."""

SecretName = Annotated[
    str,
    text(r"^[A-Za-z0-9/_.()-]+$", "the name of a secret in the secret store of the cloud", max_length=400),
]
"""The profile of each cloud has the exact form."""


# The control node fills `${name}` in the files with these values, and Alertmanager evaluates `{{`.
Plain = Annotated[
    str,
    text(r"^[^\x00-\x1f\x7f${}]+$", "one line of text without a dollar sign and braces", min_length=1, max_length=256),
]


class Receiver(SpecModel):
    """A service that receives alerts."""

    kind: Literal["webhook", "slack", "pagerduty", "email"] = Field(examples=["slack"])
    """Type of the service: `webhook` posts Alertmanager's JSON to a URL, `slack` uses an incoming webhook, `pagerduty` uses the Events API v2. AWS: `email`
    creates an SNS topic, to which the control node publishes with the role of its machine."""
    secret: SecretName | None = Field(default=None, examples=["/alerts/slack"])
    """All kinds except `email`, required: name of the secret that contains the URL of the webhook, or the integration key of the PagerDuty service, in the
    secret store of the cloud. The guide `guides/monitoring.md` has its form on each cloud. Of the nodes, only the control node can read it. The declaration,
    the state and user data contain only the name."""
    channel: Plain | None = Field(default=None, examples=["#gpu-alerts"])
    """Slack: channel that receives the alerts. If omitted, it is the channel of the incoming webhook."""
    to: tuple[Email, ...] = Field(default=(), max_length=10, examples=[["gpu-oncall@example.com"]])
    """Email: addresses that receive the alerts. Each recipient confirms the subscription once. If omitted, these are `budget.recipients`."""
    at_least: Literal["page", "warn", "info"] = Field(default="warn", examples=["page"])
    """Lowest severity that the receiver gets: `page` is the highest, and `info` gets all alerts."""


class RemoteWrite(SpecModel):
    """An existing Prometheus, or a service that accepts its remote write protocol, to which the control node sends all metrics."""

    url: Annotated[
        str,
        text(
            r"^https://[A-Za-z0-9.-]+(/[A-Za-z0-9._~/-]*)?$",
            "an https URL without a port, such as https://prometheus.example.com/api/v1/write",
            max_length=500,
        ),
    ] = Field(examples=["https://prometheus.example.com/api/v1/write"])
    """URL of the endpoint, on port 443. Each metric has the label `cluster` with the name of the stack's cluster."""
    secret: SecretName = Field(examples=["/metrics/token"])
    """Name of the secret that contains the bearer token of the endpoint, or the password if `username` is set, in the secret store of the cloud.
    It has the same form as the secret of a receiver."""
    username: Plain | None = Field(default=None, examples=["gpu-cluster"])
    """User name for basic authentication. If omitted, the control node sends the secret as a bearer token."""


class Monitoring(SpecModel):
    """The control node: one machine without GPUs that runs Prometheus and Alertmanager for the cluster."""

    machine: Line | None = Field(default=None, examples=["m7i.2xlarge"])
    """Machine type of the control node, without GPUs. If omitted, a small machine type of the cloud is used, which the plan shows."""
    retention_days: Days = Field(default=30, ge=1, le=365, examples=[90])
    """Period for which the control node keeps metrics. The size of its data disk follows from it. The disk stays when the node is replaced."""
    receivers: tuple[Receiver, ...] = Field(
        default=(), max_length=10, examples=[[{"kind": "slack", "secret": "/alerts/slack"}]]
    )
    """Services that receive alerts. If omitted, alerts are shown only in Prometheus."""
    remote_write: RemoteWrite | None = None
    """An existing Prometheus that also gets the metrics. If omitted, only the control node keeps them."""
    store: Literal["managed"] | None = Field(default=None, examples=["managed"])
    """AWS: `managed` creates a workspace of Amazon Managed Service for Prometheus, to which the control node also sends all metrics, with the role of its
    machine. The workspace reports to `budget.recipients` that the control node is gone or cannot send alerts. If omitted, there is no workspace."""
    store_retention_days: Days | None = Field(default=None, ge=1, le=1095, examples=[400])
    """Period for which the managed store keeps metrics. If omitted, it is the period of the service, 150 days."""


__all__ = ["CONTROL_POOL", "Monitoring", "Receiver", "RemoteWrite"]
