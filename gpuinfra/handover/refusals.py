"""Classifies the messages that a cloud returns when it does not launch nodes, and provides hints.

Each cloud has a table `clouds/<cloud>/handover/refusals.json` with the messages of its provider: a regular expression, the cause, and public reports or
provider documentation that contain such a message, with the date. The documentation site lists them. A message that matches no row has the
cause `unknown`. Commands show every message unmodified.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from gpuinfra.base.safe_text import one_line
from gpuinfra.handover.causes import NO_CAPACITY, CapacityCause
from gpuinfra.handover.ports import GroupProblem

MAX_MESSAGE = 2000
"""Maximum length of a displayed message."""

HINTS: dict[CapacityCause, str] = {
    CapacityCause.STOCK_OUT: (
        "the cloud has no capacity for this machine type in the group's zone; "
        "list other zones or capacity kinds in `fallback` and run `gpuinfra up STACK` to try them, or wait and run `pulumi up` again"
    ),
    CapacityCause.QUOTA: (
        "request a higher quota: `gpuinfra plan STACK --live` prints the quota, the amount that the nodes need and the command; "
        "then run `pulumi up` again"
    ),
    CapacityCause.SPOT_QUOTA: (
        "the quota of spot machines is used up: list another capacity kind in `fallback` and run `gpuinfra up STACK` to try it, "
        "or request a higher quota, which `gpuinfra plan STACK --live` prints, then run `pulumi up` again"
    ),
    CapacityCause.PERMISSION: (
        "the group is not allowed to launch instances: `gpuinfra plan STACK --live` lists missing permissions; "
        "fix the role or key policy, then run `pulumi up` again"
    ),
    CapacityCause.IMAGE: (
        "the group cannot use the image: `gpuinfra images STACK` lists releases; "
        "set `software.image`, or the pool's `image`, then run `pulumi up` again"
    ),
    CapacityCause.TEMPLATE: (
        "the cloud does not accept this combination of options; read the message above, change the declaration, "
        "check it with `gpuinfra plan STACK`, then run `pulumi up` again"
    ),
    CapacityCause.RESERVATION: (
        "the reservation is full, has ended or does not fit the nodes: `gpuinfra plan STACK --live` shows its state, "
        "zone and free instances; reduce `count` or set `id` to a different reservation, then run `pulumi up` again"
    ),
    CapacityCause.PRICE: (
        "the spot price is above the maximum price; raise or remove `max_price_usd`, choose a different zone, "
        "or wait and run `pulumi up` again"
    ),
    CapacityCause.PLACEMENT: (
        "this machine type cannot run in the group's zone: `gpuinfra plan STACK --live` lists the zones that offer the machine type; "
        "choose a different zone or machine type, then run `pulumi up` again"
    ),
    CapacityCause.NETWORK: "the subnet has no free addresses for the nodes; use a larger subnet or terminate instances in it, then run `pulumi up` again",
    CapacityCause.THROTTLING: "the cloud limits the request rate, and the group tries again; wait, then run `pulumi up` again",
    CapacityCause.INTERNAL: "the cloud's service failed; wait and run `pulumi up` again, and if it fails again, check the service's status page",
    CapacityCause.NO_MESSAGE: (
        "the cloud launched too few nodes before the deadline and reported no reason: "
        "read the group's messages in the cloud's console, list other zones or capacity kinds in `fallback` and run `gpuinfra up STACK` to try them, "
        "or increase `handover.deadline_minutes`"
    ),
    CapacityCause.UNKNOWN: "read the cloud's message above, then run `pulumi up` again",
}
"""Hint for each cause. A table row can have its own hint."""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """A public report, or a page of the provider, that contains a message."""

    text: str
    """The message. Account numbers and other identifiers may be replaced, and `CODE: ` precedes the message if the source has both."""
    source: str
    date: str
    """Date of the report, or the date on which the page was retrieved."""


@dataclass(frozen=True, kw_only=True)
class RefusalRow:
    """Messages of one cause with the same wording."""

    cause: CapacityCause
    pattern: str
    """Regular expression, not case-sensitive."""
    texts: tuple[Sighting, ...]
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The cause of a message, and its hint."""

    cause: CapacityCause
    hint: str


_CODE = re.compile(r"(?:An error occurred \()?(?P<code>[A-Z]\w+(?:\.\w+)*)(?:\) when calling the \w+ operation)?: (?P<message>.+)", re.DOTALL)  # fmt: skip
"""A recorded message that starts with its error code."""


class Refusals:
    """The table of one cloud. The file is read when the first message is classified. Without a file, the table is empty."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @cached_property
    def rows(self) -> tuple[RefusalRow, ...]:
        """All rows. The first row that matches a message applies."""
        return tuple(
            RefusalRow(
                cause=CapacityCause(row["cause"]),
                pattern=row["pattern"],
                texts=tuple(Sighting(**one) for one in row["texts"]),
                hint=row.get("hint", ""),
            )
            for row in (json.loads(self._path.read_text(encoding="utf-8")) if self._path else ())
        )

    def of(self, message: str) -> Refusal:
        """Classify a message from the cloud. The cause is `unknown` if no row matches."""
        for row in self.rows:
            if re.search(row.pattern, message, re.IGNORECASE | re.DOTALL):
                return Refusal(cause=row.cause, hint=row.hint or HINTS[row.cause])
        return Refusal(cause=CapacityCause.UNKNOWN, hint=HINTS[CapacityCause.UNKNOWN])

    def coded(self, group: str, code: str, message: object, at: datetime | None) -> GroupProblem:
        """Return the problem of a group from an error code and a message. The text starts with the code if the message does not contain it."""
        text = one_line(message, MAX_MESSAGE)
        return self.problem(group, text if code in text else f"{code}: {text}", at)

    def recorded(self, which: str) -> tuple[str, str] | None:
        """Return code and message of the first recorded message of a cause or with a code, or None. The code is empty if the source has none."""
        for row in self.rows:
            for text in row.texts:
                match = _CODE.fullmatch(text.text)
                code, message = (match["code"], match["message"]) if match else ("", text.text)
                if which in (row.cause, code):
                    return code, message
        return None

    def problem(self, group: str, message: str, at: datetime | None) -> GroupProblem:
        """Return a group's problem, given the message from the cloud."""
        text = one_line(message, MAX_MESSAGE)
        refusal = self.of(text)
        return GroupProblem(group=group, cause=refusal.cause, message=text, hint=refusal.hint, at=at)


def summary(causes: Iterable[CapacityCause]) -> str:
    """Return why nodes are missing, given the causes of the messages."""
    distinct = set(causes)
    if distinct <= NO_CAPACITY:
        return "the cloud has no capacity for the missing nodes"
    return f"the cloud does not launch the missing nodes: {', '.join(sorted(distinct - {CapacityCause.UNKNOWN}) or ['see its message'])}"
