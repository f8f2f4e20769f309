"""Calculates the price of the resources that are deployed before a failover, and of the data that is copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuinfra.cost import Cost, price
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.region.clone.model import ClonedFile, Transfer
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.region.clone.storage import with_bucket
from gpuinfra.spec.load import parse_spec
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.storage import Lustre


def estimate(pair: RegionPair, plan: Plan, after: Cost) -> Cost | None:
    """Return the price of the clone at the prices of the first region, if a price of the second region is unknown."""
    if after.complete or pair.across:
        return None
    return price(replace(plan, region=pair.source), pair.today)


def standing(pair: RegionPair, cloned: ClusterSpec, files: tuple[ClonedFile, ...]) -> Plan | None:
    """Return the plan of what is deployed before the failover, or None if nothing of this stack is deployed."""
    if pair.request.mode == "cold" or (
        pair.request.mode == "pilot-light" and len(files) == 1 and "cluster" in cloned.made_layers
    ):
        return None
    return build_plan(parse_spec(files[0].declaration, folder=files[0].path.parent), pair.today)


def transfers(pair: RegionPair) -> Iterator[Transfer]:
    """Yield the data that is copied once to the second region."""
    cost = pair.own_facts.egress(pair.source) if pair.across else pair.own_facts.transfer(pair.source, pair.target)
    for _, entry in with_bucket(pair.spec):
        size = pair.here.lustre(entry).billed if isinstance(entry, Lustre) else None
        full = "if the file system is full" if size is not None else "a bucket whose size is unknown"
        yield Transfer(
            what=f"first copy of {entry.mount}, {full}",
            gib=size,
            usd_per_gb=cost.usd_per_gb,
            read=cost.read,
            source=cost.source,
            certain=cost.certain,
        )
