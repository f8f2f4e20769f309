"""The placements of a pool: the declared one, then each entry of `fallback`. Pure, except for reading the stack file."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuinfra.base.errors import SpecError, UsageError
from gpuinfra.base.people_files import FileChanged, FileVersion, existing, replace_file
from gpuinfra.plan.machines import zoning_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.plan.storage import existing_of
from gpuinfra.region.clone.draft import put, value_at
from gpuinfra.region.clone.write import edited
from gpuinfra.spec.capacity import Capacity
from gpuinfra.spec.document import Route, parse
from gpuinfra.spec.load import LoadedStack, stack_in
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.storage import Lustre

DECLARED = -1
"""The choice of the declared placement. Other choices are indexes into `fallback`."""
EXHAUSTED = -2
"""The choice for a pool for which no placement has capacity. The pool is declared as before the search."""

Choices = Mapping[str, int]
"""Choices, keyed by pool name. A pool without an entry has the declared placement."""

FIELDS = ("zone", "machine", "capacity")


def following(spec: ClusterSpec, pool: str, choice: int) -> int | None:
    """Return the next choice for a pool, or None if all were tried. An entry that is equal to an earlier placement is not tried again."""
    (declared,) = [one for one in spec.pools if one.name == pool]
    placements = [declared, *(declared.moved(one) for one in declared.fallback)]
    tried = [(one.zone, one.machine, one.capacity) for one in placements]
    for index in range(choice + 1, len(declared.fallback)):
        if tried[index + 1] not in tried[: index + 1]:
            return index
    return None


def text_for(declared: LoadedStack, original: str, choices: Choices) -> str:
    """Return the text of the stack file with these placements, and with its comments. `original` is the text with the declared placements.

    Raises `UsageError` if the text cannot be edited in place.
    """
    return _written(
        declared,
        original,
        list(_edits(declared, choices)),
        "write the pools without aliases and merge keys, or add --no-search",
    )


def text_without_nodes(declared: LoadedStack, original: str, pools: Collection[str]) -> str:
    """Return the text of the stack file in which each capacity entry of these pools has the count 0.
    Raises `UsageError` if the text cannot be edited in place."""
    edits: list[tuple[Route, object]] = [
        ((*route, "count"), 0)
        for index, pool in enumerate(declared.spec.pools)
        if pool.name in pools
        for route in _entries(declared, index)
    ]
    return _written(declared, original, edits, "set the count of each capacity entry of the idle pools to 0")


def with_nodes_again(now: FileVersion, declared: LoadedStack, pools: Collection[str]) -> str:
    """Return the text of a stack file that was edited while these pools had no nodes, with their declared counts and with the edits.

    Counts that are not 0 any more are edits too, and stay. Raises `UsageError` if the pools or their entries are no longer the same.
    """
    stack, value = stack_of(now), declared.document.value if declared.document else None
    edits: list[tuple[Route, object]] = []
    for index, pool in enumerate(declared.spec.pools):
        if pool.name not in pools:
            continue
        there = stack.spec.pools[index] if index < len(stack.spec.pools) else None
        if stack.route != declared.route or not there or there.name != pool.name:
            raise UsageError(f"{now.path} has other pools than before")
        if [_kind(one) for one in there.capacity] != [_kind(one) for one in pool.capacity]:
            raise UsageError(f"{now.path} has other capacity for pool {pool.name} than before")
        for entry, route in zip(there.capacity, _entries(declared, index), strict=True):
            if entry.count == 0:
                edits.append(((*route, "count"), value_at(value, (*route, "count"))))
    return _written(stack, now.text, edits, "write the pools without aliases and merge keys")


def _entries(stack: LoadedStack, pool: int) -> list[Route]:
    """Return the path of each capacity entry of a pool in the document. A single entry can be declared without a list."""
    route = (*stack.route, "pools", pool, "capacity")
    entries = value_at(stack.document.value if stack.document else None, route)
    return [(*route, at) for at in range(len(entries))] if isinstance(entries, list) else [route]


def counts(stack: LoadedStack, pools: Collection[str]) -> dict[str, str]:
    """Return the counts of these pools as text, such as `16 (spot)`, keyed by pool name."""
    return {
        pool.name: " and ".join(f"{entry.count} ({_kind(entry)})" for entry in pool.capacity)
        for pool in stack.spec.pools
        if pool.name in pools
    }


def _written(declared: LoadedStack, original: str, edits: list[tuple[Route, object]], hint: str) -> str:
    if not edits:
        return original
    value = copy.deepcopy(parse(original, declared.path.name).value)
    for route, after in edits:
        put(value, route, copy.deepcopy(after))
    try:
        text = edited(original, edits)
        if parse(text, declared.path.name).value == value:
            return text
    except Exception:  # The file has a form that cannot be edited in place, such as aliases.
        pass
    raise UsageError(
        f"{declared.path} cannot be edited in place, because its pools use YAML aliases or merge keys; {hint}"
    )


def stack_for(declared: LoadedStack, original: str, choices: Choices) -> LoadedStack:
    """Return the stack with these placements. Raises `SpecError` if it cannot be parsed."""
    return stack_in(parse(text_for(declared, original, choices), declared.path.name), declared.path)


def _edits(declared: LoadedStack, choices: Choices) -> list[tuple[Route, object]]:
    value = declared.document.value if declared.document else None
    edits: list[tuple[Route, object]] = []
    for index, pool in enumerate(declared.spec.pools):
        choice = choices.get(pool.name, DECLARED)
        if choice < 0:
            continue
        route = (*declared.route, "pools", index)
        candidate: Any = value_at(value, (*route, "fallback", choice))
        edits += [((*route, name), candidate[name]) for name in FIELDS if candidate.get(name) is not None]
    return edits + (list(_unmoved(declared, choices)) if edits else [])


def _unmoved(declared: LoadedStack, choices: Choices) -> Iterator[tuple[Route, object]]:
    """Yield the edits that keep file systems and other pools in their zone, because the zones of the pools determine the default zone."""
    spec = declared.spec
    before, after = zoning_of(spec), zoning_of(_moved(spec, choices))
    if after.default == before.default:
        return
    others = [pool.name for pool in spec.pools if choices.get(pool.name, DECLARED) < 0]
    cloud, region = profile_of(spec.cloud), spec.where.region
    if cloud.region_of_zone(before.default, region) is not None:
        if spec.storage or any(after.by_pool[name] != before.by_pool[name] for name in others):
            yield (*declared.route, "where", "zone"), before.default
        return
    # The cloud chose the zone of the nodes, but a file system is in a zone.
    for index, entry in enumerate(spec.storage):
        created = isinstance(entry, Lustre) and not entry.zone and existing_of(entry) is None
        if created and (zone := cloud.file_system(entry, "", before.default, region).zone):
            yield (*declared.route, "storage", index, "zone"), zone


def _moved(spec: ClusterSpec, choices: Choices) -> ClusterSpec:
    """Return the declaration with these placements."""
    pools = tuple(
        pool if (choice := choices.get(pool.name, DECLARED)) < 0 else pool.moved(pool.fallback[choice])
        for pool in spec.pools
    )
    return spec.model_copy(update={"pools": pools})


def described(spec: ClusterSpec, pool: str, choice: int) -> str:
    """Return a human-readable placement: `p4d.24xlarge in use1-az6, spot`."""
    moved = _moved(spec, {pool: choice})
    (declared,) = [one for one in moved.pools if one.name == pool]
    kinds = " and ".join(dict.fromkeys(_kind(entry) for entry in declared.capacity))
    return f"{declared.machine} in {zoning_of(moved).by_pool[pool]}, {kinds}"


def _kind(entry: Capacity) -> str:
    return entry.kind.replace("_", "-")


def check_editable(declared: LoadedStack, original: str) -> None:
    """Raise `UsageError` if the stack file cannot be edited for one of its alternatives, before anything is created."""
    for pool in declared.spec.pools:
        for choice in range(len(pool.fallback)):
            try:
                stack_for(declared, original, {pool.name: choice})
            except SpecError as problem:
                raise SpecError([replace(one, path=f"{pool.name}: {one.path}") for one in problem.findings]) from None


def unchanged(stack: LoadedStack) -> tuple[FileVersion, LoadedStack]:
    """Return the stack file as it is now, and its stack. Raises `FileChanged` if it declares something else than the stack that was loaded."""
    version = existing(stack.path)
    now = stack_of(version)
    if now.checksum != stack.checksum:
        raise FileChanged(
            f"{stack.path} changed after this command read it; the change was kept and nothing was written; run the command again"
        )
    return version, now


def stack_of(version: FileVersion) -> LoadedStack:
    """Return the stack in a file. Raises `SpecError` if it cannot be parsed."""
    return stack_in(parse(version.text, version.path.name), version.path)


def write(version: FileVersion, text: str) -> FileVersion:
    """Replace the content of a stack file that was read, and return the new version. Raises `FileChanged` or the error of `cannot_write`."""
    return replace_file(version, text, "make the file and its folder writable")
