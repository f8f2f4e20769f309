"""The real user data, steps and checks on stand-in nodes with a small object store, without an engine."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuinfra import bundle
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.rules import load_stack
from gpuinfra_rehearsal.nodes import Instance, NodeHost
from rehearsal.tests.nodes.conftest import Nodes, wait_for
from tests.servers import Answering, serve

NAME = "i-00000000000000001"
TODAY = datetime.date(2026, 11, 21)
STACK = """config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: train
    where: {{cloud: aws, region: us-east-1, zone: use1-az4}}
    software: {software}
    pools:
      - {{name: gpu, machine: p4d.24xlarge, capacity: [{{kind: on_demand, count: 1}}]}}
    storage:
      - {{kind: lustre, mount: /scratch, capacity_gib: 4800, throughput_mb_s_per_tib: 250, bucket: auto}}
"""
KEYS = {
    "AccessKeyId": "ASIA0000000000000000",
    "SecretAccessKey": "s",
    "Token": "t",
    "Expiration": "2036-01-01T00:00:00Z",
}


@dataclass
class Account:
    """Metadata service and object store of one account, without authentication."""

    user_data: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    url: str = ""

    def evidence(self) -> list[dict[str, Any]]:
        """Uploaded evidence, oldest first."""
        names = sorted(name for name in self.objects if name.endswith(".json") and not name.endswith(".proof.json"))
        return sorted((json.loads(self.objects[name]) for name in names), key=lambda item: item["seq"])


@pytest.fixture
def account() -> Iterator[Account]:
    """A new account."""
    account = Account()

    class Handler(Answering):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not self.path.endswith("/latest/api/token"):
                account.objects[self.path] = body
            self.answer(200, b"token")

        def do_GET(self) -> None:
            _, _, metadata = self.path.partition("/latest/")
            answers = {
                "user-data": account.user_data,
                "meta-data/instance-id": self.path.split("/")[2],
                "dynamic/instance-identity/document": json.dumps(
                    {"instanceId": self.path.split("/")[2], "region": "us-east-1"}
                ),
                "meta-data/iam/security-credentials/": "node",
                "meta-data/iam/security-credentials/node": json.dumps(KEYS),
            }
            if metadata in answers:
                self.answer(200, answers[metadata].encode())
            elif self.path.partition("?")[0] in account.objects:
                self.answer(200, account.objects[self.path.partition("?")[0]])
            else:
                self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    with serve(Handler) as url:
        account.url = url
        yield account


@pytest.fixture
def node(namespaces: None, account: Account, tmp_path: Path) -> Iterator[Node]:
    """A node host with an account and without nodes."""
    host = NodeHost(tmp_path / "rehearsal", endpoint=account.url)
    host.start()
    yield Node(host, account, tmp_path)
    host.close()


@dataclass
class Node:
    """A p4d, from its plan to its evidence."""

    host: NodeHost
    account: Account
    folder: Path

    def launch(self, software: str = "{}", faults: tuple[str, ...] = ()) -> PoolPlan:
        """Plan, bundle, user data, machine."""
        stack = self.folder / "Pulumi.test.yaml"
        stack.write_text(STACK.format(software=software), encoding="utf-8")
        pool = build_plan(load_stack(stack, today=TODAY).spec, TODAY).pools[0]
        made = bundle.build(pool)
        key = made.key_of("train", "gpu")
        self.account.objects[f"/store/{key}"] = made.data
        self.account.user_data = bundle.user_data(
            {
                "schema": "gpuinfra.node/1", "cloud": "aws", "cluster": "train", "pool": "gpu", "region": "us-east-1",
                "evidence": {"bucket": "store", "prefix": "evidence/train"},
                "bundle": {"bucket": "store", "key": key, "sha256": made.sha256},
                "file_systems": [
                    {"kind": "lustre", "mount": "/scratch", "dns_name": "fs-0.fsx.us-east-1.amazonaws.com", "mount_name": "abcd"}
                ],
            }
        )  # fmt: skip
        self.host.launch(
            Instance(
                id=NAME,
                machine="p4d.24xlarge",
                os=pool.image.os,
                prebuilt=pool.image.prebuilt,
                name="gpu-1",
                faults=faults,
            )
        )
        return pool

    def verdict(self, seconds: float = 90, number: int = 1) -> dict[str, Any]:
        """The node's evidence, once `number` documents exist."""
        wait_for(
            lambda: len(self.account.evidence()) >= number or self.host.status()[0].stage == "failed",
            "evidence arrives", seconds, lambda: self.host.console(NAME)[-3000:],
        )  # fmt: skip
        assert len(self.account.evidence()) >= number, self.host.console(NAME)[-3000:]
        return self.account.evidence()[number - 1]

    def outcomes(self, evidence: dict[str, Any]) -> dict[str, str]:
        """Check id -> outcome of checks that did not pass."""
        return {check["id"]: check["outcome"] for check in evidence["checks"] if check["outcome"] != "pass"}


