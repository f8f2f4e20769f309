"""`gpuinfra verify`: what nodes show, judged here, and which of them to drain, reset, reboot or replace."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.cli.options import ssh_options
from gpuinfra.cli.stack_context import plan_of, pool_of, rehearsal_options, standing
from gpuinfra.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from gpuinfra.remote.hosts import Host, Hosts
    from gpuinfra.verification.read import Evidence, Found

Expectation = Mapping[str, Any]


@click.command("verify")
@click.argument("stack", required=False)
@click.option("--ssh", "over_ssh", is_flag=True, help="Check the nodes of STACK now, over SSH, in place of reading its evidence bucket.")  # fmt: skip
@click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Judge a folder (or file) of evidence, as the evidence bucket lays it out.",
)
@click.option(
    "--expectation",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What a healthy node shows, instead of STACK's plan.",
)
@click.option(
    "--baseline", type=click.Path(path_type=Path), metavar="DIR", help="Earlier evidence: say what got worse since."
)
@click.option("--save", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Keep the evidence here, for a later --baseline.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write one self-contained page.")
@click.option("--phase", "phases", multiple=True, type=click.Choice(["presence", "correctness", "speed"]), help="Over SSH: only this phase. May be given several times.")  # fmt: skip
@click.option("--also", multiple=True, metavar="CHECK", help="Over SSH: this check too (B2, B4 and B5 measure). May be given several times.")  # fmt: skip
@click.option("--burn-in", type=click.IntRange(1, 4), metavar="LEVEL", help="Over SSH: DCGM's diagnostics too: 1 seconds, 2 minutes, 3 a quarter of an hour and stress until the heat is steady, 4 hours.")  # fmt: skip
@click.option("--pairs", metavar="FOLDER", help="Over SSH, in place of the checks: nodes meet in pairs for an all-reduce over the fabric, and the weak one is found. FOLDER is mounted on all of them, such as /scratch; no job may run meanwhile.")  # fmt: skip
@ssh_options(
    hosts="Check these hosts now, over SSH (docs/remote.md).",
    pool="Over SSH: only the hosts of this pool.",
    timeout_s=900,
)
@rehearsal_options
def command(
    stack: str | None,
    hosts_file: Path | None,
    over_ssh: bool,
    evidence: Path | None,
    expectation: Path | None,
    baseline: Path | None,
    save: Path | None,
    as_json: bool,
    junit: Path | None,
    html: Path | None,
    rehearsal: bool,
    folder: Path,
    **ssh: Any,
) -> int:
    """Judge what nodes show.

    The evidence comes from STACK's own bucket (STACK alone), from hosts that are asked now (--hosts FILE, --ssh), or from a
    folder (--evidence DIR). What a healthy node shows comes from STACK's plan or from --expectation.
    Exit code 0 when every node is verified, 1 when one is not.
    """
    from gpuinfra.report import verification_text as write
    from gpuinfra.verification.judged import judge_all
    from gpuinfra.verification.read import read_folder

    ways = [name for name, given in (("--hosts", hosts_file), ("--evidence", evidence), ("--ssh", over_ssh)) if given]
    if len(ways) > 1:
        raise UsageError(f"{' and '.join(ways)} are two ways to come by evidence; give one")
    if rehearsal and (hosts_file or evidence):
        raise UsageError(f"--rehearsal works on STACK's own stand-ins; leave {ways[0]} out")
    if ssh["pairs"] is not None:
        others = {"--baseline": baseline, "--save": save, "--junit": junit, "--html": html, "--phase": ssh["phases"], "--also": ssh["also"], "--burn-in": ssh["burn_in"]}  # fmt: skip
        if wrong := [name for name, given in others.items() if given]:
            raise UsageError(f"--pairs lets nodes meet and runs no other check; leave {' and '.join(wrong)} out")
        return _meet(stack, hosts_file, expectation, folder if rehearsal else None, ssh, over_ssh, as_json)
    earlier = read_folder(baseline) if baseline else None
    try:
        if evidence is not None:
            found, expected = read_folder(evidence), _expected(stack, expectation)
        elif hosts_file is not None:
            found, expected = _of_file(stack, hosts_file, expectation, ssh)
        elif stack is None:
            raise UsageError("say what to verify: STACK, --hosts FILE or --evidence DIR")
        else:
            with standing(stack, folder if rehearsal else None) as up:
                if over_ssh:
                    plan = plan_of(stack)
                    found, expected = _ask(up.hosts(plan, ssh["direct"]), _shows(stack, expectation, ssh["pool"]), ssh)
                else:
                    found, deployed = up.found()
                    expected = _one(expectation) or (lambda one: deployed[one.instance_id])
    except KeyboardInterrupt:
        return INTERRUPTED
    if save is not None:
        _save(save, found)
    nodes = judge_all(found, expected, earlier)
    document = write.document(nodes, found)
    if rehearsal:
        document["rehearsal"] = True
    if junit:
        junit.write_text(write.junit(nodes, found), encoding="utf-8")
    if html:
        from gpuinfra.report.verification import verification_page

        what = stack or (evidence or hosts_file or Path()).resolve().name
        title = f"{'Rehearsal: v' if rehearsal else 'V'}erification of {what}"
        html.write_text(verification_page(document, title), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
    else:
        if rehearsal:
            click.echo("a rehearsal: these are stand-in nodes on this machine")
        for line in write.text(nodes, found):
            click.echo(line)
    return 0 if document["verified"] else 1


def _meet(
    stack: str | None,
    file: Path | None,
    expectation: Path | None,
    rehearsals: Path | None,
    ssh: dict[str, Any],
    over_ssh: bool,
    as_json: bool,
) -> int:
    """Nodes meet in pairs."""
    from gpuinfra.cli.pairs import pairs

    try:
        if file is not None:
            from gpuinfra.remote.hosts import read_hosts

            hosts = read_hosts(file)
            return pairs(
                hosts, _shows(_named(stack, hosts, expectation), expectation, ssh["pool"]), ssh, as_json=as_json
            )
        if stack is None or not over_ssh:
            raise UsageError("--pairs asks nodes now: give STACK --ssh, or --hosts FILE")
        with standing(stack, rehearsals) as up:
            shows = _shows(stack, expectation, ssh["pool"])
            return pairs(up.hosts(plan_of(stack), ssh["direct"]), shows, ssh, as_json=as_json)
    except KeyboardInterrupt:
        return INTERRUPTED


def _named(stack: str | None, hosts: Hosts, expectation: Path | None) -> str | None:
    name = stack or hosts.stack
    if name is None and expectation is None:
        raise UsageError(
            "say what a healthy node shows: give STACK, name it in the hosts file (stack: aws-p4d), or give --expectation FILE"
        )
    return name


def _of_file(
    stack: str | None, file: Path, expectation: Path | None, ssh: dict[str, Any]
) -> tuple[Found, Callable[[Evidence], Expectation]]:
    """Hosts of a file, asked now."""
    from gpuinfra.remote.hosts import read_hosts

    hosts = read_hosts(file)
    return _ask(hosts, _shows(_named(stack, hosts, expectation), expectation, ssh["pool"]), ssh)


def _shows(
    stack: str | None, expectation: Path | None, pool: str | None
) -> Callable[[Host, Hosts], tuple[str, Expectation]]:
    """Host -> its pool and what it should show."""
    if one := _one(expectation):
        return lambda host, hosts: (host.pool or hosts.pool or pool or "", one(None))
    assert stack is not None
    plan = plan_of(stack)
    by_pool = {known.name: known.expectation for known in plan.pools}

    def of(host: Host, hosts: Hosts) -> tuple[str, Expectation]:
        found = pool_of(host, hosts, plan, pool)
        return found, by_pool[found]

    return of


def _ask(
    every: Hosts, shows: Callable[[Host, Hosts], tuple[str, Expectation]], ssh: dict[str, Any]
) -> tuple[Found, Callable[[Evidence], Expectation]]:
    """Check hosts over SSH. Raises `KeyboardInterrupt` where a person ended it."""
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.fleet import Fleet
    from gpuinfra.remote.known import Known, default_files
    from gpuinfra.remote.verify import Verify
    from gpuinfra.verification.over_ssh import found_of

    hosts = every.of_pool(ssh["pool"])
    should = {host.name: shows(host, hosts) for host in hosts.hosts}
    connector = Connector(Known(ssh["known_hosts"] or hosts.known_hosts or default_files()), hosts.jumps)
    done = 0

    def changed(outcome: Any) -> None:
        nonlocal done
        done += 1
        said = outcome.problem.reason if outcome.problem else "checked"
        click.echo(f"[{done}/{len(hosts.hosts)}] {outcome.host.name}: {said}", err=True)

    task = Verify(
        connector, lambda host: should[host.name][1],
        phases=ssh["phases"], also=ssh["also"], burn_in=ssh["burn_in"], limit_s=ssh["timeout_s"],
    )  # fmt: skip
    try:
        ended = Fleet(hosts.hosts, task, parallel=ssh["parallel"], changed=changed, leave=connector.close).run()
    finally:
        connector.close()
    if ended.interrupted:
        raise KeyboardInterrupt
    found = found_of(ended.outcomes, lambda host: should[host.name][1], lambda host: should[host.name][0])
    return found, lambda one: _asked_for(should[one.name][1], one, ssh)


def _asked_for(expectation: Expectation, one: Evidence, ssh: dict[str, Any]) -> Expectation:
    """What was asked for: a person who asks for one phase is told about that phase."""
    from gpuinfra.node.verify import burn_in_checks

    also = [*ssh["also"], *burn_in_checks(ssh["burn_in"])]
    required = list(dict.fromkeys([*expectation.get("required", ()), *also]))
    if ssh["phases"]:
        from gpuinfra.node.checks import ALL

        required = [name for name in required if name in ALL and ALL[name].phase.value in ssh["phases"]]
    return {**expectation, "required": required, **({"burn_in": ssh["burn_in"]} if ssh["burn_in"] else {})}


def _save(folder: Path, found: Found) -> None:
    """One file a machine, for a later --baseline; what was there of the same machine is replaced."""
    from gpuinfra.node import evidence

    folder.mkdir(parents=True, exist_ok=True)
    for one in found.newest:
        safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in one.label)[:100]
        (folder / f"{safe}.json").write_bytes(evidence.dumped(one.document))


def _one(file: Path | None) -> Callable[[object], Expectation] | None:
    """The expectation of a file, for every node."""
    if file is None:
        return None
    try:
        one = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--expectation {file} cannot be read as JSON: {error}") from None
    if not isinstance(one, dict) or not one.get("required"):
        raise UsageError(f"--expectation {file} lists no required checks; give the bundle's expectation.json")
    return lambda _: one


def _expected(stack: str | None, file: Path | None) -> Callable[[Evidence], Expectation]:
    if (stack is None) == (file is None):
        raise UsageError("say what a healthy node shows: give STACK or --expectation FILE, and not both")
    if one := _one(file):
        return one
    assert stack is not None
    pools = {pool.name: pool.expectation for pool in plan_of(stack).pools}

    def of_pool(one: Evidence) -> Expectation:
        pool = one.document.get("pool")
        if pool not in pools:
            raise UsageError(f"evidence of {one.instance_id} is of pool {pool!r}; {stack} has {', '.join(pools)}")
        return pools[pool]

    return of_pool
