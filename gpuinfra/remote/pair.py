"""Runs one half of an all-reduce between two hosts over SSH. The operator's node program is copied to the host and then removed.

`gpuinfra.node.pairs` chooses the pairs. `gpuinfra.node.pair` connects the two machines through a folder that both mount.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from typing import Any

from gpuinfra.bundle import node_program
from gpuinfra.node.pair import LIMIT_S, WAIT_S
from gpuinfra.remote.connect import Connector
from gpuinfra.remote.deliver import call_agent
from gpuinfra.remote.hosts import Host

SPARE_S = 120.0
"""Additional time for connecting and for loading the driver's libraries."""


class PairTest:
    """The fleet task that returns the result of the all-reduce between one host and its partner."""

    def __init__(
        self, connector: Connector, assignments: Mapping[str, Mapping[str, Any]], *, options: Sequence[str] = ()
    ) -> None:
        self._connector = connector
        self._assignments = assignments
        self._options = list(options)
        self._part = gzip.compress(node_program())

    def __call__(self, host: Host) -> dict[str, Any]:
        """Run the all-reduce. Raises `HostProblem`."""
        order = {"do": "pair", "assignment": dict(self._assignments[host.name]), "options": self._options}
        with self._connector.connect(host) as connection:
            return call_agent(connection, order, self._part, limit_s=WAIT_S + LIMIT_S + SPARE_S)


def assignments(pairs: Sequence[tuple[str, str]], *, run: str, store: str) -> dict[str, dict[str, Any]]:
    """Return the assignment for each host, for pairs that run at the same time."""
    assigned: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        for place, name in enumerate(pair):
            assigned[name] = {
                "schema": "gpuinfra.pair-assignment/1", "run": run, "self": name, "partner": pair[1 - place], "place": place,
                "store": store,
            }  # fmt: skip
    return assigned
