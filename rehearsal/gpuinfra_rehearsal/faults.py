"""Parses and validates the faults from `--fault`, which the stand-ins simulate.

A fault changes the output of a node's tools or the responses of the cloud. It does not change how checks are evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from gpuinfra.base.errors import UsageError
from gpuinfra.base.words import counted

if TYPE_CHECKING:
    from gpuinfra.plan.model import Plan, PoolPlan

CLOUD_FAULTS = {
    "no-capacity": "cloud:no-capacity:<pool, kind or zone>   groups do not launch nodes, and report the cloud's capacity error",
    "no-quota": "cloud:no-quota:<pool, kind or zone>      groups do not launch nodes, and report the cloud's quota error",
    "limited": "cloud:limited:<pool, kind or zone>:<n>       a group launches at most n nodes, and reports the cloud's capacity error",
    "refused": (
        "cloud:refused:<kind or code>:<pool, kind or zone>[:<n>]  groups do not launch nodes (n: "
        "in the first n attempts), and report a recorded error of the cloud"
    ),
    "slow": "cloud:slow:<pool, kind or zone>:<seconds>    a group launches its first node this many seconds after its creation",
    "throttled": "cloud:throttled:<n>                          the first n requests about groups and nodes are throttled",
    "error": "cloud:error:<resource type>:<n>              the first n create operations of that type fail",
    "partial": "cloud:partial:<resource type>:<n>            the first n create operations of that type succeed and return an error",
    "lost": "cloud:lost:<resource type>:<n>               the first n create operations of that type succeed and return no response",
}
GROUPS = {
    "no-capacity": r"(?P<target>[^:]+)",
    "no-quota": r"(?P<target>[^:]+)",
    "limited": r"(?P<target>[^:]+):[1-9]\d*",
    "slow": r"(?P<target>[^:]+):[1-9]\d*",
    "refused": r"(?P<which>[^:]+):(?P<target>[^:]+)(:[1-9]\d*)?",
}
"""Faults that apply to the groups of a pool, of a capacity kind, or in a zone, and the shape of what follows the name."""
ONLY_TARGET = tuple(name for name, shape in GROUPS.items() if shape == r"(?P<target>[^:]+)")
"""Faults of groups without a count or a message."""
EXAMPLES = {
    "limited": "cloud:limited:spot:1",
    "slow": "cloud:slow:gpu:30",
    "refused": "cloud:refused:image:gpu",
    "throttled": "cloud:throttled:5",
}
DEVICE_CHECKS = {
    "sxid-fatal": ("X2",),
    "fabric-unhealthy": ("F2",),
    "nvlink-inactive": ("F3",),
    "nvlink-errors": ("F4",),
    "efa-missing": ("N1",),
    "efa-port-down": ("N11",),
    "fabric-device-missing": ("N2", "N7"),
    "fabric-port-down": ("N2", "N7"),
    "fabric-port-slow": ("N2", "N7"),
    "fabric-no-key": ("N9",),
    "fabric-flapping": ("N2", "N7"),
    "gvnic-missing": ("N8",),
    "rdma-slow": ("N5",),
}
"""The checks of the device that a fault affects. Nodes run them only on machines with the device. The other device faults affect a GPU."""
GPU_CHECKS = ("G1",)
STEPS = {
    "driver-mismatch": "30-driver",
    "fabric-manager-stopped": "35-fabric-manager",
    "nccl-library-broken": "45-nccl",
    "nccl-environment": "45-nccl",
    "lustre-mount-fails": "60-lustre",
    "lustre-over-tcp": "60-lustre",
    "home-mount-refused": "62-home",
    "enroot-corrupt": "71-enroot",
    "bucket-mount-refused": "85-",
    "bucket-missing": "85-",
    "bucket-unreachable": "85-",
    "packages-missing": "95-packages",
    "packages-unreachable": "95-packages",
    "script-corrupt": "own-",
}
"""The start of the name of the step without which a fault has no effect."""
SHAPES = (
    "node:<pool>-<number>:<fault>, cloud:no-capacity|no-quota:<pool, kind or zone>, cloud:limited|slow:<pool, kind or zone>:<n>, "
    "cloud:refused:<kind or code>:<pool, kind or zone>[:<n>], cloud:throttled:<n>, cloud:error|partial|lost:<resource type>:<n>"
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One validated fault."""

    text: str
    scope: str
    """`node` or `cloud`."""
    name: str
    target: str


