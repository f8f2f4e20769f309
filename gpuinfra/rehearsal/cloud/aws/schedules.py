"""Scheduled actions of Auto Scaling groups, which change the group's sizes at scheduled times.

As on AWS, the engine does not see this change, so a program with a schedule ignores capacity changes.
Recurrences are not simulated, because a rehearsal ends before they recur.
A rehearsal for another date runs that date's actions at the current time of day.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date, datetime

from gpuinfra.day import today
from gpuinfra.rehearsal.cloud.aws.groups import GROUP
from gpuinfra.rehearsal.cloud.core.store import Resource, Store

SCHEDULE = "aws:autoscaling/schedule:Schedule"


def run_due(store: Store) -> None:
    """Run all actions that are due and have not run."""
    for action in store.list(SCHEDULE):
        start = action.plain.get("startTime")
        if start and _moment(str(start)) <= _now() and _is_new(store, action):
            _apply(store, action)


def run(store: Store, name: str) -> bool:
    """Run an action now, by name or ID. Returns False if it does not exist."""
    found = [one for one in store.list(SCHEDULE) if name in (one.id, one.plain.get("scheduledActionName"))]
    for action in found:
        _apply(store, action)
    return bool(found)


def _is_new(store: Store, action: Resource) -> bool:
    """Return whether the action has not yet run with its current inputs. An action with a new time runs again."""
    return store.get("scheduled", f"{action.region}:{action.id}") != action.plain


def _apply(store: Store, action: Resource) -> None:
    wanted = action.plain
    with store.change():
        store.put("scheduled", f"{action.region}:{action.id}", wanted)
        group = store.find(GROUP, str(wanted.get("autoscalingGroupName")), action.region)
        if group is None:
            return
        # The provider writes -1 for a size that does not change.
        change = {
            key: int(wanted[key])
            for key in ("minSize", "maxSize", "desiredCapacity")
            if wanted.get(key) not in (None, -1)
        }
        store.update(replace(group, inputs={**group.inputs, **change}, outputs={**group.outputs, **change}))


def _now() -> float:
    """Return the current time of day on the day of the rehearsal."""
    return time.time() + (today() - date.today()).total_seconds()


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
