"""The loop of the search: deploy, read the shortage, remove the groups, edit the stack file, and deploy again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpuinfra.base.errors import DeploymentError, SpecError, UsageError
from gpuinfra.engine.locked import Locked
from gpuinfra.engine.up import Failure, UpFailed
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.plan.model import Plan
from gpuinfra.search.journal import FAILED, NO_CAPACITY, OVER_LIMIT, READY, STARTED, Journal, Skipped
from gpuinfra.search.outcome import MissingNodes, Resources, groups_in, patterns_of, templates_in
from gpuinfra.search.placements import (
    DECLARED,
    EXHAUSTED,
    Choices,
    described,
    following,
    read,
    stack_for,
    text_for,
    text_without_nodes,
    write,
)
from gpuinfra.spec.document import parse
from gpuinfra.spec.load import LoadedStack, stack_in

ORDER = {STARTED: "interrupted", FAILED: "failed", OVER_LIMIT: "skipped, because it is over the price limit"}


@dataclass(frozen=True, kw_only=True)
class Search:
    """A stack to deploy, and how to operate on it."""

    declared: LoadedStack
    """The stack with the declared placements."""
    journal: Journal
    plan_of: Callable[[LoadedStack], Plan]
    deploy: Callable[[bool], None]
    """Deploys the stack. The argument is true if an earlier run was killed. Raises `UpFailed`."""
    remove: Callable[[Sequence[str], bool], None]
    """Deletes resources by URN. Raises `DeploymentError`."""
    settle: Callable[[Sequence[str], bool], None]
    """Deploys the stack without the resources that match these patterns, so that nothing from other placements remains. Raises `UpFailed`."""
    state: Callable[[], Resources]
    """Returns the resources in the state of the stack."""
    missing_nodes: Callable[[Plan, Resources, Sequence[Failure]], MissingNodes | None]
    """See `gpuinfra.search.outcome.missing_nodes`."""
    say: Callable[[str], None]
    """Prints one line of progress."""
    over_limit: Callable[[LoadedStack], str] = lambda _: ""
    """Returns why an alternative must not be deployed at its price, or an empty string."""
    searches: bool = True
    """Whether to try the alternatives in `fallback`."""
    clock: Callable[[], float] = time.monotonic


def run(one: Search, *, again: bool) -> None:
    """Deploy until each pool has capacity. With `again`, continue the run in the journal.

    Raises `DeploymentError` if no placement has capacity, or if the deployment fails for another reason. Afterwards, the stack file contains
    the placements of the last attempt. Pools for which no placement has capacity are declared as before the search, without their groups.
    """
    if again and (why := one.over_limit(_stack(one, one.journal.choices))):
        raise DeploymentError(
            f"the next placement {why}; nothing was deployed; resume with a higher limit, or remove {one.journal.path} to start again"
        )
    while True:
        _check_file(one)
        _apply(one, again=again)
        if empty := [pool for pool, choice in one.journal.choices.items() if choice == EXHAUSTED]:
            left = _settle(one, empty, again=again)
            one.journal.end()
            raise DeploymentError(
                f"no placement of {', '.join(empty)} has capacity{_within(one.journal)}; "
                f"the groups without capacity are removed{left}, and the stack file declares "
                "the pool as before; add a `fallback` entry, or wait and run the command again"
            )
        try:
            short = _attempt(one, again=again)
        except Locked:
            # Nothing was changed. A search that changed the stack continues with `--resume` after the other run.
            if one.journal.original is None:
                one.journal.finish(FAILED, 0)
                one.journal.end()
            raise
        except DeploymentError:
            one.journal.end()
            raise
        if short is None:
            one.journal.end()
            return
        _advance(one, short)
        again = False


def _settle(one: Search, empty: Sequence[str], *, again: bool) -> str:
    """Deploy the stack without nodes of these pools, so that the nodes of other pools are verified, and nothing of other placements remains.

    Return what remains, as a part of a sentence.
    """
    if len(empty) < len(one.declared.spec.pools) and (text := _emptied(one, empty)):
        one.say(f"no placement has capacity: deploying without nodes of {', '.join(empty)}")
        before = read(one.declared.path)
        write(one.declared.path, text)
        try:
            one.deploy(again)
        except UpFailed:
            return ", but the nodes of other pools are not verified, and resources of other zones can remain until the next deployment"
        finally:
            write(one.declared.path, before)
        return ""
    declared = one.plan_of(_stack(one, {}))
    tried = [
        {pool.name: choice}
        for pool in one.declared.spec.pools
        if pool.name in empty
        for choice in range(len(pool.fallback))
    ]
    plans = [one.plan_of(_stack(one, choices)) for choices in tried]
    if all(set(plan.zones) <= set(declared.zones) and not templates_in(plan, empty) for plan in plans):
        return ""
    one.say(f"no placement has capacity: deploying without the groups of {', '.join(empty)}")
    try:
        one.settle(patterns_of(one.plan_of(_stack(one, one.journal.choices)), empty), again)
    except UpFailed:
        # With azure-native, the SDK cannot read a scale set that a deployment excludes.
        return ", but subnets and gateways of other zones remain until the next deployment"
    return ""


def _emptied(one: Search, empty: Sequence[str]) -> str:
    """Return the text of the stack file in which these pools have no nodes, or an empty string if they require nodes, as with a Capacity Block."""
    stack = _stack(one, one.journal.choices)
    try:
        text = text_without_nodes(
            stack, text_for(one.declared, one.journal.original or read(one.declared.path), one.journal.choices), empty
        )
        stack_in(parse(text, one.declared.path.name), one.declared.path)
    except (UsageError, SpecError):
        return ""
    return text


def _check_file(one: Search) -> None:
    """Raise `UsageError` if the stack file was edited after the search began."""
    original = one.journal.original
    if original is None:
        return
    # If the run was killed before it wrote the file, the file has the placements of the previous attempt.
    known = [text_for(one.declared, original, choices) for choices in (one.journal.choices, one.journal.before)]
    if empty := [pool for pool, choice in one.journal.choices.items() if choice == EXHAUSTED]:
        known.append(_emptied(one, empty))
    if read(one.declared.path) not in known:
        raise UsageError(
            f"{one.declared.path} changed after the search began ({one.journal.began}); undo the change, or remove {one.journal.path} to start again"
        )


def _apply(one: Search, *, again: bool) -> None:
    """Remove the groups that the journal lists, and write the placements to the stack file."""
    journal = one.journal
    if pools := journal.removing:
        plan = one.plan_of(_stack(one, journal.before))
        if urns := groups_in(plan, one.state(), pools):
            one.say(f"no capacity: removing the groups of {', '.join(pools)}")
            one.remove(urns, again)
    if journal.original is not None:
        text = text_for(one.declared, journal.original, journal.choices)
        if read(one.declared.path) != text:
            write(one.declared.path, text)
            one.say(f"{one.declared.path.name} contains the placement that is tried next")
    if journal.removing:
        journal.removed()


def _stack(one: Search, choices: Choices) -> LoadedStack:
    """Return the stack with these placements."""
    original = one.journal.original
    return one.declared if original is None else stack_for(one.declared, original, choices)


def _attempt(one: Search, *, again: bool) -> MissingNodes | None:
    """Deploy once. Return None if the stack is deployed, and the shortage if another placement can help. Raises `UpFailed` otherwise."""
    journal = one.journal
    journal.start(_described(one, journal.choices))
    begun = one.clock()
    try:
        one.deploy(again)
    except UpFailed as problem:
        short = _why(one, problem)
        if short is None or short.final or not one.searches or not _can_move(one, short):
            journal.finish(FAILED, one.clock() - begun, short.shortages if short else ())
            if short is not None:
                raise UpFailed("\n".join([str(problem), *_reasons(one, short)]), problem.failures) from None
            raise
        journal.finish(NO_CAPACITY, one.clock() - begun, short.shortages)
        return short
    journal.finish(READY, one.clock() - begun)
    return None


def _why(one: Search, problem: UpFailed) -> MissingNodes | None:
    try:
        return one.missing_nodes(one.plan_of(_stack(one, one.journal.choices)), one.state(), problem.failures)
    except PortUnavailable as unread:
        one.say(f"the reason for missing nodes cannot be read: {unread}")
        return None


def _can_move(one: Search, short: MissingNodes) -> bool:
    """Return whether each pool without capacity declares alternatives, and whether their groups can be removed."""
    return not short.running and all(pool.fallback for pool in one.declared.spec.pools if pool.name in short.pools)


def _reasons(one: Search, short: MissingNodes) -> Iterator[str]:
    yield from (shortage.text for shortage in short.final or short.shortages)
    if short.final:
        return
    if not one.searches:
        yield "  no other capacity was tried, because of --no-search"
        return
    if short.running:
        yield (
            f"  no other capacity was tried, because nodes of {', '.join(short.running)} ran before this command, and jobs can run on them; "
            "wait for capacity, or set `count` to 0, run the command, restore `count`, and run it again"
        )
    without = [pool.name for pool in one.declared.spec.pools if pool.name in short.pools and not pool.fallback]
    if without:
        yield f"  no other capacity was tried, because {', '.join(without)} has no `fallback`; list alternatives in `fallback` (docs/reference/capacity.md)"


def _advance(one: Search, short: MissingNodes) -> None:
    """Choose the next placement of each pool without capacity, and record that its groups must be removed."""
    choices, skipped = one.journal.choices, list[Skipped]()
    original = one.journal.original or read(one.declared.path)
    for pool in short.pools:
        choice = choices.get(pool, DECLARED)
        while (choice := following(one.declared.spec, pool, choice)) is not None:
            tried = {**choices, pool: choice}
            why = one.over_limit(stack_for(one.declared, original, tried))
            if not why:
                break
            skipped.append(Skipped(pool=pool, placements=_described(one, tried), why=why))
        choices[pool] = EXHAUSTED if choice is None else choice
    one.journal.remove(short.pools, choices, original, skipped)


def _described(one: Search, choices: Choices) -> dict[str, str]:
    """Return the text of each placement, keyed by pool name."""
    spec = one.declared.spec
    return {pool.name: described(spec, pool.name, choices.get(pool.name, DECLARED)) for pool in spec.pools}


def _within(journal: Journal) -> str:
    return " within the price limit" if any(row["result"] == OVER_LIMIT for row in journal.attempts) else ""


def log(journal: Journal) -> list[str]:
    """Return the attempts as text, one line for each pool and each message."""
    lines: list[str] = []
    for number, attempt in enumerate(journal.attempts, 1):
        where = "; ".join(f"{pool}: {placement}" for pool, placement in attempt["placements"].items())
        after = f" after {attempt['seconds']} s" if attempt["seconds"] is not None else ""
        lines.append(f"{number}. {where}: {ORDER.get(attempt['result'], attempt['result'])}{after}")
        lines += dict.fromkeys(f"   {row['group']}: {row['kind']}: {row['message']}" for row in attempt["problems"])
    return lines