HEALTHY = {"B8": "warn", "F2": "skip", "F6": "skip"}
"""The node waits for a partner of the fabric test, and there is none."""
FIRST = {**HEALTHY, "D7": "warn"}
"""A driver that was installed in the boot of the first verification was not seen to survive a reboot yet."""


@pytest.mark.parametrize(
    ("software", "changed"),
    [
        pytest.param("{os: ubuntu-22.04}", False, marks=pytest.mark.long),
        pytest.param("{os: ubuntu-24.04}", False, marks=pytest.mark.long),
        pytest.param("{os: ubuntu-22.04, image: plain}", True, marks=pytest.mark.long),
        ("{os: ubuntu-24.04, image: plain}", True),
    ],
)
def test_every_image_becomes_a_healthy_node(node: Node, software: str, changed: bool) -> None:
    """Each check passes; on a plain image every step installs, on a prebuilt one the driver stays."""
    pool = node.launch(software)
    evidence = node.verdict()
    assert node.outcomes(evidence) == (FIRST if changed else HEALTHY)
    steps = {step["id"]: step for step in evidence["state"]["steps"]}
    assert list(steps) == [step.id for step in pool.steps]
    assert {step["status"] for step in steps.values()} == {"done"}
    assert {steps[name]["changed"] for name in ("35-fabric-manager", "45-nccl")} == {changed}
    assert len(evidence["gpus"]) == 8
    assert evidence["ssh_host_keys"]
    wait_for(lambda: node.host.status()[0].stage == "reported", "the node's stage is `reported`")


@pytest.mark.long
def test_a_step_that_reboots_continues_in_the_next_boot(node: Node) -> None:
    """The locked kernel is installed and booted, and modules are built for it."""
    node.launch("{os: ubuntu-22.04, image: plain, kernel: 6.8.0-1044-aws}")
    evidence = node.verdict()
    assert node.host.status()[0].boots == 2
    assert evidence["state"]["recorded"]["kernel"] == "6.8.0-1044-aws"
    assert node.outcomes(evidence) == FIRST


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        pytest.param("gpu-missing", "G1", marks=pytest.mark.long),
        pytest.param("driver-mismatch", "D2", marks=pytest.mark.long),
        pytest.param("xid-79", "X1", marks=pytest.mark.long),
        ("efa-missing", "N1"),
        pytest.param("fabric-manager-stopped", "F1", marks=pytest.mark.long),
    ],
)
def test_a_fault_fails_its_check(node: Node, fault: str, failed: str) -> None:
    """A fault fails its check, and the node still reports."""
    node.launch(faults=(fault,))
    assert node.outcomes(node.verdict(seconds=150))[failed] == "fail"


@pytest.mark.long
def test_a_second_boot_changes_nothing_and_reports_again(node: Node) -> None:
    """After a power cycle no step runs again, and the evidence has the new boot id."""
    node.launch()
    first = node.verdict()
    node.host.reboot(NAME)
    # The fabric service also uploads evidence of the first boot.
    wait_for(lambda: node.account.evidence()[-1]["boot_id"] != first["boot_id"], "the second boot reports", 90)
    second = node.account.evidence()[-1]
    assert node.outcomes(second) == HEALTHY
    assert [step["started"] for step in second["state"]["steps"]] == [
        step["started"] for step in first["state"]["steps"]
    ]


@pytest.mark.long
def test_a_removed_package_fails_its_check(node: Node) -> None:
    """Stand-ins answer from installed packages, so a check fails without its package."""
    node.launch()
    node.verdict()
    nodes = Nodes(node.host, None)  # type: ignore[arg-type]
    wait_for(lambda: nodes.stage() == "reported", "the first verdict ends")
    losses = {
        "L1": "umount /scratch; apt-get -y remove 'lustre-client-modules-6*'",
        "C2": "apt-get -y remove nvidia-container-toolkit-base; rm -f /etc/cdi/nvidia.yaml",
        "D5": "systemctl stop nvidia-persistenced",
        "D4": "apt-mark unhold $(apt-mark showhold)",
        "P2": "rm /usr/lib/modules/$(uname -r)/build",
        "D2": "apt-get -y remove nvidia-utils",
    }
    for check, command in losses.items():
        nodes.run(command)
        before = len(node.account.evidence())
        nodes.run("systemctl start gpuinfra-verify", code=None)
        # The fabric service also uploads evidence, with the outcomes of the last verification and its own result.
        wait_for(
            lambda before=before, check=check: any(check in node.outcomes(one) for one in node.account.evidence()[before:]),
            f"{check} fails after {command}", 90, lambda: str(node.outcomes(node.account.evidence()[-1])),
        )  # fmt: skip