def node_faults() -> dict[str, str]:
    """Return the effect of each node fault, keyed by name."""
    from gpuinfra_rehearsal import devices
    from gpuinfra_rehearsal.nodes.state import NODE_FAULTS

    return {**devices.faults(), **NODE_FAULTS}


def values(labels: Iterable[str], targets: Sequence[str]) -> Iterator[str]:
    """Yield each node fault of the nodes with these labels, and each cloud fault with these pools, kinds and zones if it takes only a target.

    The resource types of `cloud:error` are missing, because only the plan contains them.
    """
    effects = node_faults()
    for label in labels:
        yield from (f"node:{label}:{fault}" for fault in effects)
    for fault in CLOUD_FAULTS:
        yield from (f"cloud:{fault}:{target}" for target in (targets if fault in ONLY_TARGET and targets else [""]))


def parse(texts: Iterable[str], pools: Mapping[str, int] | None = None) -> tuple[Fault, ...]:
    """Parse faults. Raises UsageError with the allowed values. `pools` (node count by pool name) is None for a
    declaration in Python."""
    return tuple(_one(text, pools) for text in texts)


def check_against_plans(faults: Sequence[Fault], plans: Sequence[Plan], *, replaces: bool = False) -> None:
    """Reject a fault that can occur in none of the plans, with the reason in the first one."""
    for fault in faults:
        reasons: list[UsageError] = []
        for plan in plans:
            try:
                check_against_plan([fault], plan, replaces=replaces)
                break
            except UsageError as error:
                reasons.append(error)
        else:
            raise reasons[0]


def check_against_plan(faults: Iterable[Fault], plan: Plan, *, replaces: bool = False) -> None:
    """Reject a fault that cannot occur in this plan, because a run without its effect would appear successful.

    With `replaces`, the rehearsal already has nodes, and their replacements get the next numbers.
    """
    groups = [group for pool in plan.pools for group in pool.groups]
    targets = sorted({word for g in groups for word in (g.pool, g.name, g.kind.replace("_", "-"), g.zone)})
    pools = {pool.name: pool for pool in plan.pools}
    for fault in faults:
        if fault.scope == "node":
            pool, _, number = fault.target.rpartition("-")
            if pool not in pools:
                raise UsageError(f"--fault {fault.text}: the stack has no pool {pool}; allowed: {', '.join(pools)}")
            count = pools[pool].count
            if int(number) > count and not replaces:
                raise UsageError(
                    f"--fault {fault.text}: pool {pool} has {counted(count, 'node')}; allowed: {pool}-1 to {pool}-{count}"
                )
            _possible_in_pool(fault, pools[pool])
        elif fault.name in GROUPS:
            target = re.fullmatch(GROUPS[fault.name], fault.target)
            if target and target["target"].replace("_", "-") not in targets:
                raise UsageError(
                    f"--fault {fault.text}: {target['target']!r} is not a pool, group, capacity kind or zone; "
                    f"allowed: {', '.join(targets)}"
                )
            if fault.name == "refused" and target:
                _recorded_refusal(fault, plan.cloud, target["which"])
        elif fault.name != "throttled":
            _type_in_plan(fault, plan)


