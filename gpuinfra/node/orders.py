"""The orders of the control node to the nodes of its cluster: drain, and reboot after a drain.

    bootstrap/<cluster>/monitoring/repair/orders.json      the orders and the state of the repair, which only the control node can write
    bootstrap/<cluster>/monitoring/maintenance.json        planned work, which only the operator can write

Each node reads the orders from the bucket with the right that it has for its bundle. An order becomes a notice, so jobs are signaled as before an
interruption, and hooks run. A node does nothing else, except for a reboot. It never reads what another node wrote.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping

from .cloud import CloudError, NodeCloud
from .console import print_message
from .journal import write_whole
from .notices import Notice, NoticeKind
from .outcome import Unreadable, shortened

SCHEMA = "gpuinfra.repair/1"
MOST_BYTES = 4 << 20
READ_S = 30.0
"""Seconds between two readings of the orders. They are chosen at random between half and one and a half times this value."""
REBOOTED = Path("/var/lib/gpuinfra/rebooted-for")
"""The order for which this node rebooted last, so that it reboots once. It is kept when the node reboots."""
REBOOT = ("systemctl", "reboot")
PACE_S = "GPUINFRA_REPAIR_ROUND_S"
"""Environment variable: seconds between two rounds of the repair, instead of 30. The other times change in proportion, except for deadlines."""


def pace(environ: Mapping[str, str] = os.environ) -> float:
    """Return the factor for all pauses of the repair, at most 1."""
    try:
        return min(1.0, max(0.01, float(environ[PACE_S]) / READ_S))
    except (KeyError, ValueError):
        return 1.0


class OrderKind(str, Enum):
    """What a node does."""

    DRAIN = "drain"
    """Signal the jobs, and accept no new ones. The cloud or the operator then replaces the node, or it is kept for diagnosis."""
    REBOOT = "reboot"
    """Reboot after the deadline of the drain."""


@dataclass(frozen=True)
class NodeOrder:
    """What the control node orders one node."""

    id: str
    """Identifies the order in the cluster."""
    kind: OrderKind
    instance_id: str
    what: str
    since: float
    deadline: float
    """Time until which jobs can save their state, as Unix time."""
    node: str
    """Name of the node in the metrics."""
    boot: str
    """Boot of the node to which the order applies."""
    hold: bool = False
    """Whether the node is kept for diagnosis."""


def orders_in(data: bytes) -> tuple[NodeOrder, ...]:
    """Return the orders in the state of the repair. Raises `Unreadable` if it has a different form."""
    try:
        document = json.loads(data)
        if document["schema"] != SCHEMA:
            raise Unreadable("the schema is not %s" % SCHEMA)
        return tuple(order_of(one) for one in document["orders"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable("the orders cannot be read: %s" % shortened(repr(error), 80)) from None


def order_of(record: dict[str, Any]) -> NodeOrder:
    """Return one order. Raises `KeyError`, `TypeError` or `ValueError` if it has a different form."""
    times = float(record["since"]), float(record["deadline"])
    texts = {
        name: shortened(str(record[name]), 200 if name == "what" else 128)
        for name in ("id", "instance_id", "what", "node", "boot")
    }
    return NodeOrder(
        kind=OrderKind(record["kind"]), since=times[0], deadline=times[1], hold=record["hold"] is True, **texts
    )


class OrderReader:
    """The orders to one node. They are read in a thread, because a request can take longer than the notice of a cloud."""

    def __init__(
        self,
        cloud: NodeCloud,
        bucket: str,
        key: str,
        boot: str,
        *,
        rebooted: Path = REBOOTED,
        reboot: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cloud, self._bucket, self._key, self._boot = cloud, bucket, key, boot
        self._rebooted, self._reboot, self._clock = rebooted, reboot or _reboot, clock
        self._orders: tuple[NodeOrder, ...] = ()
        self._problem = ""

    def start(self) -> None:
        """Read until the process ends."""
        threading.Thread(target=self._forever, daemon=True).start()

    def notices(self) -> list[Notice]:
        """Return a notice for each order to this node. Raises `CloudError` if the last reading failed."""
        if self._problem:
            raise CloudError(self._problem)
        return [Notice(one.id, NoticeKind.DRAIN, one.what, one.deadline) for one in self._orders]

    def once(self) -> None:
        """Read the orders, and reboot if an order says so. After a failed reading, the last orders apply."""
        try:
            me = self._cloud.instance_id()
            data = self._cloud.get(self._bucket, self._key, MOST_BYTES)
            orders = () if data is None else orders_in(data)
        except (CloudError, Unreadable) as error:
            self._problem = str(error)
            return
        self._problem, self._orders = "", tuple(one for one in orders if one.instance_id == me)
        for order in self._orders:
            if order.kind is OrderKind.REBOOT and order.boot == self._boot and self._clock() >= order.deadline:
                self._reboot_once(order)

    def _reboot_once(self, order: NodeOrder) -> None:
        """Reboot for an order, unless this node already rebooted for it: the order stays until the checks of the new boot passed."""
        try:
            if self._rebooted.read_text(encoding="utf-8") == order.id:
                return
        except OSError:
            pass
        write_whole(self._rebooted, order.id)
        print_message("the control node orders a reboot: %s" % order.what, console=True)
        self._reboot()

    def _forever(self) -> None:
        while True:
            try:
                self.once()
            except Exception as error:  # a full disk, for example, must not end the thread
                self._problem = shortened(repr(error), 200)
            time.sleep(READ_S * pace() * random.uniform(0.5, 1.5))


def dumped(orders: Iterable[NodeOrder]) -> list[dict[str, Any]]:
    """Return the orders as JSON."""
    return [{**one.__dict__, "kind": one.kind.value} for one in orders]


def _reboot() -> None:
    done = subprocess.run(REBOOT, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        print_message("%s: exit code %d" % (" ".join(REBOOT), done.returncode))
