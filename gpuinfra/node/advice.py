"""Selects the action for a node, which is the strongest action that any of its failed checks requires, and gives the reasons.

This module is pure. Its input is the outcomes of `judge.py`. The cause of a failure requires an action (`cause.py`), or leaves it to the class of the check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

from .cause import Action
from .checks import ALL
from .judge import root_cause_order
from .outcome import CheckResult


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


def advise(checks: Iterable[CheckResult]) -> Advice:
    """Return the strongest action that is required by a check that did not pass."""
    actions = [(_action(check), check) for check in checks if check["outcome"] in ("warn", "fail", "error")]
    action = max((action for action, _ in actions), key=lambda action: action.strength, default=Action.NOTHING)
    matching = sorted((check for its_action, check in actions if its_action is action), key=root_cause_order)
    # One cause can fail many checks with the same reason. List that reason once, with the IDs of all these checks.
    reasons: dict[str, list[str]] = {}
    for check in matching:
        reasons.setdefault(check["reason"] or check["hint"], []).append(check["id"])
    why = ["%s: %s" % (" ".join(ids), reason) for reason, ids in reasons.items()]
    return Advice(action, tuple(why))


def _action(check: CheckResult) -> Action:
    if check["outcome"] == "warn":
        return Action.LOOK
    cause, name = check["cause"], check["id"]
    required = cause.action if cause else None
    return required or (ALL[name].action if name in ALL else Action.CONFIGURE)
