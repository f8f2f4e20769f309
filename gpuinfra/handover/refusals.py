"""Classifies the messages that a cloud returns when it does not launch nodes, and provides hints.

Each cloud has a table `clouds/<cloud>/handover/refusals.json` with the messages of its provider: a regular expression, the kind, and public reports or
provider documentation that contain such a message, with the date. The documentation site lists them. A message that matches no row has the
kind `unknown`. Commands show every message unmodified.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from gpuinfra.base.safe_text import one_line
from gpuinfra.handover.ports import GroupProblem


class Kind(StrEnum):
    """The reason for a refusal."""

    STOCK_OUT = "stock-out"
    """The cloud has no free machine of this type in this zone, for this capacity kind."""
    QUOTA = "quota"
    PERMISSION = "permission"
    IMAGE = "image"
    TEMPLATE = "template"
    """The cloud rejects the combination of options in the launch template, scale set or instance template."""
    RESERVATION = "reservation"
    """The reservation is full, not active, or does not fit the nodes."""
    PRICE = "price"
    """The spot price is above the maximum price."""
    PLACEMENT = "placement"
    """The zone does not offer the machine type, or the placement group does not allow the node."""
    NETWORK = "network"
    """The subnet has no free address."""
    THROTTLING = "throttling"
    INTERNAL = "internal"
    """The cloud's service failed."""
    NO_MESSAGE = "no-message"
    """The deadline passed, and the cloud did not say why it launched too few nodes."""
    UNKNOWN = "unknown"


NO_CAPACITY = frozenset({Kind.STOCK_OUT, Kind.RESERVATION, Kind.PRICE, Kind.PLACEMENT, Kind.NO_MESSAGE})
"""Kinds for which nodes may be available in another zone, as another capacity kind, or later."""

MAX_MESSAGE = 2000
"""Maximum length of a displayed message."""

HINTS: dict[str, str] = {
    Kind.STOCK_OUT: (
        "the cloud has no capacity for this machine type in the group's zone; "
        "list other zones or capacity kinds in `fallback` and run `gpuinfra up STACK` to try them, or wait and run `pulumi up` again"
    ),
    Kind.QUOTA: (
        "request a higher quota: `gpuinfra plan STACK --live` prints the quota, the amount that the nodes need and the command; "
        "then run `pulumi up` again"
    ),
    Kind.PERMISSION: (
        "the group is not allowed to launch instances: `gpuinfra plan STACK --live` lists missing permissions; "
        "fix the role or key policy, then run `pulumi up` again"
    ),
    Kind.IMAGE: (
        "the group cannot use the image: `gpuinfra images STACK` lists releases; "
        "set `software.image`, or the pool's `image`, then run `pulumi up` again"
    ),
    Kind.TEMPLATE: (
        "the cloud does not accept this combination of options; read the message above, change the declaration, "
        "check it with `gpuinfra plan STACK`, then run `pulumi up` again"
    ),
    Kind.RESERVATION: (
        "the reservation is full, has ended or does not fit the nodes: `gpuinfra plan STACK --live` shows its state, "
        "zone and free instances; reduce `count` or set `id` to a different reservation, then run `pulumi up` again"
    ),
    Kind.PRICE: "the spot price is above the maximum price; raise or remove `max_price_usd`, choose a different zone, or wait and run `pulumi up` again",
    Kind.PLACEMENT: (
        "this machine type cannot run in the group's zone: `gpuinfra plan STACK --live` lists the zones that offer the machine type; "
        "choose a different zone or machine type, then run `pulumi up` again"
    ),
    Kind.NETWORK: "the subnet has no free addresses for the nodes; use a larger subnet or terminate instances in it, then run `pulumi up` again",
    Kind.THROTTLING: "the cloud limits the request rate, and the group tries again; wait, then run `pulumi up` again",
    Kind.INTERNAL: "the cloud's service failed; wait and run `pulumi up` again, and if it fails again, check the service's status page",
    Kind.NO_MESSAGE: (
        "the cloud launched too few nodes before the deadline and reported no reason: "
        "read the group's activities, list other zones or capacity kinds in `fallback` and run `gpuinfra up STACK` to try them, "
        "or increase `handover.deadline_minutes`"
    ),
    Kind.UNKNOWN: "read the cloud's message above, then run `pulumi up` again",
}
"""Hint for each kind. A table row can have its own hint."""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """A public report, or a page of the provider, that contains a message."""

    text: str
    """The message. Account numbers and other identifiers may be replaced, and `CODE: ` precedes the message if the source has both."""
    source: str
    date: str
    """Date of the report, or the date on which the page was retrieved."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Messages of one kind with the same wording."""

    kind: Kind
    pattern: str
    """Regular expression, not case-sensitive."""
    texts: tuple[Sighting, ...]
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The kind of a message, and its hint."""

    kind: Kind
    hint: str


_CODE = re.compile(r"(?:An error occurred \()?(?P<code>[A-Z]\w+(?:\.\w+)*)(?:\) when calling the \w+ operation)?: (?P<message>.+)", re.DOTALL)  # fmt: skip
"""A recorded message that starts with its error code."""


class Refusals:
    """The table of one cloud. The file is read when the first message is classified."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """All rows. The first row that matches a message applies."""
        return tuple(
            Row(
                kind=Kind(row["kind"]),
                pattern=row["pattern"],
                texts=tuple(Sighting(**one) for one in row["texts"]),
                hint=row.get("hint", ""),
            )
            for row in json.loads(self._path.read_text(encoding="utf-8"))
        )

    def of(self, message: str) -> Refusal:
        """Classify a message from the cloud. The kind is `unknown` if no row matches."""
        for row in self.rows:
            if re.search(row.pattern, message, re.IGNORECASE | re.DOTALL):
                return Refusal(kind=row.kind, hint=row.hint or HINTS[row.kind])
        return Refusal(kind=Kind.UNKNOWN, hint=HINTS[Kind.UNKNOWN])

    def recorded(self, which: str) -> tuple[str, str] | None:
        """Return code and message of the first recorded message of a kind or with a code, or None. The code is empty if the source has none."""
        for row in self.rows:
            for one in row.texts:
                found = _CODE.fullmatch(one.text)
                code, message = (found["code"], found["message"]) if found else ("", one.text)
                if which in (row.kind, code):
                    return code, message
        return None

    def problem(self, group: str, message: str, at: datetime | None) -> GroupProblem:
        """Return a group's problem, given the message from the cloud."""
        refusal = self.of(message)
        return GroupProblem(
            group=group, kind=refusal.kind, message=one_line(message, MAX_MESSAGE), hint=refusal.hint, at=at
        )


def summary(kinds: Iterable[str]) -> str:
    """Return why nodes are missing, given the kinds of the messages."""
    found = set(kinds)
    if found <= NO_CAPACITY:
        return "the cloud has no capacity for the missing nodes"
    return f"the cloud does not launch the missing nodes: {', '.join(sorted(found - {Kind.UNKNOWN}) or ['see its message'])}"
