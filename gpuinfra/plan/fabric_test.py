"""Decides which pools run the fabric test (check B8), and why.

The number of nodes does not affect the decision: the bundle contains the result, so a pool that grows to a second node would replace its first node.
The handover does not require a result of the only node of a pool (`handover/judge.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuinfra.catalog.floors import PAIRS_SEARCHED
from gpuinfra.catalog.records import MachineType
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool


@dataclass(frozen=True, kw_only=True)
class FabricTestPlan:
    """The fabric test of one pool."""

    mode: Literal["required", "off"]
    why: str

    @property
    def required(self) -> bool:
        """Whether the nodes must pass the test."""
        return self.mode == "required"


def fabric_test(spec: ClusterSpec, pool: Pool, machine: MachineType) -> FabricTestPlan:
    """Return whether the nodes of a pool must pass the test, and the reason."""
    declared = spec.handover.fabric_test
    if reason := obstacle(pool, machine):
        return FabricTestPlan(mode="off", why=reason)
    if declared == "off":
        return FabricTestPlan(
            mode="off", why="the declaration disables it; the paths between the nodes are not measured"
        )
    if declared == "auto" and one_node_is_enough(spec):
        why = "handover.floor is 1, and the only node that launches has no partner; set it to 2 or more for the test"
        return FabricTestPlan(mode="off", why=why)
    why_required = f"the bandwidth between two healthy {machine.name} nodes is known"
    return FabricTestPlan(
        mode="required", why=why_required if declared == "auto" else f"the declaration requires it, and {why_required}"
    )


def one_node_is_enough(spec: ClusterSpec) -> bool:
    """Return whether the handover waits for a single node only, which then can be the only node that launches, without a partner for the test."""
    return spec.handover.wait == "floor" and (spec.handover.floor or 0) == 1


def obstacle(pool: Pool, machine: MachineType) -> str:
    """Return why the nodes of a pool cannot run the test, or an empty string."""
    if machine.gpu is None:
        return f"{machine.name} has no GPUs"
    if machine.fabric is None:
        return f"{machine.name} has no fabric"
    if pool.fabric == "none":
        return "the declaration does not use the fabric of the pool"
    if pool.mig:
        return "the pool uses MIG, and NCCL measures whole GPUs only"
    if not any(floor.check == "B3" for floor in machine.floors):
        return f"no bandwidth between two healthy {machine.name} nodes is published (searched {PAIRS_SEARCHED})"
    return ""
