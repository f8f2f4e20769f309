"""Every step of machines of three clouds on stand-in nodes, on the clouds' own GPU images and on plain Ubuntu, with golden final states."""

from __future__ import annotations

import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuinfra import bundle
from gpuinfra.plan import make_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.rehearsal.nodes import Instance, NodeHost
from gpuinfra.spec import parse_spec
from tests.rehearsal.nodes.conftest import wait_for

NAME = "00000000-0000-4000-8000-000000000001"
GOLDEN = Path(__file__).parent / "golden"
TODAY = date(2026, 11, 21)
PLACES = {
    "aws": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"},
    "azure": {"cloud": "azure", "region": "eastus"},
    "gcp": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-a"},
}
LUSTRE = {"kind": "lustre", "mount": "/scratch", "dns_name": "10.0.0.4", "mount_name": "lustrefs"}
LONG = pytest.mark.long


@dataclass
class Metadata:
    """The metadata services of three clouds on one port: who the instance is, tokens for a registry, and no user data."""

    user_data: bytes = b""
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str) -> bytes | None:
        """What a path answers; None for 404."""
        self.asked.append(path)
        if path.endswith("/instance/id") or path.endswith("/meta-data/instance-id"):
            return NAME.encode()
        if "/metadata/instance?" in path:
            return json.dumps({"compute": {"vmId": NAME}}).encode()
        if path.endswith("/token"):
            return json.dumps({"access_token": "ya29.stand-in"}).encode()
        return self.user_data if path.endswith(("/user-data", "/attributes/user-data")) and self.user_data else None


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    """One port."""
    service = Metadata()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_PUT(self) -> None:
            self._send(200, b"token")

        def do_GET(self) -> None:
            answer = service.answer(self.path)
            self._send(200 if answer is not None else 404, answer or b"")

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield service
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass
class Machine:
    """One machine of any cloud, with the bundle of its pool on its disk."""

    host: NodeHost
    pool: PoolPlan

    def launch(self, cloud: str, faults: tuple[str, ...] = ()) -> None:
        """Boot it and put the bundle where user data would."""
        image = self.pool.image
        self.host.launch(
            Instance(
                id=NAME, machine=self.pool.machine, os=image.os, prebuilt=image.prebuilt, cloud=cloud, name="gpu-1",
                region=str(PLACES[cloud]["region"]), faults=faults,
            )
        )  # fmt: skip
        node = self.host._nodes[NAME]
        self.settle()
        with tarfile.open(fileobj=io.BytesIO(bundle.build(self.pool).data)) as archive:
            archive.extractall(node.root / "opt/gpuinfra/current", filter="data")
        config = {"schema": "gpuinfra.node/1", "cloud": cloud, "cluster": "train", "pool": "gpu", "region": "r"}
        (node.root / "etc/gpuinfra").mkdir()
        text = json.dumps({**config, "file_systems": [LUSTRE]})
        (node.root / "etc/gpuinfra/node.json").write_text(text, encoding="utf-8")

    def settle(self) -> None:
        """Wait until nothing is left to start."""
        node = self.host._nodes[NAME]
        wait_for(lambda: node.settled, "the node settles", more=lambda: self.host.console(NAME)[-2000:])

    def reboot(self) -> None:
        """Boot it again."""
        before = self.host._nodes[NAME].boots
        self.host.reboot(NAME)
        wait_for(lambda: self.host._nodes[NAME].boots > before, "it boots again")
        self.settle()

    def run(self, *argv: str) -> tuple[int, str]:
        """A command on it."""
        return self.host.run(NAME, argv, limit_s=90)

    def steps(self, *options: str) -> tuple[int, str]:
        """The steps once, without a reboot."""
        path = "/opt/gpuinfra/current/node.pyz"
        return self.run("python3", path, "steps", "--no-reboot", "--retry-pause-s", "0.1", *options)

    def through(self) -> tuple[int, str, int]:
        """The steps to their end over every reboot: exit code, what was said last, reboots."""
        reboots = 0
        code, said = self.steps()
        while code == 194:
            reboots += 1
            self.reboot()
            code, said = self.steps()
        return code, said, reboots

    @property
    def state(self) -> dict[str, Any]:
        """The journal."""
        return json.loads(self.run("cat", "/var/lib/gpuinfra/state.json")[1])

    def final(self) -> dict[str, Any]:
        """What the steps made of this machine: proofs, what each changed, holds, units, modules, mounts."""
        standin = json.loads((self.host._nodes[NAME].folder / "standin.json").read_text(encoding="utf-8"))
        enabled = self.run("bash", "-c", "ls /etc/systemd/system/multi-user.target.wants")[1].split()
        return {
            "recorded": self.state["recorded"],
            "steps": {step["id"]: "changed" if step["changed"] else "as found" for step in self.state["steps"]},
            "held": sorted(name for name, package in standin["packages"].items() if package.get("hold")),
            "brought": sorted(
                f"{name} {package['version']}"
                for name, package in standin["packages"].items()
                if package["from"] != "image"
            ),
            "enabled": sorted(enabled),
            "modules": sorted(standin["modules"]),
            "mounts": sorted(f"{item['source']} {item['target']} {item['type']}" for item in standin["mounts"]),
        }


