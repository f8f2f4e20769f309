"""The files of Prometheus and Alertmanager on the control node. Pure: they depend only on the declaration.

They contain no secrets. Alertmanager reads each secret from a file in memory, which `node.pyz secrets` writes before it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuinfra.monitoring.alerts import AlertSeverity
from gpuinfra.monitoring.discovery import Discovery, Json

FOLDER = "/etc/gpuinfra-monitoring"
SECRETS = "/run/gpuinfra-alertmanager"
"""Runtime folder of gpuinfra-alertmanager.service, which only its user and root can read."""
PROMETHEUS, ALERTMANAGER = "127.0.0.1:9090", "127.0.0.1:9093"
PROMETHEUS_SECRETS = "/run/gpuinfra-prometheus"
"""Runtime folder of gpuinfra-prometheus.service."""
REMOTE_WRITE = "remote-write"
"""Name of the file with the secret of the remote endpoint."""
SCRAPE_S = 30
"""The DCGM exporter collects every 30 s, so a shorter interval reads each value twice."""
URGENCY = (AlertSeverity.INFO, AlertSeverity.WARN, AlertSeverity.PAGE)
"""Severities, from the lowest to the highest."""
SUMMARY = "{{ range .Alerts }}{{ .Labels.alertname }} {{ .Labels.instance }}: {{ .Annotations.summary }}. {{ .Annotations.action }}\n{{ end }}"


class ReceiverKind(StrEnum):
    """A type of service that receives alerts."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"


@dataclass(frozen=True, kw_only=True)
class AlertReceiver:
    """A service that receives alerts."""

    name: str
    """Unique name, which is also the name of the file with its secret."""
    kind: ReceiverKind
    at_least: AlertSeverity
    channel: str | None = None


@dataclass(frozen=True, kw_only=True)
class RemoteEndpoint:
    """An endpoint for the metrics."""

    url: str
    username: str | None = None
    """User name for basic authentication, or None for a bearer token."""


def prometheus_file(
    cluster: str, discovery: Discovery, pools: Sequence[str], remote: RemoteEndpoint | None = None
) -> dict[str, Json]:
    """Return `prometheus.yml`. Each node of `pools` is one target with the labels `pool` and `instance`."""
    return {
        **({"remote_write": [_remote(remote)]} if remote else {}),
        "global": {
            "scrape_interval": f"{SCRAPE_S}s",
            "evaluation_interval": f"{SCRAPE_S}s",
            "external_labels": {"cluster": cluster},
        },
        # An absolute path, because Prometheus reads a copy of this file in its runtime folder.
        "rule_files": [f"{FOLDER}/rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [ALERTMANAGER]}]}]},
        "scrape_configs": [
            {
                "job_name": "dcgm",
                discovery.kind: discovery.settings,
                "relabel_configs": [
                    {"source_labels": [discovery.pool], "regex": "|".join(pools), "action": "keep"},
                    {"source_labels": [discovery.pool], "target_label": "pool"},
                    {"source_labels": [discovery.instance], "target_label": "instance"},
                ],
            },
            {"job_name": "prometheus", "static_configs": [{"targets": [PROMETHEUS]}]},
            {"job_name": "alertmanager", "static_configs": [{"targets": [ALERTMANAGER]}]},
        ],
    }


def _remote(remote: RemoteEndpoint) -> dict[str, Json]:
    """Prometheus reads the file with the secret for each request."""
    secret = f"{PROMETHEUS_SECRETS}/{REMOTE_WRITE}"
    if remote.username is None:
        return {"url": remote.url, "authorization": {"credentials_file": secret}}
    return {"url": remote.url, "basic_auth": {"username": remote.username, "password_file": secret}}


def alertmanager_file(receivers: Sequence[AlertReceiver]) -> dict[str, Json]:
    """Return `alertmanager.yml`. Each receiver gets the alerts of its severity and higher."""
    return {
        "route": {
            "receiver": "none",
            "group_by": ["alertname", "pool"],
            "group_wait": "10s",
            "group_interval": "5m",
            "repeat_interval": "12h",
            "routes": [
                {"receiver": one.name, "matchers": [f'severity=~"{_severities(one)}"'], "continue": True}
                for one in receivers
            ],
        },
        "receivers": [{"name": "none"}, *(_receiver(one) for one in receivers)],
    }


def _severities(receiver: AlertReceiver) -> str:
    return "|".join(one.value for one in URGENCY[URGENCY.index(receiver.at_least) :])


def _receiver(receiver: AlertReceiver) -> dict[str, Json]:
    secret = f"{SECRETS}/{receiver.name}"
    settings: dict[str, Json]
    if receiver.kind is ReceiverKind.SLACK:
        settings = {"api_url_file": secret, "title": "{{ .CommonLabels.alertname }} ({{ .Status }})", "text": SUMMARY}
        settings |= {"channel": receiver.channel} if receiver.channel else {}
    elif receiver.kind is ReceiverKind.PAGERDUTY:
        severity = '{{ if eq .CommonLabels.severity "page" }}critical{{ else }}warning{{ end }}'
        settings = {"routing_key_file": secret, "severity": severity, "description": SUMMARY}
    else:
        settings = {"url_file": secret}
    return {"name": receiver.name, f"{receiver.kind.value}_configs": [{"send_resolved": True, **settings}]}
