"""Nodes with the real service of the fabric test, and the real relay of the handover, on one of the three clouds in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuinfra.handover.examine import judge_node
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.handover.ports import PoolExpected
from gpuinfra.handover.relay import FabricRelay
from gpuinfra.node import cloud, evidence, fabric, fabric_run
from gpuinfra.node.fabric_relay import NodeReport, Relay
from gpuinfra.node.fabric_service import FabricService, Waiting
from tests.node.healthy import H100, PAIR, record

from .fleet import BUNDLE, INSIDE
from .hostile_world import BOOTS, PREFIX, World, id_of, signed

EXPECTATION = {**H100, "required": ["B8"], "skips": {}}
SHEET = f"bootstrap/train/gpu/{BUNDLE}.fabric.json"
TURN_S = 3.0


@dataclass
class ServedNode:
    """One honest node: its cloud, its service and its evidence."""

    world: World
    number: int
    folder: Path
    slow: bool = False
    waiting: Waiting | None = None
    boot: str = BOOTS[0]
    held: str | None = None
    """The result in the newest evidence."""
    gets: int = 0
    notice_poll_s: float = 1.0

    def __post_init__(self) -> None:
        self.service = self.started()
        self.upload()

    @property
    def name(self) -> str:
        return id_of(self.world.cloud, self.number)

    @property
    def node(self) -> dict[str, Any]:
        """The content of `node.json`."""
        place = {"bucket": "b", "prefix": PREFIX, **({"owner": self.world.owner} if self.world.owner else {})}
        return {
            "cloud": self.world.cloud, "pool": "gpu", "evidence": place,
            "bundle": {"bucket": "b", "key": f"bootstrap/train/gpu/{BUNDLE}.tar.gz", "sha256": BUNDLE},
        }  # fmt: skip

    @property
    def relay(self) -> Relay:
        """The access of this boot to the relay."""
        return Relay(self.node, self, self.boot, self.folder / f"{self.name}-{self.boot}.report.json")

    @property
    def result(self) -> Path:
        """The file with the result of this boot."""
        return self.folder / f"{self.name}-{self.boot}.json"

    def started(self) -> FabricService:
        """The service, whose all-reduce takes no time."""
        return FabricService(
            self.node, EXPECTATION, self.relay, result=self.result, measure=self.measured,
            ready=lambda: self.waiting, report=self.upload, reported=lambda: self.held,
        )  # fmt: skip

    def measured(self, step: fabric.Measure, test: str) -> fabric_run.Measured:
        """One all-reduce with any partner."""
        output = {**PAIR, "busbw_gb_s": 61.0 if self.slow else 441.5, "partner": step.partner}
        word = fabric.AllReduceOutcome(fabric.FAIL, "61.0 GB/s") if self.slow else fabric.AllReduceOutcome(fabric.PASS)
        return fabric_run.Measured(step.partner, word, record(["node.pyz", "pair"], json.dumps(output)))

    def upload(self) -> None:
        """Upload evidence with the stored result."""
        self.held = self.result.read_text() if self.result.exists() else ""
        output = record(["cat"], self.held) if self.held else record(["cat"], "", 1)
        document = {
            "schema": "gpuinfra.evidence/1", "instance_id": self.name, "boot_id": self.boot, "seq": 1, "bundle_sha256": BUNDLE,
            "probes": {"fabric-result": output}, "gpus": [], "state": {"steps": []},
        }  # fmt: skip
        folder = evidence.EvidenceFolder(self.folder / f"{self.name}-evidence")
        from gpuinfra.node import upload

        upload.deliver(self.node, {**document, "seq": folder.next_number()}, folder, self)

    def instance_id(self) -> str:
        return self.name

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        assert key.startswith(f"{self.world.folder(self.number)}/")
        if once and key in self.world.objects:
            raise cloud.Exists(key)
        assert self.world.owner or key not in self.world.objects
        self.world.write(key, body, replaces=True)

    def get(self, bucket: str, key: str, limit: int = 65536) -> bytes | None:
        self.gets += 1
        assert key.startswith("bootstrap/train/")
        return self.world.objects[key][0][:limit] if key in self.world.objects else None

    def proof(self, evidence_sha256: str, now: Any) -> dict[str, Any]:
        return json.loads(signed(self.world.cloud, self.name, evidence_sha256))

    def notice_sources(self) -> dict[str, Any]:
        return {}


@dataclass
class Handover:
    """One command that waits for the nodes of a pool."""

    world: World
    nodes: list[ServedNode]
    now: float = 0.0
    between: Callable[[], None] = lambda: None
    """Runs before each turn."""
    verdict: FleetVerdict = field(default_factory=lambda: FleetVerdict(nodes=()))

    def __post_init__(self) -> None:
        ports = self.world.ports
        self.gatherer = Gatherer(ports, [self.pool], judge_node=judge_node, workers=INSIDE)
        self.relay = FabricRelay(ports.store, "train", [self.pool], clock=lambda: self.now)

    @property
    def pool(self) -> PoolExpected:
        """The declared pool."""
        return replace(self.world.pool, expectation=EXPECTATION)

    def turn(self) -> None:
        """One poll, one turn of the relay, and one of each service."""
        self.between()
        self.verdict = self.gatherer.poll(self.verdict.names)
        self.relay.turn(self.gatherer, self.verdict)
        self.now += TURN_S
        for node in self.nodes:
            node.service.once()

    def run(self, turns: int = 40) -> dict[int, str]:
        """Continue until all honest nodes have a final verdict, at most a number of turns. Return their outcomes."""
        honest = {node.name: node.number for node in self.nodes}
        for _ in range(turns):
            self.turn()
            mine = [one for one in self.verdict.nodes if one.instance_id in honest]
            if all(one.settled and not one.needs_partner for one in mine):
                break
        self.relay.close()
        return {honest[one.instance_id]: one.outcome for one in self.verdict.nodes if one.instance_id in honest}


def world_of(cloud_name: str, folder: Path, honest: int, hostile: int = 0) -> tuple[World, Handover]:
    """A pool with some honest nodes, and hostile ones whose evidence the test writes."""
    world = World(cloud_name, honest + hostile)
    nodes = [ServedNode(world, number, folder) for number in range(1, honest + 1)]
    return world, Handover(world, nodes)


def hostile_report(
    world: World, number: int, report: NodeReport | dict[str, Any], seq: int, boot: str = BOOTS[0]
) -> None:
    """A report that a hostile node signed, in its own folder."""
    from dataclasses import asdict

    content = asdict(report) if isinstance(report, NodeReport) else report
    name = id_of(world.cloud, number)
    document = {"schema": "gpuinfra.fabric-report/1", "instance_id": name, "boot_id": boot, "seq": seq, **content}
    data = json.dumps(document).encode()
    base = f"{world.folder(number)}/{boot}/fabric/{seq:06d}"
    world.write(f"{base}.json", data)
    world.write(
        f"{base}.{seq:08x}.proof.json" if not world.owner else f"{base}.proof.json",
        signed(world.cloud, name, evidence.sha256(data)),
        replaces=True,
    )
