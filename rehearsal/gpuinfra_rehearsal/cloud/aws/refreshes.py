"""Instance refreshes of Auto Scaling groups, with checkpoints.

Amazon EC2 Auto Scaling user guide, retrieved 2026-11-22 (https://docs.aws.amazon.com/autoscaling/ec2/userguide/asg-adding-checkpoints-instance-refresh.html,
.../enable-checkpoints-console-cli.html):

- A checkpoint is reached when at least its percentage of the instances is new. Checkpoints that are passed together count as one.
- After a checkpoint, the refresh waits for the checkpoint delay.
- The last checkpoint is the percentage to replace. At that point, the refresh succeeds, even if the percentage is below 100.
- A refresh does not depend on the software on an instance. Here, instances are in service immediately; the instance
warm-up is not simulated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core import ids
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Store

_DELAY_S = 3600


def start(store: Store, region: str, group: str, preferences: Mapping[str, Any]) -> dict[str, Any]:
    """Start a refresh. The provider cancels a refresh that is in progress."""
    made = {
        "id": ids.uuid(store.next("refresh")), "status": "InProgress", "started": time.time(), "ended": None,
        "preferences": dict(preferences), "paused_at": None, "passed": 0, "percent": 0,
    }  # fmt: skip
    store.put("refresh", f"{region}:{group}", made)
    return made


def newest(store: Store, region: str, group: str) -> dict[str, Any] | None:
    """Return the newest refresh of a group."""
    return store.get("refresh", f"{region}:{group}")


def preferences(store: Store, region: str, group: str) -> dict[str, Any]:
    """Return the preferences of the newest refresh."""
    refresh = newest(store, region, group)
    return dict(refresh["preferences"]) if refresh else {}


def drop(store: Store, region: str, group: str) -> None:
    """Remove the refreshes of a deleted group."""
    store.drop("refresh", f"{region}:{group}")


def next_count(store: Store, region: str, group: str, total: int, outdated: int) -> int:
    """Return how many outdated instances the refresh can replace before its next checkpoint. Ends the refresh at its last checkpoint."""
    refresh = newest(store, region, group)
    if refresh is None or refresh["status"] != "InProgress" or not total:
        return 0
    new = total - outdated
    points = [int(one) for one in refresh["preferences"].get("checkpointPercentages") or [100]]
    reached = [one for one in points if new * 100 >= one * total]
    refresh["percent"] = min(100, new * 100 // total)
    if len(reached) == len(points):
        store.put("refresh", f"{region}:{group}", refresh | {"status": "Successful", "ended": time.time()})
        return 0
    if len(reached) > refresh["passed"]:
        store.put("refresh", f"{region}:{group}", refresh | {"passed": len(reached), "paused_at": time.time()})
        return 0
    delay = refresh["preferences"].get("checkpointDelay")
    if refresh["paused_at"] and time.time() - refresh["paused_at"] < float(_DELAY_S if delay is None else delay):
        return 0
    return math.ceil(points[len(reached)] * total / 100) - new


def start_now(store: Store, region: str, group: str, asked: Mapping[str, Any]) -> str:
    """Start a refresh on request, and return its ID. The request is rejected if a refresh is in progress."""
    refresh = newest(store, region, group)
    if refresh is not None and refresh["status"] == "InProgress":
        text = "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh."
        raise ApiRejected("InstanceRefreshInProgress", text)
    return str(start(store, region, group, asked)["id"])
