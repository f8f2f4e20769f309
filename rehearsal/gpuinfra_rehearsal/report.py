"""Collects the report of a rehearsal: operations, nodes, price, retained resources, and limitations.

The nodes are evaluated again from their evidence, with the operator's credentials. The report does not copy the outputs
of `NodesReady`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpuinfra.base.day import today
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.handover.watch import NOT_DUE_TEXT
from gpuinfra.inventory import handovers_of
from gpuinfra.plan.model import Plan
from gpuinfra.verification.store import poll
from gpuinfra_rehearsal.applied_environment import applied
from gpuinfra_rehearsal.document import SCHEMA, node_entry, totals
from gpuinfra_rehearsal.events import kind_of, name_of
from gpuinfra_rehearsal.folder import Folder, write_atomically, write_json
from gpuinfra_rehearsal.page import page

if TYPE_CHECKING:
    from gpuinfra_rehearsal.session import Session

NOT_SHOWN = (
    "quotas and permissions of a real account",
    "capacity: whether these instances are available in the cloud, and how long provisioning takes",
    "cloud-side validation beyond the rules that the stand-in implements",
    "bandwidth: NVLink, the fabric, the file system and object storage are not measured",
    "hardware: device output is synthetic; the report lists its sources",
    "current prices: each price has the date of its source",
    "the duration of a boot, a driver installation and a file system creation",
)


def collect(
    session: Session, action: str, *, ok: bool, problems: Sequence[str], extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the report document."""
    plan = session.plan()
    verdict, nodes = _nodes(session) if action not in ("preview", "destroy") else (None, [])
    missing = sum(verdict.missing.values()) if verdict else 0
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "rehearsal": True,
        "stack": session.folder.stack,
        "cluster": plan.name if plan else "",
        "cloud": plan.cloud if plan else "",
        "region": plan.region if plan else "",
        "action": action,
        "ok": ok,
        "finished": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "seconds": round(sum(op.seconds for _, op in session.operations), 1),
        "faults": list(session.options.faults),
        "problems": list(problems),
        "not_due": verdict is not None and not verdict.expected,
        "notes": [*session.notes, *([NOT_DUE_TEXT] if verdict and not verdict.expected else [])],
        "engine": _engine(session),
        "cost": _cost(plan),
        "totals": totals(nodes, missing),
        "nodes": nodes,
        "kept": _kept(session, plan, action),
        "not_shown": list(NOT_SHOWN),
        "provenance": _provenance(),
    }
    return {**document, **(extra or {})}


def write(folder: Folder, document: Mapping[str, Any]) -> None:
    """Write the document and the page atomically."""
    write_json(folder.report, document)
    write_atomically(folder.page, page(document))


def _engine(session: Session) -> dict[str, Any]:
    sums: dict[str, int] = {}
    runs = []
    for name, operation in session.operations:
        counts = operation.progress.done
        for op, count in counts.items():
            sums[op] = sums.get(op, 0) + count
        runs.append(
            {
                "name": name,
                "exit_code": operation.exit_code,
                "seconds": operation.seconds,
                "operations": counts,
                "changed": [f"{op} {urn}" for op, urn in operation.progress.changed[:200]],
                "previewed": [
                    {"operation": op, "type": kind_of(urn), "name": name_of(urn)}
                    for op, urn in (operation.progress.counted if name == "preview" else ())
                ],
            }
        )
    return {
        "version": session.pulumi.version,
        "operations": sums,
        "runs": runs,
        "resources": len(session.pulumi.counted()),
    }


def _nodes(session: Session) -> tuple[FleetVerdict | None, list[dict[str, Any]]]:
    """Return all nodes, evaluated from their current evidence. The result is empty if the state contains no `NodesReady` resource."""
    stages = {str(n.get("instance_id")): n for n in session.cloud.nodes()}
    entries: list[dict[str, Any]] = []
    last: FleetVerdict | None = None
    for handover in handovers_of(session.pulumi.resources()):
        try:
            with applied(session.pulumi.env):
                seen = poll(handover)
                last = seen.verdict
                for node in last.nodes:
                    stand_in = stages.get(node.instance_id, {})
                    console = seen.gatherer.console(node.instance_id) if node.never_reported else []
                    entries.append(node_entry(node, console=console, stage=str(stand_in.get("stage") or "")))
        except (PortUnavailable, KeyError, ValueError) as error:
            session.notes.append(f"the nodes could not be read for this report: {error}")
    available, _ = session.cloud.nodes_available()
    if not available:
        for entry in entries:
            entry["outcome"] = "not rehearsed"
    return last, entries


def _cost(plan: Plan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    from gpuinfra.cost import price

    return price(plan, plan.today or today()).as_dict()


def _kept(session: Session, plan: Plan | None, action: str) -> list[dict[str, Any]]:
    """Return the resources that destroy retains: those in the plan or, after a destroy, those that still exist."""
    reasons = {(k.type, k.what): k.why for k in (plan.kept if plan else ())}
    if action != "destroy":
        return [{"type": kind, "name": name, "why": why} for (kind, name), why in reasons.items()]
    return [
        {
            "type": str(r.get("type")),
            "name": str(r.get("name")),
            "id": str(r.get("id")),
            "why": reasons.get((str(r.get("type")), str(r.get("name"))), ""),
        }
        for r in session.cloud.resources()
    ]


def _provenance() -> list[dict[str, str]]:
    """Return the sources of the device output."""
    from gpuinfra_rehearsal.devices import provenance

    return provenance()


def changes_text(changed: Sequence[tuple[str, str]], limit: int = 6) -> str:
    """Return a change as text: `update train-gpu (aws:autoscaling/group:Group)`."""
    texts = [f"{op} {name_of(urn)} ({kind_of(urn)})" for op, urn in changed[:limit]]
    return ", ".join(texts) + (f" and {len(changed) - limit} more" if len(changed) > limit else "")
