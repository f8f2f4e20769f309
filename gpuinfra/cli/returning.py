"""How `gpuinfra failover --abort` and `gpuinfra failback` operate on the two regions of a stack, and its DNS names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.cli.ready import Declared, Paired, verdicts
from gpuinfra.cli.stacks import NoStack, Resources, exported

if TYPE_CHECKING:
    from gpuinfra.clouds.region.readiness import ReadinessLine
    from gpuinfra.plan.model import Plan
    from gpuinfra.region.failover.back import Returning
    from gpuinfra.region.failover.steps import SecondStack, StackNames
    from gpuinfra.remote.drain import JobStop
    from gpuinfra.spec.load import LoadedStack


def returning_of(
    paired: Paired,
    deploy: Callable[[str, bool], None],
    ignore: tuple[str, ...],
    *,
    grace: int,
    direct: bool,
    deployed: bool = True,
    stop_first: bool = False,
) -> Returning:
    """Return how a stack returns to its first region. Without `deployed`, the stacks of the second region possibly do not exist yet.

    The other arguments are the options of `gpuinfra failback`."""
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.region.readiness import PREFLIGHT, of_preflight
    from gpuinfra.doctor.cloud import live_rows
    from gpuinfra.plan.profile import profile_of
    from gpuinfra.region.failover.back import Returning
    from gpuinfra.region.failover.steps import Failing, SecondStack
    from gpuinfra.region.readiness import data

    def ask() -> Iterator[ReadinessLine]:
        # The second region is deployed, and the state of the first region is readable.
        yield from (one for one in paired.second.lines if one.topic not in ("state", "role"))
        yield from data(paired.loaded, paired.second, paired.resources)
        yield from of_preflight(live_rows(paired.loaded, PREFLIGHT))

    def state(name: str) -> Resources:
        try:
            return exported(name, project=paired.project)
        except NoStack:
            if deployed:
                raise
            return []

    own, second, config = paired.plan.region, paired.recovery.region, paired.loaded.settings
    forward = cloud_of(paired.plan.cloud).failback(own, second, config)
    back = cloud_of(paired.plan.cloud).failover(second, own, config)
    if forward is None or back is None:
        raise UsageError(
            f"gpuinfra cannot fail back {paired.stack} yet, because it does not support failover on {profile_of(paired.plan.cloud).title}"
        )
    stacks = [(one.loaded, one.plan) for one in second_stacks(paired)]
    failing = Failing(
        stack=paired.loaded.name,
        region=second,
        second=own,
        resources=[one for file in paired.second.files for one in state(file.name)],
        stacks=(SecondStack(loaded=paired.loaded, plan=paired.plan),),
        cloud=back,
        ask=ask,
        deploy=deploy,
        state=state,
        verdicts=verdicts,
        names=names_in(paired),
        exports=cloud_of(paired.plan.cloud).exports(second, config),
        stop_jobs=jobs_stopper(stacks, state, own, grace, direct),
        stop_first=stop_first,
        ignore=frozenset(ignore),
    )
    return Returning(
        back=failing,
        forward=forward,
        resources=paired.resources,
        await_nodes=_await_nodes,
        exports=cloud_of(paired.plan.cloud).exports(own, config),
    )


def _await_nodes(resources: Resources) -> str:
    """Wait until the nodes of a state are verified, and print the progress. Raises `DeploymentError`."""
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.verification.store import await_nodes

    try:
        return await_nodes(resources, lambda line: click.echo(f"    {line}", err=True))
    except PortUnavailable as problem:
        raise DeploymentError(f"the nodes cannot be read: {problem}") from None


def second_stacks(paired: Paired) -> tuple[SecondStack, ...]:
    """Return the stacks of the second region."""
    from gpuinfra.plan.make import build_plan
    from gpuinfra.region.failover.steps import SecondStack

    return tuple(SecondStack(loaded=one, plan=build_plan(one.spec, paired.second.today)) for one in paired.second.files)


def names_in(paired: Declared) -> StackNames | None:
    """Return the DNS names of a stack."""
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.region.failover.steps import StackNames

    planned = paired.recovery.names
    dns = cloud_of(paired.plan.cloud).dns
    return (
        StackNames(plan=planned, dns=dns.connect(paired.plan.region, paired.loaded.settings))
        if planned and dns
        else None
    )


def jobs_stopper(
    stacks: Sequence[tuple[LoadedStack, Plan]], state: Callable[[str], Resources], to: str, grace: int, direct: bool
) -> Callable[[], Mapping[str, JobStop]] | None:
    """Return the function that stops the jobs of the stacks of a region, or None if they have no nodes.

    `state` returns the resources of a stack, `to` is the region to which the jobs move, and `grace` is in minutes."""
    with_nodes = [(loaded, plan) for loaded, plan in stacks if plan.pools]
    if not with_nodes:
        return None

    def stop() -> Mapping[str, JobStop]:
        from gpuinfra.base.words import titled
        from gpuinfra.cli.stack_context import ActiveStack
        from gpuinfra.remote.drain import PlannedStop

        stopped: dict[str, JobStop] = {}
        for loaded, plan in with_nodes:
            planned = PlannedStop(what=f"{loaded.name} moves to {to}", grace_s=grace * 60)
            with tempfile.TemporaryDirectory(prefix="gpuinfra-login-") as folder:
                active = ActiveStack(name=loaded.name, resources=state(loaded.name), folder=Path(folder))
                nodes = {node.id: titled(node.name, node.id) for node in active.nodes}
                results = active.stop_jobs(plan, direct, list(nodes), planned) if nodes else {}
            stopped |= {nodes[name]: one for name, one in results.items()}
        return stopped

    return stop
