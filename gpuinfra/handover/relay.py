"""Runs the fabric tests of the pools while a command waits for their nodes: reads the signed reports, and publishes one sheet for each pool.

The sheet is next to the bundle of the pool, where only the operator can write. From the reports, it contains the number of GPUs and the NCCL ID of a
partner, which have a form, and the reason of a failed all-reduce, which is short and without control characters.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from gpuinfra.base import naming
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.handover.pairing import PoolTest
from gpuinfra.handover.ports import EvidenceStore, PoolExpected, PortUnavailable
from gpuinfra.node.checks.fabric_test import FabricTest
from gpuinfra.node.fabric_relay import FabricSheet


class FabricRelay:
    """The fabric tests of all pools that require them."""

    def __init__(
        self,
        store: EvidenceStore,
        cluster: str,
        pools: Sequence[PoolExpected],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._clock = store, clock
        tested = [pool for pool in pools if FabricTest.id in _required(pool)]
        self._tests = {pool.name: PoolTest(secrets.token_hex(8)) for pool in tested}
        self._keys = {pool.name: naming.fabric_sheet(cluster, pool.name, pool.bundle_sha256) for pool in tested}
        self._published: dict[str, FabricSheet] = {}
        self.problem = ""
        """Why the newest sheet could not be published or the reports could not be read, or empty."""

    def turn(self, gatherer: Gatherer, verdict: FleetVerdict) -> bool:
        """Continue the tests after a poll. Return True if the next event is expected soon, so that the next poll follows soon."""
        self.problem = ""
        asked = [node for node in verdict.nodes if node.instance_id in gatherer.in_test]
        try:
            reports = gatherer.reports(asked) if asked else {}
        except PortUnavailable as error:
            self.problem = str(error)
            return True
        calls: set[str] = set()
        for pool, test in self._tests.items():
            sheet = test.turn([node for node in verdict.nodes if node.pool == pool], reports, self._clock())
            calls |= sheet.calls.keys()
            # Also a sheet without requests: S3 denies a node that cannot list the bucket the access to an object that does not exist.
            self._publish(pool, sheet)
        gatherer.in_test = frozenset(calls)
        return any(test.is_eventful(self._clock()) for test in self._tests.values())

    def close(self) -> None:
        """Publish sheets without requests, so that the nodes stop waiting for this command."""
        for pool in tuple(self._published):
            self._publish(pool, FabricSheet("", {}))

    def _publish(self, pool: str, sheet: FabricSheet) -> None:
        if self._published.get(pool) == sheet:
            return
        try:
            self._store.publish(self._keys[pool], sheet.document())
            self._published[pool] = sheet
        except PortUnavailable as error:
            self.problem = f"the object {self._keys[pool]} of the fabric test cannot be written: {error}"


def _required(pool: PoolExpected) -> Sequence[object]:
    required = pool.expectation.get("required")
    return required if isinstance(required, list | tuple) else ()
