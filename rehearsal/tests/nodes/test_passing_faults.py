"""A node whose metadata service, download, clock, package lock and name servers fail in turn, from its user data to the checks."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gpuinfra import bundle
from gpuinfra_rehearsal.nodes import Instance, NodeHost
from rehearsal.tests.nodes.conftest import wait_for
from rehearsal.tests.nodes.machines import NAME, PLACES, Machine, Metadata
from tests.plan.pools import planned
from tests.servers import Answering, serve

MACHINES = {"aws": "g5.xlarge", "azure": "Standard_NC24ads_A100_v4", "gcp": "a2-highgpu-1g"}
TOKENS = ("/iam/security-credentials/", "/identity/oauth2/token", "/service-accounts/default/token")
QUICK = {"GPUINFRA_RETRY_PAUSE_S": "1", "GPUINFRA_CLOCK_PAUSE_S": "0.5", "GPUINFRA_LOCK_PAUSE_S": "0.5"}


@dataclass
class Failing:
    """The services of three clouds. First, the metadata service returns no token, and then the download is cut, each for `passing_s`."""

    passing_s: float = 3.0
    archive: bytes = b""
    metadata: Metadata = field(default_factory=Metadata)
    began: dict[str, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def lasts(self, fault: str) -> bool:
        """True until the fault has lasted; the first call begins it."""
        with self.lock:
            return time.monotonic() < self.began.setdefault(fault, time.monotonic()) + self.passing_s


def proof(path: str) -> bytes | None:
    """The answer of an identity service that a node can check: a document with its nonce, or a text with the form of a token. None for other paths."""
    query = parse_qs(urlsplit(path).query)
    if "/attested/document" in path:
        document = base64.b64encode(json.dumps({"nonce": query["nonce"][0]}).encode()).decode()
        return json.dumps({"encoding": "pkcs7", "signature": document}).encode()
    return b"header.claims.signature" if "/default/identity" in path else None


@pytest.fixture
def failing(namespaces: None) -> Iterator[Failing]:
    """The services on one port."""
    service = Failing()

    class Handler(Answering):
        def do_PUT(self) -> None:
            self.answer(200, b"token", Metadata_Flavor="Google")

        do_POST = do_PUT  # an upload to Cloud Storage

        def do_GET(self) -> None:
            if any(part in self.path for part in TOKENS) and service.lasts("metadata"):
                self.answer(503, b"")
            elif "bundle.tar.gz" not in self.path:
                answer = proof(self.path) or service.metadata.answer(self.path)
                self.answer(200 if answer is not None else 404, answer or b"", Metadata_Flavor="Google")
            elif service.lasts("download"):
                self.send_response(200)
                self.send_header("Content-Length", str(len(service.archive)))
                self.end_headers()
                self.wfile.write(service.archive[:1000])
            else:
                self.answer(200, service.archive)

    with serve(Handler) as url:
        service.url = url
        yield service


@pytest.mark.parametrize(
    ("cloud", "passing_s"),
    [
        ("aws", 3.0),
        *(pytest.param(cloud, 3.0, marks=pytest.mark.long) for cloud in ("azure", "gcp")),
        pytest.param("aws", 120.0, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_a_node_survives_faults_that_pass(failing: Failing, tmp_path: Path, cloud: str, passing_s: float) -> None:
    """Metadata service, download, clock, package lock and DNS fail one after the other: each cause is logged, and the node ends verified."""
    failing.passing_s = passing_s
    pool = planned(cloud, MACHINES[cloud], "default")
    built = bundle.build(pool)
    failing.archive = built.data
    place = "https://account.blob.core.windows.net/evidence" if cloud == "azure" else "evidence"
    config = {
        "schema": "gpuinfra.node/1", "cloud": cloud, "cluster": "train", "pool": "gpu", "region": PLACES[cloud]["region"],
        "evidence": {"bucket": place, "prefix": "evidence/train", "owner": "AROA00000000000000001"}, "file_systems": [],
        "bundle": {"bucket": place, "key": "bootstrap/bundle.tar.gz", "sha256": built.sha256},
    }  # fmt: skip
    text = bundle.user_data(config)
    if passing_s < 60:
        settings = " ".join(f"{name}={value}" for name, value in QUICK.items())
        text = text.replace("\nmain() {", f"\nprintf '%s\\n' {settings} >>/etc/environment\nmain() {{", 1)
    failing.metadata.user_data = text.encode()
    host = NodeHost(tmp_path / "rehearsal", endpoint=failing.url)
    host.start()
    node = Machine(host, pool)
    try:
        host.launch(
            Instance(
                id=NAME, machine=pool.machine, os=pool.image.os, prebuilt=pool.image.prebuilt, cloud=cloud, name="gpu-1",
                region=str(PLACES[cloud]["region"]), faults=("clock-off", "package-lock", "dns-off"), passing_s=passing_s,
            )
        )  # fmt: skip
        root = host._nodes[NAME].root
        units = root / "run/standin/units.json"

        def verified() -> bool:
            states = json.loads(units.read_text(encoding="utf-8")) if units.exists() else {}
            return bool(states.get("gpuinfra-verify.service", {}).get("ended"))

        wait_for(verified, "the checks end", 400 + 8 * passing_s, lambda: host.console(NAME)[-4000:])
        journal = node.run("journalctl", "-u", "gpuinfra-boot", "-o", "cat")[1]
        log = (root / "var/log/gpuinfra/bootstrap.log").read_text(encoding="utf-8")
        assert "HTTP 503 Service Unavailable; retrying in 1 s" in journal, journal
        assert "IncompleteRead(1000 bytes read" in journal, journal
        assert re.search(r"the clock differs by 60\d s from the metadata service; waiting for the time service", log), (
            log
        )
        assert "held by process 812 (unattended-upgr)" in log or "locked by another process with pid 812" in log, log
        assert "curl: (6) Could not resolve host: developer.download.nvidia.com" in log, log
        assert {step["status"] for step in node.state["steps"]} == {"done"}
        ended = json.loads(units.read_text(encoding="utf-8"))["gpuinfra-verify.service"]["status"]
        assert ended == 0, host.console(NAME)[-4000:]
    finally:
        host.close()


def test_a_node_that_boots_another_kernel_gets_its_headers_and_module(failing: Failing, tmp_path: Path) -> None:
    """A newer kernel, installed beside the running one before the hold, starts at the next boot: the steps whose proof fails run again."""
    failing.passing_s = 0
    pool = planned("aws", MACHINES["aws"], "default")
    host = NodeHost(tmp_path / "rehearsal", endpoint=failing.url)
    host.start()
    node = Machine(host, pool)
    try:
        node.launch("aws", file_systems=())
        code, said, _ = node.through()
        assert code == 0, said
        before = node.run("uname", "-r")[1].strip()
        newer = node.run("bash", "-c", "apt-get update >/dev/null; apt-cache pkgnames linux-image- | sort -V")[
            1
        ].split()
        code, said = node.run("bash", "-c", f"apt-mark unhold {newer[-1]}; apt-get install -y {newer[-1]}")
        assert code == 0, said
        node.reboot()
        after = node.run("uname", "-r")[1].strip()
        assert after != before
        code, said, _ = node.through()
        assert code == 0, said
        assert "20-kernel: the proof fails after this boot" in said
        assert "headers" in said
        assert node.run("test", "-e", f"/lib/modules/{after}/build/Makefile")[0] == 0
        assert after in node.run("modinfo", "-F", "vermagic", "nvidia")[1]
        assert node.state["recorded"]["kernel"] == after
    finally:
        host.close()
