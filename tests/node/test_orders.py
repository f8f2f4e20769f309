"""The orders of the control node, as a node reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node.cloud import CloudError
from gpuinfra.node.notices import NoticeKind, NoticeStage, dumped, notices_in, stage_of
from gpuinfra.node.orders import PACE_S, SCHEMA, NodeOrder, OrderKind, OrderReader, pace
from gpuinfra.node.orders import dumped as dumped_orders

NOW = 1_800_000_000.0
DRAIN = NodeOrder(
    "repair i-1 a", OrderKind.DRAIN, "i-1", "the control node drains this node: G10", NOW, NOW + 300, "i-1", "boot-1"
)


class Bucket:
    """The node's cloud, with one object."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.problem = ""

    def instance_id(self) -> str:
        return "i-1"

    def get(self, bucket: str, key: str, limit: int = 0) -> bytes | None:
        assert (bucket, key) == ("evidence", "orders.json")
        if self.problem:
            raise CloudError(self.problem)
        return self.data

    def give(self, orders: Sequence[NodeOrder]) -> None:
        self.data = json.dumps({"schema": SCHEMA, "orders": dumped_orders(orders)}).encode()


class World:
    """A node with its reader."""

    def __init__(self, folder: Path, boot: str = "boot-1") -> None:
        self.bucket: Any = Bucket()
        self.now = NOW
        self.reboots = 0
        self.folder, self.boot = folder, boot
        self.start(boot)

    def start(self, boot: str) -> None:
        self.reader = OrderReader(
            self.bucket, "evidence", "orders.json", boot,
            rebooted=self.folder / "rebooted-for", reboot=self._reboot, clock=lambda: self.now,
        )  # fmt: skip

    def _reboot(self) -> None:
        self.reboots += 1


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node without orders."""
    return World(tmp_path)


def test_an_order_to_this_node_becomes_an_imminent_notice(world: World) -> None:
    """An order to another node has no effect. The own one is a notice with its deadline, of which jobs are signaled, and it ends with the order."""
    world.reader.once()
    assert world.reader.notices() == []
    world.bucket.give([NodeOrder(**{**DRAIN.__dict__, "instance_id": "i-2"}), DRAIN])
    world.reader.once()
    (notice,) = world.reader.notices()
    assert (notice.kind, notice.deadline) == (NoticeKind.DRAIN, NOW + 300)
    assert stage_of(notice, NOW) is NoticeStage.IMMINENT
    assert notices_in(dumped([notice]))[0].what == DRAIN.what
    world.bucket.give([])
    world.reader.once()
    assert world.reader.notices() == []


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"schema": "x"}', b'{"schema": "gpuinfra.repair/1", "orders": [{}]}', None]
)
def test_a_failed_reading_keeps_the_last_orders(world: World, data: bytes | None) -> None:
    """Neither an unreadable object nor a bucket that does not respond ends a drain."""
    world.bucket.give([DRAIN])
    world.reader.once()
    before = world.reader.notices()
    world.bucket.data, world.bucket.problem = data, "" if data is not None else "no answer"
    world.reader.once()
    with pytest.raises(CloudError):
        world.reader.notices()
    world.bucket.problem = ""
    world.bucket.give([DRAIN])
    world.reader.once()
    assert world.reader.notices() == before


def test_a_node_reboots_once_after_the_deadline(world: World) -> None:
    """Before the deadline, jobs save their state. After the reboot, the order stays, and the node does not reboot again, nor in another boot."""
    order = NodeOrder(**{**DRAIN.__dict__, "kind": OrderKind.REBOOT})
    world.bucket.give([order])
    world.reader.once()
    assert world.reboots == 0
    world.now = NOW + 300
    world.reader.once()
    world.reader.once()
    assert world.reboots == 1
    world.start("boot-2")
    world.reader.once()
    assert world.reboots == 1
    again = World(world.folder)
    again.now, again.bucket = world.now, world.bucket
    again.start("boot-1")
    again.reader.once()
    assert again.reboots == 0


def test_the_pace_is_at_most_the_documented_one() -> None:
    """The variable can shorten the pauses and not lengthen them."""
    assert [pace({PACE_S: value}) for value in ("3", "300", "x", "0")] == [0.1, 1.0, 1.0, 0.01]
    assert pace({}) == 1.0
