"""The protocol between the fleet and one cloud's groups of machines: Auto Scaling groups, scale sets, managed instance groups.

The fleet owns launch order, numbers and the loop. A kind reads what its cloud's groups want, builds their instances, and
words why there are none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gpuinfra.rehearsal.cloud.core import registry

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.errors import CloudError
    from gpuinfra.rehearsal.cloud.core.store import Resource, Store

Instance = dict[str, Any]
"""An instance, as the store keeps it."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What a group wants now."""

    cluster: str
    pool: str
    kind: str
    """`reserved`, `block`, `flex`, `on_demand` or `spot`."""
    wanted: int
    may_launch: bool = True
    surge: int = 0
    """How many instances may exist above `wanted` while outdated ones are replaced."""
    unavailable: int = 1
    """How many outdated instances may be ended at once where there is no surge."""


class GroupKind(Protocol):
    """One cloud's groups. Reads the cloud, and changes only its own marks in the store."""

    @property
    def cloud(self) -> str:
        """The cloud's name in a spec."""
        ...

    @property
    def tokens(self) -> tuple[str, ...]:
        """The types of the groups."""
        ...

    def view(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> View:
        """What the group wants."""
        ...

    def shortage(self, cloud: Cloud, group: Resource, have: int, wanted: int) -> CloudError | None:
        """Why there cannot be `wanted` instances where there are `have`, in the cloud's own words."""
        ...

    def make(self, cloud: Cloud, group: Resource, name: str, have: Sequence[Instance]) -> Instance:
        """A new instance, `name` in launch order. The fleet stores it."""
        ...

    def outdated(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> list[Instance]:
        """Instances to replace now because the group wants another template; called in a transaction, when all instances exist."""
        ...

    def first_to_go(self, have: Sequence[Instance]) -> list[Instance]:
        """The order in which instances leave when the group shrinks."""
        ...

    def launched(self, instance: Instance) -> str:
        """The text of an activity."""
        ...

    def failed(self, shortage: CloudError) -> str:
        """The text of an activity."""
        ...

    def ended(self, instance_id: str) -> str:
        """The text of an activity."""
        ...

    def cause(self, wanted: int) -> str:
        """Why the group launches."""
        ...

    def lost(self) -> str:
        """The cause of an activity after an instance failed."""
        ...


@runtime_checkable
class Tending(Protocol):
    """A kind whose groups change the instances that they keep."""

    def tend(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> None:
        """Called in every round, outside of a transaction."""
        ...


def _kinds() -> dict[str, GroupKind]:
    return {token: kind for one in registry.installed() for kind in one.group_kinds for token in kind.tokens}


def kind_of_group(group: Resource) -> GroupKind:
    """The kind of one group."""
    return _kinds()[group.type]


def kind_of_cloud(cloud: str) -> GroupKind:
    """The kind of a cloud's groups."""
    return next(kind for kind in _kinds().values() if kind.cloud == cloud)


def groups(store: Store) -> list[Resource]:
    """Every group of every cloud."""
    return [group for token in _kinds() for group in store.list(token)]


def new_instance(cloud: str, group: Resource, view: View, name: str, serial: int) -> Instance:
    """The fields that an instance has on every cloud; `serial` is its number among all instances of its cloud."""
    return {
        "cloud": cloud, "name": name, "cluster": view.cluster, "pool": view.pool, "group": group.id, "kind": view.kind,
        "address": f"10.{128 + serial // 65536}.{serial // 256 % 256}.{serial % 256}", "launched": time.time(), "state": "running",
    }  # fmt: skip


def reservation_room(cloud: Cloud, reservation: str, size: int | None, **where: str) -> tuple[int, int] | None:
    """(size, free) of a reservation in instances; None where its size is unknown, which counts as large enough.

    `size` is that of a reservation made here; the control interface can give the size of any other one. `where` limits the instances
    that use it to those with these fields.
    """
    if size is None:
        size = (cloud.external(reservation) or {}).get("count")
    if size is None:
        return None
    here = [one for one in cloud.fleet.running() if all(one[key] == value for key, value in where.items())]
    return int(size), int(size) - sum(reservation in one["reservations"] for one in here)
