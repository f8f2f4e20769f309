"""The notices that a cloud sends to its instances, as the faults `spot-notice` and `maintenance` request.

A notice begins with the first request for it while its fault is active, so a second rehearsal command can send it to a running node. It then
stays, also without the fault. Every metadata service presents it in the form of its cloud. A spot instance ends after the notice period of
its cloud. Maintenance is only announced, for a time that is `MAINTENANCE_S` ahead.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud, Instance

SPOT, MAINTENANCE = "spot-notice", "maintenance"
MAINTENANCE_S = 600.0
"""Time from the notice to the maintenance. AWS and Google Cloud announce maintenance days ahead. Azure announces it about 15 minutes ahead."""
_KIND = "notice"


def since(cloud: Cloud, instance: Instance, fault: str) -> float | None:
    """Return when the notice began, or None if the instance has none. Only spot instances receive `spot-notice`."""
    key = f"{instance['id']} {fault}"
    held = cloud.store.get(_KIND, key)
    if held is None:
        if fault not in cloud.faults.of_node(instance["name"]) or (fault == SPOT and instance["kind"] != "spot"):
            return None
        with cloud.store.change():
            held = cloud.store.get(_KIND, key) or {"at": time.time()}
            cloud.store.put(_KIND, key, held)
    cloud.faults.launched(instance["name"])
    return float(held["at"])


def is_over(cloud: Cloud, instance: Instance, notice_s: float) -> bool:
    """Return whether a spot instance ends now, because its notice began `notice_s` seconds ago."""
    held = cloud.store.get(_KIND, f"{instance['id']} {SPOT}") if instance["kind"] == "spot" else None
    return held is not None and time.time() - float(held["at"]) >= notice_s
