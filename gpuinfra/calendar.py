"""The dates of a stack: when nodes start, when they are removed, and what is due now. Pure.

The dates come from the declaration: Capacity Blocks, reservations with a start or an end, and `expires_at`. Whether a date is due depends
on the number of nodes that the stack expects since the last `up`. If this number differs from the plan for the present, `up` is due.
The deadlines of notices come from the evidence of the nodes. The date on which an idle pool is stopped follows from `idle_stop` and the readings of its nodes.
Flex-start nodes start when the cloud has capacity, so their dates come from the nodes that exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

from gpuinfra.base.words import counted
from gpuinfra.idle import PoolUse, hours_of
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Group
from gpuinfra.plan.profile import CloudProfile, profile_of
from gpuinfra.plan.window import moment
from gpuinfra.spec.model import ClusterSpec

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
"""A time before every declared time. A plan for this time contains every start and every end."""


class DateState(StrEnum):
    """Whether a date requires an action."""

    DUE = "due"
    """The date has passed, and the stack does not match it yet."""
    SOON = "soon"
    """The date is within the number of days for which the calendar warns."""
    LATER = "later"
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class DateCommands:
    """The commands that act on a date."""

    up: str
    destroy: str
    offers: str
    """Searches for the next Capacity Block."""
    stop_idle: str
    """Removes the nodes of the pools that are idle for long enough."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One date of a stack."""

    at: datetime
    group: str
    """The group of nodes, the pool that is idle, the node of a notice, or an empty string for the entire cluster."""
    what: str
    state: DateState
    by: str
    """Who changes the number of nodes at this time: the service of the cloud, or `you`."""
    command: str
    """The command for this date. Empty if nothing is required."""


@dataclass(frozen=True, kw_only=True)
class RunningNodes:
    """The nodes of a flex-start group."""

    launched: tuple[datetime, ...]
    """Creation time of each node that exists."""
    unverified: int
    """Number of these nodes that are not in the state."""


