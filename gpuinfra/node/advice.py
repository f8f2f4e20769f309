"""What to do with a node, in one word: the strongest action that any of its failed checks calls for, and why.

Pure, on outcomes as `judge.py` gives them. The words are ordered; what a reset mends a reboot mends too, and a
replacement mends everything at the price of waiting for capacity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from .judge import telling
from .states import STATES
from .xids import UNKNOWN, XIDS

ACTIONS = ("nothing", "look", "configure", "reset", "reboot", "replace")
"""`look`: somebody reads on, work goes on. `configure`: rerun the bootstrap or mend a setting. The others drain first."""

BY_CHECK = {
    **dict.fromkeys(("P1", "G2", "G11", "X2", "N6"), "replace"),
    **dict.fromkeys(
        ("G1", "G3", "G7", "G13", "F2", "F3", "F5", "N1", "N2", "N5", "N7", "N8", "B2", "B3", "B5", "B7"), "reboot"
    ),
    **dict.fromkeys(("G5", "G6", "G10", "G12"), "reset"),
    **dict.fromkeys(("G8", "G9", "G14", "F4", "D4", "C2", "C3", "N9", "M1"), "look"),
}
"""Check -> action when it fails; everything that is not here is a matter of installation: `configure`."""


@dataclass(frozen=True)
class Advice:
    """What to do with a node."""

    action: str
    why: tuple[str, ...]
    """Checks and reason of everything that calls for this action, causes first."""

    @property
    def drain(self) -> bool:
        """True when the node must take no new work."""
        return ACTIONS.index(self.action) >= ACTIONS.index("configure")


def advise(checks: Iterable[Mapping[str, Any]]) -> Advice:
    """The strongest action over all checks that did not pass."""
    wanted = [(_action(check), check) for check in checks if check.get("outcome") in ("warn", "fail", "error")]
    strongest = max((ACTIONS.index(action) for action, _ in wanted), default=0)
    calling = sorted((check for action, check in wanted if ACTIONS.index(action) == strongest), key=telling)
    # One cause makes many checks fail in the same words: it is told once, with all their ids.
    reasons: dict[str, list[str]] = {}
    for check in calling:
        reasons.setdefault(str(check.get("reason") or check.get("hint")), []).append(str(check.get("id")))
    why = ["%s: %s" % (" ".join(ids), reason) for reason, ids in reasons.items()]
    return Advice(ACTIONS[strongest], tuple(why))


def _action(check: Mapping[str, Any]) -> str:
    outcome, name, found = check.get("outcome"), check.get("id"), check.get("found")
    if outcome == "warn":
        return "look"
    if outcome == "error":
        # Nothing is known, so nothing is thrown away: the tool is looked at and the bootstrap runs again.
        return "configure"
    for state in STATES:
        # A tool that answers nothing makes every check fail that reads it; what is broken is the state, not the check.
        if str(check.get("reason")).startswith(state.meaning):
            return state.do
    if name == "X1":
        numbers = found if isinstance(found, list) else [found]
        actions = [XIDS.get(number, UNKNOWN).do for number in numbers if isinstance(number, int)]
        return max(actions, key=ACTIONS.index, default="reboot")
    if name == "G10":
        return "reboot" if re.search(r"(?i)reboot|bus", str(found)) else "reset"
    if name == "G6" and "failure Yes" in str(found):
        return "replace"
    if name == "G5" and "SRAM" in str(check.get("reason")):
        return "replace"
    if name in ("B1", "B6"):
        return max(
            (do for words, do in _DIAGNOSED if words in str(check.get("reason"))),
            key=ACTIONS.index,
            default="configure",
        )
    return BY_CHECK.get(str(name), "configure")


_DIAGNOSED = (("(reset the GPU)", "reset"), ("(isolate the GPU)", "replace"))
"""What the severity of a diagnostic's error calls for, in the words of `dcgm.py`."""
