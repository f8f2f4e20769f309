"""Selects the action for a node, which is the strongest action that any of its failed checks requires, and gives the reasons.

This module is pure. Its input is the outcomes of `judge.py`. The cause of a failure requires an action (`cause.py`), or leaves it to `BY_CHECK`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from .cause import Action, Cause
from .judge import root_cause_order

BY_CHECK = {
    **dict.fromkeys(("P1", "G2", "G11", "X2", "N6"), Action.REPLACE),
    **dict.fromkeys(
        ("G1", "G3", "G7", "G13", "F2", "F3", "F5", "N1", "N2", "N5", "N7", "N8", "B2", "B3", "B5", "B7", "B8", "X1"),
        Action.REBOOT,
    ),
    **dict.fromkeys(("G5", "G6", "G10", "G12", "G14"), Action.RESET),
}
"""Maps each check to the action for its failure. A check that is not listed concerns the installation, so its action is `configure`."""


@dataclass(frozen=True)
class Advice:
    """The action for a node and its reasons."""

    action: Action
    why: tuple[str, ...]
    """The checks that require this action and their reasons, with root causes first."""

    @property
    def drain(self) -> bool:
        """True if the node must not accept new work."""
        return self.action.drains


def advise(checks: Iterable[Mapping[str, Any]]) -> Advice:
    """Return the strongest action that is required by a check that did not pass."""
    actions = [(_action(check), check) for check in checks if check.get("outcome") in ("warn", "fail", "error")]
    action = max((action for action, _ in actions), key=lambda action: action.strength, default=Action.NOTHING)
    matching = sorted((check for its_action, check in actions if its_action is action), key=root_cause_order)
    # One cause can fail many checks with the same reason. List that reason once, with the IDs of all these checks.
    reasons: dict[str, list[str]] = {}
    for check in matching:
        reasons.setdefault(str(check.get("reason") or check.get("hint")), []).append(str(check.get("id")))
    why = ["%s: %s" % (" ".join(ids), reason) for reason, ids in reasons.items()]
    return Advice(action, tuple(why))


def _action(check: Mapping[str, Any]) -> Action:
    if check.get("outcome") == "warn":
        return Action.LOOK
    cause = check.get("cause")
    required = cause.action if isinstance(cause, Cause) else None
    return required or BY_CHECK.get(str(check.get("id")), Action.CONFIGURE)
