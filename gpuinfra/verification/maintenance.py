"""The planned work on the nodes of a stack, which the operator records for the control node.

The object is next to the bundles, where nodes can read and not write. An entry ends by itself. The control node reads it in each round
(`gpuinfra/node/repair_service.py`), so it also applies after the control node was replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.base import naming
from gpuinfra.base.errors import DeploymentError
from gpuinfra.node.orders import MOST_BYTES, NodeOrder, orders_in
from gpuinfra.node.outcome import Unreadable
from gpuinfra.node.repair_service import MAINTENANCE, planned_work, released_nodes
from gpuinfra.verification.store import Poll

RELEASED_S = 30 * 86_400
"""Time after which a release is forgotten. It applies to orders before it, which are at most days old."""

ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True)
class Work:
    """What to record about nodes."""

    until: float | None
    """End of the planned work, as Unix time. None ends it now."""
    released: bool
    """Whether the nodes are only released."""
    by: str
    why: str


@dataclass(frozen=True, kw_only=True)
class FormerNode:
    """A node that is no longer in a group, and for which the control node still has an order."""

    poll: Poll
    instance_id: str
    name: str
    """Its name in the metrics."""


def former_nodes(polls: Sequence[Poll], names: Sequence[str]) -> dict[str, FormerNode]:
    """Return the names that match an order and no node in the groups. Raises `PortUnavailable`, or `DeploymentError` if the orders cannot be read."""
    members = {text for poll in polls for node in poll.verdict.nodes for text in (node.label, node.instance_id)}
    former: dict[str, FormerNode] = {}
    unknown = [name for name in names if name not in members]
    for poll in polls if unknown else ():
        for order in _orders(poll):
            former |= {
                name: FormerNode(poll=poll, instance_id=order.instance_id, name=order.node)
                for name in unknown
                if name in (order.instance_id, order.node)
            }
    return former


def _orders(poll: Poll) -> tuple[NodeOrder, ...]:
    key = naming.repair_orders(poll.cluster)
    data = poll.store.published(key, MOST_BYTES)
    try:
        return () if data is None else orders_in(data)
    except Unreadable as problem:
        raise DeploymentError(f"{key} in the evidence bucket: {problem}") from None


def record(poll: Poll, ids: Mapping[str, str], work: Work, now: float) -> None:
    """Replace the entries of nodes. `ids` is instance ID -> label. If another operator writes at the same time, the record is read again. Raises
    `PortUnavailable`, or `DeploymentError` if the object has an unknown form."""
    key = naming.planned_work(poll.cluster)
    for _ in range(ATTEMPTS):
        document, tag = _read(poll)
        if poll.store.update(key, _changed(document, ids, work, now), tag):
            return
    raise DeploymentError(f"{key} changed during each of {ATTEMPTS} attempts; run the command again")


def _changed(document: Mapping[str, Any], ids: Mapping[str, str], work: Work, now: float) -> dict[str, Any]:
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
    return {"schema": MAINTENANCE, "entries": entries, "released": released}


def planned(poll: Poll, now: float) -> list[dict[str, Any]]:
    """Return the planned work that has not ended. Raises `PortUnavailable`, or `DeploymentError` if the object has an unknown form."""
    return [one for one in _read(poll)[0]["entries"] if float(one["until"]) > now]


def _read(poll: Poll) -> tuple[dict[str, Any], str | None]:
    """Return the record and the tag of its version, or None if it does not exist."""
    stored = poll.store.tagged(naming.planned_work(poll.cluster))
    if stored is None:
        return {"entries": [], "released": []}, None
    try:
        planned_work(stored[0])
        released_nodes(stored[0])
        return json.loads(stored[0]), stored[1]
    except (Unreadable, ValueError) as problem:
        raise DeploymentError(
            f"{naming.planned_work(poll.cluster)} in the evidence bucket: {problem}; delete the object"
        ) from None
