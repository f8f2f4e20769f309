"""Examines one document of evidence whose signer is verified: its format, its place, its bundle and the outcomes of its checks.

This module is pure. It runs in the processes of `workers`. `gpuinfra.node.judge` judges the raw output with the same code that ran
on the node. The results that the node itself wrote under `checks` are ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuinfra.handover.evidence import NotEvidence, ParsedEvidence, evidence_of
from gpuinfra.handover.ports import EvidenceRef
from gpuinfra.node.cause import Cause
from gpuinfra.node.fabric_relay import NodeReport, report_of
from gpuinfra.node.judge import judge, verdict
from gpuinfra.node.outcome import CheckResult

JudgeNode = Callable[[Mapping[str, object], Mapping[str, object], Mapping[str, object] | None], list[CheckResult]]

UNFINISHED = frozenset({"pending", "running", "reboot"})


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a document proves if the node signed it. The document itself, which can have several megabytes, is not kept."""

    sha256: str
    unreadable: str = ""
    """The reason why the document is not evidence of its node."""
    misplaced: bool = False
    """True if the document names another place than the one at which it is stored. Another writer can have copied it."""
    bundle_sha256: str = ""
    unjudged: str = ""
    """The reason why the raw output cannot be judged."""
    checks: tuple[CheckResult, ...] = ()
    blocking: tuple[CheckResult, ...] = ()
    missing: tuple[str, ...] = ()
    verified: bool = False
    working: bool = False
    """True while the node's journal contains unfinished steps, because a failed check can still pass during this time."""
    untested: str = ""
    """The reason why the node has no result of the fabric test yet. Empty if it has one, or if the pool does not require the test."""
    undecided: bool = False
    """True if only the fabric test failed, and no pair of this test was good. A later test with another node can pass."""
    gpus: tuple[dict[str, str], ...] = ()
    ssh_host_keys: tuple[str, ...] = ()
    report: NodeReport | None = None
    """The report, if the document is a report to the fabric test with valid fields."""


def judge_node(
    probes: Mapping[str, object], expectation: Mapping[str, object], journal: Mapping[str, object] | None
) -> list[CheckResult]:
    """Evaluate the raw probe output in the evidence with the same code that runs on the node."""
    return judge(dict(probes), dict(expectation), journal=dict(journal) if journal is not None else None)


def examine(data: bytes, ref: EvidenceRef, expectation: Mapping[str, object], judge_node: JudgeNode) -> Content:
    """Return what a document proves."""
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        evidence = evidence_of(data, is_report=ref.is_report)
    except NotEvidence as error:
        return Content(sha256=sha256, unreadable=f"the node's evidence {ref.key} cannot be read: {error}")
    if problem := _misplaced(evidence, ref):
        return Content(sha256=sha256, unreadable=problem, misplaced=True)
    if ref.is_report:
        return Content(sha256=sha256, report=report_of(evidence.document))
    bundle_sha256, probes, journal = evidence.bundle_sha256, evidence.probes, evidence.journal
    if probes is None:
        return Content(sha256=sha256, bundle_sha256=bundle_sha256, unjudged="contains no raw probe output")
    try:
        checks = tuple(judge_node(probes, expectation, journal))
        result = verdict(checks, expectation)
    except ValueError as error:
        return Content(sha256=sha256, bundle_sha256=bundle_sha256, unjudged=f"cannot be judged: {error}")
    return Content(
        sha256=sha256,
        bundle_sha256=bundle_sha256,
        checks=checks,
        blocking=result.blockers,
        missing=result.missing,
        verified=result.verified,
        working=_still_working(journal),
        untested=_untested(checks),
        undecided=not result.missing and _undecided(result.blockers),
        gpus=evidence.gpus(_whole(expectation.get("gpus"))),
        ssh_host_keys=evidence.host_keys,
    )


def _misplaced(evidence: ParsedEvidence, ref: EvidenceRef) -> str:
    """Return why a document does not belong to its place, or an empty string."""
    if (evidence.instance_id, evidence.boot_id, evidence.seq) == (ref.instance_id, ref.boot_id, ref.seq):
        return ""
    return (
        f"the node's evidence is from instance {evidence.instance_id or 'without ID'}, boot {evidence.boot_id or 'without ID'} and number {evidence.seq}, "
        f"but is stored under {ref.instance_id}/{ref.boot_id}/{ref.seq}"
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _untested(checks: tuple[CheckResult, ...]) -> str:
    waiting = (one for one in checks if one["cause"] is Cause.UNTESTED)
    return next((str(one.get("reason") or "the node has no partner yet") for one in waiting), "")


def _undecided(blocking: tuple[CheckResult, ...]) -> bool:
    return bool(blocking) and all(check["cause"] is Cause.NO_GOOD_PAIR for check in blocking)


def _still_working(journal: Mapping[str, object] | None) -> bool:
    """Return whether the node still works on its steps. It repeats a failed step until its journal calls the failure final."""
    steps = [step for step in _list((journal or {}).get("steps")) if isinstance(step, dict)]
    failed = [step for step in steps if step.get("status") == "failed"]
    if failed:
        return all(step.get("final") is False for step in failed)
    return any(str(step.get("status")) in UNFINISHED for step in steps)
