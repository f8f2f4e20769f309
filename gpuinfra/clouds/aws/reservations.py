"""Compares capacity reservations and Capacity Blocks with the nodes of a plan. Pure.

Field names and states come from the service models in botocore.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Any

from gpuinfra.clouds.preflight import PreflightRow, ok, problem, warning
from gpuinfra.plan.model import Group

EXPIRES_SOON = timedelta(days=7)
COMING = frozenset({"pending", "scheduled", "payment-pending", "assessing", "delayed"})
"""States of a reservation that is not usable yet. The other states, except `active`, are final."""


def mismatches(reservation: Mapping[str, Any], group: Group, machine: str) -> Iterator[tuple[str, str, str]]:
    """Yield what was found, what is needed and the fix, if nodes of a group cannot start in a reservation."""
    if reservation["InstanceType"] != machine:
        yield (
            f"is for {reservation['InstanceType']}",
            f"a reservation of {machine}",
            f"set `machine` to {reservation['InstanceType']}, or `id` to a different reservation",
        )
    zones = (reservation.get("AvailabilityZoneId"), reservation.get("AvailabilityZone"))
    if zones[0] and group.zone not in zones:
        yield f"is in {zones[0]}", f"a reservation in {group.zone}", f"set `zone` in the stack file to {zones[0]}"
    if (reservation.get("ReservationType") == "capacity-block") != (group.kind == "block"):
        kinds = {"capacity-block": "a Capacity Block", "default": "a capacity reservation"}
        kind = kinds.get(str(reservation.get("ReservationType")), kinds["default"])
        yield (
            f"is {kind}",
            f"capacity of kind {group.kind}",
            f"set `kind` to {'reserved' if group.kind == 'block' else 'block'}",
        )
    state = str(reservation["State"])
    if state not in COMING and state != "active":
        yield (
            f"is {state}",
            "an active reservation",
            "buy or create another reservation, and set `id` in the stack file",
        )
    elif state in COMING and not group.starts_at:
        start = moment(reservation.get("StartDate"))
        when = f" and starts at {start:%Y-%m-%d %H:%M} UTC" if start else ""
        at = f"set `starts_at` in the stack file to {start:%Y-%m-%dT%H:%M:%SZ}, or " if start else ""
        yield f"is {state}{when}", "an active reservation", f"{at}run the command again when it is active"
    if group.starts_at or group.ends_at:
        yield from _window(reservation, group)
    placement = str(reservation.get("PlacementGroupArn") or "").rpartition("/")[2]
    if placement and group.placement_group != placement:
        yield (
            f"is in placement group {placement}",
            "nodes in the same placement group",
            f"set `placement_group` to {placement}",
        )


def _window(reservation: Mapping[str, Any], group: Group) -> Iterator[tuple[str, str, str]]:
    opens, closes = moment(reservation.get("StartDate")), moment(reservation.get("EndDate"))
    starts, ends = moment(group.starts_at), moment(group.ends_at)
    if opens and starts and starts < opens:
        at = f"{opens:%Y-%m-%dT%H:%M:%SZ}"
        yield f"starts at {at}, after the nodes start", f"a start at {at}", f"set `starts_at` in the stack file to {at}"
    if closes and ends and ends > closes:
        at = f"{closes:%Y-%m-%dT%H:%M:%SZ}"
        yield f"ends at {at}, before the nodes stop", f"an end at {at}", f"set `ends_at` in the stack file to {at}"


def capacity(fitting: list[dict[str, Any]], group: Group, where: str, region: str) -> Iterator[PreflightRow]:
    """Yield the row about the number of instances and the end of reservations that fit."""
    total = sum(int(one.get("TotalInstanceCount", 0)) for one in fitting)
    free = sum(int(one.get("AvailableInstanceCount", 0)) for one in fitting)
    ends = min((end for one in fitting if (end := moment(one.get("EndDate")))), default=None)
    states = sorted({str(one["State"]) for one in fitting})
    modes = sorted({str(one.get("InstanceMatchCriteria")) for one in fitting if one.get("InstanceMatchCriteria")})
    until = f", until {ends:%Y-%m-%d %H:%M} UTC" if ends else ", no end date"
    have = f"{', '.join([*states, *modes])}, {free} of {total} free{until}"
    need, overflow = group.max_count, group.reservation_preference == "capacity-reservations-first"
    if total < need and not overflow:
        raise_ = (
            f"aws ec2 modify-capacity-reservation --capacity-reservation-id {quote(str(fitting[0]['CapacityReservationId']))} "
            f"--instance-count {need} --region {region}"
        )
        fix = (
            "reduce `count` in the stack file"
            if group.kind == "block" or len(fitting) > 1
            else f"reduce `count` in the stack file, or {raise_}"
        )
        yield problem("reservation", where, have, f"{need} instances", fix)
    elif free < need and "active" in states and not overflow:
        needed = f"{need} free instances, unless nodes of this stack use the other instances"
        yield warning(
            "reservation",
            where,
            have,
            needed,
            "stop other instances in the reservation, or reduce `count` in the stack file",
        )
    elif ends and group.kind == "reserved" and not group.ends_at and ends - datetime.now(UTC) < EXPIRES_SOON:
        ident = quote(str(fitting[0]["CapacityReservationId"]))
        fix = f"aws ec2 modify-capacity-reservation --capacity-reservation-id {ident} --end-date-type unlimited --region {region}"
        yield warning("reservation", where, have, "a reservation that outlasts the nodes", fix)
    else:
        yield ok("reservation", where, f"{have}, {need} needed")


def moment(value: object) -> datetime | None:
    """Return a time in UTC. boto3 returns some times as objects and some as text."""
    if isinstance(value, str) and value:
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)
