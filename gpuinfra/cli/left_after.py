"""What a failover and `--abort` leave behind: what is billed and not protected, and the next command."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gpuinfra.base.errors import SpecError, UsageError
from gpuinfra.cli.stacks import as_argument
from gpuinfra.cli.up import Limit

if TYPE_CHECKING:
    from gpuinfra.cli.ready import Paired
    from gpuinfra.region.failover.run import FailoverResult
    from gpuinfra.spec.load import LoadedStack


def after_failover(paired: Paired, result: FailoverResult, limit: Limit) -> list[str]:
    """Return what is billed after the failover, what is not protected, and the next command."""
    from gpuinfra.region.failover.back import steps_not_run
    from gpuinfra.spec.load import read_stack

    first, second, given = paired.plan.region, paired.recovery.region, as_argument(paired.loaded.path)
    lines = []
    for file in paired.second.files:
        cost = limit.report(read_stack(file.path)).cost
        lines.append(f"billed: {file.name} in {second}: {cost.in_words if cost else 'an unknown amount'}")
    lines.append(
        f"billed: {paired.loaded.name} in {first}: {_price_without_nodes(paired.loaded, limit)}, without nodes"
    )
    lines += [f"checkpoint: {line.name}: {line.reason}" for line in paired.checkpoints()] if result.ok else []
    files = paired.second.files
    site = next((file for file in files if "site" in file.spec.made_layers), files[0])
    lines.append(
        f"not protected: what {second} writes from now on is in no other region until the failback; if {first} stays lost, "
        f"declare recovery in {site.path.name} (docs/guides/second-region.md)"
    )
    if not result.ok:  # The error ends with the command.
        return lines
    if left := steps_not_run(result.journal):
        again = f"gpuinfra failover {given} --to {second} --resume"
        lines.append(f"next: {again}, when {first} responds, to run the steps that did not run: {', '.join(left)}")
    else:
        lines.append(f"next: gpuinfra failback {given}, when {first} works again")
    return lines


def after_abort(paired: Paired, deployed: Collection[str]) -> list[str]:
    """Return what the second region still bills, with the command that removes it. `deployed` contains the names of the stacks that exist."""
    names = [file.name for file in paired.second.files if file.spec.pools and file.name in deployed]
    return [
        f"the stack {name} in {paired.recovery.region} has no nodes, but its other resources are billed; to remove them, run: pulumi destroy --stack {name}"
        for name in names
    ]


def _price_without_nodes(loaded: LoadedStack, limit: Limit) -> str:
    """Return the price of the resources that a stack without nodes keeps."""
    from gpuinfra.base.people_files import existing
    from gpuinfra.search.failure import without_nodes
    from gpuinfra.spec.document import parse
    from gpuinfra.spec.load import stack_in

    try:
        cost = limit.report(
            stack_in(parse(without_nodes(loaded, existing(loaded.path)), loaded.path.name), loaded.path)
        ).cost
    except (UsageError, SpecError):  # Some kinds of capacity require nodes.
        cost = None
    return cost.in_words if cost else "an unknown amount"
