"""What a failover cannot guarantee, as lines of `gpuinfra ready`: capacity without a reservation, home directories, and container images in a registry.

These lines are warnings, because available capacity changes over time, and a failover can succeed without the files of home directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpuinfra.base.words import counted
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.readiness import ReadinessLine, passes, skips, warns
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec.capacity import Block, Reserved
from gpuinfra.spec.load import LoadedStack
from gpuinfra.spec.storage import Home


def coverage(
    stack: LoadedStack, files: Sequence[LoadedStack], searched: Callable[[LoadedStack], str]
) -> Iterator[ReadinessLine]:
    """Return the lines about a stack and the stack files of its second region.

    `searched` returns the time of the last search on this machine that found capacity for a stack file, or an empty text.
    """
    for file in files:
        yield from _capacity(file, searched(file))
    yield from _homes(stack)
    yield from _registry(stack, files)


def _capacity(file: LoadedStack, search: str) -> Iterator[ReadinessLine]:
    """Capacity that is not reserved can be missing. The reservation itself is a line of the preflight."""
    for index, pool in enumerate(file.spec.pools):
        free = [entry for entry in pool.capacity if not isinstance(entry, (Reserved, Block))]
        nodes, where = sum(entry.count for entry in free), file.spec.where.region
        if not nodes:
            yield passes("capacity", pool.name, "all nodes are reserved")
            continue
        kinds = ", ".join(dict.fromkeys(entry.kind for entry in free))
        last_search = (
            f"the last search for capacity on this machine succeeded at {search}"
            if search
            else "no search for capacity succeeded on this machine"
        )
        reason = f"{counted(nodes, 'node')} ({kinds}) in {where} are not guaranteed; {last_search}"
        fix = f"buy a reservation in {where}, and set it with pools[{index}].capacity in {file.path.name}"
        yield warns("capacity", pool.name, reason, fix)


def _homes(stack: LoadedStack) -> Iterator[ReadinessLine]:
    """Home directories stay in the first region, unless their service replicates them."""
    cloud, recovery = profile_of(stack.spec.cloud), stack.spec.recovery
    services = cloud.replication.home_services if cloud.replication and recovery and recovery.homes else ()
    for entry in stack.spec.storage:
        if isinstance(entry, Home) and (entry.existing or (entry.service or cloud.home_services[0]) not in services):
            reason = f"the files in {entry.mount} are not replicated: after a failover, {entry.mount} is empty, and the files are lost if the first region is"
            yield warns(
                "homes",
                entry.mount,
                reason,
                f"copy {entry.mount} to a replicated bucket or to another region on a schedule",
            )


def _registry(stack: LoadedStack, files: Sequence[LoadedStack]) -> Iterator[ReadinessLine]:
    """The nodes of the second region pull their images from its registry. No permission of `ready` reads a registry."""
    facts, own = cloud_of(stack.spec.cloud).second_region, stack.spec.software.registry
    for file in files:
        used = file.spec.software.registry
        if not used or not own or used == own or facts is None or not file.spec.pools:
            continue
        copy = facts.registry(own, stack.spec.where.region, file.spec.where.region)
        yield skips(
            "registry", used, f"not checked: whether the images of {own} are also in {used}", copy[1] if copy else ""
        )
