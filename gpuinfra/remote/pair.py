"""One half of an all-reduce between two hosts, started over SSH: the operator's own node part is sent along, runs, and leaves.

Who meets whom is `gpuinfra.verification.pairs`; how two machines find each other is `gpuinfra.node.pair`, here through a
folder that both have mounted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuinfra.bundle import node_part
from gpuinfra.node.pair import LIMIT_S, WAIT_S
from gpuinfra.remote.connect import Connector
from gpuinfra.remote.deliver import ask
from gpuinfra.remote.hosts import Host

SPARE_S = 120.0
"""For connecting, and for loading the driver's libraries."""


class Meet:
    """The task of a fleet: what one host says about the all-reduce with its partner."""

    def __init__(
        self, connector: Connector, assignments: Mapping[str, Mapping[str, Any]], *, options: Sequence[str] = ()
    ) -> None:
        self._connector = connector
        self._assignments = assignments
        self._options = list(options)
        self._part = node_part()

    def __call__(self, host: Host) -> dict[str, Any]:
        """Meet. Raises `HostProblem`."""
        order = {"do": "pair", "assignment": dict(self._assignments[host.name]), "options": self._options}
        with self._connector.connect(host) as connection:
            return ask(connection, order, self._part, limit_s=WAIT_S + LIMIT_S + SPARE_S)


def assignments(pairs: Sequence[tuple[str, str]], *, run: str, store: str) -> dict[str, dict[str, Any]]:
    """Host -> what it is told, for pairs that meet at the same time."""
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        for place, name in enumerate(pair):
            found[name] = {
                "schema": "gpuinfra.pair-assignment/1", "run": run, "self": name, "partner": pair[1 - place], "place": place,
                "store": store,
            }  # fmt: skip
    return found