def pool_of(cloud: str, machine: str, os_name: str, image: str, **more: object) -> PoolPlan:
    """One pool with Lustre."""
    software: dict[str, object] = {"os": os_name, "image": image, **more}
    if cloud == "gcp":
        software["registry"] = "us-central1-docker.pkg.dev/my-project/gpudirect"
    declared = {
        "name": "train",
        "where": PLACES[cloud],
        "software": software,
        "pools": [{"name": "gpu", "machine": machine, "capacity": [{"kind": "spot", "count": 1}]}],
        "storage": [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 18000}],
    }
    return make_plan(parse_spec(declared), TODAY).pools[0]


@pytest.fixture
def host(namespaces: None, metadata: Metadata, tmp_path: Path) -> Iterator[NodeHost]:
    """No node yet."""
    made = NodeHost(tmp_path / "rehearsal", endpoint=metadata.url)
    made.start()
    yield made
    made.close()


MATRIX = [
    pytest.param("aws", "p5.48xlarge", "ubuntu-22.04", "default", 0, marks=LONG),
    pytest.param("aws", "p6-b200.48xlarge", "ubuntu-24.04", "plain", 0, marks=LONG),
    ("azure", "Standard_ND96isr_H100_v5", "ubuntu-22.04", "default", 0),
    pytest.param("azure", "Standard_ND96isr_H200_v5", "ubuntu-24.04", "default", 0, marks=LONG),
    pytest.param("azure", "Standard_ND96amsr_A100_v4", "ubuntu-22.04", "plain", 2, marks=LONG),
    pytest.param("azure", "Standard_ND96isr_H100_v5", "ubuntu-24.04", "plain", 1, marks=LONG),
    ("gcp", "a3-megagpu-8g", "ubuntu-24.04", "default", 0),
    pytest.param("gcp", "a3-highgpu-8g", "ubuntu-24.04", "default", 0, marks=LONG),
    pytest.param("gcp", "a3-ultragpu-8g", "ubuntu-22.04", "default", 0, marks=LONG),
    pytest.param("gcp", "a4-highgpu-8g", "ubuntu-24.04", "plain", 0, marks=LONG),
    pytest.param("gcp", "a2-ultragpu-8g", "ubuntu-22.04", "default", 0, marks=LONG),
]


@pytest.mark.parametrize(("cloud", "machine", "os_name", "image", "reboots"), MATRIX)
def test_a_machine_of_any_cloud_becomes_what_the_plan_says(
    host: NodeHost, cloud: str, machine: str, os_name: str, image: str, reboots: int
) -> None:
    """All steps end in the golden state after as many reboots as expected (none on a GPU image); a second run changes nothing."""
    node = Machine(host, pool_of(cloud, machine, os_name, image))
    node.launch(cloud)
    code, said, rebooted = node.through()
    assert code == 0, said
    assert rebooted == reboots
    path = GOLDEN / f"{machine}-{os_name}-{image}.json"
    text = json.dumps(node.final(), indent=1, sort_keys=True) + "\n"
    if os.environ.get("GPUINFRA_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none of them changed something" in said, said


@pytest.mark.parametrize("cloud", ["azure", "gcp"])
def test_cloud_init_runs_user_data_as_its_cloud_hands_it_out(host: NodeHost, metadata: Metadata, cloud: str) -> None:
    """Azure's come from the provisioning disc or from compute.userData, Google's from the attribute `user-data`, once per instance."""
    import base64

    script = b"#!/bin/bash\necho ran >>/root/ran\n"
    if cloud == "azure":
        original = metadata.answer

        def answer(path: str) -> bytes | None:
            if path.endswith("/ovf-env.xml"):
                text = base64.b64encode(script).decode()
                return f'<e xmlns:w="http://w"><w:CustomData>{text}</w:CustomData></e>'.encode()
            return original(path)

        metadata.answer = answer  # type: ignore[method-assign]
    else:
        metadata.user_data = script
    machine = "Standard_NC24ads_A100_v4" if cloud == "azure" else "a2-highgpu-1g"
    node = Machine(host, pool_of(cloud, machine, "ubuntu-22.04", "plain"))
    node.launch(cloud)
    wait_for(lambda: node.run("cat", "/root/ran") == (0, "ran\n"), "user data ran")
    node.reboot()
    assert node.run("cat", "/root/ran") == (0, "ran\n")
    code, said = node.run("cloud-init", "status", "--format=json")
    assert code == 0
    assert json.loads(said)["detail"] == {"azure": "DataSourceAzure", "gcp": "DataSourceGCELocal"}[cloud]
