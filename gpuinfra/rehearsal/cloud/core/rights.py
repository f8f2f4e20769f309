"""Which of their rights nodes used, and what they were denied. A right that no node of a rehearsal uses is reported.

`StandIn.node_rights` lists what nodes may do: on AWS an action of a statement in a role's own policies; on Azure and Google Cloud the
grant of a role, because the clouds' own roles cannot be split. Rights that the stand-in does not play are not listed.
"""

from __future__ import annotations

from typing import Any

from gpuinfra.rehearsal.cloud.core import registry
from gpuinfra.rehearsal.cloud.core.store import Store

_USED, _DENIED = "right-used", "right-refused"
_LATER = ("MeetOtherNodes", "-rendezvous", "-proof")
"""Ends of the names of rights that a short rehearsal does not reach: the test of pairs, where a node reads what its partner stored, and on
Google Cloud the renewal of evidence ten minutes after the first."""


class Rights:
    """What nodes were allowed and denied so far. The store keeps it, because a second `up` uses fewer rights."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[tuple[str, str]] = set()

    def used(self, right: str) -> None:
        """A node used a right."""
        self._note(_USED, right)

    def denied(self, who: str, action: str, resource: str) -> None:
        """A node was denied an action."""
        self._note(_DENIED, f"{who}: {action} on {resource}")

    def _note(self, kind: str, what: str) -> None:
        if (kind, what) not in self._known:
            self._known.add((kind, what))
            self._store.put(kind, what, True)

    def summary(self, nodes: list[dict[str, Any]]) -> dict[str, Any]:
        """Every right of the identities of these nodes."""
        used = self._store.all(_USED)
        granted = sorted({right for one in registry.installed() for right in one.node_rights(self._store, [n for n in nodes if n["cloud"] == one.name])})  # fmt: skip
        idle = [one for one in granted if one not in used]
        waiting = [one for one in idle if not used or _comes_later(one)]  # before a node did anything, nothing is idle
        return {
            "used": [one for one in granted if one in used],
            "unused": [one for one in idle if one not in waiting],
            "not_exercised": waiting,
            "refused": sorted(self._store.all(_DENIED)),
        }


def grant(urn: str) -> str:
    """The name of the right that a granted role gives: the grant's logical name."""
    return urn.rpartition("::")[2]


def _comes_later(right: str) -> bool:
    return any(part.strip().endswith(_LATER) for part in right.split(":"))
