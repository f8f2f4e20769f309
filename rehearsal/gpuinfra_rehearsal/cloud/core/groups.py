"""Finds the kind of a group, and provides helpers for building instances."""

from __future__ import annotations

import time

from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.interfaces import Cloud, GroupKind, Instance, View
from gpuinfra_rehearsal.cloud.core.store import Resource, Store


def _kinds() -> dict[str, GroupKind]:
    return {token: kind for one in registry.installed() for kind in one.group_kinds for token in kind.tokens}


def kind_of_group(group: Resource) -> GroupKind:
    """Return the kind of one group."""
    return _kinds()[group.type]


def kind_of_cloud(cloud: str) -> GroupKind:
    """Return the kind of a cloud's groups."""
    return next(kind for kind in _kinds().values() if kind.cloud == cloud)


def groups(store: Store) -> list[Resource]:
    """Return all groups of all clouds."""
    return [group for token in _kinds() for group in store.list(token)]


def new_instance(cloud: str, group: Resource, view: View, name: str, serial: int) -> Instance:
    """Return the fields that instances have on every cloud. `serial` is the instance's number among all instances of
    its cloud."""
    return {
        "cloud": cloud, "name": name, "cluster": view.cluster, "pool": view.pool, "group": group.id, "kind": view.kind,
        "address": f"10.{128 + serial // 65536}.{serial // 256 % 256}.{serial % 256}", "launched": time.time(), "state": "running",
    }  # fmt: skip


def reservation_room(cloud: Cloud, reservation: str, size: int | None, **where: str) -> tuple[int, int] | None:
    """Return the (size, free) instances of a reservation, or None if its size is unknown. An unknown size counts as
    large enough.

    `size` is the size of a reservation created by the rehearsal. The control interface can set the size of other
    reservations. `where` counts only instances whose fields have these values.
    """
    if size is None:
        size = (cloud.external(reservation) or {}).get("count")
    if size is None:
        return None
    here = [one for one in cloud.fleet.running() if all(one[key] == value for key, value in where.items())]
    return int(size), int(size) - sum(reservation in one["reservations"] for one in here)
