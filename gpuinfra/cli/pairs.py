"""`gpuinfra verify --pairs FOLDER`: nodes meet in pairs over the fabric, and the weak one is found."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.errors import DeploymentError, UsageError

if TYPE_CHECKING:
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.fleet import Outcome
    from gpuinfra.remote.hosts import Host, Hosts
    from gpuinfra.verification.meetings import Half
    from gpuinfra.verification.pairs import Meeting

FEWEST = 2


def pairs(
    every: Hosts,
    shows: Callable[[Host, Hosts], tuple[str, Mapping[str, Any]]],
    ssh: Mapping[str, Any],
    *,
    as_json: bool,
    options: Sequence[str] = (),
) -> int:
    """Let all hosts meet; exit code 0 when every node and every way that was tried is good."""
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.deliver import ask
    from gpuinfra.remote.fleet import Fleet
    from gpuinfra.remote.known import Known, default_files
    from gpuinfra.remote.pair import Meet, assignments
    from gpuinfra.verification import meetings
    from gpuinfra.verification.pairs import verdict

    if not PurePosixPath(ssh["pairs"]).is_absolute():
        raise UsageError(
            f"--pairs {ssh['pairs']} is no absolute path; name a folder that all nodes have mounted, such as /scratch"
        )
    if ssh["parallel"] < FEWEST:
        raise UsageError("--parallel is 1, and two nodes have to be asked at the same time; give 2 or more")
    hosts = every.of_pool(ssh["pool"])
    expected = {host.name: shows(host, hosts)[1] for host in hosts.hosts}
    by_name = {host.name: host for host in hosts.hosts}
    known = Known(ssh["known_hosts"] or hosts.known_hosts or default_files())
    store = str(PurePosixPath(ssh["pairs"]) / ".gpuinfra-pairs")
    speeds: dict[tuple[str, str], float | None] = {}

    def ask_all(
        names: Iterable[str], task: Callable[[Connector], Callable[[Host], dict[str, Any]]], **more: Any
    ) -> Any:
        """Every one of them at once, on connections that end with this."""
        connector = Connector(known, hosts.jumps)
        try:
            ended = Fleet([by_name[name] for name in names], task(connector), leave=connector.close, **more).run()
        finally:
            connector.close()
        if ended.interrupted:
            raise KeyboardInterrupt
        return ended.outcomes

    def order(do: str) -> Callable[[Connector], Callable[[Host], dict[str, Any]]]:
        def task(connector: Connector) -> Callable[[Host], dict[str, Any]]:
            def one(host: Host) -> dict[str, Any]:
                with connector.connect(host) as connection:
                    return ask(connection, {"do": do, "store": store})

            return one

        return task

    def meet(round_: list[tuple[str, str]]) -> list[Meeting]:
        found = []
        at_once = ssh["parallel"] // 2
        for start in range(0, len(round_), at_once):
            now = round_[start : start + at_once]
            told = assignments(now, run=secrets.token_hex(8), store=store)
            # One try: who comes back later finds its partner gone.
            halves = _halves(
                ask_all(told, partial(Meet, assignments=told, options=options), parallel=len(told), tries=1)
            )
            for pair in now:
                one = meetings.meeting_of(pair, halves, expected)
                speeds[pair] = meetings.speed_of(halves[pair[0]])
                reached = f"{speeds[pair]} GB/s" if speeds[pair] is not None else "no speed"
                click.echo(f"{pair[0]} with {pair[1]}: {reached if one.good else one.why}", err=True)
                found.append(one)
        return found

    seen = ask_all(by_name, order("look"), parallel=ssh["parallel"])
    absent = {one.host.name: one.problem.reason for one in seen if one.problem}
    nodes = [name for name in by_name if name not in absent]
    if len(nodes) < FEWEST:
        why = "".join(f"\n  {reason}" for reason in absent.values())
        raise DeploymentError(f"{len(nodes)} of {len(by_name)} hosts can be reached, and it takes two to meet{why}")
    held = meetings.hold(nodes, meet)
    ask_all(nodes[:1], order("forget"), parallel=1)
    said = meetings.document(verdict(nodes, held), held, speeds, absent)
    if as_json:
        click.echo(json.dumps(said, indent=2))
    else:
        for line in meetings.text(said):
            click.echo(line)
    return 0 if said["verified"] else 1


def _halves(outcomes: Iterable[Outcome[dict[str, Any]]]) -> dict[str, Half]:
    """Host -> what its half of a meeting came to."""
    from gpuinfra.remote.deliver import one_line
    from gpuinfra.verification.meetings import Half

    halves = {}
    for one in outcomes:
        told = one.value or {}
        last = (str(told.get("said") or "").strip().splitlines() or [""])[-1]
        problem = one.problem.reason if one.problem else ""
        if not problem and told.get("exit") != 0:
            problem = f"{one.host.name}: {one_line(last.removeprefix('gpuinfra: ')) or 'the node part said nothing'}"
        halves[one.host.name] = Half(result=str(told.get("result") or ""), exit=told.get("exit"), problem=problem)
    return halves
