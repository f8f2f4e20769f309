"""The plan of one round of the fabric test, as an object in the store (`fabric.py`)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping

SCHEMA = "gpuinfra.fabric-plan/1"


@dataclass(frozen=True)
class RoundPlan:
    """The pairs of one round, or the verdict."""

    round: int
    leader: str
    members: dict[str, str]
    """Name -> incarnation of each node that takes part in this round, in the order of the names."""
    pairs: tuple[tuple[str, str], ...] = ()
    absent: dict[str, str] = field(default_factory=dict)
    """Name -> incarnation of each node that left an earlier round without an outcome and has not joined again."""
    verdict: Mapping[str, Any] | None = None

    def partner(self, name: str) -> tuple[str, int] | None:
        """Return the partner of a node and the place of this node, or None if it has no partner in this round."""
        for first, second in self.pairs:
            if name in (first, second):
                return (second, 0) if name == first else (first, 1)
        return None

    def dumped(self) -> bytes:
        """Return the object in the store. A pair is two positions in the list of members."""
        place = {name: at for at, name in enumerate(self.members)}
        shown: dict[str, Any] = {"schema": SCHEMA, "members": ["%s %s" % one for one in self.members.items()]}
        shown["pairs"] = [[place[first], place[second]] for first, second in self.pairs]
        shown["absent"] = ["%s %s" % one for one in self.absent.items()]
        if self.verdict is not None:
            shown["verdict"] = self.verdict
        return json.dumps(shown, separators=(",", ":")).encode("ascii")


def plan_of(number: int, leader: str, data: bytes) -> RoundPlan | None:
    """Return the plan in an object, or None if the object is not a plan."""
    try:
        shown = json.loads(data)
        members, absent = (dict(one.split(" ") for one in shown[part]) for part in ("members", "absent"))
        names, ruling = list(members), shown.get("verdict")
        pairs = tuple((names[first], names[second]) for first, second in shown["pairs"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return None
    if shown.get("schema") != SCHEMA or not (ruling is None or _is_verdict(ruling)):
        return None
    if len({name for pair in pairs for name in pair}) != 2 * len(pairs) or leader not in members:
        return None
    return RoundPlan(number, leader, members, pairs, absent, ruling)


def _is_verdict(document: object) -> bool:
    lists = ("good", "slow_paths", "unknown")
    return (
        isinstance(document, dict)
        and isinstance(document.get("slow"), dict)
        and all(isinstance(document.get(one), list) for one in lists)
    )
