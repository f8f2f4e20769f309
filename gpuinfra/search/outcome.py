"""Determines why a deployment has missing nodes, from the engine's errors and the state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.base.naming import logical
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.engine.up import EngineFailure
from gpuinfra.handover import wire
from gpuinfra.handover.causes import NO_CAPACITY, PASSING, CapacityCause, WaitEnd
from gpuinfra.handover.connect import handover_of, ports_of
from gpuinfra.handover.ports import GroupExpected, PortUnavailable
from gpuinfra.handover.shortages import Shortage
from gpuinfra.inventory import handovers_of, nodes_of, shortages_of
from gpuinfra.plan.model import Group, Plan
from gpuinfra.plan.planned import priced

Resources = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class MissingNodes:
    """Why groups have too few nodes."""

    shortages: tuple[Shortage, ...]
    pools: tuple[str, ...]
    """Pools of these groups, in the order of the plan."""
    running: tuple[str, ...] = ()
    """Those of the pools that have nodes from before the run. Their groups must not be removed, because jobs can run on the nodes."""

    partly: tuple[str, ...] = ()
    """Those of the pools for which the cloud launched some of the nodes in this run."""

    @property
    def final(self) -> tuple[Shortage, ...]:
        """Shortages for which another placement does not help, such as a quota or a missing permission."""
        return tuple(shortage for shortage in self.shortages if shortage.cause not in NO_CAPACITY)

    @property
    def lasting(self) -> tuple[Shortage, ...]:
        """Shortages of `final` for which waiting does not help either. An error of the cloud's service passes."""
        return tuple(shortage for shortage in self.final if shortage.cause not in PASSING)


def missing_nodes(
    plan: Plan,
    resources: Resources,
    failures: Iterable[EngineFailure],
    before: Collection[str] | None = (),
    *,
    keeps: bool = False,
) -> MissingNodes | None:
    """Return why nodes are missing, or None if the deployment failed for another reason. Raises `PortUnavailable`.

    `before` are the groups that had nodes before the run, by their name in the state, or None if they are unknown.
    With `keeps`, the launched nodes are kept. The cloud is read for them if it refused groups, because the handover did not run.

    The cloud refused to create groups, or the handover waited for nodes that were not launched, and no launched node failed its checks.
    """
    groups = {logical(plan.name, group.name): group for pool in plan.pools for group in pool.groups}
    types = group_types(plan.cloud)
    about = [failure for failure in failures if failure.type not in ("", "pulumi:pulumi:Stack")]
    refused = [failure for failure in about if failure.type in types and failure.name in groups]
    if any(failure not in refused and failure.type != wire.TYPE for failure in about):
        return None
    if not about:
        # The deployment failed for a reason that is not about a resource, such as a lock or an error of the program.
        return None
    handovers = list[Mapping[str, Any]]()
    if refused:
        shortages = [_refused(plan.cloud, groups[failure.name], failure.message) for failure in refused]
    else:
        # Only handovers that wrote their state in this deployment count.
        judged = {failure.urn for failure in about if failure.saved}
        handovers = [resource for resource in handovers_of(resources) if resource.get("urn") in judged]
        shortages = _of_handovers(handovers)
    # A throttled group tries again. It is the reason only without another one.
    shortages = [one for one in shortages if one.cause is not CapacityCause.THROTTLING] or shortages
    names = {shortage.group for shortage in shortages}
    pools = tuple(pool.name for pool in plan.pools if names & {group.name for group in pool.groups})
    if not pools:
        return None
    reads = before is None or bool(before) or (keeps and bool(refused))
    now = running_groups(plan.cloud, plan.region, resources) if reads else frozenset[str]()
    old = now if before is None else now & set(before)
    # A group without a shortage possibly has no node either: the cloud can throttle its launches, and the handover does not run after a refusal.
    launched = now if refused else {logical(plan.name, node.group) for node in nodes_of(handovers)}
    return MissingNodes(
        shortages=tuple(shortages),
        pools=pools,
        # A node can be newer than the run, because its group replaced another one.
        running=_with_groups(plan, pools, old),
        partly=_with_groups(plan, pools, launched),
    )


