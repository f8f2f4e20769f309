"""Determines why a deployment has missing nodes, from the engine's errors and the groups' activities."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuinfra.base.naming import logical
from gpuinfra.base.words import counted
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.engine.up import Failure
from gpuinfra.handover import wire
from gpuinfra.handover.connect import handover_of, ports_of
from gpuinfra.handover.ports import GroupExpected, GroupProblem
from gpuinfra.handover.refusals import HINTS, NO_CAPACITY, Kind
from gpuinfra.handover.watch import DEADLINE_TEXT
from gpuinfra.inventory import handovers_of
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import priced
from gpuinfra.verification.store import Poll, polled

Resources = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """Why groups have too few nodes."""

    problems: tuple[GroupProblem, ...]
    """The cloud's latest message about each group. `name` is the group's name in the plan."""
    pools: tuple[str, ...]
    """Pools of these groups, in the order of the plan."""
    running: tuple[str, ...] = ()
    """Those of the pools that have nodes from before the run. Their groups must not be removed, because jobs can run on the nodes."""

    @property
    def final(self) -> tuple[GroupProblem, ...]:
        """Messages for which another placement does not help, such as a quota or a missing permission."""
        return tuple(one for one in self.problems if one.kind not in NO_CAPACITY)


def shortage(
    plan: Plan, resources: Resources, failures: Iterable[Failure], before: Collection[str] | None = ()
) -> Shortage | None:
    """Return why nodes are missing, or None if the deployment failed for another reason. Raises `PortUnavailable`.

    `before` are the groups that had nodes before the run, by their name in the state, or None if they are unknown.

    A failed deployment is a shortage if the cloud refused to create groups, or if the handover waited for nodes that were not launched
    and no launched node failed its checks. A group without a message is a shortage if the deadline passed and all launched nodes have reported.
    """
    groups = {logical(plan.name, group.name): group.name for pool in plan.pools for group in pool.groups}
    types = group_types(plan.cloud)
    about = [one for one in failures if one.type not in ("", "pulumi:pulumi:Stack")]
    refused = [one for one in about if one.type in types and one.name in groups]
    if any(one not in refused and one.type != wire.TYPE for one in about):
        return None
    if not about:
        # The deployment failed for a reason that is not about a resource, such as a lock or an error of the program.
        return None
    table = handover_of(plan.cloud).REFUSALS
    if refused:
        found = [replace(table.problem(one.name, one.message, None), name=groups[one.name]) for one in refused]
    else:
        found = list(_of_handovers(polled(resources), late=any(DEADLINE_TEXT in one.message for one in about)))
    found = _latest(one for one in found if one.kind != Kind.THROTTLING)
    names = {one.name for one in found}
    pools = tuple(pool.name for pool in plan.pools if names & {group.name for group in pool.groups})
    if not pools:
        return None
    return Shortage(problems=tuple(found), pools=pools, running=_running(plan, pools, resources, before))


def _running(
    plan: Plan, pools: Collection[str], resources: Resources, before: Collection[str] | None
) -> tuple[str, ...]:
    """Return those of the pools that have nodes now and had nodes before the run. A node can be newer than the run, because its group replaced another one."""
    if before is not None and not before:
        return ()
    now = running_groups(plan.cloud, plan.region, resources)
    old = now if before is None else now & set(before)
    return tuple(
        pool.name
        for pool in plan.pools
        if pool.name in pools and any(logical(plan.name, group.name) in old for group in pool.groups)
    )


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
    members = ports_of(cloud, region=region, evidence_bucket="", evidence_prefix="").membership.members(groups)
    used = {one.group for one in members if not one.leaving}
    return frozenset(name for name, id in named.items() if id in used)


def _latest(problems: Iterable[GroupProblem]) -> list[GroupProblem]:
    """Return the latest message of each group. A group also reports messages of earlier deployments, such as one about a quota that has since been raised."""
    found: dict[str, GroupProblem] = {}
    for one in problems:
        known = found.get(one.name)
        if known is None or (one.at is not None and (known.at is None or one.at > known.at)):
            found[one.name] = one
    return list(found.values())


def _of_handovers(polls: Iterable[Poll], *, late: bool) -> Iterable[GroupProblem]:
    for poll in polls:
        verdict = poll.verdict
        if any(node.outcome == "failed" for node in verdict.nodes):
            return
        problems = poll.gatherer.problems(verdict.missing)
        yield from problems
        if late and all(node.settled or node.needs_partner for node in verdict.nodes):
            reported = {one.name for one in problems}
            yield from (_silent(name, count) for name, count in verdict.missing.items() if name not in reported)


def _silent(name: str, count: int) -> GroupProblem:
    """Return the problem of a group that launched too few nodes before the deadline, and did not report why."""
    message = f"{counted(count, 'node')} not launched before the deadline, and the cloud reported no reason"
    return GroupProblem(group=name, name=name, kind=Kind.NO_MESSAGE, message=message, hint=HINTS[Kind.NO_MESSAGE])


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
    found = [str((one.get("outputs") or {}).get("summary") or "") for one in handovers_of(resources)]
    return "; ".join(filter(None, found))
