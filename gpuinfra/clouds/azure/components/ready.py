"""The component that waits for verified nodes on Azure. See `gpuinfra.clouds.nodes_ready`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuinfra.clouds.azure.components.nodes import NodePool
from gpuinfra.clouds.azure.components.scope import Scope
from gpuinfra.clouds.nodes_ready import BaseNodesReady, BaseNodesReadyArgs


@dataclass(frozen=True, kw_only=True)
class NodesReadyArgs(BaseNodesReadyArgs):
    """Arguments for the wait."""

    scope: Scope
    pools: Sequence[NodePool]
    """Pools whose nodes must be verified. They use the same bucket and the same evidence folder."""


class NodesReady(BaseNodesReady[NodesReadyArgs]):
    """Waits until the nodes of the pools are verified. Otherwise, the deployment fails and lists the nodes, the findings and the actions to take.

    A node is verified when it has uploaded evidence that is signed with an identity that Azure confirms, and the evidence passes every check
    that the machine type requires. `GPUINFRA_DEADLINE` shortens the deadline of one run.
    """

    _cloud = "azure"
