"""`gpuinfra pairs`: measures pairs of nodes over the fabric to find a slow node."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.cli.expectations import for_hosts
from gpuinfra.cli.options import HostTarget, expectation_option, ssh_options
from gpuinfra.cli.stack_context import connector_to, hosts_for

if TYPE_CHECKING:
    from gpuinfra.node.pairs import PairResult
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.fleet import HostOutcome
    from gpuinfra.remote.hosts import Host, Hosts
    from gpuinfra.verification.rounds import NodeResult

Task = Callable[["Host"], dict[str, Any]]


@click.command("pairs")
@click.argument("stack", required=False)
@click.option(
    "--shared-folder",
    required=True,
    metavar="FOLDER",
    help="Folder that all nodes mount, such as /scratch. The two nodes of a pair find each other through files in this folder. "
    "The command removes these files when it exits.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; progress goes to stderr.")
@expectation_option
@ssh_options()
def command(target: HostTarget, shared_folder: str, as_json: bool, expectation: Path | None) -> int:
    """Measure pairs of nodes over the fabric to find a slow node.

    The two nodes in each pair run an NCCL all-reduce. The nodes of a slow pair are then paired with other nodes until the slow node, or the slow
    path between two good nodes, is identified. Stop all jobs on the nodes first.

    The stand-in nodes of a rehearsal have no GPUs to run NCCL on, so only real nodes can be measured.

    The exit code is 0 if every node reaches the bandwidth of its machine type, and 1 otherwise.
    """
    if not PurePosixPath(shared_folder).is_absolute():
        raise UsageError(
            f"--shared-folder is {shared_folder}; allowed: an absolute path that all nodes mount, such as /scratch"
        )
    if target.parallel < 2:
        raise UsageError("--parallel is 1; allowed: 2 or more, because both nodes of a pair run at the same time")
    with hosts_for(target) as hosts:
        expected = {name: one for name, (_, one) in for_hosts(target, expectation, hosts).items()}
        return measure_pairs(
            hosts,
            expected,
            store=str(PurePosixPath(shared_folder) / ".gpuinfra-pairs"),
            known_hosts=target.known_hosts,
            parallel=target.parallel,
            as_json=as_json,
        )


def measure_pairs(
    hosts: Hosts,
    expected: Mapping[str, Mapping[str, Any]],
    *,
    store: str,
    known_hosts: tuple[Path, ...] = (),
    parallel: int = 64,
    as_json: bool = False,
    options: Sequence[str] = (),
) -> int:
    """Measure until the verdict is final. `options` are passed to the node program. Raises `KeyboardInterrupt`."""
    from gpuinfra.node.pairs import verdict
    from gpuinfra.remote.deliver import call_agent
    from gpuinfra.remote.fleet import HostFleet
    from gpuinfra.remote.pair import PairTest, assignments
    from gpuinfra.report import pairs_text
    from gpuinfra.verification import rounds

    by_name = {host.name: host for host in hosts.hosts}
    titles = {host.name: host.title for host in hosts.hosts}
    speeds: dict[tuple[str, str], float | None] = {}

    def run_on(
        names: Iterable[str], task: Callable[[Connector], Task], **more: Any
    ) -> list[HostOutcome[dict[str, Any]]]:
        """Run a task on several hosts in parallel, over new connections."""
        with connector_to(hosts, known_hosts) as connector:
            ended = HostFleet([by_name[name] for name in names], task(connector), on_stop=connector.close, **more).run()
        if ended.interrupted:
            raise KeyboardInterrupt
        return ended.outcomes

    def agent(action: str) -> Callable[[Connector], Task]:
        def task(connector: Connector) -> Task:
            def one(host: Host) -> dict[str, Any]:
                with connector.connect(host) as connection:
                    return call_agent(connection, {"do": action, "store": store})

            return one

        return task

    def measure(pairs: list[tuple[str, str]]) -> list[PairResult]:
        results = []
        at_once = parallel // 2
        for start in range(0, len(pairs), at_once):
            now = pairs[start : start + at_once]
            orders = assignments(now, run=secrets.token_hex(8), store=store)
            # Try only once, because a node that connects later can no longer find its partner.
            outcomes = run_on(
                orders, partial(PairTest, assignments=orders, options=options), parallel=len(orders), tries=1
            )
            by_node = _results(outcomes)
            for pair in now:
                result = rounds.pair_result(pair, by_node, expected)
                speeds[pair] = rounds.speed_of(by_node[pair[0]])
                speed = f"{speeds[pair]} GB/s" if speeds[pair] is not None else "no speed measured"
                click.echo(
                    f"{titles[pair[0]]} with {titles[pair[1]]}: {speed if result.good else result.reason}", err=True
                )
                results.append(result)
        return results

    reached = run_on(by_name, agent("status"), parallel=parallel)
    absent = {one.host.name: one.problem.reason for one in reached if one.problem}
    nodes = [name for name in by_name if name not in absent]
    if len(nodes) < 2:
        why = "".join(f"\n  {reason}" for reason in absent.values())
        raise DeploymentError(f"{len(nodes)} of {len(by_name)} hosts can be reached; a pair requires two hosts{why}")
    results = rounds.run_rounds(nodes, measure)
    run_on(nodes[:1], agent("clear_pairs"), parallel=1)
    labels = {host.name: host.label for host in hosts.hosts}
    document = rounds.document(verdict(nodes, results), results, speeds, absent, labels)
    click.echo(json.dumps(document, indent=2) if as_json else "\n".join(pairs_text.text(document, titles)))
    return 0 if document["verified"] else 1


def _results(outcomes: Iterable[HostOutcome[dict[str, Any]]]) -> dict[str, NodeResult]:
    """Return the result of each host."""
    from gpuinfra.base.safe_text import one_line
    from gpuinfra.verification.rounds import NodeResult

    results = {}
    for result in outcomes:
        answer = result.value or {}
        last = (str(answer.get("output") or "").strip().splitlines() or [""])[-1]
        problem = result.problem.reason if result.problem else ""
        if not problem and answer.get("exit") != 0:
            problem = f"{result.host.title}: {one_line(last.removeprefix('gpuinfra: ')) or 'the node program printed nothing'}"
        results[result.host.name] = NodeResult(
            result=str(answer.get("result") or ""), exit=answer.get("exit"), problem=problem
        )
    return results
