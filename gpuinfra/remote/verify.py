"""Collects new evidence from a host over SSH. The operator's node program is copied to the host and then removed.

The checks come from the operator's version of gpuinfra, even if the host was never bootstrapped. The evidence has the same format as the evidence in the
bucket; `gpuinfra.verification` judges it.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuinfra.base.safe_text import one_line
from gpuinfra.bundle import node_program
from gpuinfra.node.dcgm import LEVELS
from gpuinfra.remote.connect import Connector
from gpuinfra.remote.deliver import call_agent
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, ProblemKind

MAX_EVIDENCE_BYTES = 8 * 1024 * 1024
"""Size limit for the uncompressed evidence: twice the maximum size that a node writes."""
STRESS_S = 2700.0
LIMIT_S = 900.0
"""The phases presence and correctness take seconds; measurements take minutes."""


class Verify:
    """The fleet task that returns the evidence of one host as bytes."""

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
        self._part = gzip.compress(node_program())
        self._options = [word for phase in phases for word in ("--phase", phase)]
        self._options += [word for check in also for word in ("--also", check)]
        self._limit_s = limit_s
        if burn_in:
            self._options += ["--burn-in", str(burn_in)]
            # The limit includes the duration of the DCGM level and, for levels above 2, of the stress test.
            self._limit_s += LEVELS[burn_in][1] + (STRESS_S if burn_in > 2 else 0.0)

    def __call__(self, host: Host) -> bytes:
        """Collect the evidence. Raises `HostProblem`."""
        order = {"do": "verify", "expectation": dict(self._expected(host)), "options": self._options}
        with self._connector.connect(host) as connection:
            answer = call_agent(connection, order, self._part, limit_s=self._limit_s, keep_bytes=MAX_EVIDENCE_BYTES)
        document = _unpacked(host, answer.get("document"))
        if answer.get("exit") not in (0, 1) or not document:
            output = answer.get("output") or ["no output"]
            raise HostProblem(
                ProblemKind.UNUSABLE,
                f"{host.title} could not be checked: {one_line(output[-1])}",
                "fix the problem on the host, then run the command again",
            )
        return document


def _unpacked(host: Host, text: object) -> bytes:
    """Decompress the evidence up to a size limit, so that a host cannot exhaust the operator's memory."""
    try:
        unpack = zlib.decompressobj()
        data = unpack.decompress(base64.b64decode(str(text), validate=True), MAX_EVIDENCE_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        data, complete = b"", False
    else:
        complete = unpack.eof
    if not complete:
        raise HostProblem(
            ProblemKind.UNUSABLE,
            f"{host.title} returned data that is not evidence",
            "log in to the host and run the node program on it",
        )
    return data.strip()
