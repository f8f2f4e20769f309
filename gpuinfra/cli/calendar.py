"""`gpuinfra calendar`: lists the dates of a stack, and what is due now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from gpuinfra.cli.options import stack_options
from gpuinfra.cli.stack_context import ActiveStack, active_stack, connector_to, readable_stack
from gpuinfra.cli.stacks import Resources, Stacks, short_name
from gpuinfra.errors import EnvironmentMissing, GpuinfraError, SpecError, UsageError

if TYPE_CHECKING:
    from gpuinfra.calendar import Running
    from gpuinfra.clouds.offerings import Offering, Wanted
    from gpuinfra.plan.model import Plan
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.hosts import Host
    from gpuinfra.spec.load import LoadedStack

TIME = "%Y-%m-%dT%H:%M:%SZ"
ENDED = "block_window_is_open"
"""The rule that rejects a Capacity Block that has ended. The calendar reports it with the command that finds the next one."""

NOT_STOPPED = "jobs not stopped"


@dataclass(kw_only=True)
class _Read:
    """What was read from the state, the cloud and the nodes."""

    deployed: dict[str, int] | None = None
    running: dict[str, Running] = field(default_factory=dict)
    offers: dict[str, list[Offering]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    drained: dict[str, str] = field(default_factory=dict)


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
    "--drain",
    type=click.IntRange(1, 1440),
    metavar="MINUTES",
    help="Stop the jobs on nodes that are removed within this time.",
)
@click.option(
    "--direct", is_flag=True, help="With --drain: connect to private addresses instead of through the cloud's tunnel."
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
    drain: int | None,
    direct: bool,
    offline: bool,
    at: str | None,
    as_json: bool,
    stacks: Stacks,
) -> int:
    """List the dates of STACK: when nodes start, when they are removed, and what is due now.

    The dates come from the declaration: Capacity Blocks, reservations with `starts_at` or `ends_at`, and `expires_at`. The command
    compares them with the state of the stack, and prints the command for each date. Run it on a schedule. Without --drain, it
    changes nothing.

    The exit code is 0 if nothing is due or soon, 1 if a date is due or soon or jobs could not be stopped, and 3 if some data could
    not be read and the rest requires nothing.
    """
    from gpuinfra.calendar import Calendar, Commands, needs_attention
    from gpuinfra.report import calendar_text

    _refuse_unused(offers=offers, days=days, drain=drain, direct=direct, offline=offline)
    now, short = _time(at), short_name(stack)
    loaded = _loaded(stack, now)
    found = _Read() if offline else _read(stack, stacks, loaded, now, drain, direct, offers, days)
    calendar = Calendar(
        spec=loaded.spec,
        now=now,
        within=timedelta(days=within),
        commands=Commands(
            up=stacks.up.format(stack=short),
            destroy=stacks.up.replace(" up", " destroy", 1).format(stack=short),
            offers=f"gpuinfra calendar {short}{stacks.options} --offers",
        ),
        deployed=found.deployed,
        running=found.running,
    )
    if as_json:
        document = calendar_text.document(short, calendar, found.offers, found.unread, found.drained)
        click.echo(json.dumps({**document, **stacks.marks}, indent=2, ensure_ascii=True))
    else:
        if stacks.notice:
            click.echo(stacks.notice)
        for line in calendar_text.text(calendar, found.offers, found.unread, found.drained):
            click.echo(line)
    is_left = any(one.startswith(NOT_STOPPED) for one in found.drained.values())
    if is_left or needs_attention(calendar.events()):
        return 1
    return EnvironmentMissing.exit_code if found.unread else 0


def _refuse_unused(*, offers: bool, days: int | None, drain: int | None, direct: bool, offline: bool) -> None:
    if days is not None and not offers:
        raise UsageError("--days applies to the search for offers; add --offers, or omit --days")
    if direct and drain is None:
        raise UsageError("--direct applies to connections to nodes; add --drain, or omit --direct")
    if offline and (offers or drain is not None):
        raise UsageError("--offline reads only the stack file; omit --offers and --drain, or omit --offline")


def _time(text: str | None) -> datetime:
    """Return the time for which the dates are evaluated. A date in `GPUINFRA_TODAY` has the present time of day."""
    from gpuinfra.day import now, today

    if text is None:
        return now() or datetime.combine(today(), datetime.now(UTC).time(), UTC)
    try:
        return datetime.strptime(text, TIME).replace(tzinfo=UTC)
    except ValueError:
        raise UsageError(f"--at is {text!r}; allowed: a time in UTC such as 2026-12-01T11:30:00Z") from None


def _loaded(stack: str, now: datetime) -> LoadedStack:
    """Read a stack file. A Capacity Block that has ended is a date and no error."""
    from gpuinfra.findings import Level
    from gpuinfra.rules import check_stack
    from gpuinfra.spec.load import read_stack

    loaded = read_stack(stack)
    errors = [one for one in check_stack(loaded, now.date()) if one.level is Level.ERROR]
    ended = [one for one in errors if one.rule == ENDED and "has passed" in one.message]
    if len(errors) > len(ended):
        raise SpecError([one for one in errors if one not in ended])
    return loaded


def _read(
    stack: str,
    stacks: Stacks,
    loaded: LoadedStack,
    now: datetime,
    drain: int | None,
    direct: bool,
    offers: bool,
    days: int | None,
) -> _Read:
    """Read the state, search for offers, and stop the jobs on nodes that are removed soon."""
    found = _Read()
    if drain is not None:
        with active_stack(stack, stacks) as active:
            _deployed(found, active.resources, loaded, now)
            found.drained = dict(_drain(active, loaded, now, timedelta(minutes=drain), direct))
            if offers:
                _offers(found, loaded, now, days)
        return found
    with readable_stack(stack, stacks, nodes=False) as resources:
        _deployed(found, resources, loaded, now)
        if offers:
            _offers(found, loaded, now, days)
    return found


def _deployed(found: _Read, resources: Resources, loaded: LoadedStack, now: datetime) -> None:
    """Read the number of nodes that a state expects in each group, and the flex-start nodes that exist."""
    from gpuinfra.calendar import Running, groups_at
    from gpuinfra.handover import wire
    from gpuinfra.handover.connect import connect
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.inventory import handovers_of, nodes_of

    flex = {group.name for group in groups_at(loaded.spec, now.date(), now) if group.kind == "flex"}
    known = {node.id for node in nodes_of(resources)}
    found.deployed = {}
    for handover in handovers_of(resources):
        inputs = wire.inputs_of(handover.get("outputs") or {})
        groups = [group for pool in wire.pools_of(inputs) for group in pool.groups]
        found.deployed |= {group.name: group.count for group in groups}
        queued = {group.group: group for group in groups if group.name in flex}
        if not queued:
            continue
        try:
            members = connect(inputs).membership.members(list(queued.values()))
        except PortUnavailable as problem:
            found.unread["the flex-start nodes"] = str(problem)
            continue
        for path, group in queued.items():
            here = [one for one in members if one.group == path and not one.leaving]
            found.running[group.name] = Running(
                launched=tuple(one.launched for one in here if one.launched),
                unverified=sum(one.instance_id not in known for one in here),
            )


def _drain(
    active: ActiveStack, loaded: LoadedStack, now: datetime, within: timedelta, direct: bool
) -> Iterator[tuple[str, str]]:
    """Stop the jobs on each node of a group that ends soon. Yields each node with the result."""
    from gpuinfra.calendar import ending
    from gpuinfra.planning import make_plan
    from gpuinfra.words import titled

    ends = {group.name: group.ends_at for group in ending(loaded.spec, now, within)}
    nodes = [one for one in active.nodes if one.group in ends]
    if not nodes:
        return
    hosts = active.hosts(make_plan(loaded.spec, now.date(), now), direct)
    by_name = {host.name: host for host in hosts.hosts}
    with connector_to(hosts, ()) as connector:
        for node in nodes:
            title = titled(node.name, node.id)
            yield title, f"{_stopped(connector, by_name.get(node.id))}; removed at {ends[node.group]}"


def _stopped(connector: Connector, host: Host | None) -> str:
    """Stop the jobs on a node, and describe the result. A node that cannot be reached does not affect the others."""
    from gpuinfra.remote.drain import drain
    from gpuinfra.remote.problem import HostProblem
    from gpuinfra.words import counted

    if host is None:
        return f"{NOT_STOPPED}: the node is not in the state of the stack"
    try:
        with connector.connect(host) as connection:
            return f"{counted(drain(connection, sudo=host.sudo), 'process', 'processes')} stopped"
    except (GpuinfraError, HostProblem) as problem:
        return f"{NOT_STOPPED}: {problem}"


def wanted(plan: Plan, loaded: LoadedStack, days: int | None) -> Sequence[Wanted]:
    """Return the capacity that each Capacity Block of a plan needs next."""
    from gpuinfra.clouds.offerings import Wanted
    from gpuinfra.plan.window import declared
    from gpuinfra.spec.capacity import Block

    blocks = {entry.id: entry for pool in loaded.spec.pools for entry in pool.capacity if isinstance(entry, Block)}
    found = []
    for pool in plan.pools:
        for group in pool.groups:
            if group.kind == "block" and (entry := blocks.get(str(group.reservation_id))):
                starts, ends = declared(entry)
                assert starts is not None
                assert ends is not None
                length = days or max(1, round((ends - starts) / timedelta(days=1)))
                found.append(Wanted(group=group.name, machine=pool.machine, nodes=group.max_count, reservation=entry.id, ends=ends, days=length))  # fmt: skip
    return found


def _offers(found: _Read, loaded: LoadedStack, now: datetime, days: int | None) -> None:
    """Search for the next Capacity Blocks of a stack."""
    from gpuinfra.clouds.preflight import Unanswered
    from gpuinfra.planning import make_plan
    from gpuinfra.registry import has_module, module_of

    name = loaded.spec.cloud
    if not has_module(name, "offerings"):
        raise UsageError(f"--offers searches for Capacity Blocks on AWS, but {loaded.name} is on {name}; omit --offers")
    search = module_of(name, "offerings").search
    cloud = module_of(name, "preflight").Preflight(loaded.spec.where.region, loaded.config)
    for one in wanted(make_plan(loaded.spec, now.date(), now), loaded, days):
        try:
            cloud.find_credentials()
            found.offers[one.group] = list(search(cloud, one, now))
        except Unanswered as problem:
            found.unread[f"offers for {one.group}"] = f"{problem.found}; {problem.fix}"
