"""The planned work on the nodes of a stack, which the operator records for the control node.

The object is next to the bundles, where nodes can read and not write. An entry ends by itself. The control node reads it in each round
(`gpuinfra/node/repair_service.py`), so it also applies after the control node was replaced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.base import naming
from gpuinfra.base.errors import DeploymentError
from gpuinfra.handover.judge import NodeVerdict
from gpuinfra.node.outcome import Unreadable
from gpuinfra.node.repair_service import MAINTENANCE, planned_work, released_nodes
from gpuinfra.verification.store import Poll

RELEASED_S = 30 * 86_400
"""Time after which a release is forgotten. It applies to orders before it, which are at most days old."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What to record about nodes."""

    until: float | None
    """End of the planned work, as Unix time. None ends it now."""
    released: bool
    """Whether the nodes are only released."""
    by: str
    why: str


def record(poll: Poll, nodes: Sequence[NodeVerdict], work: Work, now: float) -> None:
    """Replace the entries of these nodes. Raises `PortUnavailable`, or `DeploymentError` if the object has an unknown form."""
    ids = {node.instance_id: node.label for node in nodes}
    document = _read(poll)
    released = [one for one in document["released"] if one["node"] not in ids and now - float(one["at"]) < RELEASED_S]
    entries = [one for one in document["entries"] if float(one["until"]) > now]
    if work.released:
        released += [{"node": id_, "at": int(now), "by": work.by} for id_ in ids]
    else:
        entries = [one for one in entries if one["node"] not in ids]
        if work.until is not None:
            # Whole seconds, so that the control node recognizes its silence.
            entries += [
                {
                    "node": id_,
                    "label": label,
                    "from": int(now),
                    "until": int(work.until),
                    "by": work.by,
                    "why": work.why,
                }
                for id_, label in ids.items()
            ]
    poll.store.publish(
        naming.planned_work(poll.cluster), {"schema": MAINTENANCE, "entries": entries, "released": released}
    )


def planned(poll: Poll, now: float) -> list[dict[str, Any]]:
    """Return the planned work that has not ended. Raises `PortUnavailable`, or `DeploymentError` if the object has an unknown form."""
    return [one for one in _read(poll)["entries"] if float(one["until"]) > now]


def _read(poll: Poll) -> dict[str, Any]:
    data = poll.store.published(naming.planned_work(poll.cluster))
    if data is None:
        return {"entries": [], "released": []}
    try:
        planned_work(data)
        released_nodes(data)
        return json.loads(data)
    except (Unreadable, ValueError) as problem:
        raise DeploymentError(
            f"{naming.planned_work(poll.cluster)} in the evidence bucket: {problem}; delete the object"
        ) from None
