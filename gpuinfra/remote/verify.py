"""A host's evidence, taken now and over SSH: the operator's own node part is sent along, runs, and leaves.

So a host is checked by the checks of this gpuinfra, whatever is installed there, and one that was never bootstrapped is
checked as well. What comes back is evidence like that of the bucket; who judges it is `gpuinfra.verification`.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuinfra.bundle import node_part
from gpuinfra.node.dcgm import LEVELS
from gpuinfra.remote.connect import Connector
from gpuinfra.remote.deliver import ask, one_line
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, Kind

MOST_BYTES = 8 * 1024 * 1024
"""Twice what a node may write; more is no evidence, however small it came."""
STRESS_S = 2700.0
LIMIT_S = 900.0
"""Presence and correctness take seconds; checks that measure take minutes."""


class Verify:
    """The task of a fleet: the evidence of one host, as bytes."""

    def __init__(
        self,
        connector: Connector,
        expected: Callable[[Host], Mapping[str, Any]],
        *,
        phases: Sequence[str] = (),
        also: Sequence[str] = (),
        burn_in: int | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._connector = connector
        self._expected = expected
        self._part = node_part()
        self._options = [word for phase in phases for word in ("--phase", phase)]
        self._options += [word for check in also for word in ("--also", check)]
        self._limit_s = limit_s
        if burn_in:
            self._options += ["--burn-in", str(burn_in)]
            # As long as the level takes, whatever is the limit for the rest; stress until the heat is steady comes on top.
            self._limit_s += LEVELS[burn_in][1] + (STRESS_S if burn_in > 2 else 0.0)

    def __call__(self, host: Host) -> bytes:
        """Check it. Raises `HostProblem`."""
        order = {"do": "verify", "expectation": dict(self._expected(host)), "options": self._options}
        with self._connector.connect(host) as connection:
            told = ask(connection, order, self._part, limit_s=self._limit_s, keep_bytes=MOST_BYTES)
        document = _unpacked(host, told.get("document"))
        if told.get("exit") not in (0, 1) or not document:
            said = told.get("said") or ["it said nothing"]
            raise HostProblem(
                Kind.UNUSABLE,
                f"{host.name} could not be checked: {one_line(said[-1])}",
                "mend this there, then run again",
            )
        return document


def _unpacked(host: Host, text: object) -> bytes:
    """What was packed, bounded: a host may not fill the operator's memory with a few bytes."""
    try:
        unpack = zlib.decompressobj()
        data = unpack.decompress(base64.b64decode(str(text), validate=True), MOST_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        data, whole = b"", False
    else:
        whole = unpack.eof
    if not whole:
        raise HostProblem(Kind.UNUSABLE, f"{host.name} sent something that is no evidence", "log in and look")
    return data.strip()
