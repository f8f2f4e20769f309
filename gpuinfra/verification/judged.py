"""Judges evidence: whether each node is verified, which action it requires, and what is worse than in a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuinfra.handover.examine import judge_node
from gpuinfra.handover.uniform import compared
from gpuinfra.handover.workers import NotEvaluated, shared
from gpuinfra.node.advice import Advice, advise
from gpuinfra.node.cause import Cause
from gpuinfra.node.judge import judge, not_checked, verdict
from gpuinfra.node.outcome import CheckResult
from gpuinfra.verification.read import EvidenceDocument, FoundEvidence

Expectation = Mapping[str, Any]
_RANK = {"pass": 0, "skip": 0, "warn": 1, "error": 2, "fail": 2}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The judgement for one node."""

    evidence: EvidenceDocument
    expectation: Expectation
    checks: tuple[CheckResult, ...]
    verified: bool
    blockers: tuple[CheckResult, ...]
    """Checks that prevent the node from being verified."""
    missing: tuple[str, ...]
    """Required checks that did not run."""
    not_checked: tuple[str, ...]
    """Checks that the machine type does not require."""
    advice: Advice
    worse: tuple[str, ...]
    """Checks that had a better outcome in the baseline."""
    gpus_expected: int

    @property
    def instance_id(self) -> str:
        """Instance ID of the node."""
        return self.evidence.instance_id


def judge_all(
    evidence: FoundEvidence, expected: Callable[[EvidenceDocument], Expectation], baseline: FoundEvidence | None = None
) -> tuple[Judged, ...]:
    """Judge the newest evidence of each node. `expected` returns the expectation for the node's machine type.

    A document that takes too long to judge has the outcome `error` for each check.
    """
    before = {one.instance_id: one for one in baseline.newest} if baseline else {}
    judged = [_judge(one, expected(one), before.get(one.instance_id)) for one in evidence.newest]
    checks = compared(
        [(one.evidence.label, str(one.evidence.document.get("pool") or ""), one.checks) for one in judged]
    )
    return tuple(replace(one, checks=own, advice=advise(own)) for one, own in zip(judged, checks, strict=True))


def _judge(evidence_document: EvidenceDocument, expectation: Expectation, before: EvidenceDocument | None) -> Judged:
    checks = _checks(evidence_document, expectation)
    result = verdict(checks, expectation)
    return Judged(
        evidence=evidence_document,
        expectation=expectation,
        checks=tuple(checks),
        verified=result.verified,
        blockers=result.blockers,
        missing=result.missing,
        not_checked=tuple(not_checked(expectation)),
        advice=advise(checks),
        worse=tuple(_worse(_checks(before, expectation), checks)) if before else (),
        gpus_expected=int(expectation.get("gpus") or 0),
    )


def _checks(evidence_document: EvidenceDocument, expectation: Expectation) -> list[CheckResult]:
    probes_sent, journal = evidence_document.document.get("probes"), evidence_document.document.get("state")
    probes = probes_sent if isinstance(probes_sent, Mapping) else {}
    state = journal if isinstance(journal, Mapping) else {}
    try:
        return shared().call(judge_node, probes, dict(expectation), state)
    except NotEvaluated as error:
        reason = f"the evidence cannot be judged: {error}"
        without = judge({}, expectation, journal={})
        return [
            check
            if check["outcome"] == "skip"
            else {**check, "outcome": "error", "reason": reason, "cause": Cause.UNREADABLE}
            for check in without
        ]


def _worse(before: Iterable[CheckResult], after: Iterable[CheckResult]) -> Iterable[str]:
    """Return the checks that have become worse, one entry per reason, because one unresponsive GPU can fail twenty checks."""
    earlier = {check["id"]: check for check in before}
    grouped: dict[str, list[tuple[str, str, str]]] = {}
    for check in after:
        old = earlier.get(check["id"])
        if old and _RANK[check["outcome"]] > _RANK[old["outcome"]]:
            grouped.setdefault(str(check["reason"]), []).append(
                (f"{check['id']} {check['name']}", str(old["outcome"]), str(check["outcome"]))
            )
    for reason, changes in sorted(grouped.items(), key=lambda item: -len(item[1])):
        name, was, now = max(changes, key=lambda change: _RANK[change[2]])
        more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
        yield f"{name}{more}: was {was}, is {now} ({reason})"
