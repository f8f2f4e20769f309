"""Machines of three clouds on stand-in nodes, with the bundle of their pool and one metadata service."""

from __future__ import annotations

import base64
import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuinfra import bundle
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.nodes import Instance, NodeHost
from rehearsal.tests.nodes.conftest import wait_for
from tests.servers import Answering, serve

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
    """The metadata services of three clouds on one port: identity, registry tokens, and no user data."""

    user_data: bytes = b""
    secrets: dict[str, str] = field(default_factory=dict)
    """Parameters of AWS Systems Manager."""
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str) -> bytes | None:
        """Answer of a path; None for 404."""
        self.asked.append(path)
        if path.endswith("/computeMetadata/v1/instance/id"):
            return b"1000000000000000001"
        if path.endswith("/instance/id") or path.endswith("/meta-data/instance-id"):
            return NAME.encode()
        if path.endswith("/instance-identity/document"):
            return json.dumps({"instanceId": NAME, "region": "us-east-1", "accountId": "1"}).encode()
        if "/metadata/instance/compute?" in path:
            return json.dumps({"vmId": NAME}).encode()
        if "/metadata/instance?" in path:
            return json.dumps({"compute": {"vmId": NAME}}).encode()
        if path.endswith("/token"):
            return json.dumps({"access_token": "ya29.stand-in"}).encode()
        if "/.gcp/storage/storage/v1/b/" in path:
            return b'{"items": []}'
        if path.endswith("/iam/security-credentials/"):
            return b"nodes"
        if path.endswith("/iam/security-credentials/nodes"):
            return json.dumps({"AccessKeyId": "ASIA", "SecretAccessKey": "secret", "Token": "token"}).encode()
        if "/identity/oauth2/token?" in path:
            return json.dumps({"access_token": "standin.token"}).encode()
        if "?restype=container&comp=list" in path:
            return b"<EnumerationResults></EnumerationResults>"
        if "?list-type=2" in path:
            return b"<ListBucketResult></ListBucketResult>"
        if path.endswith("/ovf-env.xml") and self.user_data:
            text = base64.b64encode(self.user_data).decode()
            return f'<e xmlns:w="http://w"><w:CustomData>{text}</w:CustomData></e>'.encode()
        return self.user_data if path.endswith(("/user-data", "/attributes/user-data")) and self.user_data else None


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    """The metadata service."""
    service = Metadata()

    class Handler(Answering):
        def do_PUT(self) -> None:
            self.answer(200, b"token", Metadata_Flavor="Google")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if b"Action=DescribeInstances" in body:
                self.answer(200, b"<DescribeInstancesResponse></DescribeInstancesResponse>")
            elif (value := service.secrets.get(str(json.loads(body)["Name"]))) is None:
                self.answer(400, b'{"__type": "ParameterNotFound"}')
            else:
                self.answer(200, json.dumps({"Parameter": {"Value": value}}).encode())

        def do_GET(self) -> None:
            answer = service.answer(self.path)
            self.answer(200 if answer is not None else 404, answer or b"", Metadata_Flavor="Google")

    with serve(Handler) as url:
        service.url = url
        yield service


