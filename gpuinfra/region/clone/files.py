"""Creates the stack files of the clone: one, or two in `pilot-light` mode for a stack that creates all layers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuinfra.clouds.region.second_region import Manual
from gpuinfra.cost import price
from gpuinfra.cost.budget import derived_limit
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.region.clone import names
from gpuinfra.region.clone.draft import Draft, apply, put
from gpuinfra.region.clone.model import CloneChange, ClonedFile
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.region.clone.prices import estimate
from gpuinfra.region.clone.settings import references
from gpuinfra.region.clone.write import reasons_of, render
from gpuinfra.spec.document import Route
from gpuinfra.spec.load import CLONE_OF
from gpuinfra.spec.model import ClusterSpec

STACK_SECRETS = ("encryptionsalt", "encryptedkey", "secretsprovider")
"""Keys in a stack file that belong to the stack's secrets provider."""


def files(pair: RegionPair, draft: Draft, cloned: ClusterSpec) -> tuple[ClonedFile, ...]:
    """Return the files of the clone. The file with the nodes is the last one."""
    _list_secrets_provider(pair, draft)
    splits = pair.request.mode == "pilot-light" and len(cloned.made_layers) > 1 and "cluster" in cloned.made_layers
    if not splits:
        return (_file(pair, pair.name, pair.output, draft.changes, "stack", draft.config),)
    base, first = names.base_of(pair.name), names.base_of(pair.stack.name)
    layers = [layer for layer in cloned.made_layers if layer != "cluster"]
    standing = _standing(pair, draft, cloned, layers)
    nodes = _nodes(pair, draft, layers, _reference(pair, base))
    if "site" in layers and "node_role_in_site" in pair.there.access_fields:
        why = "the nodes' role is created before the failover, so that the failover creates no IAM resources"
        standing.set(("access", "node_role_in_site"), True, why)
        nodes.set(("access", "node_role_in_site"), True, why)
    if cloned.monitoring:
        why = "the control node needs an identity of its own, which a failover in this mode does not create; declare it after the failover"
        standing.set(("monitoring",), None, why)
        nodes.set(("monitoring",), None, why)
        if cloned.repair.mode != "off":
            standing.set(("repair",), None, "nodes are repaired by the control node")
            nodes.set(("repair",), None, "nodes are repaired by the control node")
    if cloned.logs:
        why = "the nodes' role, which the first file of this mode creates, cannot write to a log group of the second one; declare it after the failover"
        standing.set(("logs",), None, why)
        nodes.set(("logs",), None, why)
    own = references(pair)
    both = {**own, **dict.fromkeys(layers, _reference(pair, first))}
    return (
        _file(
            pair,
            base,
            names.file_of(pair.output, base),
            [*draft.changes, *standing.changes],
            "base",
            _recorded(pair, draft, first, own),
        ),
        _file(
            pair,
            pair.name,
            pair.output,
            [*draft.changes, *nodes.changes],
            "nodes",
            _recorded(pair, draft, pair.stack.name, both),
        ),
    )


def _list_secrets_provider(pair: RegionPair, draft: Draft) -> None:
    assert pair.stack.document is not None
    if not pair.stack.route or not isinstance(pair.stack.document.value, dict):
        return
    keys = [key for key in STACK_SECRETS if key in pair.stack.document.value]
    if keys:
        draft.manual.append(
            Manual(
                path=keys[0],
                what="secrets provider of the clone",
                why="the clone cannot use the stack's secrets provider; it needs its own, whose key must remain available if either region fails",
                command=f"pulumi stack init {pair.name} --secrets-provider=PROVIDER",
            )
        )


def _reference(pair: RegionPair, stack: str) -> str:
    return f"organization/{pair.request.project}/{stack}"


def _standing(pair: RegionPair, draft: Draft, cloned: ClusterSpec, layers: Sequence[str]) -> Draft:
    """Return the stack that is deployed before the failover. `layers` are those that it creates."""
    standing, plan = Draft(draft.value), build_plan(cloned, pair.today)
    standing.set(("layers",), list(layers), "pilot-light mode deploys these layers before the failover, without nodes")
    for name in ("pools", "handover"):
        standing.set((name,), None, "the nodes are in the other stack of the clone")
    if "site" not in layers:
        standing.set(("storage",), None, "the site creates the file systems, and the nodes mount them")
    if "site" in layers and plan.network and plan.network.extra:
        wanted = sorted({pool.machine for pool in cloned.pools} | set(cloned.network.machines))
        why = "the site creates the networks for the interfaces of these machine types"
        standing.set(("network", "machines"), wanted, why)
    _set_budget(pair, standing, plan)
    return standing


