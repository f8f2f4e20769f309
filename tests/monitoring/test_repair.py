"""A faulty node is drained and replaced, and a second one is only reported: the service of the control node with the real Prometheus and Alertmanager.

The exporters of the nodes, the bucket and the cloud are small servers and objects of this test. `rehearsal/tests/test_repair.py` has the clouds.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.monitoring.alerts import AlertPool, AlertSeverity, rule_file
from gpuinfra.monitoring.config import AlertReceiver, ReceiverKind, alertmanager_file
from gpuinfra.node import evidence
from gpuinfra.node.cloud import CloudError, FaultyNode
from gpuinfra.node.orders import NodeOrder, orders_in
from gpuinfra.node.repair import state_in, status_in
from gpuinfra.node.repair_service import RepairFiles, RepairService
from tests.monitoring.test_delivery import program, running, wait_for
from tests.servers import Answering, free_port, serve

ORDERS, PLANNED = "bootstrap/train/monitoring/repair/orders.json", "bootstrap/train/monitoring/maintenance.json"
BAD = 'gpuinfra_check_failed{check="G10",cause="remapping-failed",outcome="fail",blocks="true"} 1\n'


class Cluster:
    """The nodes with their exporters, the bucket, and the cloud, which starts a new node when one is replaced."""

    notice_poll_s = 1.0

    def __init__(self, targets: Path) -> None:
        self.targets = targets
        self.nodes = {"i-1": "", "i-2": ""}
        """Node -> the series of its failed checks. A new node has no verified checks yet."""
        self.verified = {"i-1", "i-2"}
        self.objects: dict[str, bytes] = {}
        self.replaced: list[str] = []
        self.notified: list[dict[str, Any]] = []
        self.throttled = False

    def metrics(self, name: str) -> str:
        """The facts of a node."""
        lines = [
            f'gpuinfra_node_info{{instance_id="{name}",boot_id="boot-{name}"}} 1',
            f'node_textfile_mtime_seconds{{file="/var/lib/gpuinfra-metrics/gpuinfra.prom"}} {time.time():.0f}',
        ]
        if name in self.verified:
            lines += [
                f"gpuinfra_node_verified {int(not self.nodes[name])}",
                "gpuinfra_node_first_verified_timestamp_seconds 1",
            ]
        return "\n".join(lines) + "\n" + self.nodes[name]

    def write_targets(self, exporters: str) -> None:
        """What the service discovery finds."""
        address = exporters.partition("://")[2]
        listed = [
            {"targets": [address], "labels": {"pool": "gpu", "instance": name, "__metrics_path__": f"/{name}"}}
            for name in self.nodes
        ]
        draft = self.targets.with_suffix(".new")
        draft.write_text(json.dumps(listed))
        draft.replace(self.targets)

    def handler(self) -> type[Answering]:
        cluster = self

        class Handler(Answering):
            def do_GET(self) -> None:
                name = self.path.strip("/")
                if name in cluster.nodes:
                    self.answer(200, cluster.metrics(name).encode(), Content_Type="text/plain; version=0.0.4")
                else:
                    self.answer(404)

            def do_POST(self) -> None:
                cluster.notified.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.answer(200)

        return Handler

    # The node's cloud of the control node.

    def instance_id(self) -> str:
        return "i-control"

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        self.objects[key] = body

    def get(self, bucket: str, key: str, limit: int = 65536) -> bytes | None:
        return self.objects.get(key)

    def proof(self, evidence_sha256: str, now: object) -> dict[str, Any]:
        return {"evidence_sha256": evidence_sha256}

    def notice_sources(self) -> Mapping[str, Callable[[], list[Any]]]:
        return {}

    def replace_node(self, node: FaultyNode) -> bool:
        if self.throttled:
            raise CloudError("429 Throttling")
        assert (node.cluster, node.zones) == ("train", ("us-east-1a",))
        self.replaced.append(node.instance_id)
        self.nodes.pop(node.name)
        self.nodes[f"i-{len(self.replaced) + 2}"] = ""
        return True

    def orders(self) -> tuple[NodeOrder, ...]:
        """The orders that each node reads."""
        return orders_in(self.objects[ORDERS])


@contextmanager
def control_node(folder: Path, cluster: Cluster, exporters: str) -> Iterator[dict[str, Any]]:
    """Run Prometheus and Alertmanager, and return the settings of the service."""
    ports = {"prometheus": free_port(), "alertmanager": free_port()}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    rules = rule_file("train", [AlertPool(name="gpu", gpus=0, node=True)])
    (folder / "rules.yml").write_text(json.dumps(rules))
    prometheus = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [urls["alertmanager"].partition("://")[2]]}]}]},
        "scrape_configs": [{"job_name": "node", "file_sd_configs": [{"files": [str(cluster.targets)], "refresh_interval": "1s"}]}],
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(json.dumps(prometheus))
    receiver = AlertReceiver(name="webhook-0", kind=ReceiverKind.WEBHOOK, at_least=AlertSeverity.WARN)
    text = json.dumps(alertmanager_file([receiver])).replace('"group_wait": "10s"', '"group_wait": "1s"')
    # Debian's Alertmanager reads the URL of a webhook only from its configuration.
    text = text.replace('"url_file": "/run/gpuinfra-alertmanager/webhook-0"', f'"url": "{exporters}/hook"')
    (folder / "alertmanager.yml").write_text(text)
    sends = (program("alertmanager"), "--config.file=alertmanager.yml", f"--storage.path={folder}/alerts", "--cluster.listen-address=")  # fmt: skip
    collects = (program("prometheus"), "--config.file=prometheus.yml", f"--storage.tsdb.path={folder}/data")
    with (
        running(*sends, f"--web.listen-address=127.0.0.1:{ports['alertmanager']}", cwd=folder),
        running(*collects, f"--web.listen-address=127.0.0.1:{ports['prometheus']}", cwd=folder),
    ):
        yield {
            "cluster": "train", "mode": "replace", "at_most": 1, "deadline_s": 60, "grace_s": 3, "confirm_s": 2, "pools": ["gpu"],
            "zones": {"gpu": ["us-east-1a"]}, "alerts": {}, "orders": ORDERS, "maintenance": PLANNED, **urls,
        }  # fmt: skip


@pytest.mark.long
def test_a_fault_becomes_a_verified_replacement_and_a_second_one_is_reported(tmp_path: Path) -> None:
    """Fault, alert at the webhook, drain order with a deadline, request, new node, verified; then a second fault beyond the limit. A throttled request and
    a stopped Prometheus change nothing but the time."""
    cluster = Cluster(tmp_path / "targets.json")
    node = {
        "cloud": "aws",
        "bundle": {"bucket": "evidence"},
        "evidence": {"bucket": "evidence", "prefix": "evidence/train", "owner": "AROA2"},
    }
    files = RepairFiles(metrics=tmp_path / "repair.prom", status=tmp_path / "status.json")
    with serve(cluster.handler()) as exporters:
        cluster.write_targets(exporters)
        with control_node(tmp_path, cluster, exporters) as declared:
            service = RepairService(node, declared, cluster, files=files, report=lambda: None)

            def happened(event: str, name: str) -> bool:
                """One round, and whether an event happened."""
                cluster.write_targets(exporters)
                service.once()
                stored = cluster.objects.get(ORDERS)
                return stored is not None and any(
                    (one["event"], one["node"]) == (event, name) for one in state_in(stored).events
                )

            wait_for("the first round", lambda: happened("", "") or ORDERS in cluster.objects)
            began = time.time()
            cluster.nodes["i-1"] = BAD
            wait_for("the drain", lambda: happened("draining", "i-1"))
            (order,) = cluster.orders()
            assert (order.instance_id, order.hold) == ("i-1", False)
            assert order.deadline > began
            cluster.throttled = True
            wait_for("the request", lambda: happened("replacing", "i-1"))
            assert cluster.replaced == []
            assert "429 Throttling" in status_in(files.status.read_text()).problem
            assert time.time() >= order.deadline
            cluster.throttled = False
            wait_for("the replacement", lambda: happened("", "") or cluster.replaced == ["i-1"])
            cluster.verified.add("i-3")
            wait_for("the verified replacement", lambda: happened("verified", "i-1"))
            assert cluster.orders() == ()
            wait_for("the webhook", lambda: any("NodeCheckFailed" in json.dumps(one) for one in cluster.notified))

            cluster.nodes["i-2"] = BAD
            wait_for("the report", lambda: happened("limited", "i-2"))
            for _ in range(5):
                service.once()
            assert cluster.replaced == ["i-1"]
            assert cluster.orders() == ()
            text = files.metrics.read_text()
            assert 'gpuinfra_repair_untouched{node="i-2"} 1.0' in text
            assert "gpuinfra_repair_taken 1.0" in text
            (report,) = [json.loads(body) for key, body in cluster.objects.items() if key.endswith(f"/{evidence.boot_id()}/repair/000001.json")]  # fmt: skip
            assert report["event"]["event"] == "draining"
            assert "gpuinfra replace STACK i-1 --report-only" in report["ticket"]

            until = int(time.time()) + 3600
            entry = {"node": "i-2", "until": until, "why": "new cables"}
            cluster.objects[PLANNED] = json.dumps(
                {"schema": "gpuinfra.maintenance/1", "entries": [entry], "released": []}
            ).encode()
            service.once()
            service.once()
            listed = subprocess.run(
                ["curl", "-s", f"{declared['alertmanager']}/api/v2/silences"], capture_output=True, check=True
            ).stdout
            (silence,) = json.loads(listed)
            assert silence["matchers"] == [{"name": "instance", "value": "i-2", "isRegex": False, "isEqual": True}]
            assert silence["comment"] == "new cables"
        before = cluster.objects[ORDERS]
        service.once()
        assert cluster.objects[ORDERS] == before
