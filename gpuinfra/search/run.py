"""The loop of the search: deploy, read the shortage, remove the groups, edit the stack file, and deploy again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gpuinfra.base.errors import DeploymentError, SpecError, UsageError
from gpuinfra.base.people_files import FileChanged, FileVersion, existing
from gpuinfra.engine.locked import StateLocked
from gpuinfra.engine.up import EngineFailure, OtherRun, UpFailed
from gpuinfra.handover.causes import CapacityCause
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.plan.model import Plan
from gpuinfra.search.journal import FAILED, NO_CAPACITY, OVER_LIMIT, READY, STARTED, SearchJournal, Skipped
from gpuinfra.search.outcome import MissingNodes, Resources, groups_in, patterns_of, templates_in
from gpuinfra.search.patience import Patience, clock_time
from gpuinfra.search.placements import (
    DECLARED,
    EXHAUSTED,
    Choices,
    counts,
    described,
    following,
    stack_for,
    stack_of,
    text_for,
    text_without_nodes,
    unchanged,
    with_nodes_again,
    write,
)
from gpuinfra.spec.document import parse
from gpuinfra.spec.load import LoadedStack, stack_in
from gpuinfra.spec.monitoring import CONTROL_POOL

ORDER = {STARTED: "interrupted", FAILED: "failed", OVER_LIMIT: "skipped, because it is over the price limit"}
WHY = {
    CapacityCause.THROTTLING: "the cloud limits the request rate",
    CapacityCause.INTERNAL: "the cloud's service failed",
}
"""Why a search waits, for the causes that pass."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """A stack to deploy, and how to operate on it."""

    declared: LoadedStack
    """The stack with the declared placements."""
    journal: SearchJournal
    plan_of: Callable[[LoadedStack], Plan]
    deploy: Callable[[bool], None]
    """Deploys the stack. The argument is true if an earlier run was killed. Raises `UpFailed`."""
    remove: Callable[[Sequence[str], bool], None]
    """Deletes resources by URN. Raises `DeploymentError`, and `OtherRun` if another run updated the stack in between."""
    settle: Callable[[Sequence[str], bool], None]
    """Deploys the stack without the resources that match these patterns, so that nothing from other placements remains. Raises `UpFailed`."""
    state: Callable[[], Resources]
    """Returns the resources in the state of the stack."""
    missing_nodes: Callable[[Plan, Resources, Sequence[EngineFailure]], MissingNodes | None]
    """See `gpuinfra.search.outcome.missing_nodes`."""
    say: Callable[[str], None]
    """Prints one line of progress."""
    over_limit: Callable[[LoadedStack], str] = lambda _: ""
    """Returns why an alternative must not be deployed at its price, or an empty string."""
    searches: bool = True
    """Whether to try the alternatives in `fallback`."""
    clock: Callable[[], float] = time.monotonic
    patience: Patience = field(default_factory=Patience)
    """How long the search is repeated if there is no capacity."""


def run(search: Search, *, again: bool) -> None:
    """Deploy until each pool has capacity. With `again`, continue the run in the journal.

    Raises `DeploymentError` if no placement has capacity, or if the deployment fails for another reason. Afterwards, the stack file contains
    the placements of the last attempt. Pools for which no placement has capacity are declared as before the search, without their groups.
    """
    if again and (why := search.over_limit(_stack(search, search.journal.choices))):
        raise DeploymentError(
            f"the next placement {why}; nothing was deployed; resume with a higher limit, or remove {search.journal.path} to start again"
        )
    while True:
        try:
            file = _apply(search, check_file(search), again=again)
        except OtherRun:
            search.journal.end()
            raise
        empty = [pool for pool, choice in search.journal.choices.items() if choice == EXHAUSTED]
        if empty and search.patience.lasts:
            search.patience.wait()
            search.journal.start_over(empty)
            again = False
            continue
        if empty:
            left = _settle(search, file, empty, again=again)
            search.journal.end()
            raise DeploymentError(
                f"no placement of {', '.join(empty)} has capacity{_within(search.journal)}; "
                f"the groups without capacity are removed{left}, and the stack file declares "
                "the pool as before; add a `fallback` entry, or wait and run the command again"
            )
        try:
            after = _attempt(search, again=again)
        except StateLocked:
            # Nothing was changed. A search that changed the stack continues with `--resume` after the other run.
            if search.journal.original is None:
                search.journal.finish(FAILED, 0)
                search.journal.end()
            raise
        except DeploymentError:
            search.journal.end()
            raise
        if after is None:
            search.journal.end()
            return
        again = False
        if after.moves:
            _advance(search, after.moves)
        else:
            search.patience.wait(after.why)


def _settle(search: Search, file: FileVersion, empty: Sequence[str], *, again: bool) -> str:
    """Deploy the stack without nodes of these pools, so that the nodes of other pools are verified, and nothing of other placements remains.

    Return what remains, as a part of a sentence.
    """
    if len(empty) < len(search.declared.spec.pools) and (text := _emptied(search, empty)):
        search.say(f"no placement has capacity: deploying without nodes of {', '.join(empty)}")
        emptied = write(file, text)
        try:
            search.deploy(again)
        except UpFailed:
            return ", but the nodes of other pools are not verified, and resources of other zones can remain until the next deployment"
        finally:
            _restore(search, emptied, file, empty)
        return ""
    declared = search.plan_of(_stack(search, {}))
    tried = [
        {pool.name: choice}
        for pool in search.declared.spec.pools
        if pool.name in empty
        for choice in range(len(pool.fallback))
    ]
    plans = [search.plan_of(_stack(search, choices)) for choices in tried]
    if all(set(plan.zones) <= set(declared.zones) and not templates_in(plan, empty) for plan in plans):
        return ""
    search.say(f"no placement has capacity: deploying without the groups of {', '.join(empty)}")
    try:
        search.settle(patterns_of(search.plan_of(_stack(search, search.journal.choices)), empty), again)
    except UpFailed:
        # With azure-native, the SDK cannot read a scale set that a deployment excludes.
        return ", but subnets and gateways of other zones remain until the next deployment"
    return ""


def _restore(search: Search, emptied: FileVersion, before: FileVersion, empty: Sequence[str]) -> None:
    """Declare the nodes of these pools again. An edit that a person made during the deployment is kept."""
    now = existing(search.declared.path)
    if now.data == emptied.data:
        write(now, before.text)
        return
    try:
        write(now, with_nodes_again(now, stack_of(before), empty))
    except (UsageError, SpecError) as problem:
        search.journal.end()
        nodes = "; ".join(f"pool {name}: {count}" for name, count in counts(stack_of(before), empty).items())
        raise UsageError(
            f"{now.path} changed during the deployment without nodes of {', '.join(empty)}, and the change was kept; "
            f"to declare the nodes again, set their counts ({nodes}): {problem}"
        ) from None


def _emptied(search: Search, empty: Sequence[str]) -> str:
    """Return the text of the stack file in which these pools have no nodes, or an empty string if they require nodes, as with a Capacity Block."""
    stack = _stack(search, search.journal.choices)
    try:
        text = text_without_nodes(
            stack,
            text_for(
                search.declared, search.journal.original or existing(search.declared.path).text, search.journal.choices
            ),
            empty,
        )
        stack_in(parse(text, search.declared.path.name), search.declared.path)
    except (UsageError, SpecError):
        return ""
    return text


def check_file(search: Search) -> FileVersion:
    """Return the stack file. Raises `FileChanged` if a person edited it after the search began."""
    original = search.journal.original
    if original is None:
        return _declared(search)
    # If the run was killed before it wrote the file, the file has the placements of the previous attempt.
    versions = [
        text_for(search.declared, original, choices) for choices in (search.journal.choices, search.journal.before)
    ]
    if empty := [pool for pool, choice in search.journal.choices.items() if choice == EXHAUSTED]:
        versions.append(_emptied(search, empty))
    file = existing(search.declared.path)
    if file.text not in versions:
        raise FileChanged(
            f"{search.declared.path} changed after the search began ({search.journal.began}), and the change was kept; to continue the search, "
            f"undo the change and add --resume; to deploy the changed file, remove {search.journal.path}, in which `original` is the file before the search"
        )
    return file


def _declared(search: Search) -> FileVersion:
    """Return the stack file before the first edit of the search. If it declares something else than what was checked, the run ends with `FileChanged`."""
    try:
        return unchanged(search.declared)[0]
    except FileChanged:
        search.journal.end()
        raise


def _apply(search: Search, file: FileVersion, *, again: bool) -> FileVersion:
    """Remove the groups that the journal lists, and write the placements to the stack file. Return the file."""
    journal = search.journal
    if pools := journal.removing:
        plan = search.plan_of(_stack(search, journal.before))
        if urns := groups_in(plan, search.state(), pools):
            search.say(f"no capacity: removing the groups of {', '.join(pools)}")
            search.remove(urns, again)
    if journal.original is not None:
        text = text_for(search.declared, journal.original, journal.choices)
        if file.text != text:
            file = write(file, text)
            search.say(f"{search.declared.path.name} contains the placement that is tried next")
    if journal.removing:
        journal.removed()
    return file


def _stack(search: Search, choices: Choices) -> LoadedStack:
    """Return the stack with these placements."""
    original = search.journal.original
    return search.declared if original is None else stack_for(search.declared, original, choices)


@dataclass(frozen=True, kw_only=True)
class _Next:
    """What happens before the next attempt: pools move to their next placements, or the search waits if there are none."""

    moves: Sequence[str] = ()
    why: str
    """Why it waits, as the start of a line."""


def _attempt(search: Search, *, again: bool) -> _Next | None:
    """Deploy once. Return None if the stack is deployed, and what happens before the next attempt if one can help. Raises `UpFailed` otherwise."""
    journal = search.journal
    journal.start(_described(search, journal.choices))
    begun = search.clock()
    try:
        search.deploy(again)
    except UpFailed as problem:
        seconds = search.clock() - begun
        try:
            short = search.missing_nodes(
                search.plan_of(_stack(search, journal.choices)), search.state(), problem.failures
            )
        except PortUnavailable as unread:
            journal.finish(FAILED, seconds)
            if search.patience.lasts:
                return _Next(why=f"the reason for missing nodes cannot be read ({unread})")
            search.say(f"the reason for missing nodes cannot be read: {unread}")
            raise problem from None
        if short is None or not _continues(search, short):
            journal.finish(FAILED, seconds, short.shortages if short else ())
            if short is not None:
                raise UpFailed("\n".join([str(problem), *_reasons(search, short)]), problem.failures) from None
            raise
        why = "; ".join(dict.fromkeys(WHY.get(shortage.cause, NO_CAPACITY) for shortage in short.shortages))
        journal.finish(FAILED if len(short.final) == len(short.shortages) else NO_CAPACITY, seconds, short.shortages)
        return _Next(moves=_movable(search, short), why=why)
    journal.finish(READY, search.clock() - begun)
    return None


def _continues(search: Search, short: MissingNodes) -> bool:
    """Return whether there is another attempt: there is time, or each pool without capacity moves. Otherwise, the next deployment fails too."""
    if search.patience.lasts:
        return not short.lasting
    return not short.final and len(_movable(search, short)) == len(short.pools)


def _movable(search: Search, short: MissingNodes) -> list[str]:
    """Return the pools without capacity that move to their next placement. The next attempt deploys the others again where they are.

    A pool with nodes from before the run stays. With `--keep-trying`, a pool also keeps the nodes that were launched for it, also when the time is over:
    its groups continue to request the others. A pool with an error of the cloud's service stays until the error has passed.
    """
    kept = {*short.running, *(short.partly if search.patience.until is not None else ())}
    kept |= {*_without_alternatives(search, short), *(shortage.pool for shortage in short.final)}
    return [pool for pool in short.pools if search.searches and pool not in kept]


def _without_alternatives(search: Search, short: MissingNodes) -> list[str]:
    """Return the pools without capacity that declare no alternatives. The pool of the control node cannot declare any."""
    declared = {pool.name for pool in search.declared.spec.pools if pool.fallback}
    return [name for name in short.pools if name not in declared]


def _reasons(search: Search, short: MissingNodes) -> Iterator[str]:
    yield from (shortage.text for shortage in short.final or short.shortages)
    if short.lasting:
        return
    if search.patience.until is not None:
        kept = f"; the nodes of {', '.join(short.partly)} that were launched are kept" if short.partly else ""
        yield f"  the search was repeated until {clock_time(search.patience.until)}{kept}"
    if short.final:
        return
    if not search.searches:
        yield "  no other capacity was tried, because of --no-search"
        return
    if short.running:
        yield (
            f"  no other capacity was tried{_for(search, short.running)}, because nodes of {', '.join(short.running)} ran before this command, "
            "and jobs can run on them; wait for capacity, or set `count` to 0, run the command, restore `count`, and run it again"
        )
    without = _without_alternatives(search, short)
    if CONTROL_POOL in without:
        yield "  no other capacity was tried for the control node; set monitoring.machine to another machine type"
    elif without:
        yield (
            f"  no other capacity was tried{_for(search, without)}, because {', '.join(without)} has no `fallback`; "
            "list alternatives in `fallback` (docs/reference/capacity.md)"
        )


def _for(search: Search, pools: Sequence[str]) -> str:
    """Return the pools as a part of a sentence with `--keep-trying`. Without it, a pool that cannot move stops the others."""
    return f" for {', '.join(pools)}" if search.patience.until is not None else ""


def _advance(search: Search, pools: Sequence[str]) -> None:
    """Choose the next placement of each of these pools, and record that its groups must be removed."""
    choices, skipped = search.journal.choices, list[Skipped]()
    original = search.journal.original or _declared(search).text
    for pool in pools:
        choice = choices.get(pool, DECLARED)
        while (choice := following(search.declared.spec, pool, choice)) is not None:
            tried = {**choices, pool: choice}
            why = search.over_limit(stack_for(search.declared, original, tried))
            if not why:
                break
            skipped.append(Skipped(pool=pool, placements=_described(search, tried), why=why))
        choices[pool] = EXHAUSTED if choice is None else choice
    search.journal.remove(pools, choices, original, skipped)


def _described(search: Search, choices: Choices) -> dict[str, str]:
    """Return the text of each placement, keyed by pool name."""
    spec = search.declared.spec
    return {pool.name: described(spec, pool.name, choices.get(pool.name, DECLARED)) for pool in spec.pools}


def _within(journal: SearchJournal) -> str:
    return " within the price limit" if any(row["result"] == OVER_LIMIT for row in journal.attempts) else ""


def log(journal: SearchJournal) -> list[str]:
    """Return the attempts as text, one line for each pool and each message."""
    lines: list[str] = []
    for number, attempt in enumerate(journal.attempts, 1):
        where = "; ".join(f"{pool}: {placement}" for pool, placement in attempt["placements"].items())
        after = f" after {attempt['seconds']} s" if attempt["seconds"] is not None else ""
        lines.append(f"{number}. {where}: {ORDER.get(attempt['result'], attempt['result'])}{after}")
        lines += dict.fromkeys(f"   {row['group']}: {row['kind']}: {row['message']}" for row in attempt["problems"])
    return lines
