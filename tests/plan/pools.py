"""A pool of each machine type of a cloud, and pools with some of their steps."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache
from typing import Any

from gpuinfra.base.findings import Level
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.plan.profile import profile_of
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from gpuinfra.spec.model import ClusterSpec

TODAY = date(2026, 11, 22)
REGIONS = {"aws": "us-east-1", "azure": "eastus", "gcp": "us-central1"}
CAPACITY: dict[str, dict[str, Any]] = {
    "on_demand": {},
    "spot": {},
    "reserved": {"id": "train"},
    "flex": {"max_run_hours": 24},
    "block": {
        "id": "cr-0123456789abcdef0",
        "starts_at": "2026-11-16T11:30:00Z",
        "ends_at": "2027-05-17T11:30:00Z",
    },
}


def machines(cloud: str) -> list[str]:
    """The machine types of a cloud's catalog that no rule refuses on any capacity."""
    return [name for name in profile_of(cloud).machines if declared(cloud, name, "default") is not None]


@cache
def declared(cloud: str, machine: str, image: str) -> ClusterSpec | None:
    """A declaration with one pool of this machine that the rules accept, or None."""
    record = profile_of(cloud).machines[machine]
    where: dict[str, Any] = {"cloud": cloud, "region": REGIONS[cloud]}
    if record.zones and where["region"] not in record.zones:
        where["region"] = next(iter(record.zones))
    zones = record.zones.get(where["region"], ())
    if cloud == "gcp":
        where["zone"] = zones[0] if zones else f"{where['region']}-a"
    software: dict[str, Any] = {"os": "ubuntu-22.04", "image": image}
    if cloud == "gcp":
        software["registry"] = "us-central1-docker.pkg.dev/my-project/gpudirect"
    for kind in CAPACITY:
        if kind not in record.capacity:
            continue
        count = record.unit_nodes[0] if record.unit_nodes else 1
        entry = {"kind": kind, "count": count, **CAPACITY[kind]}
        if kind == "reserved":
            entry["id"] = {"aws": "cr-0123456789abcdef0", "azure": GROUP}.get(cloud, "train")
        pool = {"name": "gpu", "machine": machine, "capacity": [entry]}
        content = {"name": "train", "where": where, "software": software, "pools": [pool]}
        if cloud == "azure":
            content["access"] = {"evidence_from": ["203.0.113.0/24"]}
        spec = parse_spec(content)
        if not [finding for finding in check(spec, TODAY) if finding.level is Level.ERROR]:
            return spec
    return None


GROUP = (
    "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/gpu"
    "/providers/Microsoft.Compute/capacityReservationGroups/train"
)


def planned(cloud: str, machine: str, image: str) -> PoolPlan:
    """The plan of its pool."""
    spec = declared(cloud, machine, image)
    assert spec is not None, f"{machine} is accepted on its default image and refused on {image}"
    return build_plan(spec, TODAY).pools[0]


def representatives(cloud: str, image: str) -> list[str]:
    """The first machine type of each group with the same GPU, fabric, steps, required checks and reasons to skip a check."""
    groups: dict[tuple[object, ...], str] = {}
    for name in machines(cloud):
        record, pool = profile_of(cloud).machines[name], planned(cloud, name, image)
        # On plain Ubuntu, a machine differs from its default image only in what the steps install.
        own = (record.gpu and record.gpu.key, record.fabric) if image == "default" else ()
        checks = (tuple(sorted(pool.expectation[key])) for key in ("required", "skips"))
        groups.setdefault((*own, *(step.id for step in pool.steps), *checks), name)
    return list(groups.values())


def with_steps(pool: PoolPlan, *steps: str) -> PoolPlan:
    """The pool with those of its steps that have one of these ids, in the order of the pool."""
    return replace(pool, steps=tuple(step for step in pool.steps if step.id in steps))