def _set_budget(pair: RegionPair, standing: Draft, plan: Plan) -> None:
    """Set the budget of a stack without nodes, from whose price the limit cannot be derived. `plan` is the whole clone."""
    after = price(plan, pair.today)
    whole = estimate(pair, plan, after) or after
    if not (plan.budget and plan.budget.derived and whole.nodes_priced):
        return
    both = " and of its second region before a failover" if plan.recovery and plan.recovery.mode != "cold" else ""
    why = f"the price of the entire clone{both} plus 10 percent, because the limit cannot be derived from a stack without nodes"
    if whole is not after:
        why = f"{why}; at the prices of {pair.source}, because some prices of {pair.target} are unknown"
    priced = plan if whole is after else replace(plan, region=pair.source)
    limit = max(plan.budget.limit_usd_per_month, derived_limit(priced, whole, pair.today))
    standing.set(("budget", "limit_usd_per_month"), int(limit), why)


def _nodes(pair: RegionPair, draft: Draft, layers: Sequence[str], reference: str) -> Draft:
    """Return the stack with the nodes, which uses the `layers` of the stack `reference`."""
    nodes = Draft(draft.value)
    nodes.set(("layers",), None, "the other layers are in the other stack of the clone")
    for layer in layers:
        nodes.set(("use", layer), reference, f"the {layer} that is deployed before the failover")
    for name in ("budget", "audit", "recovery") if "foundation" in layers else ():
        nodes.set((name,), None, "this section is in the foundation stack")
    if "site" in layers:
        nodes.set(("network", "machines"), None, "the site creates the networks")
        nodes.set(("access", "ingress"), None, "the site opens the ports")
    return nodes


def _recorded(pair: RegionPair, draft: Draft, stack: str, use: dict[str, str]) -> list[CloneChange]:
    """Return the changes of the settings with another record of the original stack."""
    record = names.record_of(stack, pair.source, use)
    return [
        replace(one, after=record) if one.route == ("config", CLONE_OF) and one.after is not None else one
        for one in draft.config
    ]


def _file(
    pair: RegionPair, stack: str, path: Path, changes: Iterable[CloneChange], role: str, config: Iterable[CloneChange]
) -> ClonedFile:
    changes, config = list(changes), list(config)
    declaration = copy.deepcopy(pair.declaration())
    apply(declaration, changes)
    document, edits = _document(pair, declaration, config)
    edits += [((*pair.stack.route, *one.route), one.after) for one in changes]
    header = [
        f"second region of the stack {pair.stack.name} in {pair.source}, mode {pair.request.mode}, written by `gpuinfra clone`",
        "comments that start with `clone:` state the reason for a change; the next clone of this file removes them",
    ]
    reasons = [*reasons_of(config, ()), *reasons_of(changes, pair.stack.route)]
    same = path.parent.resolve() == pair.stack.path.parent.resolve()
    text = render(pair.text, document, edits, reasons, header, same_folder=same)
    return ClonedFile(stack=stack, path=path, text=text, declaration=declaration, role=role)


def _document(
    pair: RegionPair, declaration: dict[str, Any], config: Iterable[CloneChange]
) -> tuple[Any, list[tuple[Route, object]]]:
    """Return the document with a declaration, and the edits of the settings."""
    assert pair.stack.document is not None
    value: Any = copy.deepcopy(pair.stack.document.value)
    edits: list[tuple[Route, object]] = [(one.route, one.after) for one in config]
    if pair.stack.route and isinstance(value, dict):
        edits += [((key,), None) for key in STACK_SECRETS if key in value]
    holder: Any = value
    for part in pair.stack.route[:-1]:
        holder = holder[part]
    if pair.stack.route:
        holder[pair.stack.route[-1]] = copy.deepcopy(declaration)
    else:
        value = copy.deepcopy(declaration)
    for route, after in edits:
        put(value, route, copy.deepcopy(after))
    return value, edits
