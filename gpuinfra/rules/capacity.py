"""Rules about capacity that hold on every cloud: reservations, windows, candidates, spot."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta

from gpuinfra.clouds.profile import Rule
from gpuinfra.findings import Finding, error, info
from gpuinfra.spec.capacity import Block, Reserved
from gpuinfra.spec.model import ClusterSpec


def window_is_open(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A block's window lies in the right order and has not ended."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if not isinstance(entry, Block):
                continue
            path = f"pools[{i}].capacity[{j}]"
            try:
                starts, ends = datetime.fromisoformat(entry.starts_at), datetime.fromisoformat(entry.ends_at)
            except ValueError:
                yield error(window_is_open, path, "has a start or end that is no date", "write 2026-12-01T11:30:00Z")
                continue
            if ends <= starts:
                yield error(
                    window_is_open,
                    f"{path}.ends_at",
                    f"is {entry.ends_at}, not after its start {entry.starts_at}",
                    "write the end of the block",
                )
            elif ends.date() < today:
                yield error(
                    window_is_open,
                    f"{path}.ends_at",
                    f"is {entry.ends_at}, which has passed",
                    "name a block that has not ended; `gpuinfra plan` and `gpuinfra rehearse` take --on with an earlier day",
                )
            elif ends - starts < timedelta(hours=2):
                yield error(
                    window_is_open,
                    f"{path}.ends_at",
                    "leaves less than two hours",
                    "nodes are gone 35 minutes before the end",
                )


def reservation_covers_pool(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """No more nodes than a reservation is known to hold."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if (
                isinstance(entry, Reserved)
                and entry.holds is not None
                and entry.count > entry.holds
                and not entry.overflow
            ):
                yield error(
                    reservation_covers_pool,
                    f"pools[{i}].capacity[{j}].count",
                    f"is {entry.count}, but the reservation holds {entry.holds} x {pool.machine}",
                    "lower the count or name a larger one",
                )


def reservation_is_named(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A reserved entry names one reservation or one group of them."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Reserved) and (entry.id is None) == (entry.group_arn is None):
                both = "both id and group_arn" if entry.id else "neither id nor group_arn"
                yield error(reservation_is_named, f"pools[{i}].capacity[{j}]", f"has {both}", "give one of them")


def fallback_replaces_reservations(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A candidate elsewhere says what takes the place of reserved entries, because a reservation does not move."""
    for i, pool in enumerate(spec.pools):
        bound = any(entry.kind in ("reserved", "block") for entry in pool.capacity)
        for j, candidate in enumerate(pool.fallback):
            path = f"pools[{i}].fallback[{j}]"
            if candidate.zone is None and candidate.machine is None:
                yield error(
                    fallback_replaces_reservations, path, "names neither zone nor machine", "say where else to try"
                )
            elif bound and candidate.capacity is None:
                yield error(
                    fallback_replaces_reservations,
                    path,
                    "moves a pool that is on a reservation, and says nothing of what takes its place",
                    "add capacity to it",
                )


def spot_price_is_left_alone(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A limit on the spot price interrupts more often and saves nothing."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if entry.kind == "spot" and entry.max_price_usd is not None:
                yield info(
                    spot_price_is_left_alone,
                    f"pools[{i}].capacity[{j}].max_price_usd",
                    "is set, so nodes are taken back whenever the price passes it",
                    "leave it out",
                )


RULES: tuple[Rule, ...] = (
    window_is_open,
    reservation_covers_pool,
    reservation_is_named,
    fallback_replaces_reservations,
    spot_price_is_left_alone,
)
