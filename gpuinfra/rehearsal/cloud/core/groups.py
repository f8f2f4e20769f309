"""What the fleet asks of one cloud's groups: Auto Scaling groups, scale sets, managed instance groups.

The fleet knows launch order, numbers and the loop; a kind knows what its cloud's groups want, what an instance of theirs is
made of, and in whose words it says that there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.errors import CloudError
    from gpuinfra.rehearsal.cloud.core.store import Resource, Store

_MODULES = ("aws.groups", "azure.groups", "gcp.groups")
"""Modules beside this one that have a `KIND`."""

Made = dict[str, Any]
"""An instance, as the store keeps it."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What a group amounts to now."""

    cluster: str
    pool: str
    kind: str
    """`reserved`, `block`, `flex`, `on_demand` or `spot`."""
    wanted: int
    may_launch: bool = True
    surge: int = 0
    """How many may be there above `wanted` while outdated ones are replaced."""
    unavailable: int = 1
    """How many outdated ones may be ended at once where there is no surge."""


class GroupKind(Protocol):
    """One cloud's groups. Reads, and changes nothing but its own marks in the store."""

    cloud: str
    tokens: tuple[str, ...]

    def view(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> View:
        """What the group wants."""
        ...

    def shortage(self, cloud: Cloud, group: Resource, have: int, wanted: int) -> CloudError | None:
        """Why there cannot be `wanted` instances where there are `have`, in the cloud's own words."""
        ...

    def make(self, cloud: Cloud, group: Resource, name: str, have: Sequence[Made]) -> Made:
        """A new instance, `name` in launch order; the fleet keeps it."""
        ...

    def outdated(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> list[Made]:
        """Who has to be replaced now because the group wants another template; asked inside a transaction, when all are there."""
        ...

    def first_to_go(self, have: Sequence[Made]) -> list[Made]:
        """Who leaves when the group shrinks, in that order."""
        ...

    def launched(self, instance: Made) -> str:
        """An activity's text."""
        ...

    def failed(self, shortage: CloudError) -> str:
        """An activity's text."""
        ...

    def ended(self, instance_id: str) -> str:
        """An activity's text."""
        ...

    def cause(self, wanted: int) -> str:
        """Why the group launches."""
        ...

    def lost(self) -> str:
        """What is said when an instance went away by itself."""
        ...


@runtime_checkable
class Tending(Protocol):
    """What some clouds' groups do to the instances that they keep."""

    def tend(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> None:
        """One look at them; asked in every round, outside of a transaction."""
        ...


@lru_cache(maxsize=1)
def _kinds() -> dict[str, GroupKind]:
    found: dict[str, GroupKind] = {}
    for name in _MODULES:
        kind: GroupKind = import_module(f"gpuinfra.rehearsal.cloud.{name}").KIND
        found |= dict.fromkeys(kind.tokens, kind)
    return found


def kind_of_group(group: Resource) -> GroupKind:
    """The kind of one group."""
    return _kinds()[group.type]


def kind_of_cloud(cloud: str) -> GroupKind:
    """The kind of a cloud's groups."""
    return next(kind for kind in _kinds().values() if kind.cloud == cloud)


def groups(store: Store) -> list[Resource]:
    """Every group of every cloud."""
    return [group for token in _kinds() for group in store.list(token)]
