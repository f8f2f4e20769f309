"""`gpuinfra check`: run the checks on nodes now, over SSH."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import UsageError
from gpuinfra.cli.expectations import for_hosts
from gpuinfra.cli.judgement import publish
from gpuinfra.cli.options import HostTarget, judgement_options, ssh_options, stack_choice
from gpuinfra.cli.stack_context import connector_to, hosts_for
from gpuinfra.spec.shown import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinfra.cli.expectations import Expectation
    from gpuinfra.remote.hosts import Hosts
    from gpuinfra.verification.read import FoundEvidence


@click.command("check")
@click.argument("stack", required=False)
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=click.Choice(["presence", "correctness", "speed"]),
    help="Run only the checks in this phase. Repeatable.",
)
@click.option(
    "--also",
    multiple=True,
    metavar="CHECK",
    help="Also run a check that the machine type does not require, such as B2 or N5. Repeatable.",
)
@click.option(
    "--burn-in",
    type=click.IntRange(1, 4),
    metavar="LEVEL",
    help="Also run DCGM diagnostics. Level 1 takes seconds, 2 takes minutes, 3 takes about 15 minutes plus a stress test, and 4 takes hours.",
)
@ssh_options(timeout_s=900)
@judgement_options
@stack_choice
def command(
    target: HostTarget,
    phases: tuple[str, ...],
    also: tuple[str, ...],
    burn_in: int | None,
    expectation: Path | None,
    **output: Any,
) -> int:
    """Run the checks now on the nodes of STACK or on the hosts in a hosts file.

    This command connects over SSH, runs the probes, and evaluates their raw output locally. It leaves no files on the nodes. Checks in the speed
    phase use the GPUs and the fabric. While jobs are running, use --phase presence --phase correctness.

    The exit code is 0 if every node is verified, 3 if the state of STACK cannot be read or contains no nodes, and 1 otherwise.
    """
    _check_also(also)
    with hosts_for(target, announce=False) as hosts:
        by_host = for_hosts(target, expectation, hosts)
        by_title = {host.label or host.name: by_host[host.name] for host in hosts.hosts}
        outcomes = _probe(target, hosts, by_host, phases=phases, also=also, burn_in=burn_in)
    title = f"Check of {target.stack or (target.hosts_file or Path()).name}"
    return publish(
        outcomes,
        lambda one: _narrowed(by_title[one.name][1], phases, also, burn_in),
        title,
        stacks=target.stacks,
        **output,
    )


def _check_also(also: Sequence[str]) -> None:
    """Raise `UsageError` for an unknown check, before the state is read and the nodes are contacted."""
    if not also:
        return
    from gpuinfra.node.checks import ALL

    if unknown := [name for name in also if name not in ALL]:
        raise UsageError(f"--also is {shown(unknown[0])}; allowed: {', '.join(ALL)}")


def _probe(
    target: HostTarget, hosts: Hosts, by_host: dict[str, tuple[str, Expectation]], **selection: Any
) -> FoundEvidence:
    """Collect the evidence from all hosts. Raises `KeyboardInterrupt` after an interrupt."""
    from gpuinfra.remote.fleet import HostFleet
    from gpuinfra.remote.verify import Verify
    from gpuinfra.verification.over_ssh import found_of

    done = 0

    def changed(outcome: Any) -> None:
        nonlocal done
        done += 1
        result = outcome.problem.reason if outcome.problem else "checked"
        click.echo(f"[{done}/{len(hosts.hosts)}] {outcome.host.title}: {result}", err=True)

    with connector_to(hosts, target.known_hosts) as connector:
        task = Verify(connector, lambda host: by_host[host.name][1], limit_s=target.timeout_s, **selection)
        ended = HostFleet(
            hosts.hosts, task, parallel=target.parallel, on_outcome=changed, on_stop=connector.close
        ).run()
    if ended.interrupted:
        raise KeyboardInterrupt
    return found_of(ended.outcomes, by_host)


def _narrowed(
    expectation: Expectation, phases: Sequence[str], also: Sequence[str], burn_in: int | None
) -> dict[str, Any]:
    """Limit the expectation to the checks in this run, so that only these checks decide the result."""
    from gpuinfra.node.verify import burn_in_checks

    required = list(dict.fromkeys([*expectation.get("required", ()), *also, *burn_in_checks(burn_in)]))
    if phases:
        from gpuinfra.node.checks import ALL

        required = [name for name in required if name in ALL and ALL[name].phase.value in phases]
    return {**expectation, "required": required, **({"burn_in": burn_in} if burn_in else {})}
