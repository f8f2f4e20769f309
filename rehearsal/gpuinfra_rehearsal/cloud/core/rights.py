"""Tracks the rights that nodes used and the actions that they were denied. Rights that no node uses are reported.

`StandIn.node_rights` lists the rights of nodes. On AWS, these are the actions in the statements of a role's own
policies. On Azure and Google Cloud, these are role grants, because predefined roles cannot be split. Rights that the stand-in does not
simulate are not listed.
"""

from __future__ import annotations

from typing import Any

from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.store import Store

_USED, _DENIED = "right-used", "right-refused"
_LATER = (
    *("MeetOtherNodes", "-rendezvous"),
    *("AcceptSessions", "RegisterForSessions"),
    *("GiveOrders", "ReplaceNodes", "-control-orders"),
    *("SendEmails", "WriteMetrics"),
    *("ReadMounts", "WriteMounts", "DecryptMounts", "EncryptMounts"),
)
"""Suffixes of right names that a short rehearsal does not exercise: measurements of `gpuinfra pairs`; user sessions on AWS;
orders, replacements and alerts of the control node, and samples for the managed store, which Debian's Prometheus does not sign; and
objects of mounted buckets on AWS, because files in a mounted bucket are not objects in the stand-in cloud."""


class Rights:
    """The rights that nodes used and were denied so far. Persisted in the store, because a second `up` uses fewer
    rights."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[tuple[str, str]] = set()

    def used(self, right: str) -> None:
        """Record that a node used a right."""
        self._note(_USED, right)

    def denied(self, who: str, action: str, resource: str) -> None:
        """Record that a node was denied an action."""
        self._note(_DENIED, f"{who}: {action} on {resource}")

    def _note(self, kind: str, what: str) -> None:
        if (kind, what) not in self._known:
            self._known.add((kind, what))
            self._store.put(kind, what, True)

    def summary(self, nodes: list[dict[str, Any]]) -> dict[str, Any]:
        """Return all rights of the identities of these nodes."""
        used = self._store.all(_USED)
        granted = sorted(
            {
                right
                for one in registry.installed()
                for right in one.node_rights(self._store, [n for n in nodes if n["cloud"] == one.name])
            }
        )
        idle = [one for one in granted if one not in used]
        waiting = [one for one in idle if not used or _comes_later(one)]  # no right counts as unused yet
        return {
            "used": [one for one in granted if one in used],
            "unused": [one for one in idle if one not in waiting],
            "not_exercised": waiting,
            "refused": sorted(self._store.all(_DENIED)),
        }


def grant(urn: str) -> str:
    """Return the name of the right that a role grant gives: the grant's logical name."""
    return urn.rpartition("::")[2]


def _comes_later(right: str) -> bool:
    # On Google Cloud, the name of the grant ends with the group.
    return "-control-repair" in right or any(part.strip().endswith(_LATER) for part in right.split(":"))