def _with_groups(plan: Plan, pools: Collection[str], groups: Collection[str]) -> tuple[str, ...]:
    """Return those of the pools that have one of these groups, by their name in the state."""
    return tuple(
        pool.name
        for pool in plan.pools
        if pool.name in pools and any(logical(plan.name, group.name) in groups for group in pool.groups)
    )


def _refused(cloud: str, group: Group, message: str) -> Shortage:
    """Return the shortage of a group that the cloud refused to create, given the error of the engine."""
    problem = handover_of(cloud).REFUSALS.problem(group.name, message, None)
    return Shortage(
        pool=group.pool, group=group.name, kind=group.kind, zone=group.zone, missing=group.count, cause=problem.cause,
        message=problem.message, hint=problem.hint,
    )  # fmt: skip


def _of_handovers(handovers: Resources) -> list[Shortage]:
    """Return the shortages in the state of handovers. If a node failed its checks, capacity is not the reason. Raises `PortUnavailable`."""
    unread = [one for one in handovers if (one.get("outputs") or {}).get("ended") == WaitEnd.UNREACHABLE]
    judged = [one for one in handovers if one not in unread]
    if any(node.outcome == "failed" for node in nodes_of(judged)):
        return []
    if not (short := shortages_of(judged)) and unread:
        raise PortUnavailable("the handover did not reach the cloud")
    return short


def running_groups(cloud: str, region: str, resources: Resources) -> frozenset[str]:
    """Return the groups in a state that have nodes in the cloud, by their name in the state. Raises `PortUnavailable`.

    The nodes in the state are those of the last handover. The cloud is read, because groups replace nodes, and because the last handover possibly did not wait.
    """
    types = group_types(cloud)
    named = {
        str(one["urn"]).rpartition("::")[2]: str(one["id"])
        for one in resources
        if one.get("type") in types and one.get("id")
    }
    if not named:
        return frozenset()
    groups = [GroupExpected(name=name, group=id, count=0, template_version="") for name, id in named.items()]
    access = handover_of(cloud).access(resources)
    ports = ports_of(cloud, region=region, evidence_bucket="", evidence_prefix="", **access)
    members = ports.membership.members(groups)
    used = {one.group for one in members if not one.leaving}
    return frozenset(name for name, id in named.items() if id in used)


def group_types(cloud: str) -> frozenset[str]:
    """Return the Pulumi types of a cloud's node groups."""
    return frozenset(row.type for row in cloud_of(cloud).resource_kinds if row.price == priced("node"))


def groups_in(plan: Plan, resources: Resources, pools: Iterable[str]) -> list[str]:
    """Return the URNs of these pools' groups in a state."""
    types, wanted = group_types(plan.cloud), set(pools)
    names = {logical(plan.name, group.name) for pool in plan.pools if pool.name in wanted for group in pool.groups}
    return [
        str(one["urn"])
        for one in resources
        if one.get("type") in types and str(one.get("urn")).rpartition("::")[2] in names
    ]


def templates_in(plan: Plan, pools: Iterable[str]) -> list[str]:
    """Return the logical names of resources that exist once for each group of these pools, such as launch templates."""
    wanted, types = set(pools), group_types(plan.cloud)
    groups = tuple(f"{logical(plan.name, group.name)}-" for pool in plan.pools if pool.name in wanted for group in pool.groups)  # fmt: skip
    return [
        one.name
        for one in cloud_of(plan.cloud).resources(plan)
        if one.type not in types and one.name.startswith(groups)
    ]


def patterns_of(plan: Plan, pools: Iterable[str]) -> list[str]:
    """Return URN patterns for these pools' groups, for a deployment without them."""
    wanted = set(pools)
    names = [logical(plan.name, group.name) for pool in plan.pools if pool.name in wanted for group in pool.groups]
    return [f"urn:pulumi:**{kind}::{name}" for kind in sorted(group_types(plan.cloud)) for name in names]


def summary(resources: Resources) -> str:
    """Return the result of the handovers in a state, or an empty string if there is none."""
    summaries = [str((one.get("outputs") or {}).get("summary") or "") for one in handovers_of(resources)]
    return "; ".join(filter(None, summaries))
