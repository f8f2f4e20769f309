"""Evidence from hosts that were checked over SSH."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra.verification.read import NO_EVIDENCE, Absent, EvidenceDocument, FoundEvidence, parse

if TYPE_CHECKING:
    from gpuinfra.remote.fleet import HostOutcome

ABOUT = "Checked over SSH on hosts with verified host keys, and evaluated on this machine from the raw output."


def found_of(
    outcomes: Sequence[HostOutcome[bytes]], by_host: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> FoundEvidence:
    """Return the evidence of each host, or the reason why it has none. `by_host` maps a host to its pool and expectation."""
    newest: list[EvidenceDocument] = []
    absent: list[Absent] = []
    for outcome in outcomes:
        host, problem = outcome.host, outcome.problem
        kind, reason, hint = (problem.kind.value, problem.reason, problem.hint) if problem else ("", "", "")
        if problem is None:
            document = parse(outcome.value or b"", f"{host.title} over SSH", host.label or host.name)
            if isinstance(document, EvidenceDocument):
                newest.append(document)
                continue
            kind, reason = NO_EVIDENCE, document or f"{host.title} sent a document of a different kind"
            hint = f"log in to {host.title} and run the checks on the host"
        pool, expected = by_host[host.name]
        absent.append(
            Absent(
                name=host.label or host.name, instance_id=host.name, outcome=kind, reason=reason, hint=hint, pool=pool,
                machine=str(expected.get("machine") or ""), gpus=int(expected.get("gpus") or 0),
            )
        )  # fmt: skip
    return FoundEvidence(newest=tuple(newest), absent=tuple(absent), about=ABOUT)
