"""How `gpuinfra failover --abort` and `gpuinfra failback` operate on the two regions of a stack, and its DNS names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinfra.base.errors import UsageError
from gpuinfra.cli.ready import Declared, Paired, verdicts
from gpuinfra.cli.stacks import NoStack, Resources, exported

if TYPE_CHECKING:
    from gpuinfra.clouds.region.readiness import ReadinessLine
    from gpuinfra.region.failover.back import Returning
    from gpuinfra.region.failover.steps import SecondStack, StackNames
    from gpuinfra.remote.drain import JobStop


def returning_of(
    paired: Paired, deploy: Callable[[str, bool], None], ignore: tuple[str, ...], *, deployed: bool = True
) -> Returning:
    """Return how a stack returns to its first region. Without `deployed`, the stacks of the second region possibly do not exist yet."""
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.region.readiness import PREFLIGHT, of_preflight
    from gpuinfra.doctor.cloud import live_rows
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
            f"gpuinfra cannot fail back {paired.stack} yet, because it does not support failover on {paired.plan.cloud}"
        )
    failing = Failing(
        stack=paired.loaded.name,
        region=paired.recovery.region,
        second=paired.plan.region,
        resources=[one for file in paired.second.files for one in state(file.name)],
        stacks=(SecondStack(loaded=paired.loaded, plan=paired.plan),),
        cloud=back,
        ask=ask,
        deploy=deploy,
        state=state,
        verdicts=verdicts,
        names=names_in(paired),
        ignore=frozenset(ignore),
    )
    return Returning(back=failing, forward=forward, resources=paired.resources)


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


def jobs_stopper(paired: Paired, grace: int, direct: bool) -> Callable[[], Mapping[str, JobStop]] | None:
    """Return the function that stops the jobs of the first region, or None if the stack has no nodes. `grace` is in minutes."""
    if not paired.plan.pools:
        return None

    def stop() -> Mapping[str, JobStop]:
        from gpuinfra.base.words import titled
        from gpuinfra.cli.stack_context import ActiveStack
        from gpuinfra.remote.drain import PlannedStop

        planned = PlannedStop(what=f"{paired.loaded.name} moves to {paired.recovery.region}", grace_s=grace * 60)
        with tempfile.TemporaryDirectory(prefix="gpuinfra-login-") as folder:
            active = ActiveStack(name=paired.stack, resources=paired.resources, folder=Path(folder))
            nodes = {node.id: titled(node.name, node.id) for node in active.nodes}
            results = active.stop_jobs(paired.plan, direct, list(nodes), planned) if nodes else {}
        return {nodes[name]: one for name, one in results.items()}

    return stop
