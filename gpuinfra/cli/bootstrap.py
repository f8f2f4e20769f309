"""`gpuinfra bootstrap`: the same steps as user data starts, over SSH, on many hosts at once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.cli.options import ssh_options
from gpuinfra.cli.stack_context import plan_of, pool_of, rehearsal_options, standing
from gpuinfra.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from gpuinfra.plan.model import Plan
    from gpuinfra.remote.deliver import Order
    from gpuinfra.remote.fleet import Ended
    from gpuinfra.remote.hosts import Host, Hosts
    from gpuinfra.remote.problem import HostProblem

SCHEMA = "gpuinfra.bootstrap/1"


@click.command("bootstrap", short_help="run the steps of a stack's nodes over SSH")
@click.argument("stack", required=False)
@ssh_options(
    hosts="Hosts to work on (docs/remote.md), instead of the nodes of STACK that is up.",
    pool="Only the hosts of this pool; needed where the stack has several.",
    timeout_s=7200,
)
@click.option("--dry-run", is_flag=True, help="Say what the steps would change; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; progress goes to stderr.")
@rehearsal_options
def command(
    stack: str | None,
    hosts_file: Path | None,
    pool: str | None,
    parallel: int,
    timeout_s: float,
    dry_run: bool,
    as_json: bool,
    direct: bool,
    known_hosts: tuple[Path, ...],
    rehearsal: bool,
    folder: Path,
) -> int:
    """Run the bootstrap of STACK's pools on its nodes, or on the hosts of a file.

    Host keys are always verified and never accepted and added. The steps run detached on each host: whatever happens
    here, they go on, and the same command goes on watching. Exit code 0 when every host is done, 1 when one is not.
    """
    from gpuinfra.remote.hosts import read_hosts

    if rehearsal and hosts_file:
        raise UsageError("--rehearsal works on STACK's own stand-ins; leave --hosts out")
    given = read_hosts(hosts_file) if hosts_file else None
    name = stack or (given.stack if given else None)
    if name is None:
        raise UsageError("say what to install: give STACK, or name it in the hosts file (stack: aws-p4d)")
    plan = plan_of(name)
    if given is not None and hosts_file is not None:
        return _work(
            given, plan, str(hosts_file.resolve()), None, pool, parallel, timeout_s, dry_run, as_json, known_hosts
        )
    with standing(name, folder if rehearsal else None) as up:
        records = up.session.folder.root if up.session else None
        hosts = up.hosts(plan, direct)
        return _work(hosts, plan, name, records, pool, parallel, timeout_s, dry_run, as_json, known_hosts)


def _work(
    every: Hosts,
    plan: Plan,
    what: str,
    records: Path | None,
    pool: str | None,
    parallel: int,
    timeout_s: float,
    dry_run: bool,
    as_json: bool,
    known_hosts: tuple[Path, ...],
) -> int:
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.known import Known, default_files

    hosts = every.of_pool(pool)
    orders = _orders(plan, hosts, pool)
    known = Known(known_hosts or hosts.known_hosts or default_files())
    for line in known.wrong[:5]:
        click.echo(f"gpuinfra: {line}", err=True)
    connector = Connector(known, hosts.jumps)
    pools = {host.name: pool_of(host, hosts, plan, pool) for host in hosts.hosts}
    try:
        if dry_run:
            return _dry_run(connector, hosts, orders, pools, parallel, as_json)
        return _bootstrap(connector, hosts, orders, pools, what, records, parallel, timeout_s, as_json)
    finally:
        connector.close()


def _bootstrap(
    connector: Any,
    hosts: Hosts,
    orders: dict[str, Order],
    pools: dict[str, str],
    what: str,
    records: Path | None,
    parallel: int,
    timeout_s: float,
    as_json: bool,
) -> int:
    from gpuinfra.remote.deliver import Bootstrap
    from gpuinfra.remote.fleet import Fleet, Outcome
    from gpuinfra.remote.record import Record

    say = _Say(len(hosts.hosts))
    record = Record(what, records)
    if record.before:
        done = sum(host.get("outcome") == "done" for host in record.before.get("hosts", {}).values())
        say.line(f"goes on with the run of {record.before.get('started')}, which had {done} hosts done")
    record.begin({name: order.bundle.sha256 for name, order in orders.items()})

    def stage(host: Host, text: str) -> None:
        record.host(host.name, stage=text)
        say.host(host, text)

    def trouble(host: Host, problem: HostProblem, pause: float) -> None:
        say.host(host, f"{problem.kind.value}, again in {pause:.0f} s: {problem.reason}")

    def changed(outcome: Outcome[Any]) -> None:
        fields = _entry(outcome)
        record.host(outcome.host.name, outcome=fields["outcome"], reason=fields["reason"])
        say.ended(outcome.host, fields)

    task = Bootstrap(connector, orders, lambda host: pools[host.name], limit_s=timeout_s, said=stage)
    fleet = Fleet(hosts.hosts, task, parallel=parallel, changed=changed, trouble=trouble, leave=connector.close)
    ended: Ended[Any] = fleet.run()
    record.end(ended.interrupted)
    return _finish(ended, as_json, {name: order.bundle.sha256 for name, order in orders.items()})


def _dry_run(
    connector: Any, hosts: Hosts, orders: dict[str, Order], pools: dict[str, str], parallel: int, as_json: bool
) -> int:
    from gpuinfra.remote.deliver import DryRun
    from gpuinfra.remote.fleet import Fleet

    task = DryRun(connector, orders, lambda host: pools[host.name])
    ended = Fleet(hosts.hosts, task, parallel=parallel, leave=connector.close).run()
    if not as_json:
        told: dict[tuple[str, ...], list[str]] = {}
        for outcome in ended.outcomes:
            if outcome.value is not None:
                told.setdefault(outcome.value.lines, []).append(outcome.host.name)
        for lines, names in told.items():
            click.echo(f"{_some(names)}:")
            for line in lines:
                click.echo(f"  {line}")
    return _finish(ended, as_json, {name: order.bundle.sha256 for name, order in orders.items()})


def _finish(ended: Ended[Any], as_json: bool, bundles: dict[str, str]) -> int:
    from gpuinfra.remote.fleet import by_kind

    problems = [outcome.problem for outcome in ended.outcomes if outcome.problem is not None]
    entries = [_entry(outcome) for outcome in ended.outcomes]
    if as_json:
        counts: dict[str, int] = {}
        for entry in entries:
            counts[entry["outcome"]] = counts.get(entry["outcome"], 0) + 1
        body = {"schema": SCHEMA, "bundles": bundles, "summary": counts, "hosts": entries}
        click.echo(json.dumps(body, indent=2, ensure_ascii=True))
    else:
        done = len(entries) - len(problems)
        click.echo(f"{done} of {len(entries)} hosts done")
        for kind, group in by_kind(problems):
            click.echo(f"{len(group)} {kind.value}: {group[0].reason}; {group[0].hint}")
            if len(group) > 1:
                click.echo(f"  the same kind: {_some([p.reason.split(' ')[0].rstrip(':,') for p in group[1:]])}")
    if ended.interrupted:
        return INTERRUPTED
    return 1 if problems else 0


def _entry(outcome: Any) -> dict[str, Any]:
    problem, value = outcome.problem, outcome.value
    return {
        "name": outcome.host.name,
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


def _orders(plan: Plan, hosts: Hosts, pool: str | None) -> dict[str, Order]:
    """The bundle of each pool that a host is of."""
    from gpuinfra import bundle
    from gpuinfra.remote.deliver import Order

    pools = {one.name: one for one in plan.pools}
    wanted = {pool_of(host, hosts, plan, pool) for host in hosts.hosts}
    return {
        name: Order(
            pool=pools[name],
            bundle=bundle.build(pools[name]),
            node={
                "schema": "gpuinfra.node/1",
                # A machine that its cloud's user data configured keeps its own; this is for those that none made.
                "cloud": "none",
                "cluster": plan.name,
                "pool": name,
                "region": plan.region,
                "file_systems": [],
            },
        )
        for name in sorted(wanted)
    }


class _Say:
    """Progress on stderr: one line for each change of a host, few enough to read for hundreds of them."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._ended = 0
        self._guard = threading.Lock()
        self._quiet = total > 20

    def line(self, text: str) -> None:
        with self._guard:
            click.echo(text, err=True)

    def host(self, host: Host, text: str) -> None:
        """Hundreds of hosts say only what went wrong or came to an end."""
        if not self._quiet or "again in" in text:
            self.line(f"{host.name}: {text}")

    def ended(self, host: Host, entry: dict[str, Any]) -> None:
        with self._guard:
            self._ended += 1
            how = entry["reason"] or ("nothing to do" if entry["already"] else f"{entry['steps']} steps done")
            click.echo(f"[{self._ended}/{self._total}] {host.name}: {how}", err=True)


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
