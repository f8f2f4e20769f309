"""Prometheus of the release that the control node runs writes to a managed store, with the identity of its machine."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.monitoring.config import FOLDER
from gpuinfra.node import discovery, secrets
from gpuinfra.node.console import NODE
from gpuinfra.plan.make import build_plan
from gpuinfra.software.tables import PROMETHEUS
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.cloud.aws import signatures
from gpuinfra_rehearsal.cloud.aws.credentials import KeyPair, Principal
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.http import Request
from tests.monitoring.test_delivery import wait_for
from tests.rules.cases import MONITORING, TODAY, declaration
from tests.servers import Answering, free_port, serve

MODULE = Path(__file__).parent / "prometheus"
PACKAGE = "github.com/prometheus/prometheus/cmd/prometheus"
PATIENCE_S = 3600
WRITE = "/workspaces/ws-0f1e2d3c/api/v1/remote_write"
ROLE = Principal(
    "instance", "arn:aws:sts::111122223333:assumed-role/control/i-1", "AROA:i-1", token="the-session-token"
)
KEY = KeyPair("ASIAEXAMPLE", "the-secret-of-the-role", ROLE)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prometheus, built from the version that `prometheus/go.sum` pins, without its service discoveries, which the test does not use."""
    program = tmp_path_factory.mktemp("prometheus") / "prometheus"
    words = ["go", "build", "-mod=readonly", "-buildvcs=false", "-tags=remove_all_sd", "-o", str(program), PACKAGE]
    subprocess.run(words, cwd=MODULE, check=True, timeout=PATIENCE_S)
    return program


class Store:
    """A store that accepts only requests that the key of the role signed, and the metadata service of the machine."""

    def __init__(self, secret: str = KEY.secret) -> None:
        self.secret = secret
        """Secret that the metadata service gives to Prometheus."""
        self.written: list[signatures.Verified] = []
        self.bodies: list[bytes] = []
        self.refused: list[str] = []

    def handler(self) -> type[Answering]:
        store = self

        class Handler(Answering):
            def do_PUT(self) -> None:
                self.answer(200, b"metadata-token", X_aws_ec2_metadata_token_ttl_seconds="21600")

            def do_GET(self) -> None:
                role = "/latest/meta-data/iam/security-credentials/"
                if self.headers["X-aws-ec2-metadata-token"] != "metadata-token":
                    self.answer(401)
                elif self.path == role:
                    self.answer(200, b"control")
                elif self.path == f"{role}control":
                    self.answer(200, json.dumps(store.credentials()).encode(), Content_Type="application/json")
                else:
                    self.answer(404)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                path, _, query = self.path.partition("?")
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request("POST", path, query, headers, body)
                try:
                    found = signatures.verify(request, lambda key: KEY if key == KEY.id else None)
                except ApiRejected as problem:
                    store.refused.append(problem.code)
                    self.answer(403)
                    return
                store.bodies.append(body)
                store.written.append(found)
                self.answer(200 if path == WRITE else 404)

        return Handler

    def credentials(self) -> dict[str, str]:
        ends = (datetime.now(UTC) + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = {"AccessKeyId": KEY.id, "SecretAccessKey": self.secret, "Token": ROLE.token}
        return {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "LastUpdated": "2026-11-30T00:00:00Z",
            "Expiration": ends,
            **keys,
        }


def configuration(folder: Path, there: str, own: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the configuration of the plan as the control node does, and replace the addresses that a test does not have."""
    spec = parse_spec(declaration(("aws", {"monitoring": {**MONITORING, "store": "managed"}})))
    (pool,) = [one for one in build_plan(spec, TODAY).pools if one.name == "monitoring"]
    planned = {one.path: one.content for one in pool.files}[f"{FOLDER}/prometheus.yml"]
    (folder / "prometheus.yml").write_text(planned)
    (folder / "names.json").write_text("{}")
    (folder / "run").mkdir()
    node = {"metrics_url": f"https://aps-workspaces.us-east-1.amazonaws.com{WRITE}"}
    for module in (discovery, secrets):
        monkeypatch.setattr(module, "load", lambda path, *_: node if path == NODE else {})
    discovery.discovery(argparse.Namespace(), folder / "prometheus.yml", folder / "run", folder / "names.json")
    content: dict[str, Any] = json.loads((folder / "run" / "prometheus.yml").read_text())
    (written,) = content["remote_write"]
    assert written["url"] == node["metrics_url"]
    written["url"] = there + WRITE
    content["scrape_configs"] = [{"job_name": "prometheus", "static_configs": [{"targets": [own]}]}]
    content["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
    del content["rule_files"], content["alerting"]
    (folder / "test.yml").write_text(json.dumps(content))
    return folder / "test.yml"


@contextmanager
def writing(program: Path, folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Prometheus that writes to a store. Yields its own address."""
    own = f"127.0.0.1:{free_port()}"
    with serve(store.handler()) as there:
        config = configuration(folder, there, own, monkeypatch)
        arguments = (f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={own}")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environ = {**kept, "AWS_EC2_METADATA_SERVICE_ENDPOINT": there, "HOME": str(folder)}
        log = folder / "prometheus.log"
        with log.open("w") as output:
            process = subprocess.Popen([str(program), *arguments], stdout=output, stderr=output, env=environ)
            try:
                yield own
            except BaseException:
                print(log.read_text()[-3000:])
                raise
            finally:
                process.terminate()
                process.wait(60)


def value(own: str, expression: str) -> float:
    """The value of an instant query, or 0 without a result."""
    url = f"http://{own}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=5) as reply:
        found = json.load(reply)["data"]["result"]
    return float(found[0]["value"][1]) if found else 0.0


@pytest.mark.long
def test_prometheus_signs_with_the_role_of_the_machine(
    prometheus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store accepts the metrics, because the signature is that of the role, for the region and the service of the workspace."""
    store = Store()
    with writing(prometheus, tmp_path, store, monkeypatch):
        wait_for("metrics in the store", lambda: store.written, 120)
    assert {(one.key.id, one.region, one.service) for one in store.written} == {(KEY.id, "us-east-1", "aps")}
    assert store.refused == []
    assert any(b"cluster" in body and b"train" in body for body in store.bodies)


@pytest.mark.long
def test_a_wrong_signature_is_refused(prometheus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not accept the signature stores nothing, and Prometheus counts the samples that failed."""
    store = Store(secret="another-secret")
    with writing(prometheus, tmp_path, store, monkeypatch) as own:
        wait_for("a refusal", lambda: store.refused, 120)
        wait_for("failed samples", lambda: value(own, "prometheus_remote_storage_samples_failed_total") > 0, 120)
    assert set(store.refused) == {"SignatureDoesNotMatch"}
    assert store.written == []


def test_the_tests_build_the_release_of_the_control_node() -> None:
    """The pinned module is the release in the software lock: release 3.13.2 is version 0.313.2 of the module."""
    major, minor, patch = map(int, PROMETHEUS.version.split("."))
    assert f"{PACKAGE.partition('/cmd/')[0]} v0.{major}{minor:02}.{patch}" in (MODULE / "go.mod").read_text()
