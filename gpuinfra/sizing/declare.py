"""Turns a candidate into the declaration of a stack."""

from __future__ import annotations

import math
from typing import Any

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.sizing.candidates import SizedCandidate
from gpuinfra.sizing.measured import SizingGoal
from gpuinfra.sizing.memory import Recipe
from gpuinfra.sizing.request import SizingRequest

MOST_HOURS = 87_600
FLEX_HOURS = 168


def declaration(request: SizingRequest, chosen: SizedCandidate, name: str) -> dict[str, Any]:
    """Return the declaration of a candidate: machines, capacity, file system, duration and workload.

    Reserved capacity and Capacity Blocks need the ID of the reservation, which only you know.
    """
    entry: dict[str, Any] = {"kind": chosen.kind.value, "count": chosen.nodes}
    if chosen.kind is CapacityKind.FLEX:
        entry["max_run_hours"] = min(FLEX_HOURS, max(1, math.ceil(chosen.days.high * 24)))
    declared: dict[str, Any] = {
        "name": name,
        "where": {"cloud": chosen.cloud, "region": chosen.region},
        "pools": [{"name": "gpu", "machine": chosen.machine.name, "capacity": [entry]}],
    }
    if chosen.machine.zones and chosen.region not in chosen.machine.zones:
        # A price for the region is published, so the machine type is sold there.
        declared["where"]["offers"] = [chosen.machine.name]
    if chosen.storage:
        declared["storage"] = [
            {
                "kind": "lustre",
                "mount": "/scratch",
                "capacity_gib": chosen.storage.capacity_gib,
                "throughput_mb_s_per_tib": chosen.storage.throughput_mb_s_per_tib,
            }
        ]
        declared["duration_hours"] = min(MOST_HOURS, max(1, math.ceil(chosen.days.high * 24)))
    if request.goal is not SizingGoal.INFERENCE:
        workload: dict[str, Any] = {
            "model": request.model.name,
            "goal": request.goal.value,
            "tokens_billion": request.tokens / 1e9,
            "sequence": request.sequence,
        }
        if request.precision:
            workload["precision"] = request.precision.value
        if request.recipe is not Recipe.ADAMW:
            workload["recipe"] = request.recipe.value
        declared["workload"] = workload
    return declared