@dataclass(frozen=True, kw_only=True)
class NodeNotice:
    """What the cloud announced about one node."""

    node: str
    at: datetime
    what: str


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """The present, and what a stack expects."""

    spec: ClusterSpec
    now: datetime
    within: timedelta
    commands: DateCommands
    deployed: Mapping[str, int] | None
    """Group -> number of nodes that the stack expects since the last `up`. None if the state was not read."""
    running: Mapping[str, RunningNodes] = field(default_factory=dict)
    """Flex-start group -> its nodes."""
    scheduled: frozenset[str] = frozenset()
    """Groups that have scheduled actions in the state. After the end of a group, `up` deletes its actions and removes the nodes that an action started."""

    notices: tuple[NodeNotice, ...] = ()
    """The notices with a deadline, if evidence was read for them."""
    use: tuple[PoolUse, ...] = ()
    """The use of each pool with `idle_stop`, if evidence was read."""

    def idle_pools(self) -> frozenset[str]:
        """Return the pools that were idle for the time of `idle_stop`."""
        hours = {pool.name: hours_of(pool.idle_stop) for pool in self.spec.pools if pool.idle_stop}
        return frozenset(one.pool for one in self.use if one.pool in hours and one.is_idle_for(hours[one.pool]))

    def events(self) -> tuple[Event, ...]:
        """Return the dates in chronological order."""
        return tuple(sorted(self._events(), key=lambda one: (one.at, one.group)))

    def _events(self) -> Iterator[Event]:
        cloud, day = profile_of(self.spec.cloud), self.now.date()
        counts = {group.name: group.count for group in groups_at(self.spec, day, self.now)}
        for group in groups_at(self.spec, day, BEGINNING):
            yield from self._of_group(group, counts[group.name], cloud)
            if (running := self.running.get(group.name)) and running.launched:
                yield from self._of_flex(group, running, cloud)
        if self.spec.expires_at is not None:
            yield self._expiry(moment(self.spec.expires_at))
        for notice in self.notices:
            state, by = DateState.DONE if self.now >= notice.at else DateState.SOON, cloud.title
            yield Event(at=notice.at, group=notice.node, what=notice.what, state=state, by=by, command="")
        due = self.idle_pools()
        for pool in self.spec.pools:
            for use in self.use:
                if pool.idle_stop and use.pool == pool.name and use.since:
                    yield self._idle(use, use.since + timedelta(hours=hours_of(pool.idle_stop)), is_due=use.pool in due)

    def _of_group(self, group: Group, planned: int, cloud: CloudProfile) -> Iterator[Event]:
        by = cloud.scheduled_actions or "you"
        starts, ends = (moment(text) if text else None for text in (group.starts_at, group.ends_at))
        have = None if self.deployed is None else self.deployed.get(group.name, 0)
        if running := self.running.get(group.name):
            # The state expects no nodes in a group that requests them from a queue.
            have = len(running.launched)
        if starts:
            is_open = self.now >= starts and (ends is None or self.now < ends)
            stale = is_open and have is not None and have != planned
            state = DateState.DUE if stale else self._state(starts)
            nodes = counted(group.max_count, "node")
            what = f"{nodes} start" if group.max_count > 1 else f"{nodes} starts"
            if stale:
                what += ", but `up` has not verified them" if cloud.scheduled_actions else ", but only with `up`"
            command = "" if state is DateState.DONE else self.commands.up
            yield Event(at=starts, group=group.name, what=what, state=state, by=by, command=command)
        if ends:
            left = have or group.name in self.scheduled
            state = DateState.DUE if self.now >= ends and left else self._state(ends)
            why, is_block = self._reason(group)
            command = self.commands.offers if is_block and state is not DateState.DONE else ""
            if state is DateState.DUE:
                command = command or self.commands.up
            what = f"{counted(group.max_count, 'node')} removed: {why}"
            yield Event(at=ends, group=group.name, what=what, state=state, by=by, command=command)

    def _of_flex(self, group: Group, running: RunningNodes, cloud: CloudProfile) -> Iterator[Event]:
        """Yield the start and the end of flex-start nodes. The run time begins after the creation of a node, so the end is the earliest possible time."""
        nodes = counted(len(running.launched), "node")
        what = f"{nodes} started" + (f", but `up` has not verified {running.unverified}" if running.unverified else "")
        state, command = (DateState.DUE, self.commands.up) if running.unverified else (DateState.DONE, "")
        yield Event(at=max(running.launched), group=group.name, what=what, state=state, by=cloud.title, command=command)
        ends = min(running.launched) + timedelta(seconds=group.max_run_s or 0)
        what = f"{nodes} removed: the run time of flex-start nodes ends"
        yield Event(at=ends, group=group.name, what=what, state=self._state(ends), by=cloud.title, command="")

    def _reason(self, group: Group) -> tuple[str, bool]:
        """Return why the nodes of a group are removed, and whether their Capacity Block ends."""
        if self.spec.expires_at and group.ends_at and moment(group.ends_at) == moment(self.spec.expires_at):
            return "the cluster expires", False
        if group.kind == "block":
            return f"Capacity Block {group.reservation_id} ends", True
        return f"reservation {group.reservation_id or group.reservation_group_arn} ends", False

    def _expiry(self, at: datetime) -> Event:
        """Return the date on which the cluster expires. Its resources are deleted by hand, because some of them hold data."""
        exists = self.deployed is not None
        state = DateState.DUE if self.now >= at and exists else self._state(at)
        command = self.commands.destroy if state is DateState.DUE else ""
        return Event(at=at, group="", what="the cluster expires", state=state, by="you", command=command)

    def _idle(self, use: PoolUse, at: datetime, *, is_due: bool) -> Event:
        """Return the date on which an idle pool is stopped. It is never `soon`, because it moves as soon as a GPU is used."""
        what = f"{counted(use.nodes, 'node')} idle since {use.since:%Y-%m-%d %H:%M}"
        state, command = (DateState.DUE, self.commands.stop_idle) if is_due else (DateState.LATER, "")
        return Event(at=at, group=use.pool, what=what, state=state, by="you", command=command)

    def _state(self, at: datetime) -> DateState:
        if self.now >= at:
            return DateState.DONE
        return DateState.SOON if at - self.now <= self.within else DateState.LATER


def groups_at(spec: ClusterSpec, day: date, now: datetime) -> Iterator[Group]:
    """Yield the groups of the plan at a time."""
    for pool in build_plan(spec, day, now).pools:
        yield from pool.groups


def ending(spec: ClusterSpec, now: datetime, within: timedelta) -> tuple[Group, ...]:
    """Return the groups with nodes whose end is at most `within` ahead."""
    return tuple(
        group
        for group in groups_at(spec, now.date(), now)
        if group.count and group.ends_at and moment(group.ends_at) - now <= within
    )


def needs_attention(events: Sequence[Event]) -> bool:
    """Return whether a date is due or soon."""
    return any(one.state in (DateState.DUE, DateState.SOON) for one in events)
