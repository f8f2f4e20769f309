"""Scheduled actions of Auto Scaling groups, which change the group's sizes at scheduled times.

As on AWS, the engine does not see this change, so a program with a schedule ignores capacity changes.
AWS deletes a one-time action after it runs (hashicorp/terraform-provider-aws issues 8646 and 19446, retrieved 2026-11-26).
Recurrences are not simulated, because a rehearsal ends before they recur.
A rehearsal for another date runs that date's actions at the current time of day.
"""

from __future__ import annotations

import time
from datetime import date, datetime

from gpuinfra.base.day import today
from gpuinfra_rehearsal.cloud.aws.groups import GROUP
from gpuinfra_rehearsal.cloud.core.store import Resource, Store

SCHEDULE = "aws:autoscaling/schedule:Schedule"


def run_due(store: Store) -> None:
    """Run all actions that are due and have not run."""
    for action in store.list(SCHEDULE):
        start = action.plain.get("startTime")
        if start and _moment(str(start)) <= _now() and not action.plain.get("recurrence"):
            _apply(store, action)


def run(store: Store, name: str) -> bool:
    """Run an action now, by name or ID. Returns False if it does not exist."""
    actions = [one for one in store.list(SCHEDULE) if name in (one.id, one.plain.get("scheduledActionName"))]
    for action in actions:
        _apply(store, action)
    return bool(actions)


def is_past(start: str) -> bool:
    """Return whether a start is on an earlier day. A rehearsal has a date and no time, so an action on the same day is not in the past."""
    return datetime.fromisoformat(start).date() < today()


def _apply(store: Store, action: Resource) -> None:
    wanted = action.plain
    with store.change():
        if not wanted.get("recurrence"):
            store.remove(action)
        group = store.find(GROUP, str(wanted.get("autoscalingGroupName")), action.region)
        if group is None:
            return
        # The provider writes -1 for a size that does not change.
        change = {
            key: int(wanted[key])
            for key in ("minSize", "maxSize", "desiredCapacity")
            if wanted.get(key) not in (None, -1)
        }
        store.update(group.changed(**change))


def _now() -> float:
    """Return the current time of day on the day of the rehearsal."""
    return time.time() + (today() - date.today()).total_seconds()


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
