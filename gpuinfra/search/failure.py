"""What `gpuinfra up` does with the resources of a deployment that failed: `handover.on_failure`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.base.people_files import FileVersion, existing
from gpuinfra.search.placements import counts, stack_of, text_without_nodes, write
from gpuinfra.spec.document import parse
from gpuinfra.spec.load import LoadedStack, stack_in

KEEP, SCALE_TO_ZERO, DESTROY = "keep", "scale_to_zero", "destroy"
RETAINED = "only retained resources"
"""The price after `destroy`. `gpuinfra plan` lists the resources that it retains."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A failed deployment, and what can be done with its resources."""

    declared: LoadedStack
    """The declaration before the search. It contains the choice."""
    had_nodes: bool
    """Whether the stack had nodes before the deployment. They can run jobs, so the resources are kept."""
    price: Callable[[LoadedStack], str]
    """Returns the hourly price of a stack as text."""
    check_last: Callable[[], None]
    """Raises `OtherRun` if another run updated the stack after the failed deployment. Its nodes can run jobs."""
    deploy: Callable[[], None]
    destroy: Callable[[], None]
    say: Callable[[str], None]
    empty: Collection[str] = ()
    """Pools whose groups were removed, because no placement has capacity."""

    @property
    def choice(self) -> str:
        """The declared choice, or `keep` if the stack had nodes before."""
        return KEEP if self.had_nodes else self.declared.spec.handover.on_failure

    def prices(self) -> Mapping[str, str]:
        """Return the hourly price of each choice as text."""
        version = existing(self.declared.path)
        now = stack_of(version)
        prices = {KEEP: self.price(_without_groups(now, version, self.empty))}
        if all(entry.kind not in NO_ZERO for pool in now.spec.pools for entry in pool.capacity):
            try:
                prices[SCALE_TO_ZERO] = self.price(_with_text(now, without_nodes(now, version)))
            except UsageError as problem:
                prices[SCALE_TO_ZERO] = f"not possible: {problem}"
        return {**prices, DESTROY: RETAINED}

    def act(self) -> None:
        """Do what the declaration chooses. Raises `DeploymentError` if this fails too."""
        if self.choice != KEEP:
            self._run(self.check_last, "to delete the resources, run `pulumi destroy`")
        if self.choice == SCALE_TO_ZERO:
            version = existing(self.declared.path)
            now = stack_of(version)
            self.say(
                f"on_failure is {SCALE_TO_ZERO}: removing the nodes; the pools in {now.path.name} have no nodes now"
            )
            for pool, before in counts(now, {pool.name for pool in now.spec.pools if pool.nodes}).items():
                self.say(f"pool {pool}: count was {before}")
            write(version, without_nodes(now, version))
            self._run(self.deploy, "to remove the nodes, run this command again")
        elif self.choice == DESTROY:
            self.say(f"on_failure is {DESTROY}: deleting the resources of the stack, except retained ones")
            self._run(self.destroy, "to delete the resources, run `pulumi destroy`")

    def _run(self, action: Callable[[], None], hint: str) -> None:
        try:
            action()
        except DeploymentError as problem:
            raise DeploymentError(
                f"{self.choice} after the failure: {problem}; resources can still be billed; {hint}"
            ) from None


def _without_groups(now: LoadedStack, version: FileVersion, empty: Collection[str]) -> LoadedStack:
    """Return the stack without the nodes of these pools, or the stack itself if their counts cannot be 0."""
    pools = {pool.name for pool in now.spec.pools if pool.name in empty and all(one.kind not in NO_ZERO for one in pool.capacity)}  # fmt: skip
    try:
        return _with_text(now, text_without_nodes(now, version.text, pools)) if pools else now
    except UsageError:
        return now


def without_nodes(stack: LoadedStack, version: FileVersion) -> str:
    """Return the text of a stack file in which no pool has nodes. Raises `UsageError` if the text cannot be edited in place."""
    return text_without_nodes(stack, version.text, {pool.name for pool in stack.spec.pools})


NO_ZERO = ("block", "flex")
"""Kinds of capacity that require at least one node."""


def _with_text(now: LoadedStack, text: str) -> LoadedStack:
    return stack_in(parse(text, now.path.name), now.path)
