"""The files of Prometheus and Alertmanager on the control node. Pure: they depend only on the declaration.

They contain no secrets. Alertmanager reads each secret from a file in memory, which `node.pyz secrets` writes before it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
STORE_URL = "${metrics_url}"
"""Address of the managed store, which the cloud assigns. `node.pyz discovery` replaces it by the value in `node.json`."""
SCRAPE_S = 30
"""The DCGM exporter collects every 30 s, so a shorter interval reads each value twice."""
URGENCY = (AlertSeverity.INFO, AlertSeverity.WARN, AlertSeverity.PAGE)
"""Severities, from the lowest to the highest."""
SUMMARY = (
    "{{ range .Alerts }}{{ .Labels.alertname }} {{ .Labels.instance }}: {{ .Annotations.summary }}{{ with .Annotations.value }} ({{ . }}){{ end }}. "
    "{{ .Annotations.action }}\n{{ end }}"
)


class ReceiverKind(StrEnum):
    """A type of service that receives alerts."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"
    EMAIL = "email"


@dataclass(frozen=True, kw_only=True)
class AlertReceiver:
    """A service that receives alerts."""

    name: str
    """Unique name, which is also the name of the file with its secret."""
    kind: ReceiverKind
    at_least: AlertSeverity
    channel: str | None = None
    email: Mapping[str, Json] | None = None
    """The receiver's section for the service of the cloud that sends emails."""


@dataclass(frozen=True, kw_only=True)
class RemoteEndpoint:
    """An endpoint for the metrics."""

    url: str
    username: str | None = None
    """User name for basic authentication, or None for a bearer token."""


@dataclass(frozen=True, kw_only=True)
class ScrapeJob:
    """One exporter on the nodes of some pools."""

    name: str
    discovery: Discovery
    pools: Sequence[str]
    drop: Sequence[tuple[Sequence[str], str]] = ()
    """Labels and a regular expression of the series that are not kept."""


UNUSED_NODE_SERIES = (
    (("__name__", "mode"), "node_cpu_seconds_total;(iowait|irq|nice|softirq|steal|system|user)"),
    (("__name__",), "node_network_(receive|transmit)_(carrier|colls|compressed|fifo|frame|multicast|nohandler)_total"),
)
"""Series of node exporter that no rule and no dashboard reads. A machine with 192 vCPUs has 1,344 series of the other CPU modes."""


def prometheus_file(
    cluster: str,
    jobs: Sequence[ScrapeJob],
    remote: RemoteEndpoint | None = None,
    store: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """Return `prometheus.yml`. Each node is one target of each job, with the labels `pool` and `instance`. `store` is the authorization of the managed
    store."""
    written = [*([_remote(remote)] if remote else []), *([{"url": STORE_URL, **store}] if store else [])]
    return {
        **({"remote_write": written} if written else {}),
        "global": {
            "scrape_interval": f"{SCRAPE_S}s",
            "evaluation_interval": f"{SCRAPE_S}s",
            "external_labels": {"cluster": cluster},
        },
        # An absolute path, because Prometheus reads a copy of this file in its runtime folder.
        "rule_files": [f"{FOLDER}/rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [ALERTMANAGER]}]}]},
        "scrape_configs": [
            *(_job(job) for job in jobs),
            {"job_name": "prometheus", "static_configs": [{"targets": [PROMETHEUS]}]},
            {"job_name": "alertmanager", "static_configs": [{"targets": [ALERTMANAGER]}]},
        ],
    }


SAMPLE_LIMIT, BODY_LIMIT = 10_000, "16MB"
"""Limits of one answer. An exporter of a healthy node has less than a third of these series. A scrape of a broken or hostile node that exceeds a limit fails,
which an alert reports, instead of filling the memory of the control node."""


def _job(job: ScrapeJob) -> dict[str, Json]:
    discovery = job.discovery
    drop = [{"source_labels": labels, "regex": regex, "action": "drop"} for labels, regex in job.drop]
    return {
        "job_name": job.name,
        "sample_limit": SAMPLE_LIMIT,
        "body_size_limit": BODY_LIMIT,
        discovery.kind: discovery.settings,
        "relabel_configs": [
            {"source_labels": [discovery.pool], "regex": "|".join(job.pools), "action": "keep"},
            {"source_labels": [discovery.pool], "target_label": "pool"},
            {"source_labels": [discovery.instance], "target_label": "instance"},
        ],
        **({"metric_relabel_configs": drop} if drop else {}),
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


def topic_name(receiver: str) -> str:
    """Return the name of the topic of a receiver in `node.json`. `${name}` stands for its address in `alertmanager.yml`."""
    return receiver.replace("-", "_")


def sns_config(cluster: str, region: str, topic_arn: str) -> dict[str, Json]:
    """Return the settings of a receiver that publishes to an SNS topic with the identity of its machine
    (https://prometheus.io/docs/alerting/latest/configuration/#sns_config, retrieved 2026-11-30). A subject of SNS has at most 100 characters."""
    return {
        "topic_arn": topic_arn,
        "sigv4": {"region": region},
        "subject": f"{cluster}: {{{{ .CommonLabels.alertname }}}} ({{{{ .Status }}}})",
        "message": SUMMARY,
        "send_resolved": True,
    }


def _severities(receiver: AlertReceiver) -> str:
    return "|".join(one.value for one in URGENCY[URGENCY.index(receiver.at_least) :])


def _receiver(receiver: AlertReceiver) -> dict[str, Json]:
    if receiver.email is not None:
        return {"name": receiver.name, **receiver.email}
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
