"""Notices about the end or the maintenance of this machine, and the file in which a node keeps them.

Each cloud module reads its notices from the metadata service (`NodeCloud.notice_sources`), and `notice_service.py` polls them. A notice never
acknowledges an event, because the cloud would then start the event at once.
The evidence of a node contains the file, so `gpuinfra nodes` and `gpuinfra calendar` read it with `notices_in`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from enum import Enum
from pathlib import Path
from typing import Any, Iterable

from .outcome import Unreadable, shortened

SCHEMA = "gpuinfra.notices/1"
LEAD_S = 900.0
"""A notice is imminent from this many seconds before its deadline. Azure gives at most 15 minutes:
https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events, retrieved 2026-11-28."""
MOST = 100
"""Maximum number of notices of one node."""
PLANNED = "/run/gpuinfra/planned-notices.json"
"""File with the notices of the operator, in the format of the node's own file. `gpuinfra failover` writes and deletes it."""
PLANNED_BYTES = 65536
OUTDATED_S = 900.0
"""Time after its deadline at which a planned notice no longer applies: the command that wrote it was killed before it deleted the file."""


class NoticeKind(str, Enum):
    """What the cloud announces."""

    RECLAIM = "reclaim"
    """The cloud takes the machine back: a spot interruption, a preemption or a deletion."""
    MAINTENANCE = "maintenance"
    """The cloud reboots, moves, freezes or stops the machine."""
    REBALANCE = "rebalance"
    """An interruption is more likely than before. It is not a decision, so no job is signaled."""
    STOP = "stop"
    """The operator stops the jobs, for example because the cluster moves to another region. The cloud announces nothing."""
    DRAIN = "drain"
    """The control node takes the machine out of use, because a check failed. The cloud announces nothing."""


class NoticeStage(str, Enum):
    """Whether jobs must act on a notice."""

    ANNOUNCED = "announced"
    IMMINENT = "imminent"
    """At most `LEAD_S` before the deadline, or without a deadline. Jobs are signaled once."""


@dataclass(frozen=True)
class Notice:
    """One notice."""

    id: str
    """Identifies the notice on this machine."""
    kind: NoticeKind
    what: str
    deadline: float | None
    """Earliest time at which the event starts, as Unix time. None if the cloud states none."""
    estimated: bool = False
    """Whether the deadline is the time of the first reading plus the documented notice period."""
    stage: NoticeStage = NoticeStage.ANNOUNCED


def stage_of(notice: Notice, now: float) -> NoticeStage:
    """Return the stage of a notice at a time. A recommendation is never imminent."""
    if notice.kind is NoticeKind.REBALANCE or (notice.deadline is not None and notice.deadline - now > LEAD_S):
        return NoticeStage.ANNOUNCED
    return NoticeStage.IMMINENT


def moment(text: object) -> float | None:
    """Return the Unix time of an ISO 8601 or RFC 1123 time with a zone, or None if it has another form."""
    words = str(text).strip()
    try:
        at = datetime.fromisoformat(words[:-1] + "+00:00" if words.endswith("Z") else words)
    except ValueError:
        try:
            at = parsedate_to_datetime(words)
        except (TypeError, ValueError, IndexError):
            return None
    return at.timestamp() if at.tzinfo else None


def iso(at: float | None) -> str | None:
    """Return a Unix time as text in UTC."""
    return None if at is None else datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def dumped(notices: Iterable[Notice]) -> str:
    """Return the content of the file. It changes only if a notice or its stage changes."""
    listed = [
        {
            "id": one.id,
            "kind": one.kind.value,
            "what": shortened(one.what, 200),
            "deadline": iso(one.deadline),
            "estimated": one.estimated,
            "stage": one.stage.value,
        }
        for one in list(notices)[:MOST]
    ]
    return json.dumps({"schema": SCHEMA, "notices": listed}, sort_keys=True) + "\n"


def notices_in(text: str) -> tuple[Notice, ...]:
    """Return the notices in the content of a file. Raises `Unreadable` if it has a different form."""
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise Unreadable("the schema is not %s" % SCHEMA)
        return tuple(_notice(one) for one in document["notices"][:MOST])
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable("the notices cannot be read: %s" % shortened(repr(error), 80)) from None


def planned(path: Path, now: float) -> list[Notice]:
    """Return the notices of the operator that apply. Raises `Unreadable` if the file has a different form."""
    try:
        with path.open("rb") as file:
            text = file.read(PLANNED_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return [one for one in notices_in(text) if one.deadline is None or now < one.deadline + OUTDATED_S]


def _notice(record: Any) -> Notice:
    deadline = None if record["deadline"] is None else moment(record["deadline"])
    if record["deadline"] is not None and deadline is None:
        raise ValueError("a deadline is not a time")
    return Notice(
        id=shortened(str(record["id"]), 200),
        kind=NoticeKind(record["kind"]),
        what=shortened(str(record["what"]), 200),
        deadline=deadline,
        estimated=record["estimated"] is True,
        stage=NoticeStage(record["stage"]),
    )
