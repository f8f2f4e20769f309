"""Selects the action for a node, which is the strongest action that any of its failed checks requires, and gives the reasons.

This module is pure. Its input is the outcomes of `judge.py`. The actions are ordered by strength: a reboot also fixes what a reset fixes, and a
replacement fixes everything but depends on available capacity. `BY_CHECK` gives the action of a check. The action of an Xid is in `xids.py`, and
the action for a tool that does not respond is in `states.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from .judge import root_cause_order
from .states import STATES
from .xids import TO_DO

ACTIONS = ("nothing", "look", "configure", "reset", "reboot", "replace")
"""`look`: investigate while work continues. `configure`: rerun the bootstrap or fix a setting. From `configure` on, drain the node."""

BY_CHECK = {
    **dict.fromkeys(("P1", "G2", "G11", "X2", "N6"), "replace"),
    **dict.fromkeys(
        ("G1", "G3", "G7", "G13", "F2", "F3", "F5", "N1", "N2", "N5", "N7", "N8", "B2", "B3", "B5", "B7", "B8"),
        "reboot",
    ),
    **dict.fromkeys(("G5", "G6", "G10", "G12", "G14"), "reset"),
    **dict.fromkeys(("G8", "G9", "F4", "D4", "C2", "C3", "N9", "M1"), "look"),
}
"""Maps each check to the action for its failure. A check that is not listed concerns the installation, so its action is `configure`.

For X1 (the Xid), G5, G6, G10, B1, B6 and tools that do not respond, `_action` selects the action from the result. docs/reference/checks.md lists the
names of all checks.
"""


@dataclass(frozen=True)
class Advice:
    """The action for a node and its reasons."""

    action: str
    why: tuple[str, ...]
    """The checks that require this action and their reasons, with root causes first."""

    @property
    def drain(self) -> bool:
        """True if the node must not accept new work."""
        return ACTIONS.index(self.action) >= ACTIONS.index("configure")


def advise(checks: Iterable[Mapping[str, Any]]) -> Advice:
    """Return the strongest action that is required by a check that did not pass."""
    actions = [(_action(check), check) for check in checks if check.get("outcome") in ("warn", "fail", "error")]
    strongest = max((ACTIONS.index(action) for action, _ in actions), default=0)
    matching = sorted((check for action, check in actions if ACTIONS.index(action) == strongest), key=root_cause_order)
    # One cause can fail many checks with the same reason. List that reason once, with the IDs of all these checks.
    reasons: dict[str, list[str]] = {}
    for check in matching:
        reasons.setdefault(str(check.get("reason") or check.get("hint")), []).append(str(check.get("id")))
    why = ["%s: %s" % (" ".join(ids), reason) for reason, ids in reasons.items()]
    return Advice(ACTIONS[strongest], tuple(why))


def _action(check: Mapping[str, Any]) -> str:
    outcome, name, found = check.get("outcome"), check.get("id"), check.get("found")
    if outcome == "warn":
        return "look"
    if outcome == "error":
        # The GPU state is unknown, so do not replace the node: investigate the tool and rerun the bootstrap.
        return "configure"
    for state in STATES:
        # A tool that does not respond fails every check that reads it, so the known state decides, not the check.
        if str(check.get("reason")).startswith(state.meaning):
            return state.do
    if name == "X1":
        # The check's hint contains the text of each action, including the action in an Xid 154.
        actions = [do for do, text in TO_DO.items() if text in str(check.get("hint"))]
        return max(actions, key=ACTIONS.index, default="reboot")
    if name == "G10":
        return "reboot" if re.search(r"(?i)reboot|bus", str(found)) else "reset"
    if name == "G6" and "failure Yes" in str(found):
        return "replace"
    if name == "G5" and "SRAM" in str(check.get("reason")):
        return "replace"
    if name in ("B1", "B6"):
        return max(
            (do for text, do in _DIAGNOSED if text in str(check.get("reason"))),
            key=ACTIONS.index,
            default="configure",
        )
    return BY_CHECK.get(str(name), "configure")


_DIAGNOSED = (("(reset the GPU)", "reset"), ("(isolate the GPU)", "replace"))
"""Maps the text that `dcgm.py` writes for the error severity of a diagnostic to the action."""
