"""`gpuinfra bootstrap`: run the bootstrap steps on many hosts in parallel, over SSH."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import INTERRUPTED, WARN_PREFIX, UsageError
from gpuinfra.cli.options import HostTarget, some, ssh_options, stack_choice
from gpuinfra.cli.stack_context import connector_to, hosts_for, plan_of, pool_of
from gpuinfra.cli.stacks import short_name

if TYPE_CHECKING:
    from gpuinfra.plan.model import Plan
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.deliver import Order
    from gpuinfra.remote.fleet import FleetResult
    from gpuinfra.remote.hosts import Host, Hosts
    from gpuinfra.remote.problem import HostProblem

SCHEMA = "gpuinfra.bootstrap/1"


@click.command("bootstrap")
@click.argument("stack", required=False)
@ssh_options(pool="Use only the hosts in this pool. Required if STACK has several pools.", timeout_s=7200)
@click.option("--dry-run", is_flag=True, help="Print what the steps would change without changing anything.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; progress goes to stderr.")
@stack_choice
def command(target: HostTarget, dry_run: bool, as_json: bool) -> int:
    """Install the software for STACK's pools on existing machines over SSH.

    This command runs the same steps that nodes run at first boot. The machines are the hosts in a hosts file or the nodes of STACK. The
    steps run detached on each host, and continue if the connection is lost. To follow the steps again, run the same command. Host keys are
    always verified and never added.

    The exit code is 0 if all steps are done on every host, and 1 otherwise.
    """
    with hosts_for(target) as hosts:
        name = target.stack or hosts.stack
        if name is None:
            raise UsageError("no stack is specified; specify STACK, or set `stack` in the hosts file (stack: aws-p4d)")
        what = str(target.hosts_file.resolve()) if target.hosts_file else name
        records = target.stacks.records / short_name(name) if target.stacks.records else None
        plan = plan_of(name)
        pools = {host.name: pool_of(host, hosts, plan, target.pool) for host in hosts.hosts}
        orders = _orders(plan, pools.values())
        with connector_to(hosts, target.known_hosts) as connector:
            for line in connector.known.ignored_lines[:5]:
                click.echo(f"{WARN_PREFIX}{line}", err=True)
            if dry_run:
                ended = _dry_run(target, connector, hosts, orders, pools)
            else:
                ended = _bootstrap(target, connector, hosts, orders, pools, what, records)
    if dry_run and not as_json:
        _print_changes(ended)
    return _finish(ended, as_json, {name: order.bundle.sha256 for name, order in orders.items()})


def _bootstrap(
    target: HostTarget,
    connector: Connector,
    hosts: Hosts,
    orders: dict[str, Order],
    pools: dict[str, str],
    what: str,
    records: Path | None,
) -> FleetResult[Any]:
    from gpuinfra.remote.deliver import Bootstrap
    from gpuinfra.remote.fleet import HostFleet, HostOutcome
    from gpuinfra.remote.record import Record

    progress = _Progress(len(hosts.hosts))
    record = Record(what, records)
    if record.before:
        done = sum(host.get("outcome") == "done" for host in record.before.get("hosts", {}).values())
        progress.line(f"resuming the run from {record.before.get('started')}, in which {done} hosts finished")
    record.begin({name: order.bundle.sha256 for name, order in orders.items()})

    def stage(host: Host, text: str) -> None:
        record.host(host.name, stage=text)
        progress.host(host, text)

    def trouble(host: Host, problem: HostProblem, pause: float) -> None:
        progress.host(host, f"{problem.kind.value}, retry in {pause:.0f} s: {problem.reason}", retry=True)

    def changed(outcome: HostOutcome[Any]) -> None:
        fields = _entry(outcome)
        record.host(outcome.host.name, outcome=fields["outcome"], reason=fields["reason"])
        progress.ended(outcome.host, fields)

    task = Bootstrap(connector, orders, lambda host: pools[host.name], limit_s=target.timeout_s, on_stage=stage)
    fleet = HostFleet(
        hosts.hosts, task, parallel=target.parallel, on_outcome=changed, on_retry=trouble, on_stop=connector.close
    )
    ended: FleetResult[Any] = fleet.run()
    record.end(ended.interrupted)
    return ended


def _dry_run(
    target: HostTarget, connector: Connector, hosts: Hosts, orders: dict[str, Order], pools: dict[str, str]
) -> FleetResult[Any]:
    from gpuinfra.remote.deliver import DryRun
    from gpuinfra.remote.fleet import HostFleet

    task = DryRun(connector, orders, lambda host: pools[host.name])
    return HostFleet(hosts.hosts, task, parallel=target.parallel, on_stop=connector.close).run()


def _print_changes(ended: FleetResult[Any]) -> None:
    groups: dict[tuple[str, ...], list[str]] = {}
    for outcome in ended.outcomes:
        if outcome.value is not None:
            groups.setdefault(outcome.value.lines, []).append(outcome.host.title)
    for lines, names in groups.items():
        click.echo(f"{some(names)}:")
        for line in lines:
            click.echo(f"  {line}")


def _finish(ended: FleetResult[Any], as_json: bool, bundles: dict[str, str]) -> int:
    from gpuinfra.remote.fleet import by_kind

    entries = [_entry(outcome) for outcome in ended.outcomes]
    if as_json:
        counts: dict[str, int] = {}
        for entry in entries:
            counts[entry["outcome"]] = counts.get(entry["outcome"], 0) + 1
        body = {"schema": SCHEMA, "bundles": bundles, "summary": counts, "hosts": entries}
        click.echo(json.dumps(body, indent=2, ensure_ascii=True))
    else:
        click.echo(f"{len(ended.outcomes) - len(ended.problems)} of {len(entries)} hosts done")
        for kind, group in by_kind(ended.problems):
            _, first = group[0]
            click.echo(f"{len(group)} {kind.value}: {first.reason}; {first.hint}")
            if len(group) > 1:
                click.echo(f"  same problem: {some([host.title for host, _ in group[1:]])}")
    if ended.interrupted:
        return INTERRUPTED
    return 1 if ended.problems else 0


def _entry(outcome: Any) -> dict[str, Any]:
    problem, value = outcome.problem, outcome.value
    return {
        "name": outcome.host.name,
        "label": outcome.host.label,
        "address": outcome.host.where,
        "outcome": problem.kind.value if problem else "done",
        "reason": problem.reason if problem else None,
        "hint": problem.hint if problem else None,
        "steps": getattr(value, "steps", None),
        "changed": getattr(value, "changed", None),
        "already": getattr(value, "already", None),
        "would": list(getattr(value, "lines", ())) or None,
        "seconds": round(outcome.seconds, 1),
    }


def _orders(plan: Plan, wanted: Iterable[str]) -> dict[str, Order]:
    """Return the software to install on the hosts in each pool."""
    from gpuinfra import bundle
    from gpuinfra.remote.deliver import Order

    pools = {one.name: one for one in plan.pools}
    return {
        name: Order(
            pool=pools[name],
            bundle=bundle.build(pools[name]),
            node={
                "schema": "gpuinfra.node/1",
                # A machine that cloud user data configured keeps its own node.json. This file is for all other machines.
                "cloud": "none",
                "cluster": plan.name,
                "pool": name,
                "region": plan.region,
                "file_systems": [],
            },
        )
        for name in sorted(set(wanted))
    }


class _Progress:
    """Prints progress to stderr: one line per change on a host, and fewer lines for large fleets."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._ended = 0
        self._lock = threading.Lock()
        self._brief = total > 20

    def line(self, text: str) -> None:
        with self._lock:
            click.echo(text, err=True)

    def host(self, host: Host, text: str, *, retry: bool = False) -> None:
        """Print a change on one host. For large fleets, print only retries."""
        if retry or not self._brief:
            self.line(f"{host.title}: {text}")

    def ended(self, host: Host, entry: dict[str, Any]) -> None:
        with self._lock:
            self._ended += 1
            result = entry["reason"] or ("nothing to do" if entry["already"] else f"{entry['steps']} steps done")
            click.echo(f"[{self._ended}/{self._total}] {host.title}: {result}", err=True)