def _possible_in_pool(fault: Fault, pool: PoolPlan) -> None:
    """Raise `UsageError` if the nodes of a pool have no device or step that a fault affects."""
    from gpuinfra_rehearsal import devices

    if fault.name == "spot-notice" and all(group.kind != "spot" for group in pool.groups):
        raise UsageError(
            f"--fault {fault.text}: this fault has no effect in pool {pool.name}, because it has no spot nodes"
        )
    checks = DEVICE_CHECKS.get(fault.name, GPU_CHECKS) if fault.name in devices.faults() else ()
    step = STEPS.get(fault.name, "")
    if checks and not set(checks) & set(pool.expectation["required"]):
        missing = f"check {' or '.join(checks)}"
    elif step and not any(one.id.startswith(step) for one in pool.steps):
        missing = f"step {step}{'*' if step.endswith('-') else ''}"
    else:
        return
    raise UsageError(
        f"--fault {fault.text}: this fault has no effect in pool {pool.name} ({pool.machine}), because its nodes do not run {missing}"
    )


def _recorded_refusal(fault: Fault, cloud: str, which: str) -> None:
    from gpuinfra.handover.connect import handover_of

    if handover_of(cloud).REFUSALS.recorded(which) is None:
        raise UsageError(
            f"--fault {fault.text}: no message of {cloud} with the kind or code {which} is recorded; docs/reference/refusals.md lists the messages"
        )


def _type_in_plan(fault: Fault, plan: Plan) -> None:
    type_ = fault.target.rpartition(":")[0]
    names = {token.rpartition(":")[2]: token for token in plan.resources}
    if any(token == type_ or token.endswith((f":{type_}", f"/{type_}")) for token in plan.resources):
        return
    near = get_close_matches(type_.rpartition(":")[2], names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"allowed: {', '.join(sorted(names))}"
    raise UsageError(f"--fault {fault.text}: this stack has no {type_}; {hint}")


def _one(text: str, pools: Mapping[str, int] | None) -> Fault:
    scope, _, rest = text.partition(":")
    name, _, target = rest.partition(":")
    if scope == "node":
        return _node(text, name, target, pools)
    if scope == "cloud":
        return _cloud(text, name, target)
    raise UsageError(f"--fault {text}: a fault starts with node: or cloud:; allowed: {SHAPES}")


def _node(text: str, label: str, fault: str, pools: Mapping[str, int] | None) -> Fault:
    match = re.fullmatch(r"(?P<pool>[a-z0-9][a-z0-9-]*)-(?P<number>[1-9]\d*)", label)
    if match is None:
        raise UsageError(
            f"--fault {text}: {label!r} is not a node name; nodes are numbered in launch order: gpu-1 is the first node in pool gpu"
        )
    if pools is not None and match["pool"] not in pools:
        raise UsageError(f"--fault {text}: {match['pool']!r} is not a pool; allowed: {', '.join(sorted(pools))}")
    faults = node_faults()
    if fault not in faults:
        near = get_close_matches(fault, faults, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"--fault {text}: {fault!r} is not a node fault; {hint}allowed: {', '.join(sorted(faults))}")
    return Fault(text=text, scope="node", name=fault, target=label)


def _cloud(text: str, name: str, target: str) -> Fault:
    if name not in CLOUD_FAULTS:
        near = get_close_matches(name, CLOUD_FAULTS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"--fault {text}: {name!r} is not a cloud fault; {hint}allowed: {', '.join(CLOUD_FAULTS)}")
    if name in GROUPS or name == "throttled":
        if not re.fullmatch(GROUPS.get(name, r"[1-9]\d*"), target):
            missing = "the number of requests" if name == "throttled" else "the pool, capacity kind or zone"
            raise UsageError(
                f"--fault {text}: {missing} is missing; example: {EXAMPLES.get(name, f'cloud:{name}:spot')}"
            )
    elif not re.fullmatch(r".+:[1-9]\d*", target):
        raise UsageError(
            f"--fault {text}: the resource type or the count is missing; example: cloud:{name}:aws:fsx/lustreFileSystem:LustreFileSystem:1"
        )
    return Fault(text=text, scope="cloud", name=name, target=target)
