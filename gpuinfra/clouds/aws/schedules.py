"""The Auto Scaling groups whose size scheduled actions change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuinfra.clouds.aws import resources as rows


def scheduled(resources: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the Auto Scaling groups that have scheduled actions in a state."""
    actions = (one.get("inputs") or {} for one in resources if one.get("type") == rows.SCHEDULE.type)
    return frozenset(str(one.get("autoscalingGroupName")) for one in actions)
