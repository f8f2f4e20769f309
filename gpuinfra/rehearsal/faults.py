"""Faults that a person may order: parsed and refused here, played by the stand-ins.

A fault changes what a node's tools print or what the cloud answers, never the judgement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from gpuinfra.errors import UsageError
from gpuinfra.plan.model import Plan

CLOUD_FAULTS = {
    "no-capacity": "cloud:no-capacity:<pool or capacity kind>  the groups get no machines, in the cloud's own words",
    "error": "cloud:error:<resource type>:<n>              the first n creations of that type fail",
    "partial": "cloud:partial:<resource type>:<n>            they are made, and the call fails all the same",
    "lost": "cloud:lost:<resource type>:<n>               they are made, and the answer never arrives",
}
SHAPES = "node:<pool>-<number>:<fault>, cloud:no-capacity:<pool or kind>, cloud:error:<resource type>:<n>"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One ordered fault, checked."""

    text: str
    scope: str
    """`node` or `cloud`."""
    name: str
    target: str


def node_faults() -> dict[str, str]:
    """Name -> what it does, from the parts that play them."""
    from gpuinfra.rehearsal import devices
    from gpuinfra.rehearsal.nodes.state import NODE_FAULTS

    return {**devices.faults(), **NODE_FAULTS}


def parse(texts: Iterable[str], pools: Mapping[str, int] | None = None) -> tuple[Fault, ...]:
    """Check every fault; raises `UsageError` with what is allowed. `pools` (name -> nodes) is None when nobody knows them."""
    return tuple(_one(text, pools) for text in texts)


def against_plan(faults: Iterable[Fault], plan: Plan) -> None:
    """Refuse what this plan holds nothing of: a fault that can never happen would pass for one that did no harm."""
    groups = [group for pool in plan.pools for group in pool.groups]
    able = sorted({word for g in groups for word in (g.pool, g.name, g.kind.replace("_", "-"))})
    counts = {pool.name: pool.count for pool in plan.pools}
    for fault in faults:
        if fault.scope == "node":
            pool, _, number = fault.target.rpartition("-")
            if int(number) > counts[pool]:
                raise UsageError(
                    f"--fault {fault.text}: pool {pool} has {counts[pool]} nodes, {pool}-1 to {pool}-{counts[pool]}"
                )
        elif fault.name == "no-capacity":
            if fault.target.replace("_", "-") not in able:
                raise UsageError(
                    f"--fault {fault.text}: there is no pool, group or capacity kind {fault.target!r}; "
                    f"allowed are {', '.join(able)}"
                )
        else:
            _type_in_plan(fault, plan)


def _type_in_plan(fault: Fault, plan: Plan) -> None:
    wanted = fault.target.rpartition(":")[0]
    names = {token.rpartition(":")[2]: token for token in plan.resources}
    if any(token == wanted or token.endswith((f":{wanted}", f"/{wanted}")) for token in plan.resources):
        return
    near = get_close_matches(wanted.rpartition(":")[2], names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"types of this stack are {', '.join(sorted(names))}"
    raise UsageError(f"--fault {fault.text}: this stack makes no {wanted}; {hint}")


def _one(text: str, pools: Mapping[str, int] | None) -> Fault:
    scope, _, rest = text.partition(":")
    name, _, target = rest.partition(":")
    if scope == "node":
        return _node(text, name, target, pools)
    if scope == "cloud":
        return _cloud(text, name, target)
    raise UsageError(f"--fault {text}: a fault starts with node: or cloud:; write {SHAPES}")


def _node(text: str, label: str, fault: str, pools: Mapping[str, int] | None) -> Fault:
    match = re.fullmatch(r"(?P<pool>[a-z0-9][a-z0-9-]*)-(?P<number>[1-9]\d*)", label)
    if match is None:
        raise UsageError(
            f"--fault {text}: {label!r} names no node; nodes are numbered in launch order, such as gpu-1 for the first of pool gpu"
        )
    if pools is not None and match["pool"] not in pools:
        raise UsageError(f"--fault {text}: there is no pool {match['pool']!r}; pools are {', '.join(sorted(pools))}")
    known = node_faults()
    if fault not in known:
        near = get_close_matches(fault, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"--fault {text}: there is no node fault {fault!r}; {hint}allowed are {', '.join(sorted(known))}"
        )
    return Fault(text=text, scope="node", name=fault, target=label)


def _cloud(text: str, name: str, target: str) -> Fault:
    if name not in CLOUD_FAULTS:
        near = get_close_matches(name, CLOUD_FAULTS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"--fault {text}: there is no cloud fault {name!r}; {hint}allowed are {', '.join(CLOUD_FAULTS)}"
        )
    if name == "no-capacity":
        if not target:
            raise UsageError(
                f"--fault {text}: say which pool or capacity kind gets none, such as cloud:no-capacity:spot"
            )
    elif not re.fullmatch(r".+:[1-9]\d*", target):
        raise UsageError(
            f"--fault {text}: say which resource type and how often, such as cloud:{name}:aws:fsx/lustreFileSystem:LustreFileSystem:1"
        )
    return Fault(text=text, scope="cloud", name=name, target=target)