@dataclass
class Machine:
    """One machine of any cloud with the bundle of its pool."""

    host: NodeHost
    pool: PoolPlan

    def launch(
        self,
        cloud: str,
        faults: tuple[str, ...] = (),
        file_systems: tuple[dict[str, str], ...] = (LUSTRE,),
        **more: str,
    ) -> None:
        """Boot the machine and install the bundle where user data does. `more` are other fields of `node.json`."""
        image = self.pool.image
        self.host.launch(
            Instance(
                id=NAME, machine=self.pool.machine, os=image.os, prebuilt=image.prebuilt, cloud=cloud, name="gpu-1",
                region=str(PLACES[cloud]["region"]), faults=faults,
            )
        )  # fmt: skip
        node = self.host._nodes[NAME]
        self.settle()
        self.unpack()
        config: dict[str, Any] = {
            "schema": "gpuinfra.node/1",
            "cloud": cloud,
            "cluster": "train",
            "pool": "gpu",
            "region": "r",
        }
        config["bundle"] = {"bucket": "evidence"}
        (node.root / "etc/gpuinfra").mkdir()
        text = json.dumps({**config, "file_systems": list(file_systems), **more})
        (node.root / "etc/gpuinfra/node.json").write_text(text, encoding="utf-8")

    def unpack(self) -> None:
        """Install the bundle of the pool, replacing an earlier one."""
        target = self.host._nodes[NAME].root / "opt/gpuinfra/current"
        shutil.rmtree(target, ignore_errors=True)
        with tarfile.open(fileobj=io.BytesIO(bundle.build(self.pool).data)) as archive:
            archive.extractall(target, filter="data")

    def settle(self) -> None:
        """Wait until the machine has settled."""
        node = self.host._nodes[NAME]
        wait_for(lambda: node.settled, "the node settles", more=lambda: self.host.console(NAME)[-2000:])

    def reboot(self) -> None:
        """Reboot the machine."""
        before = self.host._nodes[NAME].boots
        self.host.reboot(NAME)
        wait_for(lambda: self.host._nodes[NAME].boots > before, "it boots again")
        self.settle()

    def run(self, *argv: str) -> tuple[int, str]:
        """Run a command."""
        return self.host.run(NAME, argv, limit_s=600)

    def steps(self, *options: str) -> tuple[int, str]:
        """Run the steps once, without a reboot."""
        path = "/opt/gpuinfra/current/node.pyz"
        quick = ("env", "GPUINFRA_RETRY_PAUSE_S=0", "python3", path, "steps", "--no-reboot", "--retry-pause-s", "0.1")
        return self.run(*quick, *options)

    def through(self) -> tuple[int, str, int]:
        """Run the steps to their end over all reboots; returns exit code, last output and number of reboots."""
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
        """The final state: proofs, changes of each step, holds, units, modules, mounts."""
        standin = json.loads((self.host._nodes[NAME].folder / "standin.json").read_text(encoding="utf-8"))
        enabled = self.run("bash", "-c", "ls /etc/systemd/system/multi-user.target.wants")[1].split()
        return {
            "recorded": {
                name: "a boot" if name == "driver_boot" else value for name, value in self.state["recorded"].items()
            },
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


def pool_of(
    cloud: str,
    machine: str,
    os_name: str,
    image: str,
    *,
    home: bool = False,
    buckets: tuple[dict[str, object], ...] = (),
    lustre: dict[str, object] | None = None,
    software: dict[str, object] | None = None,
    **more: object,
) -> PoolPlan:
    """A pool with Lustre and, on request, home directories and mounted buckets; `software` adds fields, and `more` are fields of the pool."""
    software = {"os": os_name, "image": image, **(software or {})}
    if cloud == "gcp":
        software["registry"] = "us-central1-docker.pkg.dev/my-project/gpudirect"
    storage: list[dict[str, object]] = [
        {"kind": "lustre", "mount": "/scratch", "capacity_gib": 18000, **(lustre or {})}
    ]
    if home:
        storage.append({"kind": "home", "mount": "/home", "capacity_gib": 2560})
    storage += buckets
    declared = {
        "name": "train",
        "where": PLACES[cloud],
        "software": software,
        "pools": [{"name": "gpu", "machine": machine, "capacity": [{"kind": "spot", "count": 1}], **more}],
        "storage": storage,
    }
    return build_plan(parse_spec(declared), TODAY).pools[0]


@pytest.fixture
def host(namespaces: None, metadata: Metadata, tmp_path: Path) -> Iterator[NodeHost]:
    """A node host without nodes."""
    made = NodeHost(tmp_path / "rehearsal", endpoint=metadata.url)
    made.start()
    yield made
    made.close()
