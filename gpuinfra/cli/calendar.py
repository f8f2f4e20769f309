"""`gpuinfra calendar`: lists the dates of a stack, and what is due now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import EnvironmentMissing, UsageError
from gpuinfra.cli.active import active_elsewhere
from gpuinfra.cli.options import stack_options
from gpuinfra.cli.stack_context import ActiveStack, active_stack, readable_stack
from gpuinfra.cli.stacks import Resources, Stacks, as_argument, short_name

if TYPE_CHECKING:
    from gpuinfra.calendar import NodeNotice, RunningNodes
    from gpuinfra.clouds.offerings import Offering, Wanted
    from gpuinfra.clouds.region.active import ActiveRegion
    from gpuinfra.handover.ports import Member
    from gpuinfra.idle import PoolUse
    from gpuinfra.plan.model import Plan
    from gpuinfra.remote.drain import JobStop
    from gpuinfra.spec.load import LoadedStack

TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What the command reads and does, apart from the declaration."""

    offers: bool
    days: int | None
    notices: bool
    drain: int | None
    direct: bool
    stop_idle: bool
    offline: bool
    at: str | None

    def refuse_unused(self) -> None:
        """Raise `UsageError` if an option has no effect with the others."""
        if self.offline and self.notices:
            raise UsageError("--offline reads only the stack file; omit --notices, or omit --offline")
        if self.days is not None and not self.offers:
            raise UsageError("--days applies to the search for offers; add --offers, or omit --days")
        if self.direct and self.drain is None:
            raise UsageError("--direct applies to connections to nodes; add --drain, or omit --direct")
        if self.offline and (self.offers or self.drain is not None):
            raise UsageError("--offline reads only the stack file; omit --offers and --drain, or omit --offline")
        if self.stop_idle and (self.offline or self.at is not None):
            raise UsageError("--stop-idle acts on the present use of the GPUs; omit --offline and --at")
        if self.at is not None and self.drain is not None:
            raise UsageError("--drain stops jobs now; omit --at")


