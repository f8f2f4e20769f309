"""Examines one document of evidence: its format, its bundle and the outcomes of its checks.

This module is pure. It runs in this process or in the processes of `workers`. `gpuinfra.node.judge` judges the raw output with the same code that ran
on the node. The results that the node itself wrote under `checks` are ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuinfra.handover.ports import EvidenceRef
from gpuinfra.handover.text import host_keys
from gpuinfra.node.cause import Cause
from gpuinfra.node.judge import judge, verdict
from gpuinfra.node.outcome import CheckResult

JudgeNode = Callable[[Mapping[str, object], Mapping[str, object], Mapping[str, object] | None], list[CheckResult]]

EVIDENCE_SCHEMA = "gpuinfra.evidence/1"
UNFINISHED = frozenset({"pending", "running", "reboot"})


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a document proves if the node signed it. The document itself, which can have several megabytes, is not kept."""

    sha256: str
    unreadable: str = ""
    """The reason why the document is not evidence of its node."""
    bundle_sha256: object = None
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
    gpus: tuple[dict[str, object], ...] = ()
    ssh_host_keys: tuple[str, ...] = ()


def judge_node(
    probes: Mapping[str, object], expectation: Mapping[str, object], journal: Mapping[str, object] | None
) -> list[CheckResult]:
    """Evaluate the raw probe output in the evidence with the same code that runs on the node."""
    return judge(dict(probes), dict(expectation), journal=dict(journal) if journal is not None else None)


def examine(data: bytes, ref: EvidenceRef, expectation: Mapping[str, object], judge_node: JudgeNode) -> Content:
    """Return what a document proves."""
    sha256 = hashlib.sha256(data).hexdigest()
    evidence, problem = _read(data, ref)
    if evidence is None:
        return Content(sha256=sha256, unreadable=problem)
    bundle_sha256, probes, journal = evidence.get("bundle_sha256"), evidence.get("probes"), evidence.get("state")
    if not isinstance(probes, dict):
        return Content(sha256=sha256, bundle_sha256=bundle_sha256, unjudged="contains no raw probe output")
    journal = journal if isinstance(journal, dict) else None
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
        gpus=tuple(g for g in _list(evidence.get("gpus")) if isinstance(g, dict)),
        ssh_host_keys=host_keys(evidence.get("ssh_host_keys")),
    )


def _read(data: bytes, ref: EvidenceRef) -> tuple[dict[str, object] | None, str]:
    """Return the parsed evidence, or the reason why it is refused."""
    try:
        evidence = json.loads(data)
    except (ValueError, RecursionError):
        return None, f"the node's evidence {ref.key} is not JSON"
    if not isinstance(evidence, dict) or evidence.get("schema") != EVIDENCE_SCHEMA:
        return None, f"the node's evidence {ref.key} does not have the schema {EVIDENCE_SCHEMA}"
    if evidence.get("instance_id") != ref.instance_id or evidence.get("boot_id") != ref.boot_id:
        return (
            None,
            (
                f"the node's evidence is from instance {evidence.get('instance_id')} and boot {evidence.get('boot_id')}, "
                f"but is stored under {ref.instance_id}/{ref.boot_id}"
            ),
        )
    return evidence, ""


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _untested(checks: tuple[CheckResult, ...]) -> str:
    waiting = (one for one in checks if one["cause"] is Cause.UNTESTED)
    return next((str(one.get("reason") or "the node has no partner yet") for one in waiting), "")


def _undecided(blocking: tuple[CheckResult, ...]) -> bool:
    return bool(blocking) and all(check["cause"] is Cause.NO_GOOD_PAIR for check in blocking)


def _still_working(journal: Mapping[str, object] | None) -> bool:
    steps = _list((journal or {}).get("steps"))
    states = {str(step.get("status")) for step in steps if isinstance(step, dict)}
    return "failed" not in states and bool(states & UNFINISHED)
