"""Clones a declaration to a second region.

The clone is a list of edits, each with its reason. What a stack file cannot copy is listed with the command that provides it.
Each part of the declaration has a module; this module calls them in order.
Facts about a cloud come from its profile and its module `second_region`. This package does not call a cloud.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from gpuinfra.base.findings import Finding, Level
from gpuinfra.base.stack_files import stack_argument
from gpuinfra.cost import price
from gpuinfra.plan.machines import machines_of
from gpuinfra.plan.make import build_plan
from gpuinfra.region.clone.alternatives import alternatives
from gpuinfra.region.clone.capacity import list_quotas, set_capacity
from gpuinfra.region.clone.checks import name_findings, parsed, warn_of_left_overs
from gpuinfra.region.clone.draft import Draft
from gpuinfra.region.clone.files import files
from gpuinfra.region.clone.model import Alternative, ClonedFile, CloneRequest, CloneResult
from gpuinfra.region.clone.network import set_network
from gpuinfra.region.clone.pair import RegionPair, pair_of
from gpuinfra.region.clone.place import set_region, set_zones
from gpuinfra.region.clone.policies import set_policies
from gpuinfra.region.clone.pools import set_machines
from gpuinfra.region.clone.prices import estimate, standing, transfers
from gpuinfra.region.clone.recovery import set_recovery
from gpuinfra.region.clone.request import request_findings
from gpuinfra.region.clone.settings import set_references, set_settings
from gpuinfra.region.clone.software import check_images, set_registry
from gpuinfra.region.clone.storage import set_storage
from gpuinfra.rules import check, check_stack
from gpuinfra.rules.stack import STATE_RULE
from gpuinfra.spec.load import LoadedStack, parse_spec
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec

RULE = "clone"


def clone(stack: LoadedStack, text: str, request: CloneRequest, today: date, output: Path | None = None) -> CloneResult:
    """Clone a stack. `text` is the content of its file, and `output` the file of the clone.

    The result has findings of level error and no files if the stack, the request, or the clone is invalid.
    Raises `UsageError` if the path in a `--set` value is invalid or does not fit the clone.
    """
    base = CloneResult(
        stack=stack.name,
        path=stack.path,
        source_region=stack.spec.where.region,
        source_cloud=stack.spec.cloud,
        request=request,
    )
    findings = [one for one in check_stack(stack, today) if one.level is Level.ERROR]
    # A clone contains neither the state nor the secrets provider, so their location does not prevent it.
    state = [replace(one, level=Level.WARN) for one in findings if one.rule == STATE_RULE]
    findings = [one for one in findings if one.rule != STATE_RULE]
    asked = [replace(one, rule=RULE) for one in request_findings(stack.spec, request)]
    findings = findings or [one for one in asked if one.level is Level.ERROR]
    if findings:
        return replace(base, findings=tuple(findings))
    pair = pair_of(stack, text, request, today, output)
    if invalid := tuple(name_findings(pair)):
        return replace(base, findings=_named(invalid))
    draft = Draft(pair.declaration())
    cloned = _edited(pair, draft)
    if cloned is None:
        return _refused(pair, draft, base)
    warn_of_left_overs(pair, draft)
    draft.findings += [*state, *(one for one in asked if one.level is not Level.ERROR)]
    list_quotas(pair, draft, cloned)
    made = files(pair, draft, cloned)
    if len(made) > 1:
        every = [one for file in made for one in check(parse_spec(file.declaration, folder=file.path.parent), today)]
        draft.findings += [one for one in every if one.level is Level.ERROR]
        if draft.failed:
            return _refused(pair, draft, base)
    return _priced(pair, draft, cloned, made, base)


def _edited(pair: RegionPair, draft: Draft) -> ClusterSpec | None:
    """Edit the declaration part by part, and return the clone. None if a part has an error, which stops the clone."""
    set_region(pair, draft)
    machines = set_machines(pair, draft)
    if draft.failed:
        return None
    zones = set_zones(pair, draft, machines)
    if draft.failed:
        return None
    set_capacity(pair, draft, machines)
    for part in (check_images, set_storage, set_network, set_registry, set_policies, set_recovery, set_references):
        if draft.failed:
            return None
        part(pair, draft)
    if draft.failed:
        return None
    set_settings(pair, draft, zones)
    pair.apply_given(draft)  # last, so that the values of --set take precedence
    cloned = parsed(pair, draft)
    return None if draft.failed else cloned


def _priced(
    pair: RegionPair, draft: Draft, cloned: ClusterSpec, made: tuple[ClonedFile, ...], base: CloneResult
) -> CloneResult:
    today, plan = pair.today, build_plan(cloned, pair.today)
    before = build_plan(pair.spec, today)
    after = price(plan, today, duration_hours=cloned.duration_hours)
    early = standing(pair, cloned, made)
    return replace(
        base,
        changes=(*draft.config, *draft.changes),
        manual=tuple(draft.manual),
        findings=_named(draft.findings),
        files=made,
        before=price(before, today, duration_hours=pair.spec.duration_hours),
        after=after,
        estimate=estimate(pair, plan, after),
        standing=price(early, today) if early else None,
        standing_estimate=estimate(pair, early, price(early, today)) if early else None,
        plan=plan,
        transfers=tuple(transfers(pair)),
        next=tuple(_next(pair, made)),
    )


def _named(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    order = {Level.ERROR: 0, Level.WARN: 1, Level.INFO: 2}
    findings_named = [replace(one, rule=one.rule or RULE) for one in findings]
    return tuple(sorted(findings_named, key=lambda one: order[one.level]))


def _refused(pair: RegionPair, draft: Draft, base: CloneResult) -> CloneResult:
    """Return the errors, with alternatives if the region cannot provide the nodes."""
    errors = [one for one in draft.findings if one.level is Level.ERROR]
    place = any(one.path in ("--zone", "--machine") or one.path.startswith("pools[") for one in errors)
    return replace(base, findings=_named(errors), alternatives=_alternatives(pair) if place else ())


def _alternatives(pair: RegionPair) -> tuple[Alternative, ...]:
    machines = machines_of(pair.spec)
    pools = [(pool, machines[pool.machine]) for pool in pair.spec.pools]
    if not pools:
        return ()
    pool, machine = max(pools, key=lambda one: one[0].nodes * one[1].gpus)
    fabric = machine.fabric is not None and pool.fabric != "none"
    return alternatives(machine, pool.nodes, pair.spec.cloud, pair.source, pair.cloud, pair.target, fabric=fabric)


def _failover(pair: RegionPair, nodes: ClonedFile) -> str:
    """Return what to run after a failure of the first region. A plain `pulumi up` stops nothing in the first region, and moves neither data nor names."""
    recovery, stack = pair.spec.recovery, stack_argument(pair.stack.path)
    if recovery is not None and recovery.region == pair.target and not pair.across:
        return f"after a failure of {pair.source}: gpuinfra failover {stack} --to {pair.target} (check it now: gpuinfra ready {stack})"
    return (
        f"after a failure of {pair.source}: gpuinfra up {stack_argument(nodes.path)}; it moves no data and stops nothing in {pair.source}, "
        f"because {pair.stack.name} does not declare `recovery` to {pair.target}"
    )


def _next(pair: RegionPair, made: tuple[ClonedFile, ...]) -> Iterator[str]:
    for file in made:
        yield f"gpuinfra plan {stack_argument(file.path)}"
    yield f"choose a state backend and a secrets provider that do not depend on {pair.source}, which can fail"
    for file in made:
        yield f"pulumi stack init {file.stack} --secrets-provider=PROVIDER"
    deploy = [one.stack for one in made]
    if pair.request.mode == "cold":
        yield _failover(pair, made[-1])
    elif pair.request.mode == "hot":
        yield f"now: pulumi up --stack {deploy[-1]}"
    elif len(deploy) > 1:
        yield f"now: pulumi up --stack {deploy[0]}"
        yield _failover(pair, made[1])
    elif "cluster" in pair.spec.made_layers:
        yield f"now: deploy the clones of {listed([one for one in (pair.spec.use.foundation, pair.spec.use.site) if one])}"
        yield _failover(pair, made[0])
    else:
        yield f"now: pulumi up --stack {deploy[0]}"
