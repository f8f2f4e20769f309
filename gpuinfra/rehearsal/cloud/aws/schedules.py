"""Scheduled actions of Auto Scaling groups: at their time they change what the group wants.

That change is made behind the engine's back, as on AWS, so whoever declares a schedule ignores changes of the capacity.
Recurrences are not played: a rehearsal is over before they come round.
A rehearsal as of another day plays the actions of that day, at the time of day that it is.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date, datetime

from gpuinfra.day import today
from gpuinfra.rehearsal.cloud.aws.groups import GROUP
from gpuinfra.rehearsal.cloud.core import wire
from gpuinfra.rehearsal.cloud.core.store import Resource, Store

SCHEDULE = "aws:autoscaling/schedule:Schedule"


def run_due(store: Store) -> None:
    """Run every action whose time has come and that did not run yet."""
    for action in store.list(SCHEDULE):
        start = wire.plain(action.inputs).get("startTime")
        if start and _moment(str(start)) <= _now() and _is_new(store, action):
            _apply(store, action)


def run(store: Store, name: str) -> bool:
    """Run an action now, by its name or id; false when there is none."""
    found = [one for one in store.list(SCHEDULE) if name in (one.id, wire.plain(one.inputs).get("scheduledActionName"))]
    for action in found:
        _apply(store, action)
    return bool(found)


def _is_new(store: Store, action: Resource) -> bool:
    """Whether the action, as it is now, has not run: an action with another time is another one."""
    return store.get("scheduled", f"{action.region}:{action.id}") != wire.plain(action.inputs)


def _apply(store: Store, action: Resource) -> None:
    wanted = wire.plain(action.inputs)
    with store.change():
        store.put("scheduled", f"{action.region}:{action.id}", wanted)
        group = store.find(GROUP, str(wanted.get("autoscalingGroupName")), action.region)
        if group is None:
            return
        # -1 is how the provider writes "leave as it is".
        change = {
            key: int(wanted[key])
            for key in ("minSize", "maxSize", "desiredCapacity")
            if wanted.get(key) not in (None, -1)
        }
        store.update(replace(group, inputs={**group.inputs, **change}, outputs={**group.outputs, **change}))


def _now() -> float:
    """This time of day, on the day that the rehearsal is about."""
    return time.time() + (today() - date.today()).total_seconds()


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
