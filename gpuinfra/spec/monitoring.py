"""The control node, which collects the metrics of the nodes and sends alerts."""

from typing import Annotated, Literal

from pydantic import Field

from gpuinfra.spec.base import Days, Line, SpecModel
from gpuinfra.spec.formats import text

CONTROL_POOL = "monitoring"
"""Name of the pool of the control node, which no declared pool has."""

SecretName = Annotated[
    str,
    text(r"^[A-Za-z0-9/_.()-]+$", "the name of a secret in the secret store of the cloud", max_length=400),
]
"""The profile of each cloud has the exact form."""


class Receiver(SpecModel):
    """A service that receives alerts."""

    kind: Literal["webhook", "slack", "pagerduty"] = Field(examples=["slack"])
    """Type of the service: `webhook` posts Alertmanager's JSON to a URL, `slack` uses an incoming webhook, `pagerduty` uses the Events API v2."""
    secret: SecretName = Field(examples=["/alerts/slack"])
    """Name of the secret that contains the URL of the webhook, or the integration key of the PagerDuty service, in the secret store of the cloud.
    The guide `guides/monitoring.md` has its form on each cloud. Of the nodes, only the control node can read it. The declaration, the state and user data
    contain only the name."""
    channel: Line | None = Field(default=None, examples=["#gpu-alerts"])
    """Slack: channel that receives the alerts. If omitted, it is the channel of the incoming webhook."""
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
    username: Line | None = Field(default=None, examples=["gpu-cluster"])
    """User name for basic authentication. If omitted, the control node sends the secret as a bearer token."""


class Monitoring(SpecModel):
    """The control node: one machine without GPUs that runs Prometheus and Alertmanager for the cluster."""

    machine: Line | None = Field(default=None, examples=["m7i.2xlarge"])
    """Machine type of the control node, without GPUs. If omitted, a small machine type of the cloud is used, which the plan shows."""
    retention_days: Days = Field(default=30, ge=1, le=365, examples=[90])
    """Period for which the control node keeps metrics. The size of its disk follows from it. A new control node starts without metrics."""
    receivers: tuple[Receiver, ...] = Field(
        default=(), max_length=10, examples=[[{"kind": "slack", "secret": "/alerts/slack"}]]
    )
    """Services that receive alerts. If omitted, alerts are shown only in Prometheus."""
    remote_write: RemoteWrite | None = None
    """An existing Prometheus that also gets the metrics. If omitted, only the control node keeps them."""


__all__ = ["CONTROL_POOL", "Monitoring", "Receiver", "RemoteWrite"]
