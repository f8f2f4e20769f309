"""The nodes of a stack: which nodes exist, how long each has been verified, whether it has drifted, and its price."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpuinfra.handover.connect import terms_of
from gpuinfra.handover.evidence import evidence_of
from gpuinfra.handover.examine import judge_node
from gpuinfra.handover.explain import hint
from gpuinfra.handover.judge import NodeVerdict
from gpuinfra.handover.workers import NotEvaluated
from gpuinfra.node.judge import verdict
from gpuinfra.node.notices import Notice, iso, notices_in
from gpuinfra.node.outcome import Unreadable
from gpuinfra.node.repair import RepairStatus, status_in
from gpuinfra.spec.monitoring import CONTROL_POOL
from gpuinfra.verification.drift import Difference
from gpuinfra.verification.store import Poll

MOST_DOCUMENTS = 20
"""Maximum number of evidence documents to read for each node. A node without changes uploads four a day, so this is about five days."""


class NodeState(StrEnum):
    """The states of a node, in list order: problems first."""

    NOT_LAUNCHED = "not launched"
    FAILED = "failed"
    REFUSED = "refused"
    WAITING = "waiting"
    DRIFTED = "drifted"
    VERIFIED = "verified"


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """One node, or the missing nodes of a group."""

    label: str
    instance_id: str
    pool: str
    group: str
    machine: str
    zone: str
    state: NodeState
    reason: str
    """Why the node is not verified, what has drifted, or how its versions differ from those of most nodes of the pool."""
    what_to_do: str
    verified_since: datetime | None
    """Upload time of the first evidence of this boot after which the node has been verified without interruption."""
    since_exact: bool
    """False if the node may have been verified before `verified_since`."""
    checked: datetime | None
    """Upload time of the newest evidence, by the store's clock."""
    drift: tuple[str, ...]
    """What differs from the deployment."""
    usd_per_hour: float | None
    """Price of the machine, without disks. None if it is unknown, and 0 if the node does not exist."""
    notices: tuple[str, ...] = ()
    """What the cloud announced about the machine, with the deadline in UTC, as of its newest evidence."""
    count: int = 1
    """Number of nodes that a row represents. It is greater than 1 only for missing nodes."""


def rows(
    polls: Iterable[Poll], differences: Iterable[Difference], prices: Mapping[str, float | None]
) -> tuple[NodeRow, ...]:
    """Return the nodes, with problems first. `prices` maps each group to the hourly price of one node. Reads earlier evidence and raises `PortUnavailable`."""
    drift: dict[str, list[Difference]] = {}
    for difference in differences:
        drift.setdefault(difference.id, []).append(difference)
    listed = [row for seen in polls for row in _rows(seen, drift, prices)]
    return tuple(sorted(listed, key=lambda row: (list(NodeState).index(row.state), row.pool, _natural(row.label))))


def _rows(
    seen: Poll, drift: Mapping[str, Sequence[Difference]], prices: Mapping[str, float | None]
) -> Iterator[NodeRow]:
    expectations = {pool.name: pool.expectation for pool in seen.pools}
    machines = {group.name: pool for pool in seen.pools for group in pool.groups}
    for node in seen.verdict.nodes:
        own = drift.get(node.instance_id, ()) if node.outcome == "verified" else ()
        since, exact, checked = _since(seen, node, expectations[node.pool])
        yield NodeRow(
            label=node.label,
            instance_id=node.instance_id,
            pool=node.pool,
            group=node.group,
            machine=node.machine,
            zone=node.zone,
            state=NodeState.DRIFTED if own else NodeState(node.outcome),
            reason="; ".join(one.reason for one in own) or node.reason or node.differs,
            what_to_do=own[0].fix if own else hint(node),
            verified_since=since,
            since_exact=exact,
            checked=checked,
            drift=tuple(one.what for one in own),
            usd_per_hour=prices.get(node.group),
            notices=tuple(map(shown, notices_of(seen, node))),
        )
    for group, count in seen.verdict.missing.items():
        pool = machines[group]
        yield NodeRow(
            label=group, instance_id="", pool=pool.name, group=group, machine=pool.machine, zone="", state=NodeState.NOT_LAUNCHED,
            reason=f"{count} fewer than requested", what_to_do=terms_of(pool.cloud).activities,
            verified_since=None, since_exact=True, checked=None, drift=(), usd_per_hour=0.0, count=count,
        )  # fmt: skip


def notices_of(seen: Poll, node: NodeVerdict) -> tuple[Notice, ...]:
    """Return the notices in the newest evidence of a node whose signer is verified. Evidence of an older bundle has none."""
    data = seen.gatherer.data_of(node) if node.outcome in ("verified", "failed") else None
    if data is None:
        return ()
    try:
        return seen.gatherer.evaluate(notices_of_document, data)
    except NotEvaluated:
        return ()


def notices_of_document(data: bytes) -> tuple[Notice, ...]:
    """Return the notices in one document."""
    try:
        record = (evidence_of(data).probes or {}).get("notices")
        return notices_in(str(record["stdout"])) if isinstance(record, Mapping) and record.get("exit") == 0 else ()
    except (KeyError, ValueError, Unreadable):
        return ()


def repair_of(polls: Iterable[Poll]) -> RepairStatus | None:
    """Return the status of the repair in the newest evidence of the control node whose signer is verified, or None without repair."""
    for seen in polls:
        for node in seen.verdict.nodes:
            data = (
                seen.gatherer.data_of(node)
                if node.pool == CONTROL_POOL and node.outcome in ("verified", "failed")
                else None
            )
            try:
                if data and (status := seen.gatherer.evaluate(repair_of_document, data)):
                    return status
            except NotEvaluated:
                continue
    return None


def repair_of_document(data: bytes) -> RepairStatus | None:
    """Return the status of the repair in one document."""
    try:
        record = (evidence_of(data).probes or {}).get("repair")
        return status_in(str(record["stdout"])) if isinstance(record, Mapping) and record.get("exit") == 0 else None
    except (KeyError, ValueError, Unreadable):
        return None


def shown(notice: Notice) -> str:
    """Return a notice as text."""
    at = iso(notice.deadline)
    return f"{notice.what}, {'estimated ' if notice.estimated else ''}not before {at}" if at else notice.what


def _since(
    seen: Poll, node: NodeVerdict, expectation: Mapping[str, object]
) -> tuple[datetime | None, bool, datetime | None]:
    """Return since when a node has been verified, whether that time is exact, and the time of its newest evidence."""
    since: datetime | None = None
    checked: datetime | None = None
    for number, (ref, data) in enumerate(seen.gatherer.history(node)):
        checked = checked or ref.modified
        if node.outcome != "verified" or not _was_verified(seen, data, expectation):
            return since, True, checked
        since = ref.modified
        if number + 1 == MOST_DOCUMENTS:
            return since, False, checked
    return since, True, checked


def _was_verified(seen: Poll, data: bytes, expectation: Mapping[str, object]) -> bool:
    try:
        return seen.gatherer.evaluate(is_verified, data, dict(expectation))
    except NotEvaluated:
        return False


def is_verified(data: bytes, expectation: Mapping[str, object]) -> bool:
    """Return True if a document verifies a node. Its age and signer are not checked, because the newest document confirms its hash."""
    try:
        evidence = evidence_of(data)
        checks = judge_node(evidence.probes or {}, expectation, evidence.journal)
        return verdict(checks, expectation).verified
    except ValueError:
        return False


def _natural(label: str) -> tuple[str, int]:
    head, _, number = label.rpartition("-")
    return (head, int(number)) if number.isdigit() else (label, 0)