@dataclass(kw_only=True)
class _Read:
    """What was read from the state, the cloud and the nodes."""

    deployed: dict[str, int] | None = None
    running: dict[str, RunningNodes] = field(default_factory=dict)
    scheduled: frozenset[str] = frozenset()
    offers: dict[str, list[Offering]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    drained: dict[str, JobStop] = field(default_factory=dict)
    use: tuple[PoolUse, ...] = ()
    elsewhere: ActiveRegion | None = None
    """The record of the active region, if the stack runs in its second region."""
    notices: tuple[NodeNotice, ...] = ()


@click.command("calendar")
@click.argument("stack")
@click.option(
    "--within",
    type=click.IntRange(0, 365),
    default=7,
    show_default=True,
    metavar="DAYS",
    help="Number of days ahead for which a date is reported as soon.",
)
@click.option(
    "--offers",
    is_flag=True,
    help="AWS: search for extensions of the Capacity Blocks and for the next blocks, with prices.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 182),
    metavar="DAYS",
    help="With --offers: length of the offers. Default: the length of the Capacity Block.",
)
@click.option(
    "--notices", is_flag=True, help="Read the evidence of the nodes, and list what the cloud announced about them."
)
@click.option(
    "--drain",
    type=click.IntRange(1, 1440),
    metavar="MINUTES",
    help="Stop the jobs on nodes that are removed within this time.",
)
@click.option(
    "--direct", is_flag=True, help="With --drain: connect to private addresses instead of through the cloud's tunnel."
)
@click.option(
    "--stop-idle",
    is_flag=True,
    help="Set the number of nodes of each pool that was idle for the time of `idle_stop` to 0 in the stack file.",
)
@click.option("--offline", is_flag=True, help="Read only the stack file, and not the state.")
@click.option(
    "--at", metavar="TIME", help="Evaluate the dates at this time, such as 2026-12-01T11:30:00Z, instead of now."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@stack_options
def command(
    stack: str,
    within: int,
    offers: bool,
    days: int | None,
    notices: bool,
    drain: int | None,
    direct: bool,
    stop_idle: bool,
    offline: bool,
    at: str | None,
    as_json: bool,
    stacks: Stacks,
) -> int:
    """List the dates of STACK: when nodes start, when they are removed, and what is due now.

    The dates come from the declaration: Capacity Blocks, reservations with `starts_at` or `ends_at`, and `expires_at`. The command
    compares them with the state of the stack, and prints the command for each date, which is `gpuinfra failback` if the stack failed
    over. If a pool has `idle_stop`, it also reads the evidence of the nodes, and shows since when all GPUs of the pool are idle. Run it on
    a schedule. Without --drain and --stop-idle, it changes nothing.

    --stop-idle reads the evidence again, and changes only the stack file. The exit code is then 0 if it changed a pool, and 1 if no pool
    was idle for long enough. Run `up` afterwards.

    The exit code is 0 if nothing is due or soon, 1 if a date is due or soon or jobs could not be stopped, and 3 if some data could
    not be read and the rest requires nothing.
    """
    from gpuinfra.calendar import Calendar, DateCommands, needs_attention
    from gpuinfra.report import calendar_text
    from gpuinfra.rules import load_stack

    options = _Options(
        offers=offers, days=days, notices=notices, drain=drain, direct=direct, stop_idle=stop_idle, offline=offline, at=at
    )  # fmt: skip
    options.refuse_unused()
    now, short = _time(at), short_name(stack)
    loaded = load_stack(stack, now.date())
    state = _Read() if offline else _read(stack, stacks, loaded, now, options)
    deploy = stacks.to_deploy(stack)
    up = deploy if state.elsewhere is None else f"gpuinfra failback {as_argument(stack)}"
    if state.elsewhere:
        click.echo(
            f"{short} does not run in {loaded.spec.where.region}, so its dates apply after a failback: {state.elsewhere}",
            err=True,
        )
    again = f"gpuinfra calendar {as_argument(stack)}{stacks.options}"
    calendar = Calendar(
        spec=loaded.spec,
        now=now,
        within=timedelta(days=within),
        commands=DateCommands(
            up=up,
            destroy=deploy.replace(" up", " destroy", 1),
            offers=f"{again} --offers",
            stop_idle=f"{again} --stop-idle && {up}",
        ),
        deployed=state.deployed,
        running=state.running,
        scheduled=state.scheduled,
        use=state.use,
        notices=state.notices,
    )
    stopped = _stop(loaded, calendar.idle_pools()) if stop_idle else {}
    drained = {name: one.text for name, one in state.drained.items()}
    if as_json:
        document = calendar_text.document(short, calendar, state.offers, state.unread, drained)
        document |= {"stopped": list(stopped), "stopped_counts": stopped}
        click.echo(json.dumps({**document, **stacks.marks}, indent=2, ensure_ascii=True))
    else:
        if stacks.notice:
            click.echo(stacks.notice)
        for line in calendar_text.text(calendar, state.offers, state.unread, drained):
            click.echo(line)
        for pool, before in stopped.items():
            click.echo(f"pool {pool} has no nodes in {loaded.path} now; run `{up}`")
            click.echo(f"pool {pool}: count was {before}")
    if stop_idle:
        return 0 if stopped else EnvironmentMissing.exit_code if state.unread else 1
    if not all(one.done for one in state.drained.values()) or needs_attention(calendar.events()):
        return 1
    return EnvironmentMissing.exit_code if state.unread else 0


def _time(text: str | None) -> datetime:
    """Return the time for which the dates are evaluated. A date in `GPUINFRA_TODAY` has the present time of day."""
    from gpuinfra.base.day import now, today

    if text is None:
        return now() or datetime.combine(today(), datetime.now(UTC).time(), UTC)
    try:
        return datetime.strptime(text, TIME).replace(tzinfo=UTC)
    except ValueError:
        raise UsageError(f"--at is {text!r}; allowed: a time in UTC such as 2026-12-01T11:30:00Z") from None


def _read(stack: str, stacks: Stacks, loaded: LoadedStack, now: datetime, options: _Options) -> _Read:
    """Read the state, search for offers, and stop the jobs on nodes that are removed soon."""
    state = _Read()
    if options.drain is None:
        with readable_stack(stack, stacks, nodes=False) as resources:
            _read_resources(state, resources, loaded, now, options)
            _offers(state, loaded, now, options)
    else:
        with active_stack(stack, stacks) as active:
            _read_resources(state, active.resources, loaded, now, options)
            _drain(state, active, stacks, loaded, timedelta(minutes=options.drain), options.direct)
            _offers(state, loaded, now, options)
    return state


def _read_resources(state: _Read, resources: Resources, loaded: LoadedStack, now: datetime, options: _Options) -> None:
    """Read what the resources of a state and the evidence of their nodes say about the dates."""
    _deployed(state, resources, loaded, now)
    state.use = _use(state, resources, loaded, options.at)
    state.elsewhere = active_elsewhere(loaded, resources)
    state.notices = _notices(state, resources) if options.notices else ()


def _deployed(state: _Read, resources: Resources, loaded: LoadedStack, now: datetime) -> None:
    """Read the number of nodes that a state expects in each group, its groups with scheduled actions, and the flex-start nodes that exist."""
    from gpuinfra.calendar import RunningNodes, groups_at
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.handover import wire
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.inventory import handovers_of, nodes_of

    actions = cloud_of(loaded.spec.cloud).scheduled(resources)
    flex = {group.name for group in groups_at(loaded.spec, now.date(), now) if group.kind == "flex"}
    verified = {node.id for node in nodes_of(resources)}
    state.deployed = {}
    for handover in handovers_of(resources):
        pools = wire.pools_of(wire.inputs_of(handover.get("outputs") or {}))
        state.deployed |= {group.name: group.count for pool in pools for group in pool.groups}
        state.scheduled |= {group.name for pool in pools for group in pool.groups if group.group in actions}
    try:
        members = _members(resources, flex)
    except PortUnavailable as problem:
        state.unread["the flex-start nodes"] = str(problem)
        return
    for name, here in members.items():
        state.running[name] = RunningNodes(
            launched=tuple(one.launched for one in here if one.launched),
            unverified=sum(one.instance_id not in verified for one in here),
        )


def _use(state: _Read, resources: Resources, loaded: LoadedStack, at: str | None) -> tuple[PoolUse, ...]:
    """Return the use of each pool with `idle_stop`, from the verified evidence of its nodes.
    The present applies unless `--at` sets a time, because `GPUINFRA_TODAY` has no time of day."""
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.idle import pool_use
    from gpuinfra.verification.store import polled, used_evidence

    names = {pool.name for pool in loaded.spec.pools if pool.idle_stop}
    if not names:
        return ()
    now = datetime.now(UTC) if at is None else _time(at)
    try:
        polls = polled(resources)
        return tuple(
            pool_use(pool.name, used_evidence(poll, pool.name), int(str(pool.expectation.get("gpus") or 0)), now)
            for poll in polls
            for pool in poll.pools
            if pool.name in names
        )
    except PortUnavailable as problem:
        state.unread["the energy readings"] = str(problem)
        return ()


def _notices(state: _Read, resources: Resources) -> tuple[NodeNotice, ...]:
    """Return the notices with a deadline, from the evidence of the nodes."""
    from gpuinfra.calendar import NodeNotice
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.verification.nodes import notices_of
    from gpuinfra.verification.store import polled

    try:
        return tuple(
            NodeNotice(node=node.label, at=datetime.fromtimestamp(one.deadline, UTC), what=one.what)
            for poll in polled(resources)
            for node in poll.verdict.nodes
            for one in notices_of(poll, node)
            if one.deadline is not None
        )
    except PortUnavailable as problem:
        state.unread["the notices"] = str(problem)
        return ()


def _stop(loaded: LoadedStack, pools: frozenset[str]) -> dict[str, str]:
    """Set the number of nodes of these pools to 0 in the stack file. Returns the previous counts as text, keyed by pool name."""
    from gpuinfra.search.placements import counts, text_without_nodes, unchanged, write

    if not pools:
        return {}
    version, now = unchanged(loaded)
    write(version, text_without_nodes(now, version.text, pools))
    return dict(sorted(counts(now, pools).items()))


def _members(resources: Resources, names: Iterable[str]) -> dict[str, list[Member]]:
    """Return the nodes that exist in the groups with these names, without nodes that are being terminated. Raises `PortUnavailable`."""
    from gpuinfra.handover import wire
    from gpuinfra.handover.connect import connect
    from gpuinfra.inventory import handovers_of

    by_pool: dict[str, list[Member]] = {}
    for handover in handovers_of(resources):
        inputs = wire.inputs_of(handover.get("outputs") or {})
        groups = [group for pool in wire.pools_of(inputs) for group in pool.groups if group.name in names]
        if not groups:
            continue
        members = connect(inputs).membership.members(groups)
        for group in groups:
            by_pool[group.name] = [one for one in members if one.group == group.group and not one.leaving]
    return by_pool


def _drain(
    state: _Read, active: ActiveStack, stacks: Stacks, loaded: LoadedStack, within: timedelta, direct: bool
) -> None:
    """Stop the jobs on each node of a group that ends soon. Jobs are stopped now, so the present time applies, and not `GPUINFRA_TODAY`."""
    from gpuinfra.base.words import titled
    from gpuinfra.calendar import ending
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.plan.make import build_plan
    from gpuinfra.remote.drain import ABSENT, not_stopped

    now = datetime.now(UTC)
    ends = {group.name: group.ends_at for group in ending(loaded.spec, now, within)}
    if not ends:
        return
    nodes = [one for one in active.nodes if one.group in ends]
    plan = build_plan(loaded.spec, now.date(), now)
    results = active.stop_jobs(plan, direct, [one.id for one in nodes]) if nodes else {}
    for node in nodes:
        result = results[node.id]
        state.drained[titled(node.name, node.id)] = replace(
            result, text=f"{result.text}; removed at {ends[node.group]}"
        )
    try:
        members = _members(active.resources, ends)
    except PortUnavailable as problem:
        state.unread["the nodes that are removed soon"] = str(problem)
        return
    up = stacks.to_deploy(active.name)
    for name, here in members.items():
        for instance in here:
            if instance.instance_id not in results:
                state.drained[instance.instance_id] = not_stopped(f"{ABSENT}; run `{up}`; removed at {ends[name]}")


def wanted(plan: Plan, loaded: LoadedStack, days: int | None) -> Sequence[Wanted]:
    """Return the capacity that each Capacity Block of a plan needs next."""
    from gpuinfra.clouds.offerings import Wanted
    from gpuinfra.plan.window import declared
    from gpuinfra.spec.capacity import Block

    blocks = {entry.id: entry for pool in loaded.spec.pools for entry in pool.capacity if isinstance(entry, Block)}
    wanted_groups = []
    for pool in plan.pools:
        for group in pool.groups:
            if group.kind == "block" and (entry := blocks.get(str(group.reservation_id))):
                starts, ends = declared(entry)
                assert starts is not None
                assert ends is not None
                length = days or max(1, round((ends - starts) / timedelta(days=1)))
                wanted_groups.append(
                    Wanted(
                        group=group.name,
                        machine=pool.machine,
                        nodes=group.max_count,
                        reservation=entry.id,
                        ends=ends,
                        days=length,
                    )
                )
    return wanted_groups


def _offers(state: _Read, loaded: LoadedStack, now: datetime, options: _Options) -> None:
    """Search for the next Capacity Blocks of a stack with `--offers`."""
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.preflight import Unanswered
    from gpuinfra.plan.make import build_plan
    from gpuinfra.plan.profile import profile_of

    if not options.offers:
        return
    search = cloud_of(loaded.spec.cloud).offerings(loaded.spec.where.region, loaded.settings)
    if search is None:
        raise UsageError(
            f"--offers searches for Capacity Blocks on AWS, but {loaded.name} is on {profile_of(loaded.spec.cloud).title}; omit --offers"
        )
    for group in wanted(build_plan(loaded.spec, now.date(), now), loaded, options.days):
        offers: list[Offering] = []
        try:
            for offer in search(group, now):
                offers.append(offer)
        except Unanswered as problem:
            state.unread[f"offers for {group.group}"] = f"{problem.found}; {problem.fix}"
            if not offers:
                continue
        state.offers[group.group] = offers
